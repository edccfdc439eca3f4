//! The trace spans of launches. Each is open from the ACCEPT of a task until the task runs or has
//! ended.

use std::collections::HashMap;

use tracing::Span;
use transom_cluster::TaskId;
use transom_common::trace::{self, TARGET, TraceContext};

use crate::TaskRecord;

/// Maximum open spans. Launches beyond it have none.
const MAX_OPEN_SPANS: usize = 10_000;

/// The open spans, by task.
#[derive(Debug, Default)]
pub(super) struct LaunchSpans(HashMap<TaskId, Span>);

impl LaunchSpans {
    /// Opens the span of a task that is about to be launched.
    pub(super) fn begin(&mut self, intent: &TaskRecord, context: &TraceContext) {
        if !context.is_recorded() || self.0.len() >= MAX_OPEN_SPANS {
            return;
        }
        let span = context.child(|| {
            tracing::info_span!(
                target: TARGET,
                "launch",
                task = intent.id.as_str(),
                run_spec = intent.run_spec,
                agent = intent.agent.hostname,
                trace_id = tracing::field::Empty,
            )
        });
        self.0.insert(intent.id.clone(), span);
    }

    /// Records whether the ACCEPT succeeded. After a failure the outcome is unknown.
    pub(super) fn accepted(&mut self, tasks: &[TaskId], success: bool) {
        for span in tasks.iter().filter_map(|task| self.0.get(task)) {
            trace::event(span, "accept", ("success", success.to_string()));
        }
    }

    /// Handles a stored status that has changed the state of a task.
    pub(super) fn changed(&mut self, record: &TaskRecord) {
        let Some(span) = self.0.get(&record.id) else {
            return;
        };
        trace::event(span, "status", ("state", record.state.as_str().to_owned()));
        if record.is_terminal() && record.started_at.is_none() {
            trace::failed(span, record.state.as_str());
        }
        if record.is_terminal() || record.started_at.is_some() {
            self.0.remove(&record.id);
        }
    }
}
