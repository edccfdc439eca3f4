//! The host's calls about agents: candidates evaluated and placed in batches, and instances to kill.

use transom_sdk::matcher::{Agent, AgentSet, Candidate, Task, Verdict};

use crate::agents::Agents;
use crate::placement::Question;

impl AgentSet for Agents {
    fn update(&mut self, changed: Vec<Agent>, gone: Vec<u32>) {
        self.take_up(changed, gone);
    }

    fn evaluate(&mut self, task: &Task, candidates: &[Candidate]) -> Vec<Verdict> {
        let question = Question::new(self, task, self.patterns());
        candidates
            .iter()
            .map(|candidate| match self.get(candidate.agent) {
                Some(agent) => question
                    .evaluate(agent)
                    .map_or_else(Verdict::Refused, |()| Verdict::Fits),
                None => Verdict::Refused(question.no_constraint()),
            })
            .collect()
    }

    fn place(&mut self, task: &Task, candidates: &[Candidate], count: u32) -> Vec<u32> {
        let known = candidates
            .iter()
            .filter_map(|candidate| Some((*candidate, self.get(candidate.agent)?)));
        Question::new(self, task, self.patterns()).place(known.collect(), count)
    }

    fn select_kills(&mut self, task: &Task, count: u32) -> Vec<u32> {
        let placed = task.placed.iter().map(|handle| self.get(*handle)).collect();
        Question::new(self, task, self.patterns()).select_kills(placed, count)
    }
}
