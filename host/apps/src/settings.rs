//! `[apps]`: long-running apps (specification, part C).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use transom_cluster::v1::{self, CapabilityType};
use transom_common::{Secret, schema};
use transom_registry::network::Destination;
use transom_scheduler::MaintenanceMode;
use transom_web::{AllowedHost, LoopbackTrust, Origin, PortConfig, PortSettings, port_settings};

/// The section's name, which is also that of the port.
const NAME: &str = "apps";

/// The default of the maximum number of concurrent probes.
const CONCURRENCY: NonZeroUsize = NonZeroUsize::new(1000).unwrap();
/// Upstream's counts are 32-bit integers with a sign.
const MAX_INSTANCES: u64 = i32::MAX as u64;
/// All versions of an app are in one record of the store, so their number is limited.
const MAX_VERSIONS: u64 = 1000;
/// The whole body of a request is in memory, so its size is limited.
const MAX_BODY_BYTES: u64 = 256 << 20;
/// The budgets must have room for one definition of any size.
const MIN_DEFINITIONS_BYTES: u64 = 16 << 20;
const MAX_LAUNCH_SECONDS: u64 = 86_400;
/// A week.
const MAX_DRAINING_SECONDS: u64 = 604_800;

transom_common::settings! {
    /// `[apps]`: long-running apps, with Marathon's API. Marathon's own names of keys are accepted too.
    #[schemars(rename = "Apps")]
    #[allow(missing_docs, reason = "the type of a section describes it")]
    pub struct Settings {
        /// The address of the port; others than loopback need credentials or `trusted_networks`.
        pub listener: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
        /// The port of Marathon's API.
        pub port: u16 = 8080;
        /// The user that requests from networks outside `trusted_networks` need; needs `api_password`.
        pub api_username: Option<String>;
        /// The password of `api_username`.
        #[schemars(with = "Option<schema::Secret>")]
        pub api_password: Option<Secret>;
        /// A second user, who may only read; needs `api_read_only_password`.
        pub api_read_only_username: Option<String>;
        /// The password of `api_read_only_username`.
        #[schemars(with = "Option<schema::Secret>")]
        pub api_read_only_password: Option<Secret>;
        /// The PEM file of the port's certificate, for TLS; needs `tls_key`.
        pub tls_certificate: Option<PathBuf>;
        /// The key for `tls_certificate` (PEM).
        pub tls_key: Option<PathBuf>;
        /// Networks such as `10.0.0.0/8` whose requests need no credentials. A listener that other machines
        /// can reach requires networks or credentials. Requests from this machine need no credentials,
        /// unless both are set.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<Vec<schema::Network>>")]
        pub trusted_networks: Option<Vec<IpNet>>;
        /// Host names of the port for clients, in addition to loopback, its address and `hostname`.
        #[schemars(with = "Vec<schema::Host>")]
        pub allowed_hosts: Vec<AllowedHost>;
        /// Other sites whose web pages may use the port, such as `https://ui.example.com`.
        #[schemars(with = "Vec<schema::Origin>")]
        pub allowed_origins: Vec<Origin>;
        /// The folder of a built user interface, which is served under `/ui/`.
        pub ui_dir: Option<PathBuf>;
        /// The name that the framework registers with, and the prefix of its keys in the store.
        pub framework_name: String = "marathon".into();
        /// The Mesos role of the framework.
        pub role: String = "*".into();
        /// The user that runs tasks, unless the app names one.
        pub user: String = "root".into();
        /// The framework's failover timeout in seconds: how long the cluster keeps its tasks without
        /// the daemon.
        pub failover_timeout: u64 = 604_800;
        /// The host name of this daemon for clients; the listener's address when empty.
        pub hostname: String;
        /// The prefix of the variables `HOST`, `PORT`, `PORTS`, `PORT0`… of tasks.
        pub env_vars_prefix: String;
        /// Features of definitions that are rejected unless they are listed here.
        pub enable_features: Vec<Feature>;
        /// Whether tasks without GPUs may run on agents with GPUs.
        pub gpu_scheduling_behavior: GpuScheduling = GpuScheduling::Restricted;
        /// The container network of definitions that name none. Empty: no default network.
        pub default_network_name: String;
        /// The maximum number of requests that are handled at the same time, event streams not counted;
        /// further ones get 503. Default: no limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub max_concurrent_requests: Option<usize>, in 1..;
        /// The maximum size of a request's body, in bytes.
        pub max_body: usize = 8 << 20, in 1024..=MAX_BODY_BYTES;
        /// The number of deployments that may run at the same time.
        pub max_running_deployments: usize = 100, in 1..;
        /// The number of apps that may exist. Default: no limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub max_apps: Option<usize>, in 1..;
        /// The number of instances that an app or pod may have.
        pub max_instances: u32 = 100_000, in 1..=MAX_INSTANCES;
        /// The number of definitions of an app that are kept.
        pub max_versions: usize = 50, in 1..=MAX_VERSIONS;
        /// The approximate memory of all definitions, in bytes; further ones are rejected. Deleting and
        /// scaling are always possible. Past definitions that instances still run may need as much again.
        pub max_definitions_bytes: u64 = 256 << 20, in MIN_DEFINITIONS_BYTES..;
        /// The size of all past definitions in the store, in bytes. Beyond it, a changed app keeps fewer
        /// of its own.
        pub max_versions_bytes: u64 = 1 << 30, in MIN_DEFINITIONS_BYTES..;
        /// The first of the service ports.
        pub local_port_min: u16 = 10_000;
        /// The last of the service ports.
        pub local_port_max: u16 = 20_000;
        /// Seconds for which a launched task may stay in one state before it runs. A task that stays longer
        /// is killed and launched again.
        pub task_launch_timeout_seconds: u64 = 300, in 1..=MAX_LAUNCH_SECONDS;
        /// What happens to instances on agents for which maintenance is scheduled.
        pub maintenance: Maintenance = Maintenance::Evacuate;
        /// Seconds before a maintenance window from which instances are moved to other agents.
        pub draining_seconds: u64 = 300, in 0..=MAX_DRAINING_SECONDS;
        pub checks: Checks;
        pub deployments: Deployments;
        pub health: Health;
        pub events: Events;
        pub callbacks: Callbacks;
    }
}

