//! [`AgentSet`]: matcher calls on a copy of the agents that the host keeps.
//!
//! The copy inside an instance is loaded at the first call, updated with the changes, and loaded
//! again after the instance or the plugin is replaced.

use std::sync::Arc;

use crate::{
    agent_mirror::AgentMirror,
    engine::worlds::matcher::{Call, Question},
    error::CallError,
    extension_points::ExtensionPoints,
    shadow::MatcherSample,
    types::matcher::{Agent, Candidate, Task, Verdict},
};

/// The agents of one framework, as the host keeps them. Owned by one scheduler; one call at a time.
#[derive(Debug)]
pub struct AgentSet {
    extension_points: Arc<ExtensionPoints>,
    copy: Arc<AgentMirror>,
}

impl AgentSet {
    pub(crate) fn new(extension_points: Arc<ExtensionPoints>, home_region: Option<String>) -> AgentSet {
        AgentSet {
            extension_points,
            copy: Arc::new(AgentMirror::new(home_region)),
        }
    }

    /// Adds agents or replaces those with the same handle, and removes `gone`. The component
    /// receives the changes with the next call.
    pub fn update(&mut self, changed: Vec<Agent>, gone: Vec<u32>) {
        self.copy.update(changed, gone);
    }

    /// Number of agents.
    pub fn len(&self) -> usize {
        self.copy.len()
    }

    /// Whether there are no agents.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For each candidate, in order, whether one more instance may go there.
    pub async fn evaluate(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
    ) -> Result<Vec<Verdict>, CallError> {
        let active = self.extension_points.matcher()?;
        let version = &active.primary;
        let _in_flight = version.context.enter()?;
        let question = self.question(task, candidates);
        let shadow_for_call = active.shadow_for_call().map(|shadow| (shadow, question.clone()));
        let verdicts = version
            .ask(&mut version.near(self.slot()), |reply| Call::Evaluate {
                question,
                reply,
            })
            .await?;
        if let Some((shadow, question)) = shadow_for_call {
            let revision = self.copy.revision();
            shadow.submit(MatcherSample::Evaluate(question, revision, verdicts.clone()));
        }
        Ok(verdicts)
    }

    /// Chooses agents (by handle) for up to `count` further instances; fewer when no more fit.
    pub async fn place(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
        count: u32,
    ) -> Result<Vec<u32>, CallError> {
        let active = self.extension_points.matcher()?;
        let version = &active.primary;
        let _in_flight = version.context.enter()?;
        let question = self.question(task, candidates);
        let shadow_for_call = active.shadow_for_call().map(|shadow| (shadow, question.clone()));
        let chosen = version
            .ask(&mut version.near(self.slot()), |reply| Call::Place {
                question,
                count,
                reply,
            })
            .await?;
        if let Some((shadow, question)) = shadow_for_call {
            let revision = self.copy.revision();
            shadow.submit(MatcherSample::Place(question, revision, count, chosen.clone()));
        }
        Ok(chosen)
    }

    fn question(&self, task: &Task, candidates: &[Candidate]) -> Question {
        Question {
            agent_set: Arc::clone(&self.copy),
            task: task.clone(),
            candidates: candidates.to_vec(),
        }
    }

    /// Calls prefer the same instance, which has the agent set loaded.
    fn slot(&self) -> usize {
        self.copy.id() as usize
    }
}
