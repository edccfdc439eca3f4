//! `[kubernetes]`: a Kubernetes cluster as tasks of a framework (specification, part B).

mod autoscale;
mod certificate;
mod check;
mod period;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use transom_cluster::v1;
use transom_common::{Secret, schema, settings};
use transom_web::{AllowedHost, LoopbackTrust, Origin, PortSettings, port_settings};

pub use autoscale::{Agents, Autoscale};
pub use period::Period;

/// The command of a server, without the arguments that the service adds.
const SERVER_COMMAND: &str = "/usr/local/bin/k3s server --cluster-cidr=10.2.0.0/16 --service-cidr=10.3.0.0/16 \
     --cluster-dns=10.3.0.10 --kube-scheduler-arg=leader-elect=false \
     --kube-controller-manager-arg=enable-leader-migration=false \
     --kube-cloud-controller-manager-arg=enable-leader-migration=false --disable-cloud-controller \
     --snapshotter=native --flannel-backend=vxlan";
/// The command of an agent.
const AGENT_COMMAND: &str = "/usr/local/bin/k3s agent --snapshotter=native --flannel-backend=vxlan";

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

settings! {
    /// `[kubernetes]`: a Kubernetes cluster as tasks of a framework. Sections `[kubernetes.NAME]` have the
    /// same keys, for additional instances.
    #[schemars(rename = "Kubernetes")]
    #[allow(
        clippy::struct_excessive_bools,
        reason = "each is a switch of the specification"
    )]
    pub struct Settings {
        /// Identifies the instance. It is derived from the section's name, and is not a key.
        #[serde(skip)]
        pub instance: Instance;
        /// The address of the API; others than loopback need credentials or `trusted_networks`.
        pub listener: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
        /// The port of the API.
        pub port: u16 = 10000;
        /// The host name of this daemon for clients, other daemons and the cluster's agents. When empty:
        /// the listener's address on loopback, otherwise the value of the variable `HOSTNAME`.
        pub hostname: String;
        /// Networks such as `10.0.0.0/8` whose requests need no credentials.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<Vec<schema::Network>>")]
        pub trusted_networks: Option<Vec<IpNet>>;
        /// Host names of the port for clients, in addition to loopback, its address and `hostname`.
        #[schemars(with = "Vec<schema::Host>")]
        pub allowed_hosts: Vec<AllowedHost>;
        /// Other sites whose web pages may use the port, such as `https://ui.example.com`.
        #[schemars(with = "Vec<schema::Origin>")]
        pub allowed_origins: Vec<Origin>;
        /// The PEM file of the port's certificate, for TLS; needs `tls_key`.
        pub tls_certificate: Option<PathBuf>;
        /// The key for `tls_certificate`.
        pub tls_key: Option<PathBuf>;
        /// The certificate in place of a file: its PEM text in base64; needs `ssl_key_base64`.
        #[schemars(with = "Option<schema::Secret>")]
        pub ssl_crt_base64: Option<Secret>;
        /// The key for `ssl_crt_base64`.
        #[schemars(with = "Option<schema::Secret>")]
        pub ssl_key_base64: Option<Secret>;
        /// The user of the API; needs `auth_password`.
        pub auth_username: Option<String>;
        /// The password of `auth_username`.
        #[schemars(with = "Option<schema::Secret>")]
        pub auth_password: Option<Secret>;
        /// A second user, who may only read; needs `auth_read_only_password`.
        pub auth_read_only_username: Option<String>;
        /// The password of `auth_read_only_username`.
        #[schemars(with = "Option<schema::Secret>")]
        pub auth_read_only_password: Option<Secret>;
        /// The user that runs the tasks on the cluster's agents.
        pub framework_user: String = "root".into();
        /// The name that the framework registers with, and the prefix of its keys in the store.
        pub framework_name: String = "fw".into();
        /// The Mesos role; `framework_role` is accepted too.
        #[serde(alias = "framework_role")]
        pub role: String = "fw".into();
        /// How long the cluster keeps the tasks without the daemon, in seconds.
        pub failover_timeout: u64 = 5000;
        /// How often the wanted state is compared with the observed one, in addition to each event.
        #[schemars(with = "schema::Period")]
        pub heartbeat_interval: Period = Period::seconds(15);
        /// The maximum count of servers, agents and datastores each.
        pub max_scale: u32 = 100;
        /// The first of the host ports that tasks may use.
        pub portrange_from: u16 = 31000;
        /// The last of these ports.
        pub portrange_to: u16 = 32000;

        /// Whether tasks run in containers. On a cluster without a container runtime the scripts and
        /// `ds_command` run as processes of its agents.
        pub containers: bool = true;
        /// Whether tasks reach each other by the host names of agents and by mapped ports, and not by
        /// the names of containers. Without containers it is always so.
        pub mapped_addresses: bool;
        /// The cluster manager's network for containers.
        pub cluster_cni: Option<String>;
        /// The container runtime's network, if `cluster_cni` is not set.
        pub container_cni: String = "bridge".into();
        /// The size of `/dev/shm`, as the container runtime reads it.
        pub container_shm_size: String = "30gb".into();
        /// The limit of open files in a container.
        pub container_ulimit: u64 = 1_048_576;
        /// MB that a container may use beyond its memory.
        pub container_memory_swap: f64 = 1000.0;
        /// The runtime of the container runtime, such as `runcvm`.
        pub container_runtime: Option<String>;
        /// The suffix of host names.
        pub domain: String = ".local".into();
        /// Containers get a separate cgroup namespace.
        pub cgroup_v2: bool;
        /// The container runtime limits the file systems of containers to their disk.
        pub restrict_disk_allocation: bool;
        /// Tasks have limits of CPU and memory.
        pub enforce_task_limits: bool = true;
        /// The time zone of the containers.
        pub tz: String = "Etc/UTC".into();
        /// The driver of the volumes.
        pub volume_driver: String = "local".into();

        /// The image of servers and agents.
        pub image_orch: String = "avhost/ubuntu-m3s:22.04-3".into();
        /// The token with which servers and agents join the cluster. If it is not set, a random one is
        /// generated and stored.
        #[schemars(with = "Option<schema::Secret>")]
        pub orch_token: Option<Secret>;
        /// The network domain of the orchestrator's containers. Read for compatibility; nothing uses it.
        pub orch_custom_domain: String = "cloud.local".into();
        /// The command of a server; the service adds arguments.
        pub orch_server_string: String = SERVER_COMMAND.into();
        /// The count of servers.
        pub orch_server_count: u32 = 1;
        /// CPUs of a server.
        pub orch_server_cpu: f64 = 0.1;
        /// The limit of CPUs of a server; not set: its CPUs.
        pub orch_server_cpu_limit: Option<f64>;
        /// Memory of a server in MB.
        pub orch_server_mem: f64 = 1200.0;
        /// The limit of memory of a server in MB; not set: its memory.
        pub orch_server_mem_limit: Option<f64>;
        /// Disk of a server in MB.
        pub orch_server_disk: f64 = 1000.0;
        /// The limit of disk of a server in MB; not set: its disk.
        pub orch_server_disk_limit: Option<f64>;
        /// The agent of the cluster on which servers must run: its host name, or `hostname:NAME`. An
        /// attribute of agents, such as `rack:r1`, is rejected.
        pub orch_server_constraint: Option<String>;
        /// Labels of the tasks of servers: `{ key = "…", value = "…" }`.
        pub orch_server_labels: Vec<Label>;
        /// Variables of the servers' containers, as `NAME=VALUE`.
        pub orch_server_node_env: Vec<String>;
        /// Options of `docker run` for servers, as `NAME=VALUE`.
        pub orch_server_docker_parameters: Vec<String>;
        /// The command of an agent; the service adds arguments, and leaves `--flannel-backend` out.
        pub orch_agent_string: String = AGENT_COMMAND.into();
        /// The count of agents.
        pub orch_agent_count: u32 = 1;
        /// CPUs of an agent.
        pub orch_agent_cpu: f64 = 0.1;
        /// As `orch_server_cpu_limit`, for agents.
        pub orch_agent_cpu_limit: Option<f64>;
        /// Memory of an agent in MB.
        pub orch_agent_mem: f64 = 1200.0;
        /// As `orch_server_mem_limit`, for agents.
        pub orch_agent_mem_limit: Option<f64>;
        /// Disk of an agent in MB.
        pub orch_agent_disk: f64 = 10000.0;
        /// As `orch_server_disk_limit`, for agents.
        pub orch_agent_disk_limit: Option<f64>;
        /// As `orch_server_constraint`, for agents.
        pub orch_agent_constraint: Option<String>;
        /// Labels of the tasks of agents.
        pub orch_agent_labels: Vec<Label>;
        /// Variables of the agents' containers, as `NAME=VALUE`.
        pub orch_agent_node_env: Vec<String>;
        /// Options of `docker run` for agents, as `NAME=VALUE`.
        pub orch_agent_docker_parameters: Vec<String>;
        /// The host port of a server's API; 0: the first free one of the range. Each server needs an agent where
        /// it is free and offered.
        pub orch_server_port: u16 = 0;
        /// Another port of the agents' containers that gets a host port; 0: none.
        pub orch_agent_tcp_port: u16 = 0;
        /// Variables of the containers of servers and agents, as `NAME=VALUE`.
        pub orch_node_env: Vec<String>;
        /// Docker runs the orchestrator's containers.
        pub orch_container: bool = true;
        /// How long a node may be missing or not ready before its task is replaced.
        #[schemars(with = "schema::Period")]
        pub orch_node_timeout: Period = Period::seconds(600);
        /// Agents' nodes are cordoned from the start.
        pub orch_disable_scheduling: bool;
        /// Servers run no ordinary pods.
        pub orch_enable_taint: bool = true;
        /// Nodes share the images that they have.
        pub enable_registry_mirror: bool;
        /// The version of the orchestrator, a variable of its containers.
        pub orch_version: String = "v1.31.5".into();
        /// The client configuration in the server's container.
        pub kubeconfig: String = "/etc/rancher/k3s/k3s.yaml".into();
        /// The client configuration in the server's sandbox.
        pub kubeconfig_file: String = "k3s.yaml".into();
        /// How long the drain of a node may take.
        #[schemars(with = "schema::Period")]
        pub drain_timeout: Period = Period::seconds(300);
        /// The volume, or the folder, with the data of a server; without containers its `--data-dir`.
        pub volume_orch_server: String = "/data/k3s/server/".into();

        /// The count of datastores: 1, or an odd count of members of a kvstore; 0: the datastore is
        /// outside of the framework, see `ds_endpoint`.
        pub ds_count: u32 = 1;
        /// CPUs of a datastore.
        pub ds_cpu: f64 = 1.0;
        /// As `orch_server_cpu_limit`, for datastores.
        pub ds_cpu_limit: Option<f64>;
        /// Memory of a datastore in MB.
        pub ds_mem: f64 = 1000.0;
        /// As `orch_server_mem_limit`, for datastores.
        pub ds_mem_limit: Option<f64>;
        /// Disk of a datastore in MB.
        pub ds_disk: f64 = 10000.0;
        /// As `orch_server_disk_limit`, for datastores.
        pub ds_disk_limit: Option<f64>;
        /// As `orch_server_constraint`, for the datastore.
        pub orch_ds_constraint: Option<String>;
        /// The datastore's port in its container.
        pub ds_port: u16 = 3306;
        /// The port in its container at which the members of a kvstore reach each other.
        pub ds_peer_port: u16 = 2380;
        /// The datastore is a kvstore; `ds_mysql` must be false then.
        pub ds_etcd: bool;
        /// A new kvstore accepts only clients and members with a certificate of its own authority. An
        /// existing one keeps its kind. No effect on `ds_command`.
        pub ds_etcd_tls: bool = true;
        /// The datastore is a SQL server.
        pub ds_mysql: bool = true;
        /// The user of the SQL server.
        pub ds_mysql_username: String = "root".into();
        /// The password of that user. If it is not set, a random one is generated and stored. It cannot be
        /// changed here alone once the datastore has been started.
        #[schemars(with = "Option<schema::Secret>")]
        pub ds_mysql_password: Option<Secret>;
        /// The SQL server uses the operator's certificates in its volume, and servers verify them.
        pub ds_mysql_ssl: bool;
        /// A new SQL server in a container accepts only connections with TLS and has a certificate of its own
        /// authority, which servers verify. An existing one keeps its kind. No effect if `ds_mysql_ssl` is set.
        pub ds_mysql_tls: bool = true;
        /// The shell command that runs in place of the datastore's image if tasks run without containers,
        /// with the variables `PORT0` and `DATA_DIR`. Not set: a kvstore runs the agents' `etcd` and
        /// `etcdctl`.
        pub ds_command: Option<String>;
        /// The address of a datastore outside of the framework, if `ds_count` is 0.
        #[schemars(with = "Option<schema::Secret>")]
        pub ds_endpoint: Option<Secret>;
        /// The image of the SQL server.
        pub image_sql: String = "docker.io/mariadb:10.8.3".into();
        /// The image of the kvstore; it needs a shell.
        // kubeadm's image, which has a shell and no other programs. Before 3.5.3 data may be lost.
        pub image_kvstore: String = "registry.k8s.io/etcd:3.5.21-0".into();
        /// The volume, or the folder, with the data of a datastore; without containers `DATA_DIR`.
        /// Further members of a kvstore add `-1`, `-2` and so on.
        pub volume_ds: String = "/data/k3s/datastore/".into();

        /// The script that containers of servers and agents run first: `http`, `https` or `file`. Not
        /// set: the script that ships with the daemon.
        #[schemars(with = "Option<schema::Secret>")]
        pub bootstrap_url: Option<Secret>;
        /// `[kubernetes.bootstrap]`: how the script is fetched and served.
        pub bootstrap: Bootstrap;
        /// `[kubernetes.agents]`: autoscaling.
        pub agents: Agents;
        /// `[kubernetes.backup]`: backups of the datastore.
        pub backup: Backup;
    }
}

