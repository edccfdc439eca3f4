//! A summary of the service for operators: counts, and why jobs are pending. All of it is read from
//! snapshots.

use std::collections::BTreeMap;

use serde::Serialize;
use transom_framework::Leader;
use transom_framework::feasibility::Unplaceable;
use transom_scheduler::{Waiting, waiting};

use crate::core::term::Handles;
use crate::job_state::JobState;
use crate::metrics::Metrics;

/// Maximum length of a list in a [`Summary`].
const MAX_ENTRIES: usize = 20;

/// Reads summaries. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SummaryReader {
    pub(crate) metrics: Metrics,
    pub(crate) leader: Leader<Handles>,
}

/// The state of the service; a standby has no jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// The counts.
    pub numbers: Numbers,
    /// Groups of pending jobs with equal needs, longest first; at most 20.
    pub waiting: Vec<Waiting>,
    /// Those among them that no agent can run.
    pub unplaceable: Vec<Unplaceable>,
}

/// Counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// Jobs that are not launched.
    pub queued: u64,
    /// Jobs that are launched and have not ended.
    pub running: u64,
    /// Jobs that ended with success since the daemon started.
    pub finished: u64,
    /// Jobs that ended otherwise since the daemon started.
    pub failed: u64,
    /// Jobs that can be looked up.
    pub retained: u64,
    /// Number of pending jobs by the reasons that the last round found for them.
    pub reasons: BTreeMap<&'static str, u64>,
}

impl SummaryReader {
    /// The present state.
    pub fn read(&self) -> Summary {
        let handles = self.leader.handles();
        let pending = handles.as_ref().map(|handles| handles.scheduler.pending());
        let pending = pending.unwrap_or_default();
        let mut reasons = BTreeMap::new();
        for spec in pending.specs() {
            for (tasks, shared) in spec.all_reasons() {
                for reason in shared.last.keys() {
                    *reasons.entry(reason.as_str()).or_insert(0) += tasks as u64;
                }
            }
        }
        let gauge = |value: i64| u64::try_from(value).unwrap_or_default();
        let ended = |states: &[JobState]| states.iter().map(|state| self.metrics.ended(*state)).sum();
        let unsuccessful = [
            JobState::Failed,
            JobState::Error,
            JobState::Killed,
            JobState::Lost,
            JobState::Unreachable,
        ];
        let waiting = waiting(&pending, MAX_ENTRIES).0;
        let unplaceable = waiting.iter().filter_map(|one| {
            let feasibility = &handles.as_ref()?.feasibility;
            feasibility.unplaceable(&pending.spec(&one.run_spec)?, "job")
        });
        Summary {
            unplaceable: unplaceable.collect(),
            numbers: Numbers {
                queued: gauge(self.metrics.jobs_pending.get()),
                running: gauge(self.metrics.jobs_running.get()),
                finished: ended(&[JobState::Finished]),
                failed: ended(&unsuccessful),
                retained: gauge(self.metrics.jobs_retained.get()),
                reasons,
            },
            waiting,
        }
    }
}
