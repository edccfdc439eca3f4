//! Repeats calls on another version and compares the answers.

use std::{fmt::Debug, sync::Arc};

use serde_json::Value;
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
        pool::Version,
    },
    worlds::{
        bootstrap::{Prepared, Refusal},
        events::Decision,
        matcher::ConstraintError,
        step::Step,
    },
};

/// Maximum number of characters shown of each answer.
const SHOWN: usize = 200;

fn shown(what: &impl Debug) -> String {
    let line = one_line(&format!("{what:?}"));
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn compared<T: PartialEq + Debug>(question: impl FnOnce() -> String, first: &T, repeated: &T) -> Comparison {
    if first == repeated {
        Comparison::Same
    } else {
        Comparison::Different(Difference {
            question: question(),
            serving: shown(first),
            candidate: shown(repeated),
        })
    }
}

/// Compares two lists and shows the first element that differs.
fn compared_lists<T: PartialEq + Debug>(
    question: impl Fn(usize) -> String,
    first: &[T],
    repeated: &[T],
) -> Comparison {
    let parted = (0..first.len().max(repeated.len())).find(|at| first.get(*at) != repeated.get(*at));
    match parted {
        None => Comparison::Same,
        Some(at) => compared(|| question(at), &first.get(at), &repeated.get(at)),
    }
}

impl Comparable for Matcher {
    type Sample = MatcherSample;

    async fn compare(version: &Version<Self>, sample: MatcherSample) -> Result<Comparison, CallError> {
        match sample {
            MatcherSample::Validate(Validate(constraints), first) => {
                let question = format!("validate {}", shown(&constraints));
                let repeated = repeat(version, Validate(constraints)).await?;
                // Compares which constraints have errors, not the messages.
                let wrong = |errors: &[ConstraintError]| {
                    let mut wrong: Vec<u32> = errors.iter().map(|it| it.constraint).collect();
                    wrong.sort_unstable();
                    wrong.dedup();
                    wrong
                };
                Ok(compared(|| question, &wrong(&first), &wrong(&repeated)))
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
                Ok(compared_lists(
                    |at| format!("evaluate {} on agent {:?}", shown(&question.task), agent(at)),
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
                Ok(compared(
                    || format!("place {count} of {}", shown(&task)),
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
                Ok(compared(
                    || format!("select {count} to kill of {}", shown(&task)),
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
                let query = shown(&open.0.query);
                let repeated = repeat(version, open).await?;
                (
                    query,
                    None,
                    first.map(|()| Vec::new()),
                    repeated.map(|()| Vec::new()),
                )
            }
            FilterSample::Decide(decide, first) => {
                let (query, events) = (shown(&decide.view.query), Arc::clone(&decide.events));
                let repeated = repeat(version, decide).await?;
                (query, Some(events), first, repeated)
            }
        };
        Ok(match (first, repeated) {
            (Ok(first), Ok(repeated)) => {
                let read = |decisions: Vec<Decision>| decisions.into_iter().map(meant).collect::<Vec<_>>();
                let kind = |at: usize| {
                    let event = events.as_ref().and_then(|events| events.get(at));
                    event.map(|it| it.kind.clone()).unwrap_or_default()
                };
                compared_lists(
                    |at| format!("{} to {query}", one_line(&kind(at))),
                    &read(first),
                    &read(repeated),
                )
            }
            // Both versions reject the query. The wording may differ.
            (Err(_), Err(_)) => Comparison::Same,
            (first, repeated) => compared(|| query, &first.err(), &repeated.err()),
        })
    }
}

#[derive(Debug, PartialEq)]
enum Meant {
    Pass,
    Drop,
    Replace(Value),
}

/// Parses replacements, so that documents are compared and not their texts.
fn meant(decision: Decision) -> Meant {
    match decision {
        Decision::Pass => Meant::Pass,
        Decision::Drop => Meant::Drop,
        // The engine lets only JSON objects through.
        Decision::Replace(json) => Meant::Replace(serde_json::from_str(&json).unwrap_or_default()),
    }
}

impl Comparable for Bootstrap {
    type Sample = (Prepare, Result<Prepared, Refusal>);

    async fn compare(version: &Version<Self>, sample: Self::Sample) -> Result<Comparison, CallError> {
        let (prepare, first) = sample;
        let question = format!("{:?} {}", prepare.context.role, one_line(&prepare.context.task));
        let repeated = repeat(version, prepare).await?;
        Ok(match (&first, &repeated) {
            (Err(a), Err(b)) if a.retry == b.retry => Comparison::Same,
            _ => compared(|| question, &first, &repeated),
        })
    }
}

impl Comparable for Probe {
    type Sample = ProbeSample;

    async fn compare(version: &Version<Self>, sample: ProbeSample) -> Result<Comparison, CallError> {
        let ProbeSample { request, steps, end } = sample;
        let question = |number: usize| format!("step {number} of a look at {}", one_line(&request.run_spec));
        let mut handle = version.least_loaded();
        let asked = Arc::clone(&request);
        let begin = |reply| ProbeCall::Begin {
            request: asked,
            until: None,
            reply,
        };
        let (attempt, mut step) = version.ask(&mut handle, begin).await?;
        let count = steps.len();
        for (number, (first, answer)) in steps.into_iter().enumerate() {
            if step != first {
                return Ok(compared(|| question(number + 1), &first, &step));
            }
            let key = attempt.key;
            step = match version
                .ask(&mut handle, |reply| ProbeCall::Next {
                    key,
                    answer,
                    until: None,
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
            _ => compared(|| question(count + 1), &end, &step),
        })
    }
}