/// Identifies the instance of a section.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The name of the section in messages, which is also the name of the service: `kubernetes`, or
    /// `kubernetes.NAME`.
    pub section: &'static str,
    /// The path below which the port of `[kubernetes]` serves the instance, `/NAME`; empty if the
    /// instance has its own port.
    pub path: String,
}

impl Default for Instance {
    fn default() -> Self {
        Self {
            section: "kubernetes",
            path: String::new(),
        }
    }
}

/// A label of a task.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Label {
    /// The name of the label.
    pub key: String,
    /// The value of the label.
    pub value: String,
}

settings! {
    /// `[kubernetes.bootstrap]`: the script that containers of servers and agents run first.
    pub struct Bootstrap {
        /// Host, or host and port, at which the cluster's agents reach the port to fetch scripts. Not set:
        /// `hostname` and the port.
        pub advertise: Option<String>;
        /// A port without TLS that serves only the scripts, for agents that do not trust the certificate of the
        /// API; 0: the port of the API serves them.
        pub port: u16 = 0;
        /// The maximum size of the script in bytes.
        pub max_bytes: usize = 1 << 20;
        /// The timeout of fetching it.
        pub timeout_seconds: u64 = 30;
        /// Seconds after which it is fetched again.
        pub refresh_seconds: u64 = 300;
    }
}

