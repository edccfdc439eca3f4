//! Aliases of keys. If a key is set by its own name and by an alias, its own name takes precedence. The
//! aliases of `[apps]` are in [`super::marathon`].

use std::collections::BTreeMap;

use figment::value::{Dict, Map, Value};
use figment::{Metadata, Profile, Provider};

use super::marathon;

use crate::note::print_note;

/// `[workflow]`: our key, and its possible names in the workflow engine's own file.
pub const WORKFLOW_ALIASES: &[(&str, &str)] = &[
    ("role", "framework_role"),
    ("unreachable_grace_seconds", "unreachable_grace"),
    ("cluster_ssl", "mesos_ssl"),
    ("cluster_attributes", "mesos_attributes"),
    ("cluster_fetch_uri", "mesos_fetch_uri"),
    ("cluster_fetch_username", "mesos_fetch_username"),
    ("container_image_slave", "docker_image_slave"),
    ("container_volume_driver", "docker_volume_driver"),
    ("container_volume_dag_name", "docker_volume_dag_name"),
    (
        "container_volume_dag_container_path",
        "docker_volume_dag_container_path",
    ),
    ("container_volume_logs_name", "docker_volume_logs_name"),
    (
        "container_volume_logs_container_path",
        "docker_volume_logs_container_path",
    ),
    ("container_sock", "docker_sock"),
    ("container_user_group_id", "docker_user_group_id"),
    ("container_network_mode", "docker_network_mode"),
    ("container_environment", "docker_environment"),
];

/// The environment variables for the whole daemon: a variable's name in the specification, its alias,
/// and the key that it sets.
const VARIABLE_ALIASES: &[(&str, &str, &str)] = &[
    ("CLUSTER_MASTER", "MESOS_MASTER", "cluster.master"),
    ("CLUSTER_USERNAME", "MESOS_USERNAME", "cluster.username"),
    ("CLUSTER_PASSWORD", "MESOS_PASSWORD", "cluster.password"),
    ("CLUSTER_PRINCIPAL", "MESOS_PRINCIPAL", "cluster.principal"),
    ("CLUSTER_SSL", "MESOS_SSL", "cluster.ssl"),
    ("SKIP_SSL", "SKIP_SSL", "cluster.skip_ssl"),
    ("STORE_SERVER", "REDIS_SERVER", "store.server"),
    ("STORE_PASSWORD", "REDIS_PASSWORD", "store.password"),
    ("STORE_DB", "REDIS_DB", "store.database"),
    ("LOGLEVEL", "LOGLEVEL", "log.level"),
];

/// The names of the specification's variables that set a key, in the order of precedence.
pub(super) fn variables_of(key: &str) -> impl Iterator<Item = &'static str> {
    let variables = VARIABLE_ALIASES.iter().filter(move |(_, _, name)| *name == key);
    variables.flat_map(|(name, alias, _)| std::iter::once(*name).chain((name != alias).then_some(*alias)))
}

/// The specification's variables for the whole daemon, by section.
pub(super) struct SpecifiedVariables(BTreeMap<&'static str, Dict>);

impl SpecifiedVariables {
    /// Reads the environment of this process.
    pub(super) fn from_environment() -> Self {
        Self::read(|name| std::env::var(name).ok())
    }

    /// Reads variables; empty ones are ignored.
    pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let mut sections = BTreeMap::<&str, Dict>::new();
        for &(name, alias, key) in VARIABLE_ALIASES {
            let Some((section, key)) = key.split_once('.') else {
                continue;
            };
            let value = match (variable(name), variable(alias)) {
                (Some(value), Some(_)) if name != alias => {
                    // Printed, because the log is not configured before the settings are read.
                    print_note(format_args!(
                        "transom: {name} and {alias} are both set; {name} is used"
                    ));
                    Some(value)
                }
                (primary, alternative) => primary.or(alternative),
            };
            if let Some(value) = value {
                // Other values remain strings: names and passwords may look like numbers.
                let lower = value.to_ascii_lowercase();
                let value: Value = match key {
                    "ssl" | "skip_ssl" => lower.parse::<bool>().map_or_else(|_| value.into(), Value::from),
                    "database" => value.parse::<u16>().map_or_else(|_| value.into(), Value::from),
                    "level" => lower.into(),
                    _ => value.into(),
                };
                sections.entry(section).or_default().insert(key.to_owned(), value);
            }
        }
        Self(sections)
    }
}

