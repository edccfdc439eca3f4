//! The environment variables of part B (specification) for `[kubernetes]`, and the table of their
//! names.

use figment::value::{Dict, Map, Value};
use figment::{Metadata, Profile, Provider};
use transom_kubernetes::settings::{Label, Period};

use crate::note::print_note;

/// The names of a variable, the key that it sets, and the form of its value.
struct Variable {
    /// The specification's name, or a neutral form of upstream's.
    name: &'static str,
    /// Upstream's name, if it differs.
    upstream: &'static str,
    key: &'static str,
    form: VariableForm,
}

/// The form that the value of a variable must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VariableForm {
    /// Any text.
    Text,
    /// Any text, which is never shown.
    Secret,
    /// `true` or `false`, in any case.
    Boolean,
    /// A whole number.
    Number,
    /// A number.
    Amount,
    /// A duration.
    Period,
    /// A JSON list of labels.
    Labels,
    /// `NAME=VALUE` items, with a delimiter that another variable may name.
    Items(&'static [&'static str]),
}

const NODE_ENV_DELIMITER: &[&str] = &["ORCH_NODE_ENV_DELIMITER", "K3S_NODE_ENV_DELIMITER"];
const PARAMETER_DELIMITER: &[&str] = &[
    "ORCH_NODE_CONTAINER_PARAMETER_DELIMITER",
    "K3S_NODE_DOCKER_PARAMETER_DELIMITER",
];

const fn variable(
    name: &'static str,
    upstream: &'static str,
    key: &'static str,
    form: VariableForm,
) -> Variable {
    Variable {
        name,
        upstream,
        key,
        form,
    }
}