settings! {
    /// `[kubernetes.backup]`: backups of the datastore.
    pub struct Backup {
        /// The directory on the daemon's machine; without it no backups can be made.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub dir: Option<PathBuf>;
        /// How many backups are kept.
        pub keep: u32 = 7;
        /// The maximum size of a backup in bytes.
        pub max_bytes: u64 = 8 << 30;
        /// How long each phase of a backup or a restore may take.
        #[schemars(with = "schema::Period")]
        pub timeout: Period = Period::seconds(1800);
        /// CPUs of the one-off tasks.
        pub cpu: f64 = 0.1;
        /// Memory of the one-off tasks in MB.
        pub mem: f64 = 256.0;
        /// Disk of the one-off tasks in MB.
        pub disk: f64 = 1000.0;
    }
}

impl Bootstrap {
    /// The timeout of fetching the script.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }
}

impl Settings {
    /// The HTTP port of the section.
    pub fn http_port(&self) -> PortSettings<'_> {
        PortSettings {
            tls_pem: self.tls_pem(),
            ..port_settings!(
                self,
                self.instance.section,
                Some(&self.hostname),
                self.trusted_networks.as_deref(),
                LoopbackTrust::UnlessCredentials,
                [auth_username, auth_password],
                [auth_read_only_username, auth_read_only_password]
            )
        }
    }

    /// The framework that the service registers.
    pub fn framework(&self, principal: Option<String>) -> v1::FrameworkInfo {
        v1::FrameworkInfo {
            user: self.framework_user.clone(),
            name: self.framework_name.clone(),
            roles: vec![self.role.clone()],
            failover_timeout: Some(self.failover_timeout as f64),
            checkpoint: Some(true),
            hostname: Some(self.http_port().hostname()),
            principal,
            ..v1::FrameworkInfo::default()
        }
    }

    /// The network of the cluster manager; it takes precedence over `container_cni`.
    pub(crate) fn cluster_network(&self) -> Option<&str> {
        self.cluster_cni.as_deref().filter(|name| !name.is_empty())
    }

    /// The size of `/dev/shm`; `None`: the runtime's default.
    pub(crate) fn shm_size(&self) -> Option<&str> {
        Some(&*self.container_shm_size).filter(|size| !size.is_empty())
    }

    /// The host port of a server's API; `None`: the first free port of the range.
    pub(crate) fn server_port(&self) -> Option<u16> {
        Some(self.orch_server_port).filter(|port| *port != 0)
    }

    /// An additional port of agents' containers that is mapped to a host port.
    pub(crate) fn agent_tcp_port(&self) -> Option<u16> {
        Some(self.orch_agent_tcp_port).filter(|port| *port != 0)
    }

    /// The command of an agent without `--flannel-backend`. Agents reject this option, because they
    /// receive the backend from the server.
    pub(crate) fn agent_command(&self) -> String {
        let mut words = self.orch_agent_string.split_whitespace();
        let mut remaining = Vec::new();
        while let Some(word) = words.next() {
            if word == "--flannel-backend" {
                words.next();
            } else if !word.starts_with("--flannel-backend=") {
                remaining.push(word);
            }
        }
        remaining.join(" ")
    }

    /// The kind of the datastore.
    pub(crate) fn engine(&self) -> Engine {
        if self.ds_etcd {
            Engine::Kvstore
        } else {
            Engine::Sql
        }
    }

    /// The image of the datastore.
    pub(crate) fn ds_image(&self) -> &str {
        match self.engine() {
            Engine::Kvstore => &self.image_kvstore,
            Engine::Sql => &self.image_sql,
        }
    }

    /// Whether a new datastore has certificates of its own authority. A datastore keeps the kind with
    /// which it was created. No effect on `ds_command`, `ds_mysql_ssl` and `ds_endpoint`.
    pub(crate) fn ds_tls(&self) -> bool {
        match self.engine() {
            Engine::Kvstore => self.ds_etcd_tls,
            Engine::Sql => self.ds_mysql_tls,
        }
    }

    /// Whether a command of the configuration runs the datastore. Such a datastore cannot have several
    /// members.
    pub(crate) fn runs_ds_command(&self) -> bool {
        self.ds_command.is_some() && !self.containers
    }

    /// The autoscaler and the maximum count of agents; `None`: it is off.
    pub(crate) fn autoscale(&self) -> Option<(&Autoscale, u32)> {
        let autoscale = &self.agents.autoscale;
        let max = autoscale.maximum(self.max_scale);
        autoscale.enabled.then_some((autoscale, max))
    }

    /// Sets the specified default of `hostname`, which is the value of `HOSTNAME`, for a port that
    /// other machines can reach.
    pub fn default_hostname(&mut self, variable: Option<String>) {
        if self.hostname.is_empty() && !self.listener.is_loopback() {
            self.hostname = variable.unwrap_or_default();
        }
    }

    /// All paths, which are relative to the folder of their file.
    pub fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [&mut self.tls_certificate, &mut self.tls_key, &mut self.backup.dir]
            .into_iter()
            .flatten()
            // An empty path is left as it is, so that it is reported.
            .filter(|path| !path.as_os_str().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_hostname_of_a_reachable_port_is_that_of_the_variable() {
        for (listener, hostname, expected) in [
            ("127.0.0.1", "", "127.0.0.1"),
            ("0.0.0.0", "", "box"),
            ("10.0.0.5", "", "box"),
            ("10.0.0.5", "named", "named"),
        ] {
            let mut section = Settings {
                listener: listener.parse().expect("an address"),
                hostname: hostname.to_owned(),
                ..Settings::default()
            };
            section.default_hostname(Some("box".to_owned()));
            assert_eq!(section.http_port().hostname(), expected, "{listener}");
        }
        let mut section = Settings {
            listener: IpAddr::from([10, 0, 0, 5]),
            ..Settings::default()
        };
        section.default_hostname(None);
        assert_eq!(section.http_port().hostname(), "10.0.0.5");
    }
}