impl Provider for SpecifiedVariables {
    fn metadata(&self) -> Metadata {
        Metadata::named("the specification's environment variable(s)")
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let mut settings = Dict::new();
        for (section, keys) in &self.0 {
            settings.insert((*section).to_owned(), keys.clone().into());
        }
        Ok(Profile::Default.collect(settings))
    }
}

/// A source of settings in which aliases are renamed to the keys.
pub(super) struct WithAliases<P>(pub(super) P);

impl<P: Provider> Provider for WithAliases<P> {
    fn metadata(&self) -> Metadata {
        self.0.metadata()
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let mut data = self.0.data()?;
        for dict in data.values_mut() {
            if let Some(Value::Dict(_, section)) = dict.get_mut("workflow") {
                rename_aliases(section);
            }
            marathon::rename_flags(dict);
        }
        Ok(data)
    }
}

fn rename_aliases(section: &mut Dict) {
    for &(name, alias) in WORKFLOW_ALIASES {
        if let Some(value) = section.remove(alias) {
            if section.contains_key(name) {
                // Printed, because the log is not configured before the settings are read.
                print_note(format_args!(
                    "transom: `workflow.{name}` and `workflow.{alias}` are both set; `workflow.{name}` is \
                     used"
                ));
            } else {
                section.insert(name.to_owned(), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_by_either_name() {
        let read = |variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|(it, _)| *it == name);
            SpecifiedVariables::read(|name| find(name).map(|(_, value)| (*value).to_owned())).0
        };
        for &(name, alias, key) in VARIABLE_ALIASES {
            let (section, key) = key.split_once('.').expect("a section");
            let expected = |value: &str| -> Value {
                match key {
                    "ssl" | "skip_ssl" => (value == "true").into(),
                    _ => value.into(),
                }
            };
            for variable in [name, alias] {
                let sections = read(&[(variable, "true")]);
                assert_eq!(sections[section].get(key), Some(&expected("true")), "{variable}");
                assert_eq!(sections.len(), 1);
            }
            if name != alias {
                let both = read(&[(alias, "true"), (name, "false")]);
                assert_eq!(both[section].get(key), Some(&expected("false")), "{name}");
            }
            assert!(read(&[(name, "")]).is_empty());
        }
        let number = read(&[
            ("MESOS_PASSWORD", "1234"),
            ("REDIS_DB", "1"),
            ("LOGLEVEL", "INFO"),
        ]);
        assert_eq!(number["cluster"]["password"].as_str(), Some("1234"));
        assert_eq!(number["store"]["database"].to_u128(), Some(1));
        assert_eq!(number["log"]["level"].as_str(), Some("info"));
        let section = SpecifiedVariables(number).data().expect("settings");
        assert!(section[&Profile::Default].contains_key("cluster"));
    }

    #[test]
    fn key_takes_precedence_over_its_alias() {
        let mut section = Dict::new();
        section.insert("mesos_ssl".to_owned(), true.into());
        section.insert("docker_sock".to_owned(), "theirs".into());
        section.insert("container_sock".to_owned(), "ours".into());
        section.insert("framework_role".to_owned(), "airflow".into());
        section.insert("unreachable_grace".to_owned(), 60.into());
        rename_aliases(&mut section);
        let keys: Vec<&str> = section.keys().map(String::as_str).collect();
        let expected = [
            "cluster_ssl",
            "container_sock",
            "role",
            "unreachable_grace_seconds",
        ];
        assert_eq!(keys, expected);
        assert_eq!(section["container_sock"].as_str(), Some("ours"));
    }
}
