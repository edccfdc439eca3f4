//! Explanations of placements for operators.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::oneshot;
use transom_cluster::TaskId;
use transom_plugin_host::explain::MatcherExplanation;

use crate::RunSpec;

/// Maximum explanations that wait for the actor; further ones are rejected.
pub(crate) const MAX_WAITING: usize = 16;

/// An explanation for which the matchers have not been called yet. The agents and the placed
/// instances are those of the moment when the scheduler created it. Calling the matchers delays no
/// launch.
pub struct PendingExplanation(BoxFuture<'static, MatcherExplanation>);

impl PendingExplanation {
    /// Wraps the future that calls the matchers.
    pub fn new(answer: impl Future<Output = MatcherExplanation> + Send + 'static) -> Self {
        Self(Box::pin(answer))
    }

    /// Calls the matchers.
    pub async fn ask(self) -> MatcherExplanation {
        self.0.await
    }
}

impl fmt::Debug for PendingExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingExplanation").finish_non_exhaustive()
    }
}

/// The placement that an operator wants explained.
#[derive(Clone, Debug)]
pub enum PlacementOf {
    /// One more instance of a run spec.
    RunSpec(Arc<RunSpec>),
    /// A task or group that is requested and not launched yet. Its request determines the run spec.
    Pending(TaskId),
}

/// A request to explain a placement.
#[derive(Debug)]
pub(crate) struct ExplanationRequest {
    pub(crate) placement: PlacementOf,
    /// Receives `None` if no such task is pending.
    pub(crate) response: oneshot::Sender<Option<PendingExplanation>>,
}
