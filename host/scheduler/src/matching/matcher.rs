//! The matcher as traits, which the plugin host implements and tests script.

use async_trait::async_trait;
use tokio::sync::broadcast;
use transom_plugin_host::matcher::{Agent, AgentSet, Candidate, Task, Verdict};
use transom_plugin_host::{CallError, Change};

use crate::PendingExplanation;

/// The calls that the actor makes; see [`AgentSet`].
#[async_trait]
pub(crate) trait Matcher: Send {
    fn update(&mut self, changed: Vec<Agent>, removed: Vec<u32>);
    async fn evaluate(&mut self, task: &Task, candidates: &[Candidate]) -> Result<Vec<Verdict>, CallError>;
    /// See [`AgentSet::rejections`].
    fn rejections(&self) -> &[(String, u32)] {
        &[]
    }
    async fn place(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
        count: u32,
    ) -> Result<Vec<u32>, CallError>;
    async fn select_kills(&mut self, task: &Task, count: u32) -> Result<Vec<u32>, CallError>;
    /// See [`AgentSet::explain`].
    fn explain(&self, task: Task) -> PendingExplanation;
}

/// Creates matchers, and reports when to retry after a failure.
#[async_trait]
pub(crate) trait MatcherHost: Send {
    /// A matcher with an empty agent set. `home_region` is the master's own region.
    fn agent_set(&self, home_region: Option<String>) -> Box<dyn Matcher>;

    /// Returns when the matcher may have changed. Cancel-safe.
    async fn changed(&mut self);
}

/// Returns after a change.
pub(super) async fn change_of(changes: &mut broadcast::Receiver<Change>) {
    // Any change is worth a retry, even one whose notification was missed. A stopped host sends no
    // further changes.
    if let Err(broadcast::error::RecvError::Closed) = changes.recv().await {
        std::future::pending::<()>().await;
    }
}

#[async_trait]
impl Matcher for AgentSet {
    fn update(&mut self, changed: Vec<Agent>, removed: Vec<u32>) {
        AgentSet::update(self, changed, removed);
    }

    async fn evaluate(&mut self, task: &Task, candidates: &[Candidate]) -> Result<Vec<Verdict>, CallError> {
        AgentSet::evaluate(self, task, candidates).await
    }

    fn rejections(&self) -> &[(String, u32)] {
        AgentSet::refusals(self)
    }

    async fn place(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
        count: u32,
    ) -> Result<Vec<u32>, CallError> {
        AgentSet::place(self, task, candidates, count).await
    }

    async fn select_kills(&mut self, task: &Task, count: u32) -> Result<Vec<u32>, CallError> {
        AgentSet::select_kills(self, task, count).await
    }

    fn explain(&self, task: Task) -> PendingExplanation {
        PendingExplanation::new(AgentSet::explain(self, task))
    }
}
