//! The configuration of the Kubernetes service (specification, part B, "Configuration variables").

use std::time::Duration;

use transom_web::{AllowedHost, BoundPort, PortConfig};

use crate::kind::PerKind;
use crate::settings::Label;
use crate::{Error, Result, Settings};

/// Maximum size of a request.
const MAX_BODY_BYTES: usize = 1 << 20;

/// The settings of one instance, and what they refer to.
#[derive(Clone, Debug)]
pub struct Config {
    /// The section, which is large.
    pub settings: Box<Settings>,
    /// The HTTP port.
    pub port: PortConfig,
    /// How each kind is launched.
    pub kinds: PerKind<KindConfig>,
    /// Timeout of one call of the store.
    pub store_timeout: Duration,
}

/// How the tasks of one kind are launched.
#[derive(Clone, Debug, PartialEq)]
pub struct KindConfig {
    /// The wanted count at the first start. Afterwards the stored count is used until this setting
    /// changes.
    pub count: u32,
    /// CPUs.
    pub cpus: f64,
    /// Memory in MB.
    pub mem: f64,
    /// Disk in MB.
    pub disk: f64,
    /// `…_CPU_LIMIT`; `None`: `cpus`.
    pub cpu_limit: Option<f64>,
    /// `…_MEM_LIMIT`; `None`: `mem`.
    pub mem_limit: Option<f64>,
    /// `…_DISK_LIMIT`; `None`: `disk`.
    pub disk_limit: Option<f64>,
    /// The host name of the only agent that may run the tasks, compared case-insensitively.
    pub constraint: Option<String>,
    /// Labels of the tasks: names and values.
    pub labels: Vec<(String, String)>,
    /// Variables of the containers, in addition to `orch_node_env`.
    pub node_env: Vec<(String, String)>,
    /// Options of `docker run`, in addition to those that the service sets: names and values.
    pub docker_parameters: Vec<(String, String)>,
}

impl Config {
    /// The configuration of this section.
    pub fn new(settings: Settings) -> Self {
        Self {
            port: settings.http_port().config(),
            kinds: kinds(&settings),
            store_timeout: transom_store::typed::TIMEOUT,
            settings: Box::new(settings),
        }
    }

    /// The framework's name and the prefix of its keys in the store.
    pub fn name(&self) -> &str {
        &self.settings.framework_name
    }

    /// Binds the port. The host in `bootstrap.advertise` becomes one of its host names.
    ///
    /// # Errors
    /// [`Error::Web`] if the port cannot be bound, or if other machines could reach it without any
    /// access control.
    pub async fn bind(&self) -> Result<BoundPort> {
        Self::bind_for(std::slice::from_ref(self), self.port.clone()).await
    }

    /// Binds a port that instances share; see [`bind`](Self::bind).
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub async fn bind_for(instances: &[Self], mut port: PortConfig) -> Result<BoundPort> {
        port.limits.max_body = MAX_BODY_BYTES;
        let advertised = instances
            .iter()
            .filter_map(|config| config.settings.bootstrap.advertise.as_deref());
        port.allowed_hosts.extend(advertised.filter_map(host_of));
        port.bind().await.map_err(Error::Web)
    }
}

/// The settings of a port without TLS that serves only scripts, beside the port of the API. Everybody may
/// use it: the URL of a script cannot be guessed.
pub fn script_port(api: &PortConfig, number: u16) -> PortConfig {
    PortConfig {
        name: "kubernetes-bootstrap",
        port: number,
        tls: None,
        credentials: None,
        reader: None,
        read_only: true,
        ..api.clone()
    }
}

/// The host in a text `host` or `host:port`; `None` if the text is neither.
fn host_of(text: &str) -> Option<AllowedHost> {
    let with_port = text.rsplit_once(':').and_then(|(host, _)| host.parse().ok());
    text.parse().ok().or(with_port)
}

