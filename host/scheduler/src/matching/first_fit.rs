//! A matcher without components, for simulations (feature `simulation`).

use std::collections::BTreeMap;

use async_trait::async_trait;
use regex_lite::Regex;
use tokio::sync::broadcast;
use transom_plugin_host::explain::MatcherExplanation;
use transom_plugin_host::matcher::{Agent, Candidate, Constraint, Task, Verdict};
use transom_plugin_host::simulation::ScriptedPlugins;
use transom_plugin_host::{CallError, Change};

use super::matcher::{Matcher, MatcherHost, change_of};
use crate::PendingExplanation;

/// The name of the plugin in errors.
const NAME: &str = "attribute-matcher";

/// The scripted plugins of a daemon.
pub(crate) struct ScriptedMatchers {
    pub(crate) plugins: ScriptedPlugins,
    pub(crate) changes: broadcast::Receiver<Change>,
}

/// A matcher that knows only constraints for a host name, with `LIKE`. Its versions take the last and the
/// first agents with room in turn.
struct FirstFit {
    plugins: ScriptedPlugins,
    /// The host names of the agents, by handle.
    hosts: BTreeMap<u32, String>,
}

impl FirstFit {
    /// The first constraint of a task that an agent does not satisfy.
    fn rejection(&self, task: &Task, agent: u32) -> Option<u32> {
        let host = self.hosts.get(&agent).map_or("", String::as_str);
        let rejects = |constraint: &Constraint| match constraint {
            Constraint::Field {
                field,
                operator,
                operand: Some(pattern),
            } if field == "@hostname" && operator == "LIKE" => {
                Regex::new(&format!("^(?:{pattern})$")).is_ok_and(|pattern| !pattern.is_match(host))
            }
            _ => false,
        };
        let first = task.constraints.iter().position(rejects)?;
        Some(u32::try_from(first).unwrap_or_default())
    }
}

#[async_trait]
impl MatcherHost for ScriptedMatchers {
    fn agent_set(&self, _home_region: Option<String>) -> Box<dyn Matcher> {
        let (plugins, hosts) = (self.plugins.clone(), BTreeMap::new());
        Box::new(FirstFit { plugins, hosts })
    }

    async fn changed(&mut self) {
        change_of(&mut self.changes).await;
    }
}

#[async_trait]
impl Matcher for FirstFit {
    fn update(&mut self, changed: Vec<Agent>, removed: Vec<u32>) {
        self.hosts.retain(|agent, _| !removed.contains(agent));
        let named = changed.into_iter().map(|agent| (agent.handle, agent.hostname));
        self.hosts.extend(named);
    }

    async fn evaluate(&mut self, task: &Task, candidates: &[Candidate]) -> Result<Vec<Verdict>, CallError> {
        self.plugins.call(NAME).await?;
        let verdict = |candidate: &Candidate| match self.rejection(task, candidate.agent) {
            Some(constraint) => Verdict::Refused(constraint),
            None => Verdict::Fits,
        };
        Ok(candidates.iter().map(verdict).collect())
    }

    async fn place(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
        count: u32,
    ) -> Result<Vec<u32>, CallError> {
        let mut fitting: Vec<_> = candidates.iter().collect();
        fitting.retain(|candidate| self.rejection(task, candidate.agent).is_none());
        if self.plugins.call(NAME).await?.is_multiple_of(2) {
            fitting.reverse();
        }
        let room = fitting
            .into_iter()
            .flat_map(|candidate| std::iter::repeat_n(candidate.agent, candidate.capacity as usize));
        Ok(room.take(count as usize).collect())
    }

    async fn select_kills(&mut self, _task: &Task, _count: u32) -> Result<Vec<u32>, CallError> {
        self.plugins.call(NAME).await?;
        Ok(Vec::new())
    }

    fn explain(&self, _task: Task) -> PendingExplanation {
        PendingExplanation::new(std::future::ready(MatcherExplanation::default()))
    }
}
