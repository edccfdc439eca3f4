//! The parts that every plugin has: a description, a configuration, and one value that is created
//! from the configuration.
//!
//! The host calls [`Plugin::describe`] at admission, and configures each instance once, before any
//! other call. The `export_…!` macros use the hidden items of this module to keep the configured
//! value for the instance's lifetime.

use std::marker::PhantomData;
use std::rc::Rc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::bindings::exports::transom::plugin::about;

/// A plugin's description, which the host checks at admission and shows to operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// The component's name. Operators know the plugin by the name of its files.
    pub name: &'static str,
    /// The component's version, in any scheme of its author.
    pub version: &'static str,
    /// A summary of one line.
    pub summary: &'static str,
    /// JSON Schema (2020-12) of the configuration. `None`: the plugin accepts no configuration.
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

/// The configuration of a plugin without settings: an empty object, and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

/// The common trait of all plugins. The value is created from a configuration and lives as long as
/// its plugin instance.
pub trait Plugin: Sized + 'static {
    /// The type of the manifest's section `[config]`.
    type Config: DeserializeOwned;

    /// Describes the plugin. Called at admission, before [`configure`](Self::configure).
    fn describe() -> Description;

    /// Creates the plugin from its configuration. After an error the host rejects the component,
    /// and the earlier version keeps serving.
    fn configure(config: Self::Config) -> Result<Self, Vec<ConfigError>>;
}

/// Parses a configuration document and creates the plugin from it. Plugin instances and tests call
/// this function.
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
            // An enum's variant is not a separate level of the document, and an unknown segment has
            // no name.
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    text
}

/// Creates a [`Description`] from the crate's `Cargo.toml`: its name, version and description. Call
/// `describe!()`, or, with a schema of the configuration,
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

/// Implements [`Plugin`] for a unit struct that has no configuration and whose description is in
/// its crate's `Cargo.toml`: `plugin!(Mine)`.
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

/// The place where a plugin instance keeps its configured plugin; implemented by the `export_…!`
/// macros.
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

/// The code that the `export_…!` macros of all worlds share: the place of the configured plugin,
/// the exports of `about` and of the world's interface, and the custom section that declares the
/// world.
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

/// The type that implements the exports for the plugin `P`: `about` in this module, and the world's
/// interface in that world's module.
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
    fn no_config_rejects_any_key() {
        assert!(serde_json::from_str::<NoConfig>("{}").is_ok());
        assert!(serde_json::from_str::<NoConfig>(r#"{"x": 1}"#).is_err());
    }
}