transom_common::settings! {
    /// `[apps.checks]`: where checks run.
    #[derive(Copy, PartialEq, Eq)]
    pub struct Checks {
        /// Where `http` and `tcp` checks run: in this daemon, by the probe components, or on the tasks'
        /// agents.
        pub network_from: CheckRunner = CheckRunner::Daemon;
        /// Where `exec` checks run: on the tasks' agents, or in this daemon, by the component
        /// `check-command`.
        pub exec_from: CheckRunner = CheckRunner::Agent;
        /// The maximum number of checks that this daemon makes concurrently.
        pub concurrency: NonZeroUsize = CONCURRENCY;
    }
}

transom_common::settings! {
    /// `[apps.deployments]`: the default deadline of deployments.
    #[derive(Copy)]
    pub struct Deployments {
        /// Seconds after which an unfinished deployment fails. Default: no deadline.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub deadline_seconds: Option<u32>;
        /// What happens to a deployment that misses its deadline.
        pub on_deadline: OnDeadline;
    }
}

transom_common::settings! {
    /// `[apps.health]`: health and readiness checks that this daemon makes.
    pub struct Health {
        /// The maximum number of health and readiness checks that this daemon makes concurrently.
        pub concurrency: NonZeroUsize = CONCURRENCY;
    }
}

transom_common::settings! {
    /// `[apps.events]`: the event stream.
    #[derive(PartialEq, Eq)]
    pub struct Events {
        /// The form of plans in deployment events.
        pub plan_format: PlanForm = PlanForm::Both;
        /// How many past events are kept, for streams that resume.
        pub buffer_events: NonZeroUsize = const { NonZeroUsize::new(16_384).unwrap() };
        /// How many bytes of past events are kept.
        pub buffer_bytes: usize = 32 << 20;
        /// The maximum number of open streams; further ones get 503.
        pub max_streams: usize = 10_000;
        /// The names of further query parameters that are passed to the events component.
        pub parameters: BTreeSet<String>;
    }
}

