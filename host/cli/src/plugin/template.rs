//! The contents of a new plugin project: the templates for a world and a language, and the language's
//! SDK with the WIT.

use clap::ValueEnum;

mod embedded {
    include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
}

/// The WIT worlds that a plugin can implement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum World {
    /// Probes running tasks.
    CheckProbe,
    /// Decides which agents may run a task.
    AttributeMatcher,
    /// Decides what a subscriber of the event stream sees.
    EventFilter,
    /// Decides which script a Kubernetes container runs first.
    BootstrapHandler,
}

impl World {
    pub(super) fn name(self) -> &'static str {
        match self {
            World::CheckProbe => "check-probe",
            World::AttributeMatcher => "attribute-matcher",
            World::EventFilter => "event-filter",
            World::BootstrapHandler => "bootstrap-handler",
        }
    }

    /// The folder of the world's package in `wit`, which is the package's name without `transom:`.
    pub(super) fn package(self) -> &'static str {
        match self {
            World::CheckProbe => "probe",
            World::AttributeMatcher => "matcher",
            World::EventFilter => "events",
            World::BootstrapHandler => "bootstrap",
        }
    }

    pub(super) fn parse(text: &str) -> Option<World> {
        World::value_variants().iter().copied().find(|it| {
            let package = it.package();
            let full = format!("transom:{package}/{}@0.1.0", it.name());
            text == it.name() || text == full
        })
    }

    /// The one-line summary in the manifest.
    fn summary(self) -> &'static str {
        match self {
            World::CheckProbe => "checks whether a task's response contains a word",
            World::AttributeMatcher => "places tasks by attributes, and never on an agent in maintenance",
            World::EventFilter => "hides the events of some apps",
            World::BootstrapHandler => "makes every container print its host first",
        }
    }
}

/// The languages with templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Language {
    Rust,
    Python,
    Javascript,
}

impl Language {
    fn name(self) -> &'static str {
        match self {
            Language::Rust => "rust",
            Language::Python => "python",
            Language::Javascript => "javascript",
        }
    }
}

impl Language {
    /// The lines of `[grants]` in a manifest for the imports of the language's runtime.
    fn imports(self) -> &'static str {
        match self {
            Language::Rust => "",
            Language::Python | Language::Javascript => WASI_GUEST,
        }
    }

    /// The section `[grants]`, for a manifest without other grants.
    fn grants(self) -> String {
        match self.imports() {
            "" => String::new(),
            lines => format!("\n[grants]\n{lines}"),
        }
    }
}

/// The grant for the runtimes of Python and JavaScript. A component in Rust needs none: it imports only
/// the log.
const WASI_GUEST: &str = "# The runtimes of Python and JavaScript import WASI. The sandbox provides no files and no sockets.\n\
                          imports = \"wasi-guest\"\n";

/// The files of a project, by their names in it.
pub(super) fn project(name: &str, world: World, language: Language) -> Vec<(String, String)> {
    let fill = |text: &str| {
        text.replace("{{name}}", name)
            .replace("{{world}}", world.name())
            .replace("{{summary}}", world.summary())
            .replace("{{grants}}", &language.grants())
            .replace("{{imports}}", language.imports())
            .replace("{{dependencies}}", dependencies(world))
    };
    let (lang, kind) = (language.name(), world.name());
    let mut files: Vec<(String, String)> = Vec::new();
    let mut take = |to: &str, from: &str| {
        if let Some(text) = template(from) {
            files.push((to.to_owned(), fill(text)));
        }
    };
    take("README.md", &format!("README.{lang}.md"));
    take(".gitignore", &format!("gitignore.{lang}"));
    take(&format!("{name}.toml"), &format!("manifest/{kind}.toml"));
    take("cases.toml", &format!("cases/{kind}.toml"));
    match language {
        Language::Rust => {
            take("Cargo.toml", "rust/Cargo.toml.in");
            take("Cargo.lock", "rust/Cargo.lock");
            take("src/lib.rs", &format!("rust/{kind}.rs"));
            take("config.schema.json", &format!("rust/{kind}.schema.json"));
            files.extend(files_below("sdk", "vendor/transom-sdk"));
        }
        Language::Python => {
            take("requirements.txt", "python/requirements.txt");
            take("src/app.py", &format!("python/{kind}/app.py"));
            take("tests/test_app.py", &format!("python/{kind}/test_app.py"));
            files.extend(files_below("kit-python", "vendor/transom-plugin"));
        }
        Language::Javascript => {
            for file in ["package.json", "build.mjs"] {
                take(file, &format!("javascript/{file}"));
            }
            take("plugin.js", &format!("javascript/{kind}.js"));
            take("plugin.test.js", &format!("javascript/{kind}.test.js"));
            files.extend(files_below("kit-javascript", "vendor/transom-plugin"));
        }
    }
    files
}

/// The dependencies of a world's Rust template besides the SDK.
fn dependencies(world: World) -> &'static str {
    match world {
        World::CheckProbe => "serde = { version = \"1\", features = [\"derive\"] }\nserde_json = \"1\"\n",
        World::EventFilter => "serde = { version = \"1\", features = [\"derive\"] }\n",
        World::AttributeMatcher | World::BootstrapHandler => "",
    }
}