#[rustfmt::skip]
const VARIABLES: &[Variable] = &[
    variable("FRAMEWORK_USER", "", "framework_user", VariableForm::Text),
    variable("FRAMEWORK_NAME", "", "framework_name", VariableForm::Text),
    variable("FRAMEWORK_ROLE", "", "role", VariableForm::Text),
    variable("FRAMEWORK_PORT", "", "port", VariableForm::Number),
    variable("FRAMEWORK_HOSTNAME", "", "hostname", VariableForm::Text),
    variable("CLUSTER_CNI", "MESOS_CNI", "cluster_cni", VariableForm::Text),
    variable("PORTRANGE_FROM", "", "portrange_from", VariableForm::Number),
    variable("PORTRANGE_TO", "", "portrange_to", VariableForm::Number),
    variable("AUTH_USERNAME", "", "auth_username", VariableForm::Text),
    variable("AUTH_PASSWORD", "", "auth_password", VariableForm::Secret),
    variable("SSL_CRT_BASE64", "", "ssl_crt_base64", VariableForm::Secret),
    variable("SSL_KEY_BASE64", "", "ssl_key_base64", VariableForm::Secret),
    variable("CONTAINER_CNI", "DOCKER_CNI", "container_cni", VariableForm::Text),
    variable("CONTAINER_SHM_SIZE", "DOCKER_SHM_SIZE", "container_shm_size", VariableForm::Text),
    variable("ORCH_CONTAINER_DISK", "K3S_CONTAINER_DISK", "container_shm_size", VariableForm::Text),
    variable("CONTAINER_ULIMIT", "DOCKER_ULIMIT", "container_ulimit", VariableForm::Number),
    variable("CONTAINER_MEMORY_SWAP", "DOCKER_MEMORY_SWAP", "container_memory_swap", VariableForm::Amount),
    variable("CUSTOM_CONTAINER_RUNTIME", "CUSTOM_DOCKER_RUNTIME", "container_runtime", VariableForm::Text),
    variable("DOMAIN", "", "domain", VariableForm::Text),
    variable("CGROUP_V2", "", "cgroup_v2", VariableForm::Boolean),
    variable("RESTRICT_DISK_ALLOCATION", "", "restrict_disk_allocation", VariableForm::Boolean),
    variable("ENFORCE_CLUSTER_TASK_LIMITS", "ENFORCE_MESOS_TASK_LIMITS", "enforce_task_limits", VariableForm::Boolean),
    variable("TZ", "", "tz", VariableForm::Text),
    variable("VOLUME_DRIVER", "", "volume_driver", VariableForm::Text),
    variable("IMAGE_ORCH", "IMAGE_K3S", "image_orch", VariableForm::Text),
    variable("ORCH_TOKEN", "K3S_TOKEN", "orch_token", VariableForm::Secret),
    variable("ORCH_CUSTOM_DOMAIN", "K3S_CUSTOM_DOMAIN", "orch_custom_domain", VariableForm::Text),
    variable("ORCH_SERVER_PORT", "K3S_SERVER_PORT", "orch_server_port", VariableForm::Number),
    variable("ORCH_SERVER_STRING", "K3S_SERVER_STRING", "orch_server_string", VariableForm::Text),
    variable("ORCH_SERVER_COUNT", "K3S_SERVER_COUNT", "orch_server_count", VariableForm::Number),
    variable("ORCH_SERVER_CPU", "K3S_SERVER_CPU", "orch_server_cpu", VariableForm::Amount),
    variable("ORCH_SERVER_CPU_LIMIT", "K3S_SERVER_CPU_LIMIT", "orch_server_cpu_limit", VariableForm::Amount),
    variable("ORCH_SERVER_MEM", "K3S_SERVER_MEM", "orch_server_mem", VariableForm::Amount),
    variable("ORCH_SERVER_MEM_LIMIT", "K3S_SERVER_MEM_LIMIT", "orch_server_mem_limit", VariableForm::Amount),
    variable("ORCH_SERVER_DISK", "K3S_SERVER_DISK", "orch_server_disk", VariableForm::Amount),
    variable("ORCH_SERVER_DISK_LIMIT", "K3S_SERVER_DISK_LIMIT", "orch_server_disk_limit", VariableForm::Amount),
    variable("ORCH_SERVER_CONSTRAINT", "K3S_SERVER_CONSTRAINT", "orch_server_constraint", VariableForm::Text),
    variable("ORCH_SERVER_LABELS", "K3S_SERVER_LABELS", "orch_server_labels", VariableForm::Labels),
    variable("ORCH_SERVER_NODE_ENV", "K3S_SERVER_NODE_ENV", "orch_server_node_env", VariableForm::Items(NODE_ENV_DELIMITER)),
    variable("ORCH_SERVER_CUSTOM_CONTAINER_PARAMETER", "K3S_SERVER_CUSTOM_DOCKER_PARAMETER", "orch_server_docker_parameters", VariableForm::Items(PARAMETER_DELIMITER)),
    variable("ORCH_AGENT_STRING", "K3S_AGENT_STRING", "orch_agent_string", VariableForm::Text),
    variable("ORCH_AGENT_COUNT", "K3S_AGENT_COUNT", "orch_agent_count", VariableForm::Number),
    variable("ORCH_AGENT_CPU", "K3S_AGENT_CPU", "orch_agent_cpu", VariableForm::Amount),
    variable("ORCH_AGENT_CPU_LIMIT", "K3S_AGENT_CPU_LIMIT", "orch_agent_cpu_limit", VariableForm::Amount),
    variable("ORCH_AGENT_MEM", "K3S_AGENT_MEM", "orch_agent_mem", VariableForm::Amount),
    variable("ORCH_AGENT_MEM_LIMIT", "K3S_AGENT_MEM_LIMIT", "orch_agent_mem_limit", VariableForm::Amount),
    variable("ORCH_AGENT_DISK", "K3S_AGENT_DISK", "orch_agent_disk", VariableForm::Amount),
    variable("ORCH_AGENT_DISK_LIMIT", "K3S_AGENT_DISK_LIMIT", "orch_agent_disk_limit", VariableForm::Amount),
    variable("ORCH_AGENT_CONSTRAINT", "K3S_AGENT_CONSTRAINT", "orch_agent_constraint", VariableForm::Text),
    variable("ORCH_AGENT_LABELS", "K3S_AGENT_LABELS", "orch_agent_labels", VariableForm::Labels),
    variable("ORCH_AGENT_NODE_ENV", "K3S_AGENT_NODE_ENV", "orch_agent_node_env", VariableForm::Items(NODE_ENV_DELIMITER)),
    variable("ORCH_AGENT_CUSTOM_CONTAINER_PARAMETER", "K3S_AGENT_CUSTOM_DOCKER_PARAMETER", "orch_agent_docker_parameters", VariableForm::Items(PARAMETER_DELIMITER)),
    variable("ORCH_AGENT_TCP_PORT", "K3S_AGENT_TCP_PORT", "orch_agent_tcp_port", VariableForm::Number),
    variable("ORCH_NODE_ENV", "K3S_NODE_ENV", "orch_node_env", VariableForm::Items(NODE_ENV_DELIMITER)),
    variable("ORCH_CONTAINER", "K3S_DOCKER", "orch_container", VariableForm::Boolean),
    variable("ORCH_NODE_TIMEOUT", "K3S_NODE_TIMEOUT", "orch_node_timeout", VariableForm::Period),
    variable("ORCH_DISABLE_SCHEDULING", "K3S_DISABLE_SCHEDULING", "orch_disable_scheduling", VariableForm::Boolean),
    variable("ORCH_ENABLE_TAINT", "K3S_ENABLE_TAINT", "orch_enable_taint", VariableForm::Boolean),
    variable("ENABLE_REGISTRY_MIRROR", "", "enable_registry_mirror", VariableForm::Boolean),
    variable("ORCH_VERSION", "KUBERNETES_VERSION", "orch_version", VariableForm::Text),
    variable("KUBECONFIG", "", "kubeconfig", VariableForm::Text),
    variable("VOLUME_ORCH_SERVER", "VOLUME_K3S_SERVER", "volume_orch_server", VariableForm::Text),
    variable("DS_COUNT", "", "ds_count", VariableForm::Number),
    variable("DS_CPU", "", "ds_cpu", VariableForm::Amount),
    variable("DS_CPU_LIMIT", "", "ds_cpu_limit", VariableForm::Amount),
    variable("DS_MEM", "", "ds_mem", VariableForm::Amount),
    variable("DS_MEM_LIMIT", "", "ds_mem_limit", VariableForm::Amount),
    variable("DS_DISK", "", "ds_disk", VariableForm::Amount),
    variable("DS_DISK_LIMIT", "", "ds_disk_limit", VariableForm::Amount),
    variable("ORCH_DS_CONSTRAINT", "K3S_DS_CONSTRAINT", "orch_ds_constraint", VariableForm::Text),
    variable("DS_PORT", "", "ds_port", VariableForm::Number),
    variable("DS_PEER_PORT", "", "ds_peer_port", VariableForm::Number),
    variable("DS_KVSTORE", "DS_ETCD", "ds_etcd", VariableForm::Boolean),
    variable("DS_KVSTORE_TLS", "DS_ETCD_TLS", "ds_etcd_tls", VariableForm::Boolean),
    variable("DS_SQL", "DS_MYSQL", "ds_mysql", VariableForm::Boolean),
    variable("DS_SQL_USERNAME", "DS_MYSQL_USERNAME", "ds_mysql_username", VariableForm::Text),
    variable("DS_SQL_PASSWORD", "DS_MYSQL_PASSWORD", "ds_mysql_password", VariableForm::Secret),
    variable("DS_SQL_SSL", "DS_MYSQL_SSL", "ds_mysql_ssl", VariableForm::Boolean),
    variable("DS_SQL_TLS", "DS_MYSQL_TLS", "ds_mysql_tls", VariableForm::Boolean),
    variable("IMAGE_SQL", "IMAGE_MYSQL", "image_sql", VariableForm::Text),
    variable("IMAGE_KVSTORE", "IMAGE_ETCD", "image_kvstore", VariableForm::Text),
    variable("VOLUME_DS", "", "volume_ds", VariableForm::Text),
    variable("BOOTSTRAP_URL", "", "bootstrap_url", VariableForm::Secret),
    variable("HEARTBEAT_INTERVAL", "", "heartbeat_interval", VariableForm::Period),
];

