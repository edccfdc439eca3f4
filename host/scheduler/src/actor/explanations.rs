//! Where a pending task, or one more instance of a run spec, may run, for operators.

use std::sync::Arc;

use super::Actor;
use crate::matching::round::question;
use crate::{PendingExplanation, PlacementOf, RunSpec};

impl Actor {
    /// Answers each question with the agents and the placed instances of now. The matchers are asked
    /// by those who asked, not here.
    pub(super) fn answer_explanations(&mut self) {
        for request in std::mem::take(&mut self.explanations) {
            let spec = match request.placement {
                PlacementOf::RunSpec(spec) => Some(spec),
                PlacementOf::Pending(task) => self.queue.get(&task).map(|wanted| Arc::clone(&wanted.spec)),
            };
            let explanation = spec.map(|spec| self.explain(&spec));
            // The caller may be gone.
            drop(request.answer.send(explanation));
        }
    }

    fn explain(&mut self, spec: &RunSpec) -> PendingExplanation {
        let placed = self.placed(std::iter::once(spec));
        let placed = placed.into_values().next().unwrap_or_default();
        let (changed, gone) = self.agents.take_changes();
        self.matcher.update(changed, gone);
        self.matcher.explain(question(spec, placed))
    }
}
