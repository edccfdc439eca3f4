//! A run of a job, and how it is shown.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use transom_cluster::v1::TaskStatus;
use transom_scheduler::TaskRecord;

use super::persist::{End, JobRecord};
use crate::ids::ChangeSeq;
use crate::job_index::View;
use crate::job_state::JobState;
use crate::model::Spec;
use crate::python_json;

/// What is told of a run that was killed while it waited.
pub(super) const NEVER_LAUNCHED: &str = "killed before it was launched";

/// A run that has not ended.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) record: JobRecord,
    pub(super) spec: Arc<Spec>,
    pub(super) state: JobState,
    /// When `state` came to be, among all changes.
    pub(super) changed: ChangeSeq,
    pub(super) at: Timestamp,
    /// What the scheduler knows of it; `None` before it was launched.
    pub(super) cluster: Option<Arc<TaskRecord>>,
    /// How it ends if it was released before it was launched.
    pub(super) outcome_if_not_launched: Option<(JobState, String)>,
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

    pub(super) fn view(&self, changed: ChangeSeq) -> View {
        let status = self.cluster.as_ref().and_then(|task| task.status.as_ref());
        let message = status.and_then(|status| status.message.as_deref());
        View {
            id: self.record.id.clone(),
            task: self.record.task.clone(),
            request_key: self.record.request_key.clone(),
            changed,
            at: self.at,
            state: self.state,
            message: message.map(Into::into),
            answer: python_json::to_bytes(&answer(&self.record, self.state, status, None)),
            agent: self.agent().map(Arc::new),
        }
    }

    /// Where its sandbox is.
    pub(super) fn agent(&self) -> Option<(String, u16)> {
        self.cluster.as_ref()?.agent.endpoint.clone()
    }

    /// The record of its end.
    pub(super) fn ended(
        self,
        state: JobState,
        message: Option<String>,
        changed: ChangeSeq,
        now: Timestamp,
    ) -> JobRecord {
        let agent = self.agent();
        let status = self.cluster.as_ref().and_then(|task| task.status.clone());
        JobRecord {
            spec: None,
            end: Some(End {
                state,
                at: now,
                changed,
                status,
                message,
                agent,
            }),
            ..self.record
        }
    }
}

/// How a run that has ended is shown.
pub(super) fn ended_view(record: &JobRecord, end: &End) -> View {
    let said = end.status.as_ref().and_then(|status| status.message.as_deref());
    let message = end.message.as_deref().or(said);
    View {
        id: record.id.clone(),
        task: record.task.clone(),
        request_key: record.request_key.clone(),
        changed: end.changed,
        at: end.at,
        state: end.state,
        message: message.map(Into::into),
        answer: python_json::to_bytes(&answer(
            record,
            end.state,
            end.status.as_ref(),
            end.message.as_deref(),
        )),
        agent: end.agent.clone().map(Arc::new),
    }
}

/// The task status object (specification, part D): the cluster's last status, with the job's own id and the state that
/// is shown. Clients that gave a request key get it back beside the status.
fn answer(record: &JobRecord, state: JobState, status: Option<&TaskStatus>, message: Option<&str>) -> Value {
    let mut shown = match status.map(serde_json::to_value) {
        Some(Ok(Value::Object(fields))) => fields,
        _ => serde_json::Map::new(),
    };
    shown.insert("task_id".to_owned(), json!({"value": record.id}));
    shown.insert("state".to_owned(), json!(state));
    if let Some(message) = message {
        shown.insert("message".to_owned(), json!(message));
    }
    let mut answer = json!({"status": shown});
    if let Some(key) = &record.request_key {
        answer["request_key"] = json!(key);
    }
    answer
}
