//! Explains to operators on which agents a pending task, or one more instance of a run spec, may run.

use std::sync::Arc;

use super::Actor;
use crate::matching::matcher_client::MatcherClient;
use crate::matching::round::matcher_task;
use crate::{PendingExplanation, PlacementOf, RunSpec};

impl Actor {
    /// Answers each request with the current agents and placed instances. The matchers are called
    /// by the requester, not by the actor.
    pub(super) fn answer_explanations(&mut self, matcher: &mut MatcherClient) {
        for request in std::mem::take(&mut self.explanations) {
            let spec = match request.placement {
                PlacementOf::RunSpec(spec) => Some(spec),
                PlacementOf::Pending(task) => self.queue.get(&task).map(|request| Arc::clone(&request.spec)),
            };
            let explanation = spec.map(|spec| self.explain(&spec, matcher));
            // The requester may have dropped the receiver.
            drop(request.response.send(explanation));
        }
    }

    fn explain(&mut self, spec: &RunSpec, matcher: &mut MatcherClient) -> PendingExplanation {
        let placed = self.placed_instances(std::iter::once(spec));
        let placed = placed.into_values().next().unwrap_or_default();
        let (changed, removed) = self.agents.take_changes();
        matcher.update(changed, removed);
        matcher.explain(matcher_task(spec, placed))
    }
}
