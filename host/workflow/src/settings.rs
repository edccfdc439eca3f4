//! `[workflow]`: a workflow engine's tasks as containers (specification, part D).

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use transom_cluster::v1;
use transom_common::{Secret, schema};
use transom_web::{AllowedHost, BoundPort, LoopbackTrust, Origin, PortSettings, port_settings};

use crate::{Error, Result};

/// The section's name, which is also that of the port.
const NAME: &str = "workflow";

/// Maximum bytes of a request's body; usual jobs have a few kilobytes.
const MAX_BODY_BYTES: usize = 1 << 20;

transom_common::settings! {
    /// `[workflow]`: a workflow engine's tasks as containers. The older provider's names of keys are
    /// accepted too.
    #[schemars(rename = "Workflow")]
    #[allow(
        clippy::struct_excessive_bools,
        reason = "each is a switch of the specification"
    )]
    pub struct Settings {
        /// The address of the port; others than loopback need credentials or `trusted_networks`.
        pub listener: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
        /// The port of the API.
        pub port: u16 = 11000;
        /// The host name of this daemon for other daemons; the listener's address when empty.
        pub hostname: String;
        /// Networks such as `10.0.0.0/8` whose clients may queue and query jobs without credentials.
        /// Default: this machine.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<Vec<schema::Network>>")]
        pub trusted_networks: Option<Vec<IpNet>>;
        /// Host names of the port for clients, in addition to loopback, its address, `hostname` and
        /// that of `operator_api_url`.
        #[schemars(with = "Vec<schema::Host>")]
        pub allowed_hosts: Vec<AllowedHost>;
        /// Other sites whose web pages may use the port, such as `https://ui.example.com`.
        #[schemars(with = "Vec<schema::Origin>")]
        pub allowed_origins: Vec<Origin>;
        /// The PEM file of the port's certificate, for TLS; needs `tls_key`.
        pub tls_certificate: Option<PathBuf>;
        /// The key for `tls_certificate` (PEM).
        pub tls_key: Option<PathBuf>;
        /// The user of the API; needs `api_password`.
        pub api_username: Option<String>;
        /// The password of `api_username`.
        #[schemars(with = "Option<schema::Secret>")]
        pub api_password: Option<Secret>;
        /// A second user, who may only read; needs `api_read_only_password`.
        pub api_read_only_username: Option<String>;
        /// The password of `api_read_only_username`.
        #[schemars(with = "Option<schema::Secret>")]
        pub api_read_only_password: Option<Secret>;
        /// The URL at which Airflow operators reach this API. The daemon uses only its host, as a name
        /// of this port.
        pub operator_api_url: Option<String>;
        /// The cluster manager, if it differs from `cluster.master`.
        pub master: Option<String>;
        /// Use TLS to `master`.
        pub cluster_ssl: bool;
        /// Whether the framework sends credentials to the cluster manager: `default_principal` and
        /// `default_secret`.
        pub authenticate: bool;
        /// The principal of the framework, with `authenticate`.
        pub default_principal: Option<String>;
        /// The secret of `default_principal`.
        #[schemars(with = "Option<schema::Secret>")]
        pub default_secret: Option<Secret>;
        /// The name that the framework registers with, and the prefix of its keys in the store.
        pub framework_name: String = "Airflow".into();
        /// The Mesos role; `framework_role` is accepted too.
        pub role: String = "airflow".into();
        /// The user that runs the tasks on the agent.
        pub user: String = "root".into();
        /// Whether agents checkpoint the state of the tasks, so that tasks survive a restart of the agent.
        pub checkpoint: bool = true;
        /// The framework's failover timeout in seconds: how long the cluster keeps its tasks without
        /// the daemon.
        pub failover_timeout: u64 = 604_800;
        /// Whether a command that is a single string is run by the agent's shell instead of the image's.
        pub command_shell: bool = true;
        /// The default CPUs of a job.
        pub task_cpu: f64 = 0.1;
        /// The default memory of a job, in MB.
        pub task_memory: f64 = 256.0;
        /// The default disk of a job, in MB.
        pub task_disk: f64 = 1000.0;
        /// Whether jobs run in containers. Otherwise commands are processes, whatever the image.
        pub containers: bool = true;
        /// The default image of a job.
        pub container_image_slave: Option<String>;
        /// The driver of the two volumes that follow.
        pub container_volume_driver: Option<String>;
        /// The volume with the DAGs; needs `container_volume_dag_container_path`.
        pub container_volume_dag_name: Option<String>;
        /// The path of that volume in containers.
        pub container_volume_dag_container_path: Option<String>;
        /// The volume for logs; needs `container_volume_logs_container_path`.
        pub container_volume_logs_name: Option<String>;
        /// The path of that volume in containers.
        pub container_volume_logs_container_path: Option<String>;
        /// The container runtime's socket, for jobs that request it.
        pub container_sock: Option<String>;
        /// The group that containers with that socket get in addition.
        pub container_user_group_id: Option<String>;
        /// The default network of containers, by its name in the container runtime.
        pub container_network_mode: String = "HOST".into();
        /// Environment variables of every container.
        pub container_environment: Vec<Variable>;
        /// Constraints of every job, in addition to its own.
        pub cluster_attributes: Vec<String>;
        /// A file that is fetched into every sandbox.
        pub cluster_fetch_uri: Option<String>;
        /// The user on the agent that fetches `cluster_fetch_uri`, where jobs run in containers.
        pub cluster_fetch_username: Option<String>;
        /// Seconds after which the jobs of an unreachable agent become `TASK_UNREACHABLE`.
        /// `unreachable_grace` is accepted too.
        pub unreachable_grace_seconds: u64 = 60;
        /// Seconds for which completed jobs are kept.
        pub completed_retention_seconds: u64 = 86_400;
        /// The maximum number of pending and running jobs.
        pub max_jobs: usize = 100_000;
        /// The approximate memory of the definitions of all pending and running jobs, in bytes; further
        /// jobs are rejected.
        pub max_jobs_bytes: usize = 128 << 20, in 1 << 20..;
    }
}