transom_common::settings! {
    /// `[apps.callbacks]`: subscribers that events are posted to.
    pub struct Callbacks {
        /// The destinations that callbacks may have, such as `hooks.example.com`, `10.0.0.0/8` or
        /// `127.0.0.1:9000`. Loopback, link-local addresses and this daemon's own ports must be named
        /// exactly. Without any, subscribers are rejected.
        pub allow: Vec<String>;
        /// Attempts to deliver an event.
        pub attempts: NonZeroU32 = const { NonZeroU32::new(4).unwrap() };
        /// The timeout of one attempt, in seconds.
        pub timeout_seconds: NonZeroU64 = const { NonZeroU64::new(10).unwrap() };
    }
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names of the values say it")]
pub enum CheckRunner {
    Daemon,
    Agent,
}

/// A feature of app definitions, by Marathon's name.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Feature {
    /// Volumes that a volume driver provides.
    ExternalVolumes,
    /// GPUs; the framework registers with the capability to use them.
    GpuResources,
    /// References to the cluster's secret store.
    Secrets,
    /// Always on; accepted because configurations of Marathon name it.
    TaskKilling,
}

/// What happens to a deployment that misses its deadline.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDeadline {
    /// The deployment is reverted.
    #[default]
    Rollback,
    /// The deployment stops in its current step.
    Fail,
}

/// Whether tasks without GPUs may run on agents with GPUs.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GpuScheduling {
    /// Agents with GPUs only run tasks that use GPUs.
    #[default]
    Restricted,
    /// Agents with GPUs run any task.
    Unrestricted,
}

/// What happens to instances on agents for which an operator has scheduled maintenance.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Maintenance {
    /// Instances are moved to other agents before the window, and none are launched on these agents.
    #[default]
    Evacuate,
    /// Instances stay; none are launched on these agents during the window.
    Avoid,
    /// Maintenance is ignored: instances stay, and others are launched on these agents.
    Ignore,
}

/// The form of plans in events.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PlanForm {
    /// `plan.steps` is one list of actions, each with a list `actions` of itself, so that readers of
    /// either other form understand it.
    #[default]
    Both,
    /// `plan.steps` is one list of actions.
    #[serde(alias = "specification")]
    Flat,
    /// Marathon's: `plan.steps` is a list of steps, each with its `actions`.
    Upstream,
}

impl Feature {
    /// The name that clients see.
    pub fn name(self) -> &'static str {
        match self {
            Self::ExternalVolumes => "external_volumes",
            Self::GpuResources => "gpu_resources",
            Self::Secrets => "secrets",
            Self::TaskKilling => "task_killing",
        }
    }
}

impl Settings {
    /// The minimum interval of REVIVE calls for tasks that fit no offer.
    pub const REVIVE_INTERVAL: Duration = Duration::from_secs(1);

