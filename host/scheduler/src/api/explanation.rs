//! Explanations of placements for operators.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::oneshot;
use transom_cluster::TaskId;
use transom_plugin_host::explain::MatcherExplanation;

use crate::RunSpec;

/// Explanations that wait for the actor; further ones are refused.
pub(crate) const MAX_WAITING: usize = 16;

/// An explanation that the matchers have not given yet. The agents and the placed instances are
/// those of the moment when the scheduler made it; asking the matchers holds up no launch.
pub struct PendingExplanation(BoxFuture<'static, MatcherExplanation>);

impl PendingExplanation {
    /// `answer` asks the matchers.
    pub fn new(answer: impl Future<Output = MatcherExplanation> + Send + 'static) -> Self {
        Self(Box::pin(answer))
    }

    /// Asks the matchers.
    pub async fn ask(self) -> MatcherExplanation {
        self.0.await
    }
}

impl fmt::Debug for PendingExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingExplanation").finish_non_exhaustive()
    }
}

/// The placement that an operator asks about.
#[derive(Clone, Debug)]
pub enum PlacementOf {
    /// One more instance of a run spec.
    RunSpec(Arc<RunSpec>),
    /// A task, or a group, that is requested and not launched yet: with the run spec of its request.
    Pending(TaskId),
}

/// A request to explain a placement.
#[derive(Debug)]
pub(crate) struct ExplanationRequest {
    pub(crate) placement: PlacementOf,
    /// `None`: no such task is pending.
    pub(crate) answer: oneshot::Sender<Option<PendingExplanation>>,
}
