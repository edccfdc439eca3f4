//! The records of a framework outside its scheduler, for tasks that another scheduler launched and
//! for copies of a store.
//!
//! A scheduler that starts with such records takes over the tasks: it subscribes with the
//! framework's id and reconciles their current states. A task of the framework without a record is
//! an orphan, which the scheduler kills.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use transom_cluster::v1::{self, TaskState};

use super::ledger::{FOLDER as TASKS, FRAMEWORK_ID, key as task_key};
use super::reservations::FOLDER as RESERVATIONS;
use crate::matching::agents::fault_domain;
use crate::store::transition;
use crate::{AgentLocation, InGroup, Phase, Reservation, TaskRecord};

/// The data about a task of another scheduler that the master does not have.
#[derive(Clone, Debug)]
pub struct Launched {
    /// [`RunSpec::id`](crate::RunSpec::id).
    pub run_spec: String,
    /// [`RunSpec::version`](crate::RunSpec::version).
    pub version: String,
    /// The group it was launched with.
    pub group: Option<InGroup>,
    /// Its agent.
    pub agent: Arc<AgentLocation>,
    /// The agent's attributes.
    pub agent_attributes: Arc<[v1::Attribute]>,
    /// One host port for each requested one, in that order.
    pub host_ports: Vec<u16>,
    /// When it was launched.
    pub staged_at: Option<Timestamp>,
    /// When it was first seen running.
    pub started_at: Option<Timestamp>,
}

impl TaskRecord {
    /// The record of a task that another scheduler launched under the id of the framework, from the
    /// master's description of it. Equal descriptions give equal records.
    pub fn of_launched(task: &v1::Task, launched: Launched) -> Self {
        // The newest status may be of an earlier state than the task, because the master changes
        // the task's state before the update is acknowledged.
        let status = task
            .statuses
            .iter()
            .rev()
            .find(|status| status.state == task.state);
        let status = status.cloned().unwrap_or_else(|| v1::TaskStatus {
            task_id: task.task_id.clone(),
            state: task.state.clone(),
            agent_id: Some(task.agent_id.clone()),
            executor_id: task.executor_id.clone(),
            ..v1::TaskStatus::default()
        });
        let since = status.timestamp.and_then(timestamp_of_seconds);
        let launch_time = launched.started_at.or(launched.staged_at).or(since);
        let launch_time = launch_time.unwrap_or(Timestamp::UNIX_EPOCH);
        let started = launched
            .started_at
            .or(Some(since.unwrap_or(launch_time)).filter(|_| task.state == TaskState::Running));
        Self {
            id: task.task_id.clone(),
            run_spec: launched.run_spec,
            version: launched.version,
            group: launched.group,
            agent: launched.agent,
            agent_attributes: launched.agent_attributes,
            host_ports: launched.host_ports,
            phase: if transition::is_live(&task.state) {
                Phase::Launched
            } else {
                Phase::Terminal
            },
            state: task.state.clone(),
            status: Some(status),
            intended_at: launched.staged_at.unwrap_or(launch_time),
            staged_at: launched.staged_at.or(Some(launch_time)),
            started_at: started,
            updated_at: since.unwrap_or(launch_time),
            killing: task.state == TaskState::Killing,
            kill_grace: None,
            restarting: false,
            metadata: Arc::new(Value::Null),
        }
    }

    /// The key of the record under the framework's prefix.
    pub fn key(&self) -> String {
        task_key(&self.id)
    }
}

impl AgentLocation {
    /// The location of an agent, from the master's description of it.
    pub fn of_agent(info: &v1::AgentInfo) -> Option<Self> {
        let (region, zone) = fault_domain(info.domain.as_ref());
        Some(Self {
            id: info.id.clone()?,
            hostname: info.hostname.clone(),
            region,
            zone,
            endpoint: info.port.map(|port| transom_common::HostPort {
                host: info.hostname.clone(),
                port,
            }),
        })
    }
}

/// The key of the framework's id, under its prefix. The value is text, not JSON.
pub const FRAMEWORK_ID_KEY: &str = FRAMEWORK_ID;