    /// All paths, which are relative to the folder of their file.
    pub fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [&mut self.tls_certificate, &mut self.tls_key, &mut self.ui_dir]
            .into_iter()
            .flatten()
    }

    /// The HTTP port of the section.
    pub fn http_port(&self) -> PortSettings<'_> {
        port_settings!(
            self,
            NAME,
            Some(&self.hostname),
            self.trusted_networks.as_deref(),
            LoopbackTrust::UnlessBoth,
            [api_username, api_password],
            [api_read_only_username, api_read_only_password]
        )
    }

    /// The port with its limits: the largest body of a request, and the number of concurrent requests
    /// and of event streams. Its host name is the name under which clients reach this daemon, shown by
    /// `/v2/leader` and `X-Marathon-Leader`.
    pub(crate) fn port(&self) -> PortConfig {
        let mut port = self.http_port().config();
        port.limits.max_body = self.max_body;
        port.limits.max_requests = self.max_concurrent_requests;
        port.limits.max_streams = self.events.max_streams;
        port
    }

    /// The framework that the service registers.
    pub fn framework(&self, principal: Option<String>) -> v1::FrameworkInfo {
        let port = self.http_port();
        let (scheme, hostname) = (port.scheme(), port.hostname());
        // The master offers agents with GPUs only to frameworks with this capability.
        let has_gpus = self.enable_features.contains(&Feature::GpuResources);
        v1::FrameworkInfo {
            user: self.user.clone(),
            name: self.framework_name.clone(),
            roles: vec![self.role.clone()],
            failover_timeout: Some(self.failover_timeout as f64),
            checkpoint: Some(true),
            webui_url: Some(format!("{scheme}://{hostname}:{}", self.port)),
            hostname: Some(hostname),
            principal,
            capabilities: has_gpus
                .then(|| CapabilityType::GpuResources.into())
                .into_iter()
                .collect(),
            ..v1::FrameworkInfo::default()
        }
    }

    /// What the service does with agents in maintenance.
    pub fn maintenance_mode(&self) -> MaintenanceMode {
        match self.maintenance {
            Maintenance::Ignore => MaintenanceMode::Ignored,
            Maintenance::Avoid => MaintenanceMode::Avoided,
            Maintenance::Evacuate => MaintenanceMode::Evacuated {
                ahead: Duration::from_secs(self.draining_seconds),
            },
        }
    }

    /// The features that are enabled. `task_killing` is always on.
    pub(crate) fn features(&self) -> BTreeSet<Feature> {
        let mut features: BTreeSet<Feature> = self.enable_features.iter().copied().collect();
        features.remove(&Feature::TaskKilling);
        features
    }

    /// The name of container networks that have none in their definition.
    pub(crate) fn default_network(&self) -> Option<&str> {
        Some(&*self.default_network_name).filter(|name| !name.is_empty())
    }

    /// The range of service ports; a port of 0 in a definition gets a number from it.
    pub(crate) fn service_ports(&self) -> RangeInclusive<u16> {
        self.local_port_min..=self.local_port_max
    }

    /// How long a launched task may stay in one state until it runs; then it is killed and launched
    /// again.
    pub(crate) fn launch_timeout(&self) -> Duration {
        Duration::from_secs(self.task_launch_timeout_seconds)
    }

    /// Limits and names that are invalid, one line each; those of the port not included.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.out_of_bounds(NAME);
        let (first, last) = (self.local_port_min, self.local_port_max);
        if first == 0 || first > last {
            problems.push(format!(
                "`apps.local_port_min` is {first}: it must be between 1 and `apps.local_port_max`, which is {last}"
            ));
        }
        if let Err(text) = destinations(&self.callbacks.allow) {
            problems.push(format!(
                "`apps.callbacks.allow` contains {text:?}: expected a host, an address or a network, each with \
                 or without a port"
            ));
        }
        problems.extend(prefix_problem(&self.env_vars_prefix));
        problems.extend(network_problem(&self.default_network_name));
        problems
    }
}

/// Parses the destinations in the settings: in the form that plugins use, or as an address or a
/// name without a port, which allows any port.
///
/// # Errors
/// Returns the first text that is not a destination.
pub(crate) fn destinations(texts: &[String]) -> Result<Vec<Destination>, String> {
    let destination = |text: &String| {
        let with_any_port = || {
            let address = text.parse::<std::net::Ipv6Addr>();
            let host = address.map_or_else(|_| text.clone(), |address| format!("[{address}]"));
            Destination::parse(&format!("{host}:*"))
        };
        let destination = Destination::parse(text).or_else(with_any_port);
        destination
            .filter(|destination| *destination != Destination::Task)
            .ok_or_else(|| text.clone())
    };
    texts.iter().map(destination).collect()
}

/// Checks that names of variables with the prefix are valid.
fn prefix_problem(prefix: &str) -> Option<String> {
    let starts_well = !prefix.starts_with(|char: char| char.is_ascii_digit());
    let is_allowed = |char: char| char.is_ascii_alphanumeric() || char == '_';
    (!starts_well || !prefix.chars().all(is_allowed)).then(|| {
        format!(
            "`apps.env_vars_prefix` is {prefix:?}; expected letters, digits and underscores, not beginning with \
             a digit, as in \"MARATHON_\""
        )
    })
}

