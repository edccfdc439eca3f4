//! Repeats calls on another version and compares the answers.

use std::{
    fmt::{self, Debug},
    sync::Arc,
};

use transom_common::text::one_line;

use super::{
    Comparable, Comparison,
    calls::{Evaluate, FilterSample, MatcherSample, Place, Prepare, ProbeSample, SelectKills, Validate},
    repeat,
};
use crate::{
    error::CallError,
    observe::status::Difference,
    runtime::{
        engine::worlds::{
            bootstrap::Bootstrap,
            events::Filter,
            matcher::Matcher,
            probe::{Call as ProbeCall, Next, Probe},
        },
        json::is_same_document,
        pool::Version,
    },
    worlds::{
        bootstrap::{Prepared, Rejection},
        events::Decision,
        matcher::ConstraintError,
        step::Step,
    },
};

/// Maximum number of characters shown of each answer.
const MAX_CHARS: usize = 200;

fn debug_line(what: &impl Debug) -> String {
    let line = one_line(&format!("{what:?}"));
    match line.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn compare_values<T: PartialEq + Debug>(
    question: impl FnOnce() -> String,
    first: &T,
    repeated: &T,
) -> Comparison {
    if first == repeated {
        Comparison::Same
    } else {
        Comparison::Different(Difference {
            question: question(),
            serving: debug_line(first),
            candidate: debug_line(repeated),
        })
    }
}

/// Compares two lists and shows the first element that differs.
fn compare_lists<T: PartialEq + Debug>(
    question: impl Fn(usize) -> String,
    first: &[T],
    repeated: &[T],
) -> Comparison {
    let first_difference =
        (0..first.len().max(repeated.len())).find(|at| first.get(*at) != repeated.get(*at));
    match first_difference {
        None => Comparison::Same,
        Some(at) => compare_values(|| question(at), &first.get(at), &repeated.get(at)),
    }
}

impl Comparable for Matcher {
    type Sample = MatcherSample;

    async fn compare(version: &Version<Self>, sample: MatcherSample) -> Result<Comparison, CallError> {
        match sample {
            MatcherSample::Validate(Validate(constraints), first) => {
                let question = format!("validate {}", debug_line(&constraints));
                let repeated = repeat(version, Validate(constraints)).await?;
                // Compares which constraints have errors, not the messages.
                let invalid_constraints = |errors: &[ConstraintError]| {
                    let mut invalid_constraints: Vec<u32> = errors.iter().map(|it| it.constraint).collect();
                    invalid_constraints.sort_unstable();
                    invalid_constraints.dedup();
                    invalid_constraints
                };
                Ok(compare_values(
                    || question,
                    &invalid_constraints(&first),
                    &invalid_constraints(&repeated),
                ))
            }
            MatcherSample::Evaluate {
                call: Evaluate(question),
                revision,
                first,
            } => {
                let repeated = repeat(version, Evaluate(question.clone())).await?;
                if question.agent_set.revision() != revision {
                    return Ok(Comparison::Stale);
                }
                let agent = |at: usize| question.candidates.get(at).map(|it| it.agent);
                Ok(compare_lists(
                    |at| format!("evaluate {} on agent {:?}", debug_line(&question.task), agent(at)),
                    &first,
                    &repeated,
                ))
            }
            MatcherSample::Place {
                call: Place { question, count },
                revision,
                first,
            } => {
                let (agent_set, task) = (Arc::clone(&question.agent_set), question.task.clone());
                let repeated = repeat(version, Place { question, count }).await?;
                if agent_set.revision() != revision {
                    return Ok(Comparison::Stale);
                }
                Ok(compare_values(
                    || format!("place {count} of {}", debug_line(&task)),
                    &first,
                    &repeated,
                ))
            }
            MatcherSample::SelectKills {
                call: SelectKills { question, count },
                revision,
                first,
            } => {
                let (agent_set, task) = (Arc::clone(&question.agent_set), question.task.clone());
                let repeated = repeat(version, SelectKills { question, count }).await?;
                if agent_set.revision() != revision {
                    return Ok(Comparison::Stale);
                }
                Ok(compare_values(
                    || format!("select {count} to kill of {}", debug_line(&task)),
                    &first,
                    &repeated,
                ))
            }
        }
    }
}

impl Comparable for Filter {
    type Sample = FilterSample;

    async fn compare(version: &Version<Self>, sample: FilterSample) -> Result<Comparison, CallError> {
        let (query, events, first, repeated) = match sample {
            FilterSample::Open(open, first) => {
                let query = debug_line(&open.0.query);
                let repeated = repeat(version, open).await?;
                (
                    query,
                    None,
                    first.map(|()| Vec::new()),
                    repeated.map(|()| Vec::new()),
                )
            }
            FilterSample::Decide(decide, first) => {
                let (query, events) = (debug_line(&decide.view.query), Arc::clone(&decide.events));
                let repeated = repeat(version, decide).await?;
                (query, Some(events), first, repeated)
            }
        };
        Ok(match (first, repeated) {
            (Ok(first), Ok(repeated)) => {
                let documents =
                    |decisions: Vec<Decision>| decisions.into_iter().map(ByDocument).collect::<Vec<_>>();
                let kind = |at: usize| {
                    let event = events.as_ref().and_then(|events| events.get(at));
                    event.map(|it| it.kind.clone()).unwrap_or_default()
                };
                compare_lists(
                    |at| format!("{} to {query}", one_line(&kind(at))),
                    &documents(first),
                    &documents(repeated),
                )
            }
            // Both versions reject the query. The wording may differ.
            (Err(_), Err(_)) => Comparison::Same,
            (first, repeated) => compare_values(|| query, &first.err(), &repeated.err()),
        })
    }
}

/// A decision whose replacement is compared as a document, not as a text.
struct ByDocument(Decision);

impl PartialEq for ByDocument {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Decision::Replace(first), Decision::Replace(second)) => {
                first == second || is_same_document(first, second)
            }
            (first, second) => first == second,
        }
    }
}

