//! `[apps]`: long-running apps (specification, part C).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use transom_common::Secret;
use transom_web::{AllowedHost, Origin};

use crate::schema;

/// `[apps]`: long-running apps, with Marathon's API. Marathon's own names of keys are accepted too.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs, reason = "the type of a section describes it")]
pub struct Apps {
    /// The address of the port; others than loopback need credentials or `trusted_networks`.
    pub listener: IpAddr,
    /// The port of Marathon's API.
    pub port: u16,
    /// The user that requests from networks outside `trusted_networks` need; needs `api_password`.
    pub api_username: Option<String>,
    /// The password of `api_username`.
    #[schemars(with = "Option<schema::Secret>")]
    pub api_password: Option<Secret>,
    /// A second user, who may only read; needs `api_read_only_password`.
    pub api_read_only_username: Option<String>,
    /// The password of `api_read_only_username`.
    #[schemars(with = "Option<schema::Secret>")]
    pub api_read_only_password: Option<Secret>,
    /// The PEM file of the port's certificate, for TLS; needs `tls_key`.
    pub tls_certificate: Option<PathBuf>,
    /// The key for `tls_certificate` (PEM).
    pub tls_key: Option<PathBuf>,
    /// Networks such as `10.0.0.0/8` whose requests need no credentials. A listener that other machines
    /// can reach requires networks or credentials. Requests from this machine need no credentials,
    /// unless both are set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<schema::Network>>")]
    pub trusted_networks: Option<Vec<IpNet>>,
    /// Host names of the port for clients, in addition to loopback, its address and `hostname`.
    #[schemars(with = "Vec<schema::Host>")]
    pub allowed_hosts: Vec<AllowedHost>,
    /// Other sites whose web pages may use the port, such as `https://ui.example.com`.
    #[schemars(with = "Vec<schema::Origin>")]
    pub allowed_origins: Vec<Origin>,
    /// The folder of a built user interface, which is served under `/ui/`.
    pub ui_dir: Option<PathBuf>,
    /// The name that the framework registers with, and the prefix of its keys in the store.
    pub framework_name: String,
    /// The Mesos role of the framework.
    pub role: String,
    /// The user that runs tasks, unless the app names one.
    pub user: String,
    /// The framework's failover timeout in seconds: how long the cluster keeps its tasks without
    /// the daemon.
    pub failover_timeout: u64,
    /// The host name of this daemon for clients; the listener's address when empty.
    pub hostname: String,
    /// The prefix of the variables `HOST`, `PORT`, `PORTS`, `PORT0`… of tasks.
    pub env_vars_prefix: String,
    /// Features of definitions that are rejected unless they are listed here.
    pub enable_features: Vec<Feature>,
    /// Whether tasks without GPUs may run on agents with GPUs.
    pub gpu_scheduling_behavior: GpuScheduling,
    /// The container network of definitions that name none. Empty: no default network.
    pub default_network_name: String,
    /// The maximum number of requests that are handled at the same time, event streams not counted;
    /// further ones get 503. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_requests: Option<usize>,
    /// The maximum size of a request's body, in bytes.
    pub max_body: usize,
    /// The number of deployments that may run at the same time.
    pub max_running_deployments: usize,
    /// The number of apps that may exist. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_apps: Option<usize>,
    /// The number of instances that an app or pod may have.
    pub max_instances: u32,
    /// The number of definitions of an app that are kept.
    pub max_versions: usize,
    /// The approximate memory of all definitions, in bytes; further ones are rejected. Deleting and
    /// scaling are always possible. Past definitions that instances still run may need as much again.
    pub max_definitions_bytes: usize,
    /// The size of all past definitions in the store, in bytes. Beyond it, a changed app keeps fewer
    /// of its own.
    pub max_versions_bytes: usize,
    /// The first of the service ports.
    pub local_port_min: u16,
    /// The last of the service ports.
    pub local_port_max: u16,
    /// Seconds for which a launched task may stay in one state before it runs. A task that stays longer
    /// is killed and launched again.
    pub task_launch_timeout_seconds: u64,
    /// What happens to instances on agents for which maintenance is scheduled.
    pub maintenance: Maintenance,
    /// Seconds before a maintenance window from which instances are moved to other agents.
    pub draining_seconds: u64,
    pub checks: Checks,
    pub deployments: Deployments,
    pub health: Health,
    pub events: Events,
    pub callbacks: Callbacks,
}

