//! Configuration of the apps service.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use transom_registry::network::Destination;
use transom_web::{BoundPort, Folder, Limits, PortConfig};

use crate::{Error, Result};

/// Attempts of probes under way at a time, by default.
pub const DEFAULT_CONCURRENCY: usize = 1000;

/// Settings of the apps service; all have defaults.
#[derive(Clone, Debug)]
pub struct Config {
    /// The HTTP port. Its host name is the name under which clients reach this daemon, shown by
    /// `/v2/leader` and `X-Marathon-Leader`. Its limits include the largest body of a request and
    /// the maximum number of concurrent requests.
    pub port: PortConfig,
    /// A built user interface, served under `/ui/`.
    pub ui: Option<Folder>,
    /// Prefix of the service's keys in the store, without a trailing slash; the scheduler of the
    /// same framework uses the same prefix.
    pub prefix: String,
    /// The framework's name, as `/v2/info` shows it.
    pub framework_name: String,
    /// The framework's role, the default role of apps; `*` is always allowed.
    pub role: String,
    /// Parts of definitions that are rejected unless they are enabled.
    pub features: BTreeSet<Feature>,
    /// The name of container networks that have none in their definition; upstream's
    /// `--default_network_name`.
    pub default_network_name: Option<String>,
    /// The user of tasks whose app names none, as `/v2/info` shows it.
    pub user: String,
    /// How long the cluster keeps the tasks of a framework without a daemon, as `/v2/info` shows
    /// it.
    pub failover_timeout: Duration,
    /// Whether other daemons can take over, because they share the store; `/v2/info` shows it.
    pub shared_store: bool,
    /// The number of deployments that may run at the same time; upstream's
    /// `--max_running_deployments`.
    pub max_running_deployments: usize,
    /// The number of apps that may exist; `None`: any number.
    pub max_apps: Option<usize>,
    /// The number of instances that an app or pod may have.
    pub max_instances: u32,
    /// The number of definitions of an app that are kept, the current one among them. Those that
    /// instances run are kept in addition.
    pub max_versions: usize,
    /// The approximate memory of all definitions in bytes, and of the past ones that instances run.
    pub max_definitions_bytes: u64,
    /// The size of all past definitions in the store, in bytes. An app whose change would exceed it
    /// keeps fewer of its own.
    pub max_versions_bytes: u64,
    /// The range of service ports; a port of 0 in a definition gets a number from it.
    pub service_ports: RangeInclusive<u16>,
    /// Where checks run.
    pub checks: Checks,
    /// How many attempts of checks may run concurrently.
    pub check_concurrency: usize,
    /// How many attempts of health and readiness checks, counted together, may run concurrently.
    pub health_concurrency: usize,
    /// Prefix of the variable `HOST` and of the `PORT` variables of tasks; upstream's
    /// `--env_vars_prefix`.
    pub env_vars_prefix: String,
    /// Whether tasks without GPUs use offers that have some; upstream's `--gpu_scheduling_behavior`.
    pub gpus: GpuScheduling,
    /// The event bus.
    pub events: Events,
    /// Callback subscribers.
    pub callbacks: Callbacks,
    /// Deployments.
    pub deployments: Deployments,
    /// How long a launched task may stay in one state until it runs; then it is killed and launched
    /// again.
    pub launch_timeout: Duration,
    /// The minimum interval of REVIVE calls for tasks that fit no offer.
    pub revive_interval: Duration,
    /// Timeout of one call of the store.
    pub store_timeout: Duration,
}

/// A part of definitions that is rejected unless it is enabled. The names are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Volumes of drivers.
    ExternalVolumes,
    /// GPUs. The framework must register as one that uses them.
    GpuResources,
    /// References to the cluster's secret store.
    Secrets,
}

impl Feature {
    /// The name that clients see.
    pub fn name(self) -> &'static str {
        match self {
            Self::ExternalVolumes => "external_volumes",
            Self::GpuResources => "gpu_resources",
            Self::Secrets => "secrets",
        }
    }
}

/// Whether tasks without GPUs are launched on agents that offer some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuScheduling {
    /// No, unless they have a volume there.
    #[default]
    Restricted,
    /// Yes.
    Unrestricted,
}

