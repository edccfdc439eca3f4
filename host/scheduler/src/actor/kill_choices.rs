//! Asks the matcher which instances of a run spec to kill when it is scaled down.

use std::sync::Arc;

use tokio::time::Instant;
use transom_cluster::TaskId;
use transom_plugin_host::matcher::Task;

use super::Actor;
use crate::{Event, KillChoice, TaskRecord};

impl Actor {
    /// Answers the questions of the service, as far as the matcher answers. The others wait for its
    /// backoff.
    pub(super) async fn select_kills(&mut self) {
        while let Some((id, choice)) = self.kill_choices.first_key_value() {
            let (id, choice) = (id.clone(), Arc::clone(choice));
            let (tasks, placed) = self.placed_candidates(&choice);
            let (changed, gone) = self.agents.take_changes();
            self.matcher.update(changed, gone);
            let task = Task {
                run_spec: choice.spec.id.clone(),
                instances: choice.spec.instances,
                constraints: choice.spec.constraints.clone(),
                placed,
                extensions: Vec::new(),
            };
            let count = choice.count.min(tasks.len() as u32);
            let Ok(chosen) = self.matcher.select_kills(&task, count).await else {
                return;
            };
            let chosen = chosen.into_iter();
            let kills = chosen.filter_map(|index| tasks.get(index as usize).cloned());
            let kills = kills.collect();
            self.after_publish.push(Event::KillsSelected { choice, kills });
            self.kill_choices.remove(&id);
        }
    }

    /// The candidates that have not ended, and the handles of their agents.
    fn placed_candidates(&mut self, choice: &KillChoice) -> (Vec<TaskId>, Vec<u32>) {
        let now = Instant::now();
        let mut placed = Vec::with_capacity(choice.candidates.len());
        for id in &choice.candidates {
            let handle = self
                .record_of(id)
                .filter(|record| !record.is_terminal())
                .and_then(|record| self.agents.remembered(&record, now));
            placed.extend(handle.map(|handle| (id.clone(), handle)));
        }
        placed.into_iter().unzip()
    }

    /// The record of a task, or of the first one of a group.
    fn record_of(&self, id: &TaskId) -> Option<Arc<TaskRecord>> {
        let record = self.ledger.get(id).or_else(|| {
            let members = self.ledger.group(id)?;
            self.ledger.get(members.iter().next()?)
        });
        record.map(Arc::clone)
    }
}
