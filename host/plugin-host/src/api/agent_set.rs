//! [`AgentSet`]: matcher calls about a set of agents, of which the host keeps a copy.
//!
//! An instance loads its own copy at its first call and then receives changes. It is loaded again
//! after the instance or the plugin is replaced. With several matchers, each instance of each
//! matcher has a copy.

use std::sync::Arc;

use super::{
    explain::{self, matcher::MatcherExplanation},
    extension_points::ExtensionPoints,
    matcher_chain::{CandidateEvaluator, evaluate_chain, question},
};
use crate::{
    error::CallError,
    runtime::{
        active_version::ActiveVersion,
        engine::worlds::matcher::{Matcher, Question},
        shadow::calls::{Evaluate, Place, SelectKills},
    },
    worlds::{
        agent_mirror::AgentMirror,
        matcher::{Agent, Candidate, Task, Verdict},
    },
};

/// The host's copy of one framework's agents. One scheduler owns it and makes one call at a time.
#[derive(Debug)]
pub struct AgentSet {
    extension_points: Arc<ExtensionPoints>,
    mirror: Arc<AgentMirror>,
    rejections: Vec<(String, u32)>,
}

type Matchers<'a> = [(&'a str, ActiveVersion<Matcher>)];

impl AgentSet {
    pub(crate) fn new(extension_points: Arc<ExtensionPoints>, home_region: Option<String>) -> AgentSet {
        AgentSet {
            extension_points,
            mirror: Arc::new(AgentMirror::new(home_region)),
            rejections: Vec::new(),
        }
    }

    /// Adds agents or replaces those with the same handle, and removes `removed`. The components
    /// receive the changes with the next call.
    pub fn update(&mut self, changed: Vec<Agent>, removed: Vec<u32>) {
        self.mirror.update(changed, removed);
    }

    /// Number of agents.
    pub fn len(&self) -> usize {
        self.mirror.len()
    }

    /// Whether there are no agents.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of candidates that each matcher rejected in the last [`Self::evaluate`], in the order
    /// of the matchers. Empty with one matcher.
    pub fn refusals(&self) -> &[(String, u32)] {
        &self.rejections
    }

    /// Returns for each candidate, in order, whether one more instance may go there. A matcher only
    /// evaluates the candidates that the matchers before it accept.
    pub async fn evaluate(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
    ) -> Result<Vec<Verdict>, CallError> {
        self.rejections.clear();
        let matchers = self.extension_points.matchers()?;
        if let [(_, only)] = &*matchers {
            return only.ask(Evaluate(self.question(task, candidates))).await;
        }
        let (verdicts, rejections) = self.evaluate_chain(&matchers, task, candidates).await?;
        self.rejections = rejections;
        Ok(verdicts)
    }

    /// Chooses agents (by handle) for up to `count` further instances. Returns fewer if no more
    /// fit.
    pub async fn place(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
        count: u32,
    ) -> Result<Vec<u32>, CallError> {
        let matchers = self.extension_points.matchers()?;
        let [(_, first), others @ ..] = &*matchers else {
            return Ok(Vec::new());
        };
        if others.is_empty() {
            return self.choose(first, task, candidates, count).await;
        }
        // One instance at a time, because the verdict on the next one may depend on the last one,
        // and because the other matchers could only reject a choice for several instances as a
        // whole.
        let (mut task, mut remaining) = (task.clone(), candidates.to_vec());
        let mut chosen = Vec::new();
        while chosen.len() < count as usize {
            remaining.retain(|candidate| candidate.capacity > 0);
            let accepted = self.accepted(&matchers, &task, &remaining).await?;
            if accepted.is_empty() {
                break;
            }
            let Some(agent) = self.choose(first, &task, &accepted, 1).await?.pop() else {
                break;
            };
            for candidate in remaining.iter_mut().filter(|candidate| candidate.agent == agent) {
                candidate.capacity -= 1;
            }
            task.placed.push(agent);
            chosen.push(agent);
        }
        Ok(chosen)
    }

    /// Chooses `count` of the placed instances to kill, as indices into [`Task::placed`]. If there
    /// are fewer indices, the host chooses the remaining instances. With several matchers, the
    /// first one chooses.
    pub async fn select_kills(&mut self, task: &Task, count: u32) -> Result<Vec<u32>, CallError> {
        let matchers = self.extension_points.matchers()?;
        let Some((_, first)) = matchers.first() else {
            return Ok(Vec::new());
        };
        let question = self.question(task, &[]);
        first.ask(SelectKills { question, count }).await
    }

    /// Returns the verdicts, and the number of candidates that each matcher rejected.
    async fn evaluate_chain(
        &self,
        matchers: &Matchers<'_>,
        task: &Task,
        candidates: &[Candidate],
    ) -> Result<(Vec<Verdict>, Vec<(String, u32)>), CallError> {
        let judged = evaluate_chain(matchers, &self.mirror, task, candidates).await?;
        let mut rejections = Vec::new();
        for (at, (name, _)) in matchers.iter().enumerate() {
            let rejected = judged.iter().filter(|it| it.rejected_by == Some(at)).count();
            if rejected > 0 {
                rejections.push(((*name).to_owned(), rejected as u32));
            }
        }
        Ok((judged.into_iter().map(|it| it.verdict).collect(), rejections))
    }

    /// Returns the candidates that all matchers accept.
    async fn accepted(
        &self,
        matchers: &Matchers<'_>,
        task: &Task,
        candidates: &[Candidate],
    ) -> Result<Vec<Candidate>, CallError> {
        let (verdicts, _) = self.evaluate_chain(matchers, task, candidates).await?;
        let judged = verdicts.into_iter().zip(candidates);
        let accepted = judged.filter(|(verdict, _)| *verdict == Verdict::Fits);
        Ok(accepted.map(|(_, candidate)| *candidate).collect())
    }

    async fn choose(
        &self,
        matcher: &ActiveVersion<Matcher>,
        task: &Task,
        candidates: &[Candidate],
        count: u32,
    ) -> Result<Vec<u32>, CallError> {
        let question = self.question(task, candidates);
        matcher.ask(Place { question, count }).await
    }

    fn question(&self, task: &Task, candidates: &[Candidate]) -> Question {
        question(&self.mirror, task, candidates)
    }

    /// Explains which of the current agents may run one more instance. Agents in `task.placed` that
    /// are not in the set are left out.
    pub fn explain(&self, task: Task) -> impl Future<Output = MatcherExplanation> + Send + use<> {
        let (extension_points, agents) = (Arc::clone(&self.extension_points), self.mirror.snapshot());
        async move { explain::matcher::explain(&extension_points, &agents, task).await }
    }
}

impl CandidateEvaluator for (&str, ActiveVersion<Matcher>) {
    fn evaluate(&self, question: Question) -> impl Future<Output = Result<Vec<Verdict>, CallError>> + Send {
        self.1.ask(Evaluate(question))
    }
}