fn template(name: &str) -> Option<&'static str> {
    let name = format!("templates/{name}");
    embedded::FILES
        .iter()
        .find(|(world_name, _)| *world_name == name)
        .map(|(_, text)| *text)
}

/// Every file below one folder, unchanged, moved below another.
fn files_below(from: &str, to: &str) -> Vec<(String, String)> {
    let renamed = |(name, text): &(&str, &str)| {
        let relative_path = name.strip_prefix(from)?.strip_prefix('/')?;
        Some((
            format!("{to}/{relative_path}").trim_start_matches('/').to_owned(),
            (*text).to_owned(),
        ))
    };
    embedded::FILES.iter().filter_map(renamed).collect()
}

/// The world's package with its dependencies in `deps`, as `componentize-py` reads it.
pub(super) fn interface(world: World) -> Vec<(String, String)> {
    let mut files = files_below(&format!("wit/{}/0.1.0", world.package()), "");
    files.extend(files_below("wit/plugin/0.1.0", "deps/plugin"));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_project_is_complete() {
        for world in World::value_variants() {
            for language in Language::value_variants() {
                let files = project("mine", *world, *language);
                let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
                let expected_names: &[&str] = match language {
                    Language::Rust => &[
                        "Cargo.toml",
                        "Cargo.lock",
                        "src/lib.rs",
                        "vendor/transom-sdk/Cargo.toml",
                        "vendor/transom-sdk/src/lib.rs",
                        "vendor/transom-sdk/wit/plugin/0.1.0/plugin.wit",
                    ],
                    Language::Python => &[
                        "requirements.txt",
                        "src/app.py",
                        "tests/test_app.py",
                        "vendor/transom-plugin/pyproject.toml",
                        "vendor/transom-plugin/src/transom_plugin/py.typed",
                        "vendor/transom-plugin/src/transom_plugin/wit/plugin/0.1.0/plugin.wit",
                    ],
                    Language::Javascript => &[
                        "package.json",
                        "build.mjs",
                        "plugin.js",
                        "plugin.test.js",
                        "vendor/transom-plugin/package.json",
                        "vendor/transom-plugin/src/build.js",
                        "vendor/transom-plugin/wit/plugin/0.1.0/plugin.wit",
                    ],
                };
                for name in ["README.md", ".gitignore", "mine.toml", "cases.toml"]
                    .iter()
                    .chain(expected_names)
                {
                    assert!(
                        names.contains(name),
                        "{world:?} {language:?} has no {name}: {names:?}"
                    );
                }
                let mut once = names.clone();
                once.sort_unstable();
                once.dedup();
                assert_eq!(once.len(), names.len(), "{names:?}");
                for (name, text) in files.iter().filter(|(name, _)| !name.starts_with("vendor/")) {
                    assert!(!text.contains("{{"), "{world:?} {language:?} {name}");
                }
            }
        }
    }

    #[test]
    fn manifests_of_wasi_guests_name_their_profile() {
        for world in World::value_variants() {
            for language in Language::value_variants() {
                let files = project("mine", *world, *language);
                let manifest = files.iter().find(|(name, _)| name == "mine.toml");
                let manifest: toml::Table = manifest.unwrap().1.parse().unwrap();
                let grants = manifest.get("grants").and_then(toml::Value::as_table);
                let imports = grants.and_then(|it| it.get("imports"));
                let expected = match language {
                    Language::Rust => None,
                    Language::Python | Language::Javascript => Some("wasi-guest"),
                };
                let actual = imports.and_then(toml::Value::as_str);
                assert_eq!(actual, expected, "{world:?} {language:?}");
            }
        }
    }

    #[test]
    fn sdk_is_copied_without_workspace_references() {
        let files = project("mine", World::EventFilter, Language::Rust);
        let find = |name: &str| {
            files
                .iter()
                .find(|(it, _)| it == name)
                .map(|(_, text)| text.as_str())
                .unwrap()
        };
        let sdk: toml::Table = find("vendor/transom-sdk/Cargo.toml").parse().unwrap();
        assert!(!sdk.to_string().contains("workspace = true"), "{sdk}");
        assert_eq!(sdk["package"]["edition"].as_str(), Some("2024"));
        assert_eq!(
            sdk["dependencies"]["wit-bindgen"]["features"]
                .as_array()
                .map(Vec::len),
            Some(3)
        );
        let lock: toml::Table = find("Cargo.lock").parse().unwrap();
        let names: Vec<&str> = lock["package"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|it| it["name"].as_str())
            .collect();
        assert!(
            names.contains(&"wit-bindgen") && names.contains(&"serde_json"),
            "{names:?}"
        );
        assert!(
            !names.contains(&"wasmtime") && !names.contains(&"transom-sdk"),
            "{names:?}"
        );
    }

    #[test]
    fn interface_has_the_world_and_what_it_depends_on() {
        let names: Vec<String> = interface(World::EventFilter)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["events.wit", "deps/plugin/plugin.wit"]);
    }

    #[test]
    fn worlds_are_parsed_by_short_or_full_name() {
        for world in World::value_variants() {
            assert_eq!(World::parse(world.name()), Some(*world));
        }
        assert_eq!(
            World::parse("transom:probe/check-probe@0.1.0"),
            Some(World::CheckProbe)
        );
        assert_eq!(World::parse("transom:probe/event-filter@0.1.0"), None);
    }
}
