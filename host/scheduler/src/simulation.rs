//! Starts a scheduler without a plugin host, for simulations (feature `simulation`). Not part of the
//! interface.

use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use transom_cluster::{Client, v1};
use transom_plugin_host::CallError;
use transom_plugin_host::explain::MatcherExplanation;
use transom_plugin_host::matcher::{Agent, Candidate, Task, Verdict};
use transom_store::Store;

use crate::actor::{Dependencies, Timeouts};
use crate::matching::matcher::{Matcher, MatcherHost};
use crate::{Events, MaintenanceMode, Metrics, PendingExplanation, Result, Scheduler};

/// As [`Config::start`](crate::Config::start) with the default times. Tasks run on the first agents
/// that have room for them.
///
/// # Errors
/// If the store cannot be read.
pub async fn start(
    cluster: Client,
    framework: v1::FrameworkInfo,
    store: Arc<dyn Store>,
    prefix: &str,
    metrics: Metrics,
    token: CancellationToken,
) -> Result<(Scheduler, Events)> {
    let dependencies = Dependencies {
        cluster,
        framework,
        store,
        prefix: prefix.to_owned(),
        matchers: Box::new(FirstFit),
        timeouts: Timeouts::default(),
        maintenance: MaintenanceMode::default(),
    };
    dependencies.start(metrics, token).await
}

/// A matcher without constraints.
struct FirstFit;

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

    async fn evaluate(
        &mut self,
        _task: &Task,
        candidates: &[Candidate],
    ) -> std::result::Result<Vec<Verdict>, CallError> {
        Ok(candidates.iter().map(|_| Verdict::Fits).collect())
    }

    async fn place(
        &mut self,
        _task: &Task,
        candidates: &[Candidate],
        count: u32,
    ) -> std::result::Result<Vec<u32>, CallError> {
        let room = candidates
            .iter()
            .flat_map(|candidate| std::iter::repeat_n(candidate.agent, candidate.capacity as usize));
        Ok(room.take(count as usize).collect())
    }

    async fn select_kills(&mut self, _task: &Task, _count: u32) -> std::result::Result<Vec<u32>, CallError> {
        Ok(Vec::new())
    }

    fn explain(&self, _task: Task) -> PendingExplanation {
        PendingExplanation::new(std::future::ready(MatcherExplanation::default()))
    }
}
