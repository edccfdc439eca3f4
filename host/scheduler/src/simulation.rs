//! A matcher without a plugin host, for simulations (feature `simulation`).

use async_trait::async_trait;
use transom_plugin_host::CallError;
use transom_plugin_host::explain::MatcherExplanation;
use transom_plugin_host::matcher::{Agent, Candidate, Task, Verdict};

use crate::PendingExplanation;
use crate::matching::matcher::{Matcher, MatcherHost};

/// A matcher without constraints.
pub(crate) struct FirstFit;

#[async_trait]
impl MatcherHost for FirstFit {
    fn agent_set(&self, _home_region: Option<String>) -> Box<dyn Matcher> {
        Box::new(Self)
    }

    async fn changed(&mut self) {
        std::future::pending::<()>().await;
    }
}

#[async_trait]
impl Matcher for FirstFit {
    fn update(&mut self, _changed: Vec<Agent>, _removed: Vec<u32>) {}

    async fn evaluate(&mut self, _task: &Task, candidates: &[Candidate]) -> Result<Vec<Verdict>, CallError> {
        Ok(candidates.iter().map(|_| Verdict::Fits).collect())
    }

    async fn place(
        &mut self,
        _task: &Task,
        candidates: &[Candidate],
        count: u32,
    ) -> Result<Vec<u32>, CallError> {
        let room = candidates
            .iter()
            .flat_map(|candidate| std::iter::repeat_n(candidate.agent, candidate.capacity as usize));
        Ok(room.take(count as usize).collect())
    }

    async fn select_kills(&mut self, _task: &Task, _count: u32) -> Result<Vec<u32>, CallError> {
        Ok(Vec::new())
    }

    fn explain(&self, _task: Task) -> PendingExplanation {
        PendingExplanation::new(std::future::ready(MatcherExplanation::default()))
    }
}
