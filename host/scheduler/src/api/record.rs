//! A task that was accepted for launch, as it is stored.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use transom_cluster::TaskId;
use transom_cluster::v1::{self, TaskState};

use crate::{AgentLocation, InGroup};

/// All records by task id: one immutable snapshot. Snapshots share what did not change, so that the
/// cost of a change does not grow with the number of records.
pub type Tasks = imbl::OrdMap<TaskId, Arc<TaskRecord>>;

/// One task, from the intent to launch it until the service purges it. Stored as JSON under
/// `<prefix>/tasks/<task id>`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// The cluster's task id.
    pub id: TaskId,
    /// [`RunSpec::id`](crate::RunSpec::id).
    pub run_spec: String,
    /// [`RunSpec::version`](crate::RunSpec::version).
    pub version: String,
    /// The group it was launched with; `None`: it was launched alone.
    #[serde(default)]
    pub group: Option<InGroup>,
    /// Its agent; shared by the records of all tasks on that agent.
    pub agent: Arc<AgentLocation>,
    /// The agent's attributes at launch, so that constraints can be evaluated after a restart while
    /// the agent offers nothing. Shared too.
    #[serde(default)]
    pub agent_attributes: Arc<[v1::Attribute]>,
    /// One host port for each requested one, in that order.
    pub host_ports: Vec<u16>,
    /// The phase of the launch.
    pub phase: Phase,
    /// The last known state; `Staging` before the first status.
    pub state: TaskState,
    /// The last status, merged with earlier ones; see "Statuses" in the crate's documentation.
    pub status: Option<v1::TaskStatus>,
    /// When the launch was decided and stored.
    pub intended_at: Timestamp,
    /// When the master accepted the launch.
    #[serde(default)]
    pub staged_at: Option<Timestamp>,
    /// When it was first seen running.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// When the record last changed.
    pub updated_at: Timestamp,
    /// Whether the service has killed it. The kill is repeated until the task is terminal.
    #[serde(default)]
    pub killing: bool,
    /// The grace period of the kill; `None`: the task's own kill policy.
    #[serde(default)]
    pub kill_grace: Option<Duration>,
    /// Whether it was killed by [`SchedulerApi::restart`](crate::SchedulerApi::restart).
    #[serde(default)]
    pub restarting: bool,
    /// The service's own data, from [`BuildTask::metadata`](crate::BuildTask::metadata). Equal
    /// values are shared.
    #[serde(default)]
    pub metadata: Arc<serde_json::Value>,
}

/// The phase of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Stored before the offer is accepted: the task may or may not have been launched.
    Intent,
    /// Accepted by the master, or seen in a status. Stored with the first status, because both
    /// phases are treated alike after a restart.
    Launched,
    /// Ended, or unknown to the master.
    Terminal,
}

impl TaskRecord {
    /// The id of the request: the task itself, or its group.
    pub fn request_id(&self) -> &TaskId {
        self.group.as_ref().map_or(&self.id, |group| &group.id)
    }

    /// `healthy` of the last status; `None`: not checked yet.
    pub fn healthy(&self) -> Option<bool> {
        self.status.as_ref().and_then(|status| status.healthy)
    }

    /// Whether its agent kills or killed it because an operator drains the agent.
    pub fn is_drained(&self) -> bool {
        self.status
            .as_ref()
            .is_some_and(v1::TaskStatus::is_agent_draining)
    }

    /// Ended, or unknown to the master.
    pub fn is_terminal(&self) -> bool {
        self.phase == Phase::Terminal
    }
}