/// Reads a record of a framework as the scheduler does, and returns it as the scheduler writes it.
/// `None` if the scheduler has no records with such a key.
///
/// # Errors
/// The record cannot be decoded.
pub fn normalized(key: &str, record: &Value) -> Option<serde_json::Result<Value>> {
    if key.starts_with(TASKS) {
        return Some(read::<TaskRecord>(record));
    }
    key.starts_with(RESERVATIONS).then(|| read::<Reservation>(record))
}

fn read<T: DeserializeOwned + Serialize>(record: &Value) -> serde_json::Result<Value> {
    serde_json::to_value(T::deserialize(record)?)
}

/// The time that is this number of seconds after 1970.
fn timestamp_of_seconds(seconds: f64) -> Option<Timestamp> {
    Timestamp::from_microsecond((seconds * 1e6) as i64).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::record;

    fn launched() -> Launched {
        Launched {
            run_spec: "/web".to_owned(),
            version: "2018-01-01T00:00:00.000Z".to_owned(),
            group: None,
            agent: Arc::clone(&record("t").agent),
            agent_attributes: Arc::default(),
            host_ports: vec![31_000],
            staged_at: Some("2018-01-01T00:00:01Z".parse().unwrap()),
            started_at: None,
        }
    }

    fn task(state: &str, statuses: &Value) -> v1::Task {
        let task = json!({
            "name": "web", "task_id": {"value": "t"}, "framework_id": {"value": "f"},
            "agent_id": {"value": "a"}, "state": state, "statuses": statuses,
        });
        serde_json::from_value(task).unwrap()
    }

    #[test]
    fn record_of_a_launched_task_has_the_status_of_its_present_state() {
        let staging =
            json!({"task_id": {"value": "t"}, "state": "TASK_STAGING", "timestamp": 1_514_764_802.0});
        let running = json!({
            "task_id": {"value": "t"}, "state": "TASK_RUNNING", "timestamp": 1_514_764_803.5, "healthy": true,
        });
        let late = json!({"task_id": {"value": "t"}, "state": "TASK_RUNNING", "timestamp": 1_514_764_809.0, "healthy": false});
        let from = |state, statuses| TaskRecord::of_launched(&task(state, &statuses), launched());

        let record = from("TASK_RUNNING", json!([staging, running]));
        assert_eq!((record.phase, record.healthy()), (Phase::Launched, Some(true)));
        assert_eq!(record.started_at, Some("2018-01-01T00:00:03.5Z".parse().unwrap()));
        assert_eq!(record, from("TASK_RUNNING", json!([staging, running])));
        let newest = from("TASK_RUNNING", json!([running, late, staging]));
        assert_eq!(newest.healthy(), Some(false));

        let early = from("TASK_STAGING", json!([staging]));
        assert_eq!((early.started_at, early.killing), (None, false));
        assert_eq!(early.updated_at, "2018-01-01T00:00:02Z".parse().unwrap());
        // A task without a status counts as running since its launch.
        let bare = from("TASK_RUNNING", json!([]));
        assert_eq!(bare.status.as_ref().unwrap().state, TaskState::Running);
        assert_eq!(bare.started_at, launched().staged_at);
        assert!(from("TASK_KILLING", json!([])).killing);
    }

    #[test]
    fn repeated_status_after_a_takeover_changes_nothing() {
        let running = json!([{"task_id": {"value": "t"}, "state": "TASK_RUNNING", "timestamp": 1.0}]);
        let record = TaskRecord::of_launched(&task("TASK_RUNNING", &running), launched());
        let answer: v1::TaskStatus =
            serde_json::from_value(json!({"task_id": {"value": "t"}, "state": "TASK_RUNNING"})).unwrap();
        let effect = transition::apply(&record, &answer, Timestamp::now());
        assert_eq!(effect, transition::StatusEffect::Unchanged);
    }

    #[test]
    fn records_are_recognized_by_their_keys() {
        let task = serde_json::to_value(record("t")).unwrap();
        assert_eq!(normalized("tasks/t", &task).unwrap().unwrap(), task);
        assert!(normalized("tasks/t", &json!({"id": "t"})).unwrap().is_err());
        assert!(normalized("reservations/t", &task).unwrap().is_err());
        assert!(normalized("apps/t", &task).is_none());
    }
}
