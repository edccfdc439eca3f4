//! What a job asks for: a task, the specification it is an instance of, and how its launch is composed.

use std::fmt::Debug;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use transom_cluster::{AgentId, TaskId, v1};
use transom_plugins::matcher;

use crate::TaskRecord;

/// One task that shall run once. Its id is never used a second time.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The cluster's task id, unique within the framework for ever.
    pub id: TaskId,
    /// What it is an instance of. Wants that share the `Arc` are matched together, with one question to the
    /// matcher.
    pub spec: Arc<RunSpec>,
    /// No launch before this moment (a job's backoff); `None`: at once.
    pub not_before: Option<Timestamp>,
}

/// What an instance needs and where it may go.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// App or pod id, or the workflow task's id. Instances with the same id count as placed for each other's
    /// conditions.
    pub id: String,
    /// The job's version of the specification; recorded with each task, compared only by
    /// [`BuildTask::counts_as_placed`].
    pub version: String,
    /// Instances wanted in all, for conditions that spread.
    pub instances: u32,
    /// CPUs, to a thousandth.
    pub cpus: f64,
    /// Memory in MB.
    pub mem: f64,
    /// Disk in MB.
    pub disk: f64,
    /// GPUs.
    pub gpus: f64,
    /// Host ports, in the order in which [`Placement::host_ports`] answers.
    pub ports: Vec<PortRequest>,
    /// Asked of the attribute matcher. Even without any, the matcher is asked (it knows the home region
    /// rule).
    pub conditions: Vec<matcher::Condition>,
    /// Roles whose reservations may be used, `*` for unreserved resources. Empty: the framework's roles and
    /// `*`.
    pub roles: Vec<String>,
    /// Composes the launch once the place is known.
    pub build: Arc<dyn BuildTask>,
}

/// One host port of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PortRequest {
    /// Any port of those on offer.
    Random,
    /// Exactly this one.
    Fixed(u16),
    /// Any one from first to last, both included. One whose last comes before its first is never on offer.
    Range(u16, u16),
}

/// How a job turns a placement into a task.
///
/// Called from the scheduler's actor: it must not block and must not panic.
pub trait BuildTask: Send + Sync + Debug {
    /// Name, command, container, discovery, labels, check, health check and kill policy. The scheduler
    /// overwrites `task_id`, `agent_id` and `resources`.
    fn build(&self, placement: &Placement) -> v1::TaskInfo;

    /// What the job wants to find in [`TaskRecord::note`]; stored with the intent.
    fn note(&self, _placement: &Placement) -> serde_json::Value {
        serde_json::Value::Null
    }

    /// Whether a live task of the same run spec id counts as placed for the conditions. By default all do; a
    /// job that replaces instances answers `false` for those of an older configuration, so that `UNIQUE` does
    /// not lock an upgrade.
    fn counts_as_placed(&self, _record: &TaskRecord) -> bool {
        true
    }
}

/// Where one task goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// Which task.
    pub task: TaskId,
    /// The agent that will run it.
    pub agent: AgentPlace,
    /// One host port for each [`RunSpec::ports`], in that order.
    pub host_ports: Vec<u16>,
}

/// An agent as a task's record remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentPlace {
    /// The cluster's id for the agent.
    pub id: AgentId,
    /// The host name it offers under.
    pub hostname: String,
    /// Its fault domain's region.
    #[serde(default)]
    pub region: Option<String>,
    /// Its fault domain's zone.
    #[serde(default)]
    pub zone: Option<String>,
    /// The agent's own HTTP address (host or IP, port), where offers tell it.
    #[serde(default)]
    pub endpoint: Option<(String, u16)>,
}
