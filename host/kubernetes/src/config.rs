//! The configuration of the Kubernetes service (specification, part B, "Configuration variables").

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use transom_common::Secret;
use transom_web::{AllowedHost, BoundPort, LoopbackTrust, PortConfig};

use crate::kind::PerKind;
use crate::{Error, Result};

/// Maximum size of a request.
const MAX_BODY_BYTES: usize = 1 << 20;

/// The settings of one instance; `Config::new` has the defaults of the specification.
#[derive(Clone, Debug)]
pub struct Config {
    /// The HTTP port.
    pub port: PortConfig,
    /// The path of this instance, `/NAME`, on a port that several instances share; empty: the instance
    /// has a port of its own.
    pub path: String,
    /// `FRAMEWORK_NAME`: the framework's name and the prefix of its keys in the store.
    pub name: String,
    /// `HEARTBEAT_INTERVAL`: how often the wanted state is compared with the observed one, in
    /// addition to each event.
    pub heartbeat_interval: Duration,
    /// The maximum count of each kind.
    pub max_scale: u32,
    /// The autoscaler of the count of agents; `None`: the count is not autoscaled.
    pub autoscale: Option<AutoscaleConfig>,
    /// `PORTRANGE_FROM` and `PORTRANGE_TO`: the host ports that tasks may use, inclusive.
    pub port_range: (u16, u16),
    /// How each kind is launched.
    pub kinds: PerKind<KindConfig>,
    /// The settings that all containers share.
    pub containers: ContainerConfig,
    /// The orchestrator: the program in the containers of servers and agents.
    pub orchestrator: OrchestratorConfig,
    /// The datastore.
    pub datastore: DatastoreConfig,
    /// The script that the containers of servers and agents run first.
    pub bootstrap: BootstrapConfig,
    /// Backups of the datastore.
    pub backup: BackupConfig,
    /// Timeout of one call of the store.
    pub store_timeout: Duration,
}

/// The settings of the autoscaler, which adapts the count of agents to the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoscaleConfig {
    /// The minimum count of agents, at least 1.
    pub min: u32,
    /// The maximum count of agents, at most `max_scale`.
    pub max: u32,
    /// The maximum number of agents that one change adds, at least 1.
    pub step: u32,
    /// How long pods must be unschedulable before agents are added for them.
    pub scale_up_delay: Duration,
    /// How long an agent must be idle before it is removed.
    pub scale_down_delay: Duration,
    /// The minimum time between two changes of the count.
    pub cooldown: Duration,
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
    /// Variables of the containers, in addition to [`OrchestratorConfig::node_env`].
    pub node_env: Vec<(String, String)>,
    /// Options of `docker run`, in addition to those that the service sets: names and values.
    pub docker_parameters: Vec<(String, String)>,
}

/// The settings that all containers share.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct ContainerConfig {
    /// Whether tasks run in containers. On a cluster without a container runtime the scripts of
    /// servers and agents, and [`DatastoreConfig::command`], run as processes of its agents.
    pub enabled: bool,
    /// Whether tasks reach each other at the host names of agents and mapped ports. Otherwise they
    /// use the names of containers, which the network must resolve. Tasks without containers always
    /// use the host names of agents.
    pub mapped_addresses: bool,
    /// `CLUSTER_CNI`: the network of the cluster manager; it takes precedence over
    /// `container_network`.
    pub cluster_network: Option<String>,
    /// `CONTAINER_CNI`: the container runtime's network; `bridge` is its default bridge.
    pub container_network: String,
    /// `CONTAINER_SHM_SIZE` (`30gb`), or `K3S_CONTAINER_DISK`: the size of `/dev/shm` in the notation
    /// of the container runtime; `None`: the runtime's default.
    pub shm_size: Option<String>,
    /// `DOCKER_ULIMIT`: the limit of open files.
    pub open_files: u64,
    /// `DOCKER_MEMORY_SWAP`: MB of swap that a task may use beyond its memory.
    pub memory_swap: f64,
    /// `DOMAIN`: the suffix of host names; a leading dot is added if it is missing.
    pub domain: String,
    /// `CGROUP_V2`: containers get a cgroup namespace of their own.
    pub cgroup_v2: bool,
    /// `RESTRICT_DISK_ALLOCATION`: the runtime limits a container's file system to the disk of its
    /// task.
    pub restrict_disk: bool,
    /// `ENFORCE_MESOS_TASK_LIMITS`: tasks have limits of CPU and memory.
    pub enforce_limits: bool,
    /// `CUSTOM_DOCKER_RUNTIME`: the OCI runtime that Docker uses, such as `runcvm`.
    pub runtime: Option<String>,
    /// `VOLUME_DRIVER`: the driver of the volumes.
    pub volume_driver: String,
    /// `TZ`: the time zone.
    pub time_zone: String,
}

