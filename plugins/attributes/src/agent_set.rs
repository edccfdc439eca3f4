//! The host's calls on an agent set: it evaluates candidates in batches, places instances, and selects
//! instances to kill.

use transom_sdk::matcher::{Agent, AgentSet, Candidate, Task, Verdict};

use crate::agents::Agents;
use crate::placement::TaskConstraints;

impl AgentSet for Agents {
    fn update(&mut self, changed: Vec<Agent>, gone: Vec<u32>) {
        self.apply_changes(changed, gone);
    }

    fn evaluate(&mut self, task: &Task, candidates: &[Candidate]) -> Vec<Verdict> {
        let constraints = TaskConstraints::new(self, task, self.patterns());
        constraints.evaluate(&self.get_all(candidates))
    }

    fn place(&mut self, task: &Task, candidates: &[Candidate], count: u32) -> Vec<u32> {
        let known: Vec<_> = candidates
            .iter()
            .zip(self.get_all(candidates))
            .filter_map(|(candidate, agent)| Some((*candidate, agent?)))
            .collect();
        TaskConstraints::new(self, task, self.patterns()).place(&known, count)
    }

    fn select_kills(&mut self, task: &Task, count: u32) -> Vec<u32> {
        let placed: Vec<_> = task.placed.iter().map(|handle| self.get(*handle)).collect();
        TaskConstraints::new(self, task, self.patterns()).select_kills(&placed, count)
    }
}