/// Checks the network's name as in definitions, except that capital letters are accepted, as Marathon
/// accepts them in this setting.
fn network_problem(name: &str) -> Option<String> {
    let is_alphanumeric = |char: char| char.is_ascii_alphanumeric();
    let is_allowed = |char: char| is_alphanumeric(char) || matches!(char, '-' | '_');
    let valid =
        name.starts_with(is_alphanumeric) && name.ends_with(is_alphanumeric) && name.chars().all(is_allowed);
    (!name.is_empty() && (!valid || name.len() > 63)).then(|| {
        format!(
            "`apps.default_network_name` is {name:?}; expected at most 63 letters and digits, with hyphens and \
             underscores only inside, as in \"dcos\""
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maintenance_mode_is_that_of_the_settings() {
        let seconds = Duration::from_secs;
        let evacuated = |ahead| MaintenanceMode::Evacuated { ahead };
        for (text, expected) in [
            ("", evacuated(seconds(300))),
            ("draining_seconds = 7", evacuated(seconds(7))),
            ("maintenance = \"avoid\"", MaintenanceMode::Avoided),
            ("maintenance = \"ignore\"", MaintenanceMode::Ignored),
        ] {
            assert_eq!(section(text).maintenance_mode(), expected, "{text}");
        }
    }

    fn section(text: &str) -> Settings {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn features_are_passed_to_the_service_and_gpus_to_the_master() {
        let section_of = |features: &str| section(&format!("enable_features = {features}"));
        for (features, names, gpus) in [
            ("[]", vec![], false),
            (r#"["task_killing", "secrets"]"#, vec!["secrets"], false),
            (
                r#"["gpu_resources", "external_volumes"]"#,
                vec!["external_volumes", "gpu_resources"],
                true,
            ),
        ] {
            let section = section_of(features);
            let features_of = section.features();
            let actual: Vec<&str> = features_of.iter().map(|feature| feature.name()).collect();
            assert_eq!(actual, names);
            let info = section.framework(None);
            assert_eq!(info.can(&CapabilityType::GpuResources), gpus, "{features}");
        }
    }

    #[test]
    fn empty_name_means_no_default_network() {
        assert_eq!(section("").default_network(), None);
        let named = section("default_network_name = \"dcos\"");
        assert_eq!(named.default_network(), Some("dcos"));
    }

    #[test]
    fn limits_out_of_bounds_are_named_with_their_bounds() {
        for (text, expected) in [
            ("", None),
            (
                "max_versions = 1\nmax_apps = 1\nlocal_port_min = 1\nlocal_port_max = 1",
                None,
            ),
            (
                "max_concurrent_requests = 0",
                Some("`apps.max_concurrent_requests` is 0: it must be at least 1"),
            ),
            (
                "max_apps = 0",
                Some("`apps.max_apps` is 0: it must be at least 1"),
            ),
            (
                "max_instances = 0",
                Some("`apps.max_instances` is 0: it must be between 1 and 2147483647"),
            ),
            (
                "max_running_deployments = 0",
                Some("`apps.max_running_deployments` is 0: it must be at least 1"),
            ),
            (
                "max_versions = 1001",
                Some("`apps.max_versions` is 1001: it must be between 1 and 1000"),
            ),
            (
                "max_definitions_bytes = 1",
                Some("`apps.max_definitions_bytes` is 1: it must be at least 16777216"),
            ),
            (
                "max_versions_bytes = 1",
                Some("`apps.max_versions_bytes` is 1: it must be at least 16777216"),
            ),
            (
                "max_body = 1023",
                Some("`apps.max_body` is 1023: it must be between 1024 and 268435456"),
            ),
            (
                "draining_seconds = 604801",
                Some("`apps.draining_seconds` is 604801: it must be between 0 and 604800"),
            ),
            (
                "task_launch_timeout_seconds = 0",
                Some("`apps.task_launch_timeout_seconds` is 0: it must be between 1 and 86400"),
            ),
            (
                "local_port_min = 20001",
                Some(
                    "`apps.local_port_min` is 20001: it must be between 1 and `apps.local_port_max`, which is 20000",
                ),
            ),
            (
                "local_port_min = 0",
                Some(
                    "`apps.local_port_min` is 0: it must be between 1 and `apps.local_port_max`, which is 20000",
                ),
            ),
        ] {
            let actual = section(text).problems();
            assert_eq!(
                actual,
                expected.map(str::to_owned).into_iter().collect::<Vec<_>>(),
                "{text}"
            );
        }
    }
}
