//! Since when nodes are not ready, and how many were ready before.

use jiff::Timestamp;
use transom_common::error_chain;
use transom_replicas::Condition;

use super::Core;
use super::persist::Wanted;
use crate::kind::{Kind, PerKind};
use crate::orchestrator::NodesByTask;

impl Core {
    /// Stores how many tasks of each kind were ready.
    pub(super) async fn record_ready(&mut self) {
        let (known, ready) = (self.wanted.ready_before, self.plan.ready);
        let counts = self.wanted.counts;
        let ready_before = PerKind::from_fn(|kind| {
            let wanted = *counts.of(kind);
            let most = known.of(kind).unwrap_or(wanted).max(*ready.of(kind));
            Some(most.min(wanted))
        });
        if ready_before != known {
            let wanted = Wanted {
                ready_before,
                ..self.wanted.clone()
            };
            self.put_wanted(wanted, "that nodes were ready").await;
        }
    }

    /// Stores the wanted state; a later comparison repeats it if that fails.
    pub(super) async fn put_wanted(&mut self, wanted: Wanted, what: &str) {
        match self.repository.put_wanted(&wanted).await {
            Ok(()) => self.wanted = wanted,
            Err(error) => tracing::warn!(
                framework = self.config.name(),
                error = error_chain(&error),
                what,
                "storing a change of the wanted state failed; retrying"
            ),
        }
    }

    /// Records since when nodes are missing or not ready, and since when the API is silent.
    pub(super) fn record_unready_times(&mut self, now: Timestamp) {
        let Some(observation) = self.orchestrator.observation.clone() else {
            self.orchestrator.silent_since.get_or_insert(now);
            return;
        };
        self.orchestrator.silent_since = None;
        let nodes = NodesByTask::new(&observation.nodes);
        for kind in [Kind::Server, Kind::Agent] {
            let numbers: Vec<u32> = self.members.of(kind).keys().copied().collect();
            for number in numbers {
                let Some(member) = self.members.get_mut(kind, number) else {
                    continue;
                };
                let runs = member.replica.condition == Condition::Running;
                let ready = nodes.of(member.task.as_str()).iter().any(|node| node.ready);
                if ready || !runs {
                    member.unready_since = None;
                } else if member.unready_since.is_none() {
                    member.unready_since = Some(now);
                }
            }
        }
    }
}