/// A variable of `container_environment`. Its value may be a secret and is never shown.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// The name of the variable.
    pub name: String,
    /// Its value, which may be a secret and is never shown.
    #[schemars(with = "schema::Secret")]
    pub value: Secret,
}

impl Settings {
    /// The minimum interval of REVIVE calls for tasks that fit no offer: short, because jobs are
    /// short and their start delay matters.
    pub const REVIVE_INTERVAL: Duration = Duration::from_millis(200);

    /// The HTTP port. `/v0/dags` always requires credentials; other paths require them from networks
    /// that are not trusted, and killing a job from any network.
    pub fn http_port(&self) -> PortSettings<'_> {
        let mut port = port_settings!(
            self,
            NAME,
            Some(&self.hostname),
            self.trusted_networks.as_deref(),
            LoopbackTrust::UnlessNetworks,
            [api_username, api_password],
            [api_read_only_username, api_read_only_password]
        );
        port.allowed_hosts.extend(self.operator_host());
        port
    }

    /// The host of `operator_api_url`, the address of the port for clients.
    fn operator_host(&self) -> Option<AllowedHost> {
        let url: http::Uri = self.operator_api_url.as_deref()?.parse().ok()?;
        url.host()?.parse().ok()
    }

    /// Binds the port.
    ///
    /// # Errors
    /// [`Error::Web`] if the port cannot be bound or would be open to everybody.
    pub async fn bind(&self) -> Result<BoundPort> {
        let mut port = self.http_port().config();
        port.limits.max_body = MAX_BODY_BYTES;
        port.bind().await.map_err(Error::Web)
    }

    /// The framework that the service registers.
    pub fn framework(&self, principal: Option<String>) -> v1::FrameworkInfo {
        v1::FrameworkInfo {
            user: self.user.clone(),
            name: self.framework_name.clone(),
            roles: vec![self.role.clone()],
            failover_timeout: Some(self.failover_timeout as f64),
            checkpoint: Some(self.checkpoint),
            hostname: Some(self.http_port().hostname()),
            principal: self.default_principal.clone().or(principal),
            ..v1::FrameworkInfo::default()
        }
    }

    /// How long an agent may be unreachable before its jobs become `TASK_UNREACHABLE`.
    pub(crate) fn unreachable_grace(&self) -> Duration {
        Duration::from_secs(self.unreachable_grace_seconds)
    }

    /// How long completed jobs are kept.
    pub(crate) fn completed_retention(&self) -> Duration {
        Duration::from_secs(self.completed_retention_seconds)
    }

    /// The file that is fetched into every sandbox.
    pub(crate) fn fetch_uri(&self) -> Option<&str> {
        self.cluster_fetch_uri.as_deref().filter(|uri| !uri.is_empty())
    }

    /// Name and path of the volumes of every container.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = (&str, &str)> {
        [
            (
                &self.container_volume_dag_name,
                &self.container_volume_dag_container_path,
            ),
            (
                &self.container_volume_logs_name,
                &self.container_volume_logs_container_path,
            ),
        ]
        .into_iter()
        .filter_map(|(name, path)| name.as_deref().zip(path.as_deref()))
    }
}

