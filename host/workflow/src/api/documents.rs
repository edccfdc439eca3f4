//! The shapes of answers that handlers put together member by member.
#![expect(dead_code, reason = "only for their schemas")]

use jiff::Timestamp;
use schemars::JsonSchema;
use serde_json::{Map, Value};

use crate::job_state::JobState;
use crate::model::Key;

/// The state of a job's newest run.
#[derive(JsonSchema)]
pub(super) struct Task {
    status: TaskStatus,
    /// The key that the client gave when it queued this run; missing if it gave none.
    #[schemars(skip_serializing_if = "Option::is_none")]
    request_key: Option<String>,
}

/// The last status of the task, with the id of the job and its state.
#[derive(JsonSchema)]
struct TaskStatus {
    task_id: TaskId,
    state: JobState,
    #[schemars(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

#[derive(JsonSchema)]
struct TaskId {
    value: String,
}

/// The present state of a job; a completed run stays as it is.
#[derive(JsonSchema)]
pub(super) struct Killed {
    task_id: String,
    state: JobState,
}

/// Pending jobs.
#[derive(JsonSchema)]
pub(super) struct Queue {
    /// The number of pending jobs.
    count: usize,
    queue: Vec<Waiting>,
}

/// A pending job.
#[derive(JsonSchema)]
struct Waiting {
    task_id: String,
    since: Timestamp,
    /// Seconds.
    waited: f64,
    cpus: f64,
    mem: f64,
    disk: f64,
    gpus: f64,
    attributes: Vec<String>,
    priority: i32,
    key: Option<Key>,
    reason: PendingReason,
}

/// Why a job is pending.
#[derive(JsonSchema)]
struct PendingReason {
    code: String,
    message: String,
    /// What an operator can do about the code.
    advice: String,
    /// Constraints that no active agent satisfies.
    unsatisfied_constraints: Vec<String>,
    /// Resources of which the job asks for more than any active agent has, used or not.
    unsatisfied_resources: Vec<Resource>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum Resource {
    Cpus,
    Mem,
    Disk,
    Gpus,
}

/// A pending task of a DAG.
#[derive(JsonSchema)]
#[expect(clippy::struct_field_names, reason = "the names are those of the document")]
pub(super) struct Dag {
    dag_id: String,
    task_id: String,
    run_id: String,
    try_number: i64,
    #[schemars(rename = "MesosExecutor")]
    executor: Map<String, Value>,
}

/// The address of an agent. For an unknown one the body is empty.
#[derive(JsonSchema)]
pub(super) struct Agent {
    hostname: String,
    port: String,
}
