//! A run of a job, and how clients see it.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use transom_cluster::v1::TaskStatus;
use transom_common::HostPort;
use transom_scheduler::TaskRecord;

use super::persist::{End, JobRecord};
use crate::ids::ChangeSeq;
use crate::job_index::JobView;
use crate::job_state::JobState;
use crate::model::Spec;
use crate::python_json;

/// The message of a run that was killed while pending.
pub(super) const NEVER_LAUNCHED: &str = "killed before it was launched";

/// An active run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) record: JobRecord,
    pub(super) spec: Arc<Spec>,
    pub(super) state: JobState,
    /// The sequence number of the last change of `state`.
    pub(super) changed: ChangeSeq,
    pub(super) at: Timestamp,
    /// The scheduler's task record; `None` before the launch.
    pub(super) cluster: Option<Arc<TaskRecord>>,
    /// How the run ends if it turns out not to be launched.
    pub(super) outcome_if_not_launched: Option<(JobState, Cause)>,
}

/// Why this daemon ended a run. It overrides the message and the reason of the last status.
#[derive(Clone, Debug)]
pub(super) struct Cause {
    pub(super) message: String,
    pub(super) reason: Option<&'static str>,
}

impl From<String> for Cause {
    fn from(message: String) -> Self {
        Self {
            message,
            reason: None,
        }
    }
}

impl Run {
    pub(super) fn new(record: JobRecord, spec: Arc<Spec>) -> Self {
        Self {
            at: record.queued_at,
            record,
            spec,
            state: JobState::Staging,
            changed: ChangeSeq::default(),
            cluster: None,
            outcome_if_not_launched: None,
        }
    }

    pub(super) fn view(&self, changed: ChangeSeq) -> JobView {
        let status = self.cluster.as_ref().and_then(|task| task.status.as_ref());
        let message = status.and_then(|status| status.message.as_deref());
        JobView {
            id: self.record.id.clone(),
            task: self.record.task.clone(),
            request_key: self.record.request_key.clone(),
            changed,
            at: self.at,
            state: self.state,
            message: message.map(Into::into),
            reason: status.and_then(|status| status.reason.as_deref().map(Into::into)),
            answer: python_json::to_bytes(&answer(&self.record, self.state, status, None)),
            agent: self.agent().map(Arc::new),
        }
    }

    /// The agent with the run's sandbox.
    pub(super) fn agent(&self) -> Option<HostPort> {
        self.cluster.as_ref()?.agent.endpoint.clone()
    }

    /// The job record with the run's end.
    pub(super) fn ended(
        self,
        state: JobState,
        cause: Option<Cause>,
        changed: Option<ChangeSeq>,
        now: Timestamp,
    ) -> JobRecord {
        let agent = self.agent();
        let status = self.cluster.as_ref().and_then(|task| task.status.clone());
        let reason = cause.as_ref().and_then(|cause| cause.reason);
        let message = cause.map(|cause| cause.message).or_else(|| {
            let status = status.as_ref()?;
            let message = status.message.as_deref();
            let Some(limit) = exceeded_limit(status.reason.as_deref()?, &self.spec) else {
                return message.and_then(|message| explained_kill(message, &self.spec));
            };
            let message = message.unwrap_or("the limit was exceeded");
            Some(format!("{message}; the job's limit: {limit}"))
        });
        JobRecord {
            spec: None,
            end: Some(End {
                state,
                at: now,
                changed,
                status,
                message,
                reason: reason.map(str::to_owned),
                agent,
            }),
            ..self.record
        }
    }
}

/// The limit of the job that its task exceeded, according to a status's reason.
fn exceeded_limit(reason: &str, spec: &Spec) -> Option<String> {
    match reason {
        "REASON_CONTAINER_LIMITATION_MEMORY" => Some(format!("{} MB of memory (mem_limit)", spec.mem)),
        "REASON_CONTAINER_LIMITATION_DISK" => Some(format!("{} MB of disk (disk)", spec.disk)),
        "REASON_MAX_COMPLETION_TIME_REACHED" => spec
            .max_runtime
            .map(|seconds| format!("{seconds} s (max_runtime)")),
        _ => None,
    }
}

/// The message of a Docker container that ended by SIGKILL, with the usual cause. The kernel kills so
/// what exceeds its memory, and the agent's Docker executor reports no other reason than for any
/// exit code.
fn explained_kill(message: &str, spec: &Spec) -> Option<String> {
    message.ends_with(" exited with status 137").then(|| {
        format!(
            "{message}: SIGKILL, which a container gets that needs more than its {} MB of memory (mem_limit)",
            spec.mem
        )
    })
}

/// The view of a run that has ended; `changed`: the sequence number of this change.
pub(super) fn ended_view(record: &JobRecord, end: &End, changed: ChangeSeq) -> JobView {
    let status_message = end.status.as_ref().and_then(|status| status.message.as_deref());
    let message = end.message.as_deref().or(status_message);
    let status_reason = end.status.as_ref().and_then(|status| status.reason.as_deref());
    JobView {
        id: record.id.clone(),
        task: record.task.clone(),
        request_key: record.request_key.clone(),
        changed,
        at: end.at,
        state: end.state,
        message: message.map(Into::into),
        reason: end.reason.as_deref().or(status_reason).map(Into::into),
        answer: python_json::to_bytes(&answer(record, end.state, end.status.as_ref(), Some(end))),
        agent: end.agent.clone().map(Arc::new),
    }
}

/// The task status object (specification, part D): the last status with the id of the job and the
/// state shown to clients. A request key is returned next to the status.
fn answer(record: &JobRecord, state: JobState, status: Option<&TaskStatus>, end: Option<&End>) -> Value {
    let mut status_json = match status.map(serde_json::to_value) {
        Some(Ok(Value::Object(fields))) => fields,
        _ => serde_json::Map::new(),
    };
    status_json.insert("task_id".to_owned(), json!({"value": record.id}));
    status_json.insert("state".to_owned(), json!(state));
    if let Some(message) = end.and_then(|end| end.message.as_deref()) {
        status_json.insert("message".to_owned(), json!(message));
    }
    if let Some(reason) = end.and_then(|end| end.reason.as_deref()) {
        status_json.insert("reason".to_owned(), json!(reason));
    }
    let mut answer = json!({"status": status_json});
    if let Some(key) = &record.request_key {
        answer["request_key"] = json!(key);
    }
    answer
}
