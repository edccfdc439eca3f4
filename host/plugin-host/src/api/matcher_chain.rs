//! A chain of matchers: which candidates all of them accept.

use std::sync::Arc;

use crate::{
    error::CallError,
    runtime::engine::worlds::matcher::Question,
    worlds::{
        agent_mirror::AgentMirror,
        matcher::{Candidate, Task, Verdict},
    },
};

pub(super) fn question(agents: &Arc<AgentMirror>, task: &Task, candidates: &[Candidate]) -> Question {
    Question {
        agent_set: Arc::clone(agents),
        task: task.clone(),
        candidates: candidates.to_vec(),
    }
}

/// A matcher that can be asked which candidates fit.
pub(crate) trait Judge: Sync {
    fn evaluate(&self, question: Question) -> impl Future<Output = Result<Vec<Verdict>, CallError>> + Send;
}

/// What a chain of matchers says of a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Judgement {
    pub(crate) verdict: Verdict,
    /// The matcher that refused it, by its place in the chain.
    pub(crate) refused_by: Option<usize>,
}

/// Asks one matcher after the other, each about the candidates that those before it accept.
pub(crate) async fn judge<J: Judge>(
    matchers: &[J],
    agents: &Arc<AgentMirror>,
    task: &Task,
    candidates: &[Candidate],
) -> Result<Vec<Judgement>, CallError> {
    let mut judged = vec![
        Judgement {
            verdict: Verdict::Fits,
            refused_by: None,
        };
        candidates.len()
    ];
    for (at, matcher) in matchers.iter().enumerate() {
        let left: Vec<usize> = (0..candidates.len())
            .filter(|index| judged[*index].refused_by.is_none())
            .collect();
        // The first one is asked anyway, so that its faults are seen.
        if left.is_empty() && at > 0 {
            break;
        }
        let asked: Vec<Candidate> = left.iter().map(|index| candidates[*index]).collect();
        let verdicts = matcher.evaluate(question(agents, task, &asked)).await?;
        for (index, verdict) in left.into_iter().zip(verdicts) {
            judged[index] = Judgement {
                verdict,
                refused_by: (verdict != Verdict::Fits).then_some(at),
            };
        }
    }
    Ok(judged)
}