fn kinds(section: &Settings) -> PerKind<KindConfig> {
    PerKind {
        datastore: KindConfig {
            count: section.ds_count,
            cpus: section.ds_cpu,
            mem: section.ds_mem,
            disk: section.ds_disk,
            cpu_limit: section.ds_cpu_limit,
            mem_limit: section.ds_mem_limit,
            disk_limit: section.ds_disk_limit,
            constraint: constraint(section.orch_ds_constraint.as_deref()),
            labels: Vec::new(),
            node_env: Vec::new(),
            docker_parameters: Vec::new(),
        },
        server: KindConfig {
            count: section.orch_server_count,
            cpus: section.orch_server_cpu,
            mem: section.orch_server_mem,
            disk: section.orch_server_disk,
            cpu_limit: section.orch_server_cpu_limit,
            mem_limit: section.orch_server_mem_limit,
            disk_limit: section.orch_server_disk_limit,
            constraint: constraint(section.orch_server_constraint.as_deref()),
            labels: labels(&section.orch_server_labels),
            node_env: items(&section.orch_server_node_env),
            docker_parameters: items(&section.orch_server_docker_parameters),
        },
        agent: KindConfig {
            count: section.orch_agent_count,
            cpus: section.orch_agent_cpu,
            mem: section.orch_agent_mem,
            disk: section.orch_agent_disk,
            cpu_limit: section.orch_agent_cpu_limit,
            mem_limit: section.orch_agent_mem_limit,
            disk_limit: section.orch_agent_disk_limit,
            constraint: constraint(section.orch_agent_constraint.as_deref()),
            labels: labels(&section.orch_agent_labels),
            node_env: items(&section.orch_agent_node_env),
            docker_parameters: items(&section.orch_agent_docker_parameters),
        },
    }
}

/// Parses a constraint: a plain host name or `hostname:NAME`. An empty name is no constraint.
fn constraint(text: Option<&str>) -> Option<String> {
    let text = text?.trim();
    let name = text.strip_prefix("hostname:").unwrap_or(text).trim();
    (!name.is_empty()).then(|| name.to_owned())
}

fn labels(labels: &[Label]) -> Vec<(String, String)> {
    labels
        .iter()
        .map(|label| (label.key.clone(), label.value.clone()))
        .collect()
}

/// Splits `NAME=VALUE` items. Everything after the first `=` is the value.
pub(crate) fn items(items: &[String]) -> Vec<(String, String)> {
    let split = items.iter().filter_map(|item| item.split_once('='));
    split
        .map(|(name, value)| (name.trim().to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_of_accepts_hosts_with_and_without_port() {
        for (text, expected) in [
            ("fw.example.com", Some("fw.example.com")),
            ("fw.example.com:10000", Some("fw.example.com")),
            ("10.0.0.5:10000", Some("10.0.0.5")),
            ("[2001:db8::1]:10000", Some("2001:db8::1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("", None),
            ("a b:1", None),
        ] {
            let found = host_of(text);
            let expected = expected.map(|host| host.parse::<AllowedHost>().unwrap());
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn texts_of_the_settings_are_parsed() {
        for (text, expected) in [
            (None, None),
            (Some(""), None),
            (Some("hostname:"), None),
            (Some("Agent1.test"), Some("Agent1.test")),
            (Some("hostname: agent1.test"), Some("agent1.test")),
        ] {
            assert_eq!(constraint(text).as_deref(), expected, "{text:?}");
        }
        let expected = [("A".to_owned(), "b=c".to_owned())];
        assert_eq!(items(&["A=b=c".to_owned()]), expected);
        for (command, expected) in [
            ("k3s agent --flannel-backend=vxlan -v", "k3s agent -v"),
            ("k3s agent --flannel-backend vxlan -v", "k3s agent -v"),
            ("k3s  agent", "k3s agent"),
        ] {
            let settings = Settings {
                orch_agent_string: command.to_owned(),
                ..Settings::default()
            };
            assert_eq!(settings.agent_command(), expected);
        }
    }
}
