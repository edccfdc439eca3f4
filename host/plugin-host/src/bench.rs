//! Internals for benchmarks: calls an attribute matcher directly, without the queue and the task
//! around it.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use crate::{
    agent_mirror::AgentMirror,
    engine::{
        Engine, Instance, Reply, World, link,
        worlds::matcher::{Call, Matcher, Question},
    },
    health::Health,
    health::Probation,
    limits::Limits,
    manifest::Manifest,
    metrics::VersionMetrics,
    types::matcher::{Agent, Candidate, Constraint, Task, Verdict},
    version_context::{VersionContext, VersionTelemetry},
};

/// A compiled matcher with one warm instance.
pub struct Direct {
    engine: Engine,
    pre: <Matcher as World>::Pre,
    context: Arc<VersionContext>,
    instance: Instance<Matcher>,
    agent_set: Arc<AgentMirror>,
}

impl std::fmt::Debug for Direct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Direct").finish_non_exhaustive()
    }
}

impl Direct {
    /// Compiles, links and configures. The error names the failure.
    pub async fn new(component: &[u8], manifest: &str) -> Result<Direct, String> {
        let manifest = Manifest::parse(manifest, &Limits::default(), Probation::default()).map_err(text)?;
        let engine = Engine::new(4).map_err(text)?;
        let artifact = Engine::precompile(component).map_err(text)?;
        let compiled = engine.load(&artifact).map_err(text)?;
        let pre = link::<Matcher>(&engine, &compiled)?;
        let post = VersionTelemetry {
            metrics: VersionMetrics::unseen(),
            health: Health::new(manifest.probation, false, None),
        };
        let context = Arc::new(VersionContext::new("bench", "", &manifest, Vec::new(), post));
        let instance = configured(&engine, &pre, &context).await?;
        Ok(Direct {
            engine,
            pre,
            context,
            instance,
            agent_set: Arc::new(AgentMirror::new(None)),
        })
    }

    /// Changes an agent; the next call updates the instance first.
    pub fn update(&mut self, agent: Agent) {
        self.agent_set.update(vec![agent], Vec::new());
    }

    /// One question of the warm instance.
    pub async fn evaluate(&mut self, task: &Task, candidates: &[Candidate]) -> Result<Vec<Verdict>, String> {
        let question = Question {
            agent_set: Arc::clone(&self.agent_set),
            task: task.clone(),
            candidates: candidates.to_vec(),
        };
        ask(&mut self.instance, |reply| Call::Evaluate { question, reply }).await
    }

    /// One call of an instance made for it: instantiated, configured, asked about constraints,
    /// dropped.
    pub async fn validate_once(&mut self, constraints: &[Constraint]) -> Result<usize, String> {
        let mut instance = configured(&self.engine, &self.pre, &self.context).await?;
        let constraints = constraints.to_vec();
        let errors = ask(&mut instance, |reply| Call::Validate { constraints, reply }).await?;
        Ok(errors.len())
    }
}

async fn configured(
    engine: &Engine,
    pre: &<Matcher as World>::Pre,
    context: &Arc<VersionContext>,
) -> Result<Instance<Matcher>, String> {
    let mut instance = Instance::instantiate(engine, pre, context, 1)
        .await
        .map_err(text)?;
    match instance.configure().await.map_err(text)? {
        Ok(()) => Ok(instance),
        Err(errors) => Err(format!("{errors:?}")),
    }
}

async fn ask<T>(instance: &mut Instance<Matcher>, call: impl FnOnce(Reply<T>) -> Call) -> Result<T, String> {
    let (reply, answer) = oneshot::channel();
    Matcher::run(instance, &Arc::default(), call(reply))
        .await
        .map_err(|fault| fault.to_error("bench").to_string())?;
    let answer = tokio::time::timeout(Duration::from_secs(1), answer).await;
    answer.map_err(text)?.map_err(text)?.map_err(text)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
