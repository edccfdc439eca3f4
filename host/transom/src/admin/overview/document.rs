//! The document of `GET /v1/overview`, which `transom status` and the dashboard show.
//!
//! [`Overview::api`] is its version, which stays the same when a field is added. A client ignores
//! unknown fields, and treats missing ones as empty.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The state of a daemon and of what it depends on.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Overview {
    /// The daemon's version.
    pub(crate) version: String,
    /// The version of this document.
    pub(crate) api: u32,
    pub(crate) hostname: String,
    pub(crate) started: Timestamp,
    pub(crate) now: Timestamp,
    pub(crate) uptime_seconds: u64,
    /// Whether every service is ready.
    pub(crate) ready: bool,
    pub(crate) services: Vec<Service>,
    pub(crate) cluster: Cluster,
    /// Absent where no service needs a store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<Store>,
    /// Absent where no plugins are hosted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plugins: Option<Plugins>,
    /// Null until it was read for the first time.
    pub(crate) process: Option<Process>,
    /// Problems, errors first.
    pub(crate) problems: Vec<Problem>,
}

/// A service.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) ready: bool,
    pub(crate) ports: Vec<Port>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) framework: Option<Framework>,
    /// The present source of discovery's records: `stream`, `polling`, or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
    #[serde(flatten)]
    pub(crate) state: ServiceState,
}

/// The state that a service reports. Each list has at most 20 entries.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct ServiceState {
    /// Its counts, by names that differ between services.
    pub(crate) summary: Value,
    /// Apps and jobs that wait to be launched, longest first.
    pub(crate) waiting: Vec<Waiting>,
    /// Apps and pods with instances that fail health checks.
    pub(crate) unhealthy: Vec<Unhealthy>,
    /// Running deployments, oldest first.
    pub(crate) deployments: Vec<Deployment>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) address: String,
}

/// The framework of a service.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Framework {
    pub(crate) name: String,
    /// Host and port of the leader; null while there is none.
    pub(crate) leader: Option<String>,
    /// Whether this daemon leads.
    pub(crate) leading: bool,
    /// Whether the leader is subscribed with the cluster manager; absent on a standby.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subscribed: Option<bool>,
}

/// Tasks with equal needs that are not launched.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Waiting {
    /// The app, pod, group of jobs or kind of task.
    pub(crate) name: String,
    pub(crate) instances: u64,
    /// Since when; null if the service does not know.
    pub(crate) since: Option<Timestamp>,
    /// How often each reason occurred in the last round of offers.
    pub(crate) reasons: BTreeMap<String, u32>,
    /// Offers of that round.
    pub(crate) offers: u32,
    pub(crate) message: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Unhealthy {
    pub(crate) name: String,
    pub(crate) instances: u64,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Deployment {
    pub(crate) id: String,
    /// The app, pod or group.
    pub(crate) subject: String,
    pub(crate) since: Timestamp,
    /// From 1.
    pub(crate) step: usize,
    pub(crate) steps: usize,
}

/// The cluster manager, as a background task last saw it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Cluster {
    /// As configured, without credentials.
    pub(crate) masters: Vec<String>,
    /// Null until the first answer or failure.
    pub(crate) reachable: Option<bool>,
    pub(crate) error: Option<String>,
    /// Host and port of the leading master.
    pub(crate) leader: Option<String>,
    pub(crate) version: Option<String>,
    /// When the following was read.
    pub(crate) seen: Option<Timestamp>,
    pub(crate) agents: Agents,
    /// Amounts of `cpus`, `mem` and `disk` (MB) and `gpus`.
    pub(crate) resources: BTreeMap<String, Amounts>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct Agents {
    pub(crate) total: u64,
    pub(crate) active: u64,
    /// Host names of those that are not active and why, at most 20.
    pub(crate) inactive: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct Amounts {
    pub(crate) total: f64,
    pub(crate) used: f64,
    pub(crate) offered: f64,
}

/// The state store, as a background task last saw it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Store {
    /// `redis` or `file`.
    pub(crate) kind: String,
    /// The address without credentials, or the directory.
    pub(crate) server: String,
    /// Null until the first answer or failure.
    pub(crate) reachable: Option<bool>,
    pub(crate) error: Option<String>,
    /// Time of the last read.
    pub(crate) milliseconds: Option<f64>,
    /// What a crash costs: `synced` (nothing), `appended` (by `appendfsync` of the Redis),
    /// `volatile` (the last writes), `unknown`.
    pub(crate) durability: String,
}

/// The plugins.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Plugins {
    pub(crate) dir: String,
    pub(crate) total: u64,
    pub(crate) serving: u64,
    /// Plugins whose newest files were rejected; an older version may serve.
    pub(crate) refused: u64,
    pub(crate) disabled: u64,
    /// Plugins whose files are ignored until they change, after a rollback or a stopped rollout.
    pub(crate) quarantined: u64,
    pub(crate) shadows: u64,
    pub(crate) canaries: u64,
    pub(crate) points: Vec<Point>,
    /// The plugins that need attention, at most 20.
    pub(crate) attention: Vec<Attention>,
}

/// An extension point.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "the document's field is `point`")]
pub(crate) struct Point {
    pub(crate) point: String,
    pub(crate) plugins: Vec<String>,
    /// Plugins of this extension point that do not serve.
    pub(crate) missing: Vec<String>,
    /// The services of this daemon that use the extension point.
    pub(crate) used_by: Vec<String>,
}

/// A plugin that is disabled, or whose newest files were rejected or are in quarantine.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Attention {
    pub(crate) name: String,
    /// `refused`, `disabled` or `quarantined`.
    pub(crate) state: String,
    /// Whether a version of the plugin serves.
    pub(crate) serving: bool,
    pub(crate) reason: String,
}

/// The daemon's process.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Process {
    pub(crate) id: u32,
    pub(crate) resident_bytes: u64,
    pub(crate) open_files: u64,
    /// Null: unlimited.
    pub(crate) open_files_limit: Option<u64>,
    pub(crate) threads: u64,
    pub(crate) cpu_seconds: f64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// Something does not work.
    #[default]
    Error,
    /// Something may stop working, or works only in part.
    Warning,
}

/// Something that is wrong, and what to do about it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct Problem {
    pub(crate) severity: Severity,
    /// A service, or `cluster`, `store`, `plugins`, `process`.
    pub(crate) source: String,
    pub(crate) message: String,
    pub(crate) advice: String,
}
