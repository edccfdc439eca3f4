//! What every plugin has: a description, a configuration, one value that holds what the
//! configuration came to.
//!
//! The host asks [`Plugin::describe`] when it admits a component and configures each instance once,
//! before anything else. The `export_…!` macros keep the configured value for the instance's
//! lifetime; the glue below is what they call.

use std::marker::PhantomData;
use std::rc::Rc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::bindings::exports::transom::plugin::about;

/// A plugin's description, for an operator's table and for admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its own name; operators know it by the name of the file.
    pub name: &'static str,
    /// Its own version, counted as its author likes.
    pub version: &'static str,
    /// One line.
    pub summary: &'static str,
    /// JSON Schema (2020-12) of the configuration. None: the plugin takes no configuration.
    pub config_schema: Option<&'static str>,
}

/// An error in one value of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// JSON Pointer (RFC 6901) of the value; empty: the whole document.
    pub pointer: String,
    /// The expected value.
    pub message: String,
}

impl ConfigError {
    /// An error at `pointer`.
    pub fn at(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            pointer: pointer.into(),
            message: message.into(),
        }
    }
}

/// The configuration of a plugin that takes none: an empty object, and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

/// The common trait of all plugins. The value is built from a configuration; it lives as long as
/// its instance.
pub trait Plugin: Sized + 'static {
    /// What the operator may write under `[config]`.
    type Config: DeserializeOwned;

    /// Asked when the component is admitted, before it is configured.
    fn describe() -> Description;

    /// Makes the plugin of its configuration. An error refuses the admission and the version before
    /// goes on serving.
    fn configure(config: Self::Config) -> Result<Self, Vec<ConfigError>>;
}

/// Reads a configuration document and makes the plugin of it, as an instance does; the way in for
/// tests too.
pub fn configure<P: Plugin>(document: &str) -> Result<P, Vec<ConfigError>> {
    let mut json = serde_json::Deserializer::from_str(document);
    let config: P::Config = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| vec![ConfigError::at(pointer(error.path()), error.inner().to_string())])?;
    json.end()
        .map_err(|error| vec![ConfigError::at("", error.to_string())])?;
    P::configure(config)
}

/// A path of `serde_path_to_error` as a JSON Pointer.
fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut text = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => {
                text.push('/');
                text.push_str(&index.to_string());
            }
            Segment::Map { key } => {
                text.push('/');
                text.push_str(&key.replace('~', "~0").replace('/', "~1"));
            }
            // An enum's variant is not a place of its own in the document, and an unknown place has
            // no name.
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    text
}

/// A [`Description`] from the crate's `Cargo.toml`: its name, version and description.
/// `describe!()`, or with the schema of the configuration
/// `describe!(include_str!("config.schema.json"))`.
#[macro_export]
macro_rules! describe {
    () => {
        $crate::describe!(@ ::core::option::Option::None)
    };
    (@ $schema:expr) => {
        $crate::Description {
            name: ::core::env!("CARGO_PKG_NAME"),
            version: ::core::env!("CARGO_PKG_VERSION"),
            summary: ::core::env!("CARGO_PKG_DESCRIPTION"),
            config_schema: $schema,
        }
    };
    ($schema:expr) => {
        $crate::describe!(@ ::core::option::Option::Some($schema))
    };
}

/// Makes a unit struct a [`Plugin`] that takes no configuration and is described by its crate's
/// `Cargo.toml`: `plugin!(Mine)`.
#[macro_export]
macro_rules! plugin {
    ($plugin:ident) => {
        impl $crate::Plugin for $plugin {
            type Config = $crate::NoConfig;

            fn describe() -> $crate::Description {
                $crate::describe!()
            }

            fn configure(
                _: $crate::NoConfig,
            ) -> ::core::result::Result<Self, ::std::vec::Vec<$crate::ConfigError>> {
                ::core::result::Result::Ok($plugin)
            }
        }
    };
}

/// Where an instance keeps its configured plugin; implemented by the `export_…!` macros.
#[doc(hidden)]
pub trait Installed: Plugin {
    fn slot<R>(use_it: impl FnOnce(&std::cell::OnceCell<Rc<Self>>) -> R) -> R;
}

#[doc(hidden)]
pub fn install<P: Installed>(document: &str) -> Result<(), Vec<ConfigError>> {
    let plugin = Rc::new(configure::<P>(document)?);
    P::slot(|slot| slot.set(plugin))
        .map_err(|_| vec![ConfigError::at("", "this instance is configured already")])
}

/// The configured plugin.
#[allow(
    clippy::panic,
    reason = "the host configures first; there is no answer that would be right without"
)]
#[doc(hidden)]
pub fn installed<P: Installed>() -> Rc<P> {
    match P::slot(|slot| slot.get().cloned()) {
        Some(plugin) => plugin,
        None => panic!("asked before it was configured"),
    }
}

