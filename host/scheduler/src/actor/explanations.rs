//! Where one more instance of a run spec may run, for operators.

use super::Actor;
use crate::matching::round::question;

impl Actor {
    /// Answers each question with the agents and the placed instances of now. The matchers are asked
    /// by those who asked, not here.
    pub(super) fn answer_explanations(&mut self) {
        for request in std::mem::take(&mut self.explanations) {
            let placed = self.placed(std::iter::once(&*request.spec));
            let placed = placed.into_values().next().unwrap_or_default();
            let (changed, gone) = self.agents.take_changes();
            self.matcher.update(changed, gone);
            let explanation = self.matcher.explain(question(&request.spec, placed));
            // The caller may be gone.
            drop(request.answer.send(explanation));
        }
    }
}