/// The orchestrator.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct OrchestratorConfig {
    /// `IMAGE_ORCH`: the image of servers and agents.
    pub image: String,
    /// `ORCH_TOKEN`: the token with which servers and agents join; `None`: a random token, which is
    /// generated once and stored.
    pub token: Option<Secret>,
    /// `ORCH_SERVER_STRING`: the command of a server, split at blanks.
    pub server_command: String,
    /// `ORCH_AGENT_STRING`: the command of an agent, split at blanks.
    pub agent_command: String,
    /// `ORCH_CONTAINER`: containers are run by Docker, through its CRI socket.
    pub container_runtime: bool,
    /// `KUBERNETES_VERSION`: a variable of the containers.
    pub version: String,
    /// `KUBECONFIG`: a variable of the server's container.
    pub kubeconfig: String,
    /// The name of the client configuration in the server's sandbox.
    pub kubeconfig_file: String,
    /// `K3S_NODE_TIMEOUT`: how long a node may be missing or unready, or its agent unreachable,
    /// before its task is replaced.
    pub node_timeout: Duration,
    /// `K3S_ENABLE_TAINT`: servers run no ordinary pods.
    pub enable_taint: bool,
    /// `K3S_DISABLE_SCHEDULING`: nodes of agents are cordoned from the start.
    pub disable_scheduling: bool,
    /// `ENABLE_REGISTRY_MIRROR`: nodes distribute the images that they have to other nodes.
    pub registry_mirror: bool,
    /// `K3S_NODE_ENV`: variables of servers and agents.
    pub node_env: Vec<(String, String)>,
    /// `K3S_SERVER_PORT`: the host port of a server's API; `None`: the first free port of the range. Two
    /// servers with such a port cannot run on one agent.
    pub server_port: Option<u16>,
    /// `K3S_AGENT_TCP_PORT`: an additional port of agents' containers that is mapped to a host port.
    pub agent_tcp_port: Option<u16>,
    /// `VOLUME_ORCH_SERVER`: the volume with the servers' data.
    pub server_volume: String,
    /// How long a drain may take. After this time the task is ended even if pods remain on its node.
    pub drain_timeout: Duration,
}

/// The datastore.
#[derive(Clone, Debug, PartialEq)]
pub struct DatastoreConfig {
    /// SQL server or kvstore.
    pub engine: Engine,
    /// `IMAGE_SQL` or `IMAGE_KVSTORE`, by `engine`.
    pub image: String,
    /// `DS_PORT`: the port in the container.
    pub port: u16,
    /// `DS_PEER_PORT`: the port in the container at which the members of a kvstore reach each other.
    pub peer_port: u16,
    /// `DS_MYSQL_USERNAME`.
    pub username: String,
    /// `DS_MYSQL_PASSWORD`: a variable of the datastore and of the servers; `None`: a random password,
    /// which is generated once and stored.
    pub password: Option<Secret>,
    /// `DS_ETCD_TLS` or `DS_MYSQL_TLS`, by `engine`: a new datastore has certificates of its own authority;
    /// a kvstore accepts only clients with one, a SQL server only connections with TLS. A datastore keeps
    /// the kind with which it was created. No effect on `command`, `ssl` and `endpoint`.
    pub tls: bool,
    /// `DS_MYSQL_SSL`: the SQL server has the operator's certificate, which servers verify.
    pub ssl: bool,
    /// `VOLUME_DS`: the volume with its data. The volumes of further members of a kvstore have this
    /// name with the member's number appended.
    pub volume: String,
    /// The command that replaces the image if containers are disabled: a line for the shell, with its
    /// port in `PORT0` and its directory in `DATA_DIR`. `None`: a kvstore runs the programs `etcd` and
    /// `etcdctl` that are installed on the agents. With a command there can be only one datastore.
    pub command: Option<String>,
    /// The endpoint of a datastore outside of the framework, for a count of 0; it may hold a
    /// password.
    pub endpoint: Option<Secret>,
}

impl DatastoreConfig {
    /// Whether a command of the configuration runs the datastore. Such a datastore cannot have several
    /// members.
    pub fn is_command(&self, containers: &ContainerConfig) -> bool {
        self.command.is_some() && !containers.enabled
    }
}

/// The kind of the datastore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// A SQL server (`MariaDB`); at most one.
    Sql,
    /// A kvstore (etcd): an odd number of members.
    Kvstore,
}

impl Engine {
    /// The name in documents.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Sql => "sql",
            Self::Kvstore => "kvstore",
        }
    }
}

/// The script that the containers of servers and agents run first.
#[derive(Clone, Debug, PartialEq)]
pub struct BootstrapConfig {
    /// `BOOTSTRAP_URL`: `http`, `https` or `file`, may hold credentials; `None`: the script that
    /// ships with the daemon.
    pub url: Option<Secret>,
    /// Maximum size of the script.
    pub max_bytes: usize,
    /// Timeout of fetching it.
    pub timeout: Duration,
    /// How long a fetched script is used before it is fetched again.
    pub refresh: Duration,
    /// Host, or host and port, at which the cluster's agents reach the service's port to fetch
    /// scripts; `None`: `FRAMEWORK_HOSTNAME` and the port.
    pub advertise: Option<String>,
}

/// Backups of the datastore.
#[derive(Clone, Debug, PartialEq)]
pub struct BackupConfig {
    /// The directory on the daemon's machine; `None`: backups are not possible.
    pub dir: Option<PathBuf>,
    /// How many backups are kept.
    pub keep: u32,
    /// Maximum size of a backup.
    pub max_bytes: u64,
    /// How long each phase of a backup or a restore may take.
    pub timeout: Duration,
    /// CPUs of the one-off tasks.
    pub cpus: f64,
    /// Their memory in MB.
    pub mem: f64,
    /// Their disk in MB.
    pub disk: f64,
}

impl Config {
    /// The defaults of the port. Without credentials requests from this machine need none; with
    /// credentials all do.
    pub fn default_port() -> PortConfig {
        PortConfig {
            credential_keys: ["auth_username", "auth_password"],
            loopback_trust: LoopbackTrust::UnlessCredentials,
            ..PortConfig::new("kubernetes", 10000)
        }
    }

    /// Binds the port. The host in [`BootstrapConfig::advertise`] becomes one of its host names.
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
            .filter_map(|config| config.bootstrap.advertise.as_deref());
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
}