/// Variables of the program that this one replaces that have no effect here, and the reason.
#[rustfmt::skip]
const IGNORED: &[(&str, &str)] = &[
    ("CLEANUP_WAIT", "a lost node's task is replaced after ORCH_NODE_TIMEOUT"),
    ("CONTAINER_SOCK", "it has no effect in the program that Transom replaces, either"),
    ("DOCKER_RUNNING", "clients reach the server at the host name of its agent"),
    ("DOCKER_SOCK", "it has no effect in the program that Transom replaces, either"),
    ("FRAMEWORK_STATEFILE_PATH", "the state is in the store of `[store]`"),
    ("KAFKA_PLUGIN_TOPIC", "events are sent by components; see docs/plugins"),
    ("M3S_PLUGINS", "policies are components; see docs/plugins"),
    ("RECONCILE_WAIT", "tasks are compared with the master's after each subscription and regularly"),
    ("REFUSE_OFFERS", "offers that are not needed are declined, and requested again when a task waits"),
    ("REVIVE_WAIT", "offers are requested when a task waits"),
    ("VAULT_TIMEOUT", "references `vault://` are not supported; set the values themselves"),
    ("VAULT_TOKEN", "references `vault://` are not supported; set the values themselves"),
    ("VAULT_URL", "references `vault://` are not supported; set the values themselves"),
];

