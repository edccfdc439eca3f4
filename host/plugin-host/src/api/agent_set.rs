//! [`AgentSet`]: matcher calls on a copy of the agents that the host keeps.
//!
//! The copy inside an instance is loaded at the first call, updated with the changes, and loaded
//! again after the instance or the plugin is replaced.

use std::sync::Arc;

use super::extension_points::ExtensionPoints;
use crate::{
    error::CallError,
    runtime::{
        engine::worlds::matcher::Question,
        shadow::calls::{Evaluate, Place, SelectKills},
    },
    worlds::{
        agent_mirror::AgentMirror,
        matcher::{Agent, Candidate, Task, Verdict},
    },
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
        active.ask(Evaluate(self.question(task, candidates))).await
    }

    /// Chooses agents (by handle) for up to `count` further instances; fewer when no more fit.
    pub async fn place(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
        count: u32,
    ) -> Result<Vec<u32>, CallError> {
        let active = self.extension_points.matcher()?;
        let question = self.question(task, candidates);
        active.ask(Place { question, count }).await
    }

    /// Chooses which `count` of the placed instances to kill, as indices into [`Task::placed`]; with
    /// fewer the host chooses the others.
    pub async fn select_kills(&mut self, task: &Task, count: u32) -> Result<Vec<u32>, CallError> {
        let active = self.extension_points.matcher()?;
        let question = self.question(task, &[]);
        active.ask(SelectKills { question, count }).await
    }

    fn question(&self, task: &Task, candidates: &[Candidate]) -> Question {
        Question {
            agent_set: Arc::clone(&self.copy),
            task: task.clone(),
            candidates: candidates.to_vec(),
        }
    }
}
