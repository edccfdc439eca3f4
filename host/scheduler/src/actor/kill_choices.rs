//! Requests kill selections from the matcher: which instances of a run spec to kill when it is
//! scaled down.

use std::sync::Arc;

use tokio::time::Instant;
use transom_cluster::TaskId;
use transom_plugin_host::matcher::Task;

use super::Actor;
use super::launch::ROUND_TIME_LIMIT;
use crate::matching::matcher_client::MatcherClient;
use crate::store::transition;
use crate::{Event, KillChoice, TaskRecord};

impl Actor {
    /// Processes every kill selection. One on which the matcher fails stays queued until its backoff
    /// has passed; one for which the round has no time left follows in the next turn.
    pub(super) async fn select_kills(&mut self, matcher: &mut MatcherClient) {
        let started_at = Instant::now();
        for _ in 0..self.kill_choices.len() {
            let Some(choice) = self.kill_choices.pop_front() else {
                break;
            };
            let kills = if matcher.can_select_kills(&choice.spec.id) {
                self.select(&choice, matcher).await
            } else {
                None
            };
            if let Some(kills) = kills {
                self.after_publish.push(Event::KillsSelected { choice, kills });
            } else {
                self.kill_choices.push_back(choice);
            }
            if started_at.elapsed() >= ROUND_TIME_LIMIT {
                break;
            }
        }
        if self.kill_choices.is_empty() {
            matcher.forget_kill_failures();
        }
    }

    /// Whether a kill selection can be requested now.
    pub(super) fn has_kill_choice(&self, matcher: &MatcherClient) -> bool {
        let mut choices = self.kill_choices.iter();
        choices.any(|choice| matcher.can_select_kills(&choice.spec.id))
    }

    async fn select(&mut self, choice: &KillChoice, matcher: &mut MatcherClient) -> Option<Vec<TaskId>> {
        let (tasks, placed) = self.placed_candidates(choice);
        let (changed, removed) = self.agents.take_changes();
        matcher.update(changed, removed);
        let task = Task {
            run_spec: choice.spec.id.clone(),
            instances: choice.spec.instances,
            constraints: choice.spec.constraints.clone(),
            placed,
            extensions: Vec::new(),
        };
        let count = choice.count.min(tasks.len() as u32);
        let selecting = matcher.select_kills(&task, count);
        let chosen = self.meanwhile(selecting).await?.into_iter();
        let kills = chosen.filter_map(|index| tasks.get(index as usize).cloned());
        Some(kills.collect())
    }

    /// The candidates that are still placed, and the handles of their agents.
    fn placed_candidates(&mut self, choice: &KillChoice) -> (Vec<TaskId>, Vec<u32>) {
        let now = Instant::now();
        let mut placed = Vec::with_capacity(choice.candidates.len());
        for id in &choice.candidates {
            let handle = self
                .record_of(id)
                .filter(|record| transition::is_placed(record) && !self.agents.is_hidden(&record.agent.id))
                .and_then(|record| self.agents.handle_of_task(&record, now));
            placed.extend(handle.map(|handle| (id.clone(), handle)));
        }
        placed.into_iter().unzip()
    }

    /// The record of a task, or of the first task in a group.
    fn record_of(&self, id: &TaskId) -> Option<Arc<TaskRecord>> {
        let record = self.ledger.get(id).or_else(|| {
            let members = self.ledger.group(id)?;
            self.ledger.get(members.iter().next()?)
        });
        record.map(Arc::clone)
    }
}
