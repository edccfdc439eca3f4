//! Direct calls of an attribute matcher for measurements, without the queue and the task of an
//! instance.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{AnyTrialInstance, TrialComponent};
use crate::{
    runtime::{
        engine::{
            Engine, Instance, Reply, World,
            worlds::matcher::{Call, Matcher, Question},
        },
        version_context::VersionContext,
    },
    worlds::{
        agent_mirror::AgentMirror,
        matcher::{Agent, Candidate, Constraint, Task, Verdict},
    },
};

/// A matcher with one warm instance.
pub struct DirectMatcher {
    engine: Engine,
    pre: <Matcher as World>::Pre,
    context: Arc<VersionContext>,
    instance: Instance<Matcher>,
    agent_set: Arc<AgentMirror>,
}

impl TrialComponent {
    /// Creates a warm instance of a matcher. The error is the reason of a failure.
    pub async fn direct_matcher(self) -> Result<DirectMatcher, String> {
        let AnyTrialInstance::Matcher(trial) = self.trial_instance else {
            return Err("the component is not an attribute-matcher".to_owned());
        };
        let (pre, context) = (trial.pre.clone(), trial.new_context());
        drop(trial);
        let instance = configured_instance(&self.engine, &pre, &context).await?;
        Ok(DirectMatcher {
            engine: self.engine,
            pre,
            context,
            instance,
            agent_set: Arc::new(AgentMirror::new(None)),
        })
    }
}

impl DirectMatcher {
    /// Changes an agent. The next call first updates the instance.
    pub fn update(&mut self, agent: Agent) {
        self.agent_set.update(vec![agent], Vec::new());
    }

    /// Evaluates candidates on the warm instance.
    pub async fn evaluate(&mut self, task: &Task, candidates: &[Candidate]) -> Result<Vec<Verdict>, String> {
        let question = Question {
            agent_set: Arc::clone(&self.agent_set),
            task: task.clone(),
            candidates: candidates.to_vec(),
        };
        ask(&mut self.instance, |reply| Call::Evaluate { question, reply }).await
    }

    /// Makes one call on a new instance: instantiates it, configures it, validates the constraints
    /// and drops it. Returns the number of errors.
    pub async fn validate_once(&mut self, constraints: &[Constraint]) -> Result<usize, String> {
        let mut instance = configured_instance(&self.engine, &self.pre, &self.context).await?;
        let constraints = constraints.to_vec();
        let errors = ask(&mut instance, |reply| Call::Validate { constraints, reply }).await?;
        Ok(errors.len())
    }
}

async fn configured_instance(
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
        .map_err(|fault| fault.to_error("direct").to_string())?;
    let answer = tokio::time::timeout(Duration::from_secs(1), answer).await;
    answer.map_err(text)?.map_err(text)?.map_err(text)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
