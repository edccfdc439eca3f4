//! A chain of matchers, which accepts a candidate only if all of them accept it.

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

/// A matcher that evaluates candidates.
pub(crate) trait CandidateEvaluator: Sync {
    fn evaluate(&self, question: Question) -> impl Future<Output = Result<Vec<Verdict>, CallError>> + Send;
}

/// The verdict of a chain of matchers on one candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ChainVerdict {
    pub(crate) verdict: Verdict,
    /// Index in the chain of the matcher that rejected it.
    pub(crate) rejected_by: Option<usize>,
}

/// Calls one matcher after the other, each with the candidates that the matchers before it accept.
pub(crate) async fn evaluate_chain<J: CandidateEvaluator>(
    matchers: &[J],
    agents: &Arc<AgentMirror>,
    task: &Task,
    candidates: &[Candidate],
) -> Result<Vec<ChainVerdict>, CallError> {
    let mut verdicts_so_far = vec![
        ChainVerdict {
            verdict: Verdict::Fits,
            rejected_by: None,
        };
        candidates.len()
    ];
    for (at, matcher) in matchers.iter().enumerate() {
        let remaining: Vec<usize> = (0..candidates.len())
            .filter(|index| verdicts_so_far[*index].rejected_by.is_none())
            .collect();
        // The first matcher is called even without candidates, so that its faults are noticed.
        if remaining.is_empty() && at > 0 {
            break;
        }
        let asked_candidates: Vec<Candidate> = remaining.iter().map(|index| candidates[*index]).collect();
        let verdicts = matcher
            .evaluate(question(agents, task, &asked_candidates))
            .await?;
        for (index, verdict) in remaining.into_iter().zip(verdicts) {
            verdicts_so_far[index] = ChainVerdict {
                verdict,
                rejected_by: (verdict != Verdict::Fits).then_some(at),
            };
        }
    }
    Ok(verdicts_so_far)
}
