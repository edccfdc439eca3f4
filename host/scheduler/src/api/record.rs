//! What is known of a task that was accepted for launch, as it stands in the store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use transom_cluster::TaskId;
use transom_cluster::v1::{self, TaskState};

use crate::{AgentLocation, InGroup};

/// All records by task id: one immutable snapshot.
pub type Tasks = BTreeMap<TaskId, Arc<TaskRecord>>;

/// One task, from the intent to launch it until the job forgets it. Stored as JSON under
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
    /// Where it went; shared by all records of tasks there.
    pub agent: Arc<AgentLocation>,
    /// The agent's attributes when it went there, so that conditions can be judged after a restart while the
    /// agent offers nothing. Shared too.
    #[serde(default)]
    pub agent_attributes: Arc<[v1::Attribute]>,
    /// One host port for each requested one, in that order.
    pub host_ports: Vec<u16>,
    /// How far the launch is known to have come.
    pub phase: Phase,
    /// The last known state; `Staging` until the cluster says anything.
    pub state: TaskState,
    /// The last status, with what later statuses left out kept from earlier ones; see the crate's page,
    /// "Statuses".
    pub status: Option<v1::TaskStatus>,
    /// When the launch was decided and stored.
    pub intended_at: Timestamp,
    /// When the cluster took the launch.
    #[serde(default)]
    pub staged_at: Option<Timestamp>,
    /// When it was first seen running.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// When the record last changed.
    pub updated_at: Timestamp,
    /// Released by the job: killed until terminal.
    #[serde(default)]
    pub killing: bool,
    /// How long a kill lets it end by itself; `None`: what the task's own kill policy says.
    #[serde(default)]
    pub kill_grace: Option<Duration>,
    /// The job's own, from [`BuildTask::metadata`](crate::BuildTask::metadata). Equal ones are shared.
    #[serde(default)]
    pub metadata: Arc<serde_json::Value>,
}

/// How far a launch is known to have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Stored before the offer is accepted: the task may or may not have been launched.
    Intent,
    /// Accepted by the cluster, or seen in a status. In the store this follows with the first status, as both
    /// phases are treated alike after a restart.
    Launched,
    /// Ended, or the cluster does not know it.
    Terminal,
}

impl TaskRecord {
    /// What was wanted: the task itself, or the group it belongs to.
    pub fn wanted(&self) -> &TaskId {
        self.group.as_ref().map_or(&self.id, |group| &group.id)
    }

    /// Whether the last status says healthy or unhealthy; `None`: nobody has looked yet.
    pub fn healthy(&self) -> Option<bool> {
        self.status.as_ref().and_then(|status| status.healthy)
    }

    /// Ended, or the cluster does not know it.
    pub fn is_terminal(&self) -> bool {
        self.phase == Phase::Terminal
    }
}
