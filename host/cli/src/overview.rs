//! The document of `GET /v1/overview`, which `transom status` and the dashboard show.
//!
//! [`Overview::api`] is its version, which stays the same when a field is added. A client ignores
//! unknown fields, and treats missing ones as empty.
#![allow(missing_docs, reason = "most names of fields say what they contain")]

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The state of a daemon and of what it depends on.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Overview {
    /// The daemon's version.
    pub version: String,
    /// The version of this document.
    pub api: u32,
    pub hostname: String,
    pub started: Timestamp,
    pub now: Timestamp,
    pub uptime_seconds: u64,
    /// Whether every service is ready.
    pub ready: bool,
    pub services: Vec<Service>,
    pub cluster: Cluster,
    /// Absent where no service needs a store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<Store>,
    /// Absent where no plugins are hosted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugins: Option<Plugins>,
    /// Null until it was read for the first time.
    pub process: Option<Process>,
    /// Problems, errors first.
    pub problems: Vec<Problem>,
}

/// A service.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Service {
    pub name: String,
    pub ready: bool,
    pub ports: Vec<Port>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framework: Option<Framework>,
    /// The present source of discovery's records: `stream`, `polling`, or `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(flatten)]
    pub state: ServiceState,
}

/// The state that a service reports. Each list has at most 20 entries.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct ServiceState {
    /// Its counts, by names that differ between services.
    pub summary: Value,
    /// Apps and jobs that wait to be launched, longest first.
    pub waiting: Vec<Waiting>,
    /// Apps and pods whose tasks or checks fail, apps and jobs that no agent can run, and the causes.
    pub failing: Vec<Failing>,
    /// Apps and pods with instances that fail health checks.
    pub unhealthy: Vec<Unhealthy>,
    /// Running deployments, oldest first.
    pub deployments: Vec<Deployment>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Port {
    pub name: String,
    pub address: String,
}

/// The framework of a service.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Framework {
    pub name: String,
    /// Host and port of the leader; null while there is none.
    pub leader: Option<String>,
    /// Whether this daemon leads.
    pub leading: bool,
    /// Whether the leader is subscribed with the cluster manager; absent on a standby.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscribed: Option<bool>,
}

/// Tasks with equal needs that are not launched.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Waiting {
    /// The app, pod, group of jobs or kind of task.
    pub name: String,
    pub instances: u64,
    /// Since when; null if the service does not know.
    pub since: Option<Timestamp>,
    /// How often each reason occurred in the last round of offers.
    pub reasons: BTreeMap<String, u32>,
    /// Offers of that round.
    pub offers: u32,
    pub message: Option<String>,
    /// The reasons and the message in one sentence.
    pub why: String,
    /// What an operator can do about them.
    pub advice: Vec<String>,
}

/// An app or pod whose tasks or checks fail.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Failing {
    pub name: String,
    /// What fails, as one word.
    pub kind: String,
    /// How often in a row.
    pub count: u32,
    pub since: Timestamp,
    /// Host names of agents, at most three.
    pub agents: Vec<String>,
    /// The cause in one sentence, which begins with the name.
    pub message: String,
    pub advice: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Unhealthy {
    pub name: String,
    pub instances: u64,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Deployment {
    pub id: String,
    /// The app, pod or group.
    pub subject: String,
    pub since: Timestamp,
    /// From 1.
    pub step: usize,
    pub steps: usize,
    /// Why the step cannot go on, if an app or pod of it fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
}

/// The cluster manager, as a background task last saw it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Cluster {
    /// As configured, without credentials.
    pub masters: Vec<String>,
    /// Null until the first answer or failure.
    pub reachable: Option<bool>,
    pub error: Option<String>,
    /// Host and port of the leading master.
    pub leader: Option<String>,
    pub version: Option<String>,
    /// When the following was read.
    pub seen: Option<Timestamp>,
    pub agents: Agents,
    /// Amounts of `cpus`, `mem` and `disk` (MB) and `gpus`.
    pub resources: BTreeMap<String, Amounts>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Agents {
    pub total: u64,
    pub active: u64,
    /// Host names of those that are not active and why, at most 20.
    pub inactive: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Amounts {
    pub total: f64,
    pub used: f64,
    pub offered: f64,
}

/// The state store, as a background task last saw it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Store {
    /// `redis` or `file`.
    pub kind: String,
    /// The address without credentials, or the directory.
    pub server: String,
    /// Null until the first answer or failure.
    pub reachable: Option<bool>,
    pub error: Option<String>,
    /// Time of the last read.
    pub milliseconds: Option<f64>,
    /// `synced`, `replicated`, `partly_replicated`, `unconfirmed`, `appended`, `volatile` or `unknown`.
    pub durability: String,
    /// What a failure can lose although it was acknowledged; null if nothing, or not known.
    pub may_lose: Option<String>,
}

/// The plugins.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Plugins {
    pub dir: String,
    pub total: u64,
    pub serving: u64,
    /// Plugins whose newest files were rejected; an older version may serve.
    #[serde(rename = "refused")]
    pub rejected: u64,
    pub disabled: u64,
    /// Plugins whose files are ignored until they change, after a rollback or a stopped rollout.
    pub quarantined: u64,
    pub shadows: u64,
    pub canaries: u64,
    pub points: Vec<Point>,
    /// The plugins that need attention, at most 20.
    pub attention: Vec<Attention>,
}

/// An extension point.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Point {
    pub point: String,
    pub plugins: Vec<String>,
    /// Plugins of this extension point that do not serve.
    pub missing: Vec<String>,
    /// The services of this daemon that use the extension point.
    pub used_by: Vec<String>,
}

/// A plugin that is disabled, or whose newest files were rejected or are in quarantine.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Attention {
    pub name: String,
    /// `refused`, `disabled` or `quarantined`.
    pub state: String,
    /// Whether a version of the plugin serves.
    pub serving: bool,
    pub reason: String,
}

/// The daemon's process.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Process {
    pub id: u32,
    pub resident_bytes: u64,
    pub open_files: u64,
    /// Null: unlimited.
    pub open_files_limit: Option<u64>,
    pub threads: u64,
    pub cpu_seconds: f64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something does not work.
    #[default]
    Error,
    /// Something may stop working, or works only in part.
    Warning,
}

/// Something that is wrong, and what to do about it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Problem {
    pub severity: Severity,
    /// A service, or `cluster`, `store`, `plugins`, `process`.
    pub source: String,
    pub message: String,
    pub advice: String,
}

/// A time in its largest unit, rounded down: `4 min`.
pub fn rounded_duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A number with its noun.
pub fn with_plural(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{s}")
}