/// The glue that every world shares: the place of the configured plugin, the exports of `about` and
/// of the world's own interface, and the statement of which world it is.
#[doc(hidden)]
#[macro_export]
macro_rules! __export {
    ($plugin:ty, $world:ident, $section:literal, $($package:ident)::+, $export:ident) => {
        impl $crate::plugin::Installed for $plugin {
            fn slot<R>(use_it: impl FnOnce(&::std::cell::OnceCell<::std::rc::Rc<Self>>) -> R) -> R {
                ::std::thread_local! {
                    static PLUGIN: ::std::cell::OnceCell<::std::rc::Rc<$plugin>> = const { ::std::cell::OnceCell::new() };
                }
                PLUGIN.with(use_it)
            }
        }

        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::bindings::exports::transom as interfaces;
            type TransomExported = $crate::plugin::Exported<$plugin>;
            interfaces::plugin::about::__export_transom_plugin_about_0_1_0_cabi!(
                TransomExported with_types_in interfaces::plugin::about
            );
            interfaces::$($package)::+::$export!(TransomExported with_types_in interfaces::$($package)::+);

            #[unsafe(link_section = $section)]
            #[used]
            static WORLD: [u8; $crate::bindings::worlds::$world.len()] = $crate::bindings::worlds::$world;
        };
    };
}

/// What an instance exports on behalf of the plugin `P`: `about` here, its world's own interface in
/// that world's module.
#[doc(hidden)]
#[derive(Debug)]
pub struct Exported<P>(PhantomData<P>);

impl<P: Installed> about::Guest for Exported<P> {
    fn describe() -> about::Description {
        let description = P::describe();
        about::Description {
            name: description.name.to_owned(),
            version: description.version.to_owned(),
            summary: description.summary.to_owned(),
            config_schema: description.config_schema.map(str::to_owned),
        }
    }

    fn configure(document: String) -> Result<(), Vec<about::ConfigError>> {
        install::<P>(&document).map_err(|errors| {
            errors
                .into_iter()
                .map(|error| about::ConfigError {
                    pointer: error.pointer,
                    message: error.message,
                })
                .collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Config {
        #[serde(default)]
        rules: Vec<Rule>,
    }

    #[derive(Debug, Deserialize)]
    struct Rule {
        limit: u32,
    }

    #[derive(Debug)]
    struct Limits(Vec<u32>);

    impl Plugin for Limits {
        type Config = Config;

        fn describe() -> Description {
            Description {
                name: "limits",
                version: "1",
                summary: "",
                config_schema: None,
            }
        }

        fn configure(config: Config) -> Result<Self, Vec<ConfigError>> {
            let limits: Vec<_> = config.rules.iter().map(|rule| rule.limit).collect();
            match limits.iter().position(|limit| *limit == 0) {
                Some(index) => Err(vec![ConfigError::at(
                    format!("/rules/{index}/limit"),
                    "expected at least 1",
                )]),
                None => Ok(Self(limits)),
            }
        }
    }

    #[test]
    fn configuration_error_has_pointer_and_expectation() {
        let cases = [
            ("{}", Ok(vec![])),
            (r#"{"rules": [{"limit": 3}]}"#, Ok(vec![3])),
            (
                r#"{"rules": [{"limit": 3}, {"limit": 0}]}"#,
                Err(("/rules/1/limit", "at least 1")),
            ),
            (
                r#"{"rules": [{"limit": "3"}]}"#,
                Err(("/rules/0/limit", "expected u32")),
            ),
            (r#"{"rules": [{}]}"#, Err(("/rules/0", "missing field `limit`"))),
            (r#"{"a/b": 1}"#, Err(("/a~1b", "unknown field"))),
            ("{", Err(("", "EOF"))),
            ("{} {}", Err(("", "trailing"))),
        ];
        for (document, expected) in cases {
            match (configure::<Limits>(document), expected) {
                (Ok(plugin), Ok(limits)) => assert_eq!(plugin.0, limits, "{document}"),
                (Err(errors), Err((pointer, words))) => {
                    assert_eq!(errors.len(), 1, "{document}");
                    assert_eq!(errors[0].pointer, pointer, "{document}");
                    assert!(
                        errors[0].message.contains(words),
                        "{document}: {}",
                        errors[0].message
                    );
                }
                (found, expected) => panic!("{document}: expected {expected:?}, found {found:?}"),
            }
        }
    }

    #[test]
    fn no_config_refuses_any_key() {
        assert!(serde_json::from_str::<NoConfig>("{}").is_ok());
        assert!(serde_json::from_str::<NoConfig>(r#"{"x": 1}"#).is_err());
    }
}