/// Sentences about variables of this process that have no effect.
pub fn ignored() -> Vec<String> {
    ignored_of(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

fn ignored_of(is_set: impl Fn(&str) -> bool) -> Vec<String> {
    let set = IGNORED.iter().filter(|(name, _)| is_set(name));
    set.map(|(name, reason)| format!("the variable {name} is ignored: {reason}"))
        .collect()
}

/// The prefix of a reference to a secret, which the program that this one replaces resolves.
const VAULT: &str = "vault://";

/// Variables of the whole daemon that may be such references in m3s and accept any text here.
const SHARED: &[&str] = &[
    "CLUSTER_PASSWORD",
    "CLUSTER_PRINCIPAL",
    "CLUSTER_USERNAME",
    "MESOS_PASSWORD",
    "MESOS_PRINCIPAL",
    "MESOS_USERNAME",
    "REDIS_PASSWORD",
    "STORE_PASSWORD",
];

/// The names of the variables that set a key, the specification's before upstream's.
pub(crate) fn names_of(key: &str) -> impl Iterator<Item = &'static str> {
    let variables = VARIABLES.iter().filter(move |variable| variable.key == key);
    let names = variables.flat_map(|variable| [variable.name, variable.upstream]);
    names.filter(|name| !name.is_empty())
}

/// The keys of `[kubernetes]` that variables set.
pub(crate) struct Variables(pub Dict);

impl Variables {
    /// Reads the environment of this process.
    ///
    /// # Errors
    /// Every variable with a wrong value, one line each.
    pub(crate) fn from_environment() -> Result<Self, Vec<String>> {
        Self::read(|name| std::env::var(name).ok())
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Vec<String>> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let is_reference = |text: &str| text.starts_with(VAULT);
        let fault = |name: &str| {
            format!("{name} is a reference {VAULT}…, which is not supported; expected the value itself")
        };
        let shared = SHARED
            .iter()
            .filter(|name| variable(name).is_some_and(|text| is_reference(&text)));
        let (mut section, mut faults) = (Dict::new(), shared.map(|name| fault(name)).collect::<Vec<_>>());
        for Variable {
            name,
            upstream,
            key,
            form,
        } in VARIABLES
        {
            let other = if upstream.is_empty() {
                None
            } else {
                variable(upstream)
            };
            let (name, text) = match (variable(name), other) {
                (Some(text), other) => {
                    if other.is_some() {
                        // Printed, because the log is not configured before the settings are read.
                        print_note(format_args!(
                            "transom: {name} and {upstream} are both set; {name} is used"
                        ));
                    }
                    (*name, text)
                }
                (None, Some(text)) => (*upstream, text),
                (None, None) => continue,
            };
            if is_reference(&text) {
                faults.push(fault(name));
                continue;
            }
            let delimiter = match form {
                VariableForm::Items(names) => names.iter().find_map(|name| variable(name)),
                _ => None,
            };
            match form.parse(&text, delimiter.as_deref()) {
                Ok(value) => {
                    section.insert((*key).to_owned(), value);
                }
                Err(expected) if *form == VariableForm::Secret => {
                    faults.push(format!("{name} is invalid; expected {expected}"));
                }
                Err(expected) => faults.push(format!("{name} is {text:?}; expected {expected}")),
            }
        }
        if faults.is_empty() {
            Ok(Self(section))
        } else {
            Err(faults)
        }
    }
}

impl Provider for Variables {
    fn metadata(&self) -> Metadata {
        Metadata::named("the specification's environment variable(s)")
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let mut settings = Dict::new();
        settings.insert("kubernetes".to_owned(), self.0.clone().into());
        Ok(Profile::Default.collect(settings))
    }
}

impl VariableForm {
    /// Parses the value of a key. The error is the expected form.
    fn parse(self, text: &str, delimiter: Option<&str>) -> Result<Value, &'static str> {
        match self {
            Self::Text | Self::Secret => Ok(text.into()),
            Self::Boolean if text.eq_ignore_ascii_case("true") => Ok(true.into()),
            Self::Boolean if text.eq_ignore_ascii_case("false") => Ok(false.into()),
            Self::Boolean => Err("true or false"),
            Self::Number => text
                .trim()
                .parse::<u64>()
                .map(Value::from)
                .map_err(|_| "a whole number that is not negative"),
            Self::Amount => match text.trim().parse::<f64>() {
                Ok(amount) if amount.is_finite() => Ok(amount.into()),
                _ => Err("a number"),
            },
            Self::Period => match Period::parse(text) {
                Some(_) => Ok(text.into()),
                None => Err("a length of time such as 15s or 10m"),
            },
            Self::Labels => {
                let labels: Result<Vec<Label>, _> = serde_json::from_str(text);
                let labels = labels.ok().and_then(|labels| Value::serialize(labels).ok());
                labels.ok_or("a JSON list of objects with the texts key and value")
            }
            Self::Items(_) => {
                let items: Vec<String> = text
                    .split(delimiter.unwrap_or(","))
                    .map(str::trim)
                    .filter(|item| !item.is_empty())
                    .map(str::to_owned)
                    .collect();
                if items
                    .iter()
                    .all(|item| item.find('=').is_some_and(|index| index > 0))
                {
                    Ok(items.into())
                } else {
                    Err("items of the form NAME=VALUE, separated by commas or by the configured delimiter")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Kubernetes;

    fn read(variables: &[(&str, &str)]) -> Result<Dict, Vec<String>> {
        let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
        Variables::read(|name| variables.get(name).map(|text| (*text).to_owned())).map(|it| it.0)
    }

    /// A valid value of this form.
    fn valid_value(form: VariableForm) -> &'static str {
        match form {
            VariableForm::Text | VariableForm::Secret => "text",
            VariableForm::Boolean => "True",
            VariableForm::Number => "7",
            VariableForm::Amount => "0.5",
            VariableForm::Period => "20s",
            VariableForm::Labels => r#"[{"key":"a","value":"b"}]"#,
            VariableForm::Items(_) => "A=b=c,D=e",
        }
    }

    #[test]
    fn each_variable_sets_its_key_by_either_name() {
        for Variable {
            name,
            upstream,
            key,
            form,
        } in VARIABLES
        {
            for name in [name, upstream].into_iter().filter(|name| !name.is_empty()) {
                let section = read(&[(name, valid_value(*form))]).expect(name);
                assert_eq!(section.len(), 1, "{name}");
                let settings: Result<Kubernetes, _> = Value::from(section).deserialize();
                let json = serde_json::to_value(settings.expect(name)).expect("JSON");
                assert!(json.get(key).is_some(), "{name} sets {key}, which is no key");
            }
        }
    }

    #[test]
    fn all_invalid_variables_are_listed_with_the_expected_form() {
        let faults = read(&[
            ("K3S_AGENT_COUNT", "-1"),
            ("ORCH_SERVER_CPU", "much"),
            ("DS_ETCD", "yes"),
            ("HEARTBEAT_INTERVAL", "soon"),
            ("K3S_AGENT_LABELS", "{"),
            ("K3S_NODE_ENV", "A"),
        ])
        .expect_err("faults");
        let all = faults.join("\n");
        for expected in [
            "K3S_AGENT_COUNT is \"-1\"; expected a whole number",
            "ORCH_SERVER_CPU is \"much\"; expected a number",
            "DS_ETCD is \"yes\"; expected true or false",
            "HEARTBEAT_INTERVAL is \"soon\"; expected a length of time",
            "K3S_AGENT_LABELS is \"{\"; expected a JSON list",
            "K3S_NODE_ENV is \"A\"; expected items of the form NAME=VALUE",
        ] {
            assert!(all.contains(expected), "{expected} is not in {all}");
        }
        assert_eq!(faults.len(), 6, "{all}");
    }

    #[test]
    fn variables_without_effect_are_named() {
        assert!(ignored_of(|_| false).is_empty());
        for name in [
            "CLEANUP_WAIT",
            "DOCKER_RUNNING",
            "M3S_PLUGINS",
            "REFUSE_OFFERS",
            "VAULT_TOKEN",
        ] {
            let sentences = ignored_of(|it| it == name);
            assert!(
                matches!(&*sentences, [one] if one.contains(name)),
                "{name}: {sentences:?}"
            );
        }
        let used = |name: &str| VARIABLES.iter().any(|it| it.name == name || it.upstream == name);
        assert!(!IGNORED.iter().any(|(name, _)| used(name)));
    }

    #[test]
    fn references_to_a_vault_are_rejected() {
        for name in [
            "K3S_TOKEN",
            "IMAGE_K3S",
            "DS_MYSQL_PASSWORD",
            "REDIS_PASSWORD",
            "MESOS_USERNAME",
        ] {
            let faults = read(&[(name, "vault://kv/data/m3s:token")]).expect_err("a fault");
            let expected = format!("{name} is a reference vault://…, which is not supported");
            assert!(
                matches!(&*faults, [one] if one.starts_with(&expected)),
                "{faults:?}"
            );
        }
    }

    #[test]
    fn the_specified_name_takes_precedence_and_delimiters_are_configurable() {
        let section = read(&[("ORCH_TOKEN", "ours"), ("K3S_TOKEN", "theirs")]).expect("valid");
        assert_eq!(section["orch_token"].as_str(), Some("ours"));
        let section = read(&[("K3S_NODE_ENV", "A=1;B=2,3"), ("K3S_NODE_ENV_DELIMITER", ";")]).expect("valid");
        assert_eq!(section["orch_node_env"].as_array().map(<[_]>::len), Some(2));
        assert!(read(&[("FRAMEWORK_NAME", "")]).expect("valid").is_empty());
    }
}