impl Settings {
    /// All paths, which are relative to the folder of their file.
    pub fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [&mut self.tls_certificate, &mut self.tls_key]
            .into_iter()
            .flatten()
    }

    /// All missing and invalid settings, one line each.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.http_port().problems();
        problems.extend(self.out_of_bounds(NAME));
        let mut missing =
            |key: &str, reason: &str| problems.push(format!("`workflow.{key}` is missing: {reason}"));
        if self.authenticate {
            let reason =
                "`workflow.authenticate` is true, so the daemon must authenticate with the cluster manager";
            if self.default_principal.is_none() {
                missing("default_principal", reason);
            }
            if self.default_secret.is_none() {
                missing("default_secret", reason);
            }
        }
        let pairs = [
            (
                (
                    "container_volume_dag_name",
                    self.container_volume_dag_name.is_some(),
                ),
                (
                    "container_volume_dag_container_path",
                    self.container_volume_dag_container_path.is_some(),
                ),
            ),
            (
                (
                    "container_volume_logs_name",
                    self.container_volume_logs_name.is_some(),
                ),
                (
                    "container_volume_logs_container_path",
                    self.container_volume_logs_container_path.is_some(),
                ),
            ),
        ];
        for ((one, has_one), (other, has_other)) in pairs {
            if has_one && !has_other {
                missing(
                    other,
                    &format!("`workflow.{one}` is set, and each needs the other"),
                );
            }
            if has_other && !has_one {
                missing(
                    one,
                    &format!("`workflow.{other}` is set, and each needs the other"),
                );
            }
        }
        for (key, amount) in [
            ("task_cpu", self.task_cpu),
            ("task_memory", self.task_memory),
            ("task_disk", self.task_disk),
        ] {
            if !amount.is_finite() || amount < 0.0 || (amount == 0.0 && key != "task_disk") {
                problems.push(format!("`workflow.{key}` is {amount}; expected a number above 0"));
            }
        }
        if self.framework_name.is_empty() || self.framework_name.contains('/') {
            problems.push(format!(
                "`workflow.framework_name` is {:?}; expected a name without slashes",
                self.framework_name
            ));
        }
        problems
    }
}

impl Settings {
    /// Entries of `cluster_attributes` that the `attributes` component rejects for every job, one
    /// line each.
    pub fn unmatchable_attributes(&self) -> Vec<String> {
        let needed = |entry: &str| {
            entry
                .split_once("?:")
                .map_or(entry, |(_, needed)| needed)
                .to_owned()
        };
        self.cluster_attributes
            .iter()
            .filter(|entry| !needed(entry).contains(':'))
            .map(|entry| {
                format!(
                    "`workflow.cluster_attributes` has {entry:?}, which no agent can ever match, so every \
                     job would be rejected; expected key:value, as in \"airflow:true\", or A?:B with \
                     key:value on both sides"
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_missing_settings_are_reported_together() {
        let section: Settings = toml::from_str(
            "authenticate = true\ntls_key = \"key.pem\"\napi_username = \"u\"\ncontainer_volume_dag_container_path = \"/dags\"\n\
             listener = \"0.0.0.0\"\ntask_cpu = 0.0\n",
        )
        .expect("a section");
        let problems = section.problems();
        let named: Vec<&str> = problems.iter().filter_map(|gap| gap.split('`').nth(1)).collect();
        assert_eq!(
            named,
            [
                "workflow.tls_certificate",
                "workflow.api_password",
                "workflow.hostname",
                "workflow.default_principal",
                "workflow.default_secret",
                "workflow.container_volume_dag_name",
                "workflow.task_cpu"
            ]
        );
        assert!(Settings::default().problems().is_empty());
    }

    #[test]
    fn exposed_port_needs_credentials_or_trusted_networks() {
        for (text, rejected) in [
            ("listener = \"10.0.0.1\"", true),
            (
                "listener = \"10.0.0.1\"\ntrusted_networks = [\"10.0.0.0/8\"]",
                false,
            ),
            (
                "listener = \"10.0.0.1\"\napi_username = \"u\"\napi_password = \"p\"",
                false,
            ),
            ("listener = \"::1\"", false),
        ] {
            let section: Settings = toml::from_str(text).expect("a section");
            assert_eq!(!section.problems().is_empty(), rejected, "{text}");
        }
    }
}