impl Default for Apps {
    fn default() -> Self {
        Apps {
            listener: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 8080,
            api_username: None,
            api_password: None,
            api_read_only_username: None,
            api_read_only_password: None,
            tls_certificate: None,
            tls_key: None,
            trusted_networks: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            ui_dir: None,
            framework_name: "marathon".into(),
            role: "*".into(),
            user: "root".into(),
            failover_timeout: 604_800,
            hostname: String::new(),
            env_vars_prefix: String::new(),
            enable_features: Vec::new(),
            gpu_scheduling_behavior: GpuScheduling::Restricted,
            default_network_name: String::new(),
            max_concurrent_requests: None,
            max_body: 8 << 20,
            max_running_deployments: 100,
            max_apps: None,
            max_instances: 100_000,
            max_versions: 50,
            max_definitions_bytes: 256 << 20,
            max_versions_bytes: 1 << 30,
            local_port_min: 10_000,
            local_port_max: 20_000,
            task_launch_timeout_seconds: 300,
            maintenance: Maintenance::Evacuate,
            draining_seconds: 300,
            checks: Checks::default(),
            deployments: Deployments::default(),
            health: Health::default(),
            events: Events::default(),
            callbacks: Callbacks::default(),
        }
    }
}

impl Apps {
    /// All paths, which [`load`](crate::load) resolves against the folder of their file.
    pub fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [&mut self.tls_certificate, &mut self.tls_key, &mut self.ui_dir]
            .into_iter()
            .flatten()
    }
}

/// A feature of app definitions, by Marathon's name.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
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

/// `[apps.deployments]`: the default deadline of deployments.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Deployments {
    /// Seconds after which an unfinished deployment fails. Default: no deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<u32>,
    /// What happens to a deployment that misses its deadline.
    pub on_deadline: OnDeadline,
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

/// `[apps.events]`: the event stream.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_field_names, reason = "the names are those of the keys")]
pub struct Events {
    /// The form of plans in deployment events.
    pub plan_format: PlanFormat,
    /// How many past events are kept, for streams that resume.
    pub buffer_events: NonZeroUsize,
    /// How many bytes of past events are kept.
    pub buffer_bytes: usize,
    /// The maximum number of open streams; further ones get 503.
    pub max_streams: usize,
    /// The names of further query parameters that are passed to the events component.
    pub parameters: BTreeSet<String>,
}

impl Default for Events {
    fn default() -> Self {
        Events {
            plan_format: PlanFormat::Both,
            buffer_events: const { NonZeroUsize::new(16_384).unwrap() },
            buffer_bytes: 32 << 20,
            max_streams: 10_000,
            parameters: BTreeSet::new(),
        }
    }
}

/// `[apps.callbacks]`: subscribers that events are posted to.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Callbacks {
    /// The destinations that callbacks may have, such as `hooks.example.com`, `10.0.0.0/8` or
    /// `127.0.0.1:9000`. Loopback, link-local addresses and this daemon's own ports must be named
    /// exactly. Without any, subscribers are rejected.
    pub allow: Vec<String>,
    /// Attempts to deliver an event.
    pub attempts: NonZeroU32,
    /// The timeout of one attempt, in seconds.
    pub timeout_seconds: NonZeroU64,
}

impl Default for Callbacks {
    fn default() -> Self {
        Callbacks {
            allow: Vec::new(),
            attempts: const { NonZeroU32::new(4).unwrap() },
            timeout_seconds: const { NonZeroU64::new(10).unwrap() },
        }
    }
}

/// The form of plans in events.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PlanFormat {
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

/// `[apps.checks]`: where checks run.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Checks {
    /// Where `http` and `tcp` checks run: in this daemon, by the probe components, or on the tasks'
    /// agents.
    pub network_from: CheckRunner,
    /// Where `exec` checks run: on the tasks' agents, or in this daemon, by the component
    /// `check-command`.
    pub exec_from: CheckRunner,
    /// The maximum number of checks that this daemon makes concurrently.
    pub concurrency: NonZeroUsize,
}

impl Default for Checks {
    fn default() -> Self {
        Checks {
            network_from: CheckRunner::Daemon,
            exec_from: CheckRunner::Agent,
            concurrency: CONCURRENCY,
        }
    }
}

/// `[apps.health]`: health and readiness checks that this daemon makes.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Health {
    /// The maximum number of health and readiness checks that this daemon makes concurrently.
    pub concurrency: NonZeroUsize,
}

impl Default for Health {
    fn default() -> Self {
        Health {
            concurrency: CONCURRENCY,
        }
    }
}

/// The default of the maximum number of concurrent probes.
const CONCURRENCY: NonZeroUsize = NonZeroUsize::new(transom_apps::DEFAULT_CONCURRENCY).unwrap();

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names of the values say it")]
pub enum CheckRunner {
    Daemon,
    Agent,
}