impl Debug for ByDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Comparable for Bootstrap {
    type Sample = (Prepare, Result<Prepared, Rejection>);

    async fn compare(version: &Version<Self>, sample: Self::Sample) -> Result<Comparison, CallError> {
        let (prepare, first) = sample;
        let question = format!("{:?} {}", prepare.context.role, one_line(&prepare.context.task));
        let repeated = repeat(version, prepare).await?;
        Ok(match (&first, &repeated) {
            (Err(a), Err(b)) if a.retry == b.retry => Comparison::Same,
            _ => compare_values(|| question, &first, &repeated),
        })
    }
}

impl Comparable for Probe {
    type Sample = ProbeSample;

    async fn compare(version: &Version<Self>, sample: ProbeSample) -> Result<Comparison, CallError> {
        let ProbeSample { request, steps, end } = sample;
        let question =
            |number: usize| format!("step {number} of an attempt on {}", one_line(&request.run_spec));
        let mut handle = version.least_loaded();
        let attempt_request = Arc::clone(&request);
        let begin = |reply| ProbeCall::Begin {
            request: attempt_request,
            deadline: None,
            reply,
        };
        let (attempt, mut step) = version.ask(&mut handle, begin).await?;
        let count = steps.len();
        for (number, (first, answer)) in steps.into_iter().enumerate() {
            if step != first {
                return Ok(compare_values(|| question(number + 1), &first, &step));
            }
            let key = attempt.key;
            step = match version
                .ask(&mut handle, |reply| ProbeCall::Next {
                    key,
                    answer,
                    deadline: None,
                    reply,
                })
                .await?
            {
                Next::Step(step) => step,
                Next::Lost => return Ok(Comparison::Stale),
            };
        }
        Ok(match (&end, &step) {
            // The wording of a failure may differ.
            (Step::Failed(a), Step::Failed(b)) if a.reason == b.reason => Comparison::Same,
            _ => compare_values(|| question(count + 1), &end, &step),
        })
    }
}