/// Where checks run: in this daemon or in the agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// `http` and `tcp` checks.
    pub network: Network,
    /// `exec` checks.
    pub exec: Exec,
}

/// Where `http` and `tcp` checks run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// In this daemon, with the check-probe components.
    #[default]
    Host,
    /// In the agents, for networks that this daemon cannot reach.
    Cluster,
}

/// Where `exec` checks run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exec {
    /// In the agents: a COMMAND check in the launched task.
    #[default]
    Cluster,
    /// In this daemon, with the check-command component and the agents' API, if the agents allow
    /// it.
    Host,
}

/// Settings of the event bus. The maximum number of streams is a limit of the port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Events {
    /// The form of plans in deployment events.
    pub plan_format: PlanForm,
    /// How many past events are kept, for streams that resume.
    pub buffer_events: usize,
    /// The maximum size of the kept events in bytes.
    pub buffer_bytes: usize,
    /// The names of the query parameters that are passed to the events component in addition to the
    /// known ones. Others are ignored, so that they do not cause distinct queries.
    pub parameters: BTreeSet<String>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            plan_format: PlanForm::default(),
            buffer_events: 16_384,
            buffer_bytes: 32 << 20,
            parameters: BTreeSet::new(),
        }
    }
}

/// Settings of callback subscribers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callbacks {
    /// The allowed destinations of callbacks; if there are none, callback subscribers are disabled.
    /// See [`destinations`](crate::destinations).
    pub allow: Vec<Destination>,
    /// Attempts to deliver an event.
    pub attempts: NonZeroU32,
    /// Timeout of one attempt.
    pub timeout: Duration,
}

impl Default for Callbacks {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            attempts: const { NonZeroU32::new(4).unwrap() },
            timeout: Duration::from_secs(10),
        }
    }
}

/// Settings of deployments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deployments {
    /// Seconds after which an unfinished deployment fails; `None`: it may take any time. A request
    /// can specify its own deadline.
    pub deadline: Option<u32>,
    /// What happens at the deadline.
    pub on_deadline: OnDeadline,
}

/// What happens to a deployment that is not done at its deadline. Either way it has failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnDeadline {
    /// It is reverted.
    #[default]
    Rollback,
    /// It stops in its current step; instances are left unchanged.
    Fail,
}

/// The form of plan steps, unless the subscriber selects light plans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanForm {
    /// A list of `{action, app, actions}`, whose `actions` are that one action, so that readers of
    /// either other form understand it.
    #[default]
    Both,
    /// A list of `{action, app}`.
    Flat,
    /// Upstream's: a list of `{actions}`, and the empty `original` and `target` that its Python
    /// client requires.
    Upstream,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            port: PortConfig {
                hostname: "localhost".to_owned(),
                limits: Limits {
                    max_streams: 10_000,
                    ..Limits::default()
                },
                ..PortConfig::new("apps", 8080)
            },
            ui: None,
            prefix: "apps".to_owned(),
            framework_name: "apps".to_owned(),
            role: "*".to_owned(),
            features: BTreeSet::new(),
            default_network_name: None,
            user: "root".to_owned(),
            failover_timeout: Duration::from_hours(168),
            shared_store: false,
            max_running_deployments: 100,
            max_apps: None,
            max_instances: 100_000,
            max_versions: 50,
            max_definitions_bytes: 256 << 20,
            max_versions_bytes: 1 << 30,
            service_ports: 10_000..=20_000,
            checks: Checks::default(),
            check_concurrency: DEFAULT_CONCURRENCY,
            health_concurrency: DEFAULT_CONCURRENCY,
            env_vars_prefix: String::new(),
            gpus: GpuScheduling::default(),
            events: Events::default(),
            callbacks: Callbacks::default(),
            deployments: Deployments::default(),
            launch_timeout: Duration::from_mins(5),
            revive_interval: Duration::from_secs(1),
            store_timeout: transom_store::typed::TIMEOUT,
        }
    }
}

impl Config {
    /// Binds the port.
    ///
    /// # Errors
    /// [`Error::Web`] when the port cannot be bound or would be open to everybody.
    pub async fn bind(&self) -> Result<BoundPort> {
        self.port.clone().bind().await.map_err(Error::Web)
    }
}
