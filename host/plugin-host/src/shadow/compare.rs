//! Repeats calls on a shadow version and compares the answers.

use std::{fmt::Debug, sync::Arc};

use serde_json::Value;

use super::{Comparable, Comparison};
use crate::{
    engine::worlds::{
        bootstrap::{Bootstrap, Call as BootstrapCall},
        events::{Call as FilterCall, Filter, SharedQuery},
        matcher::{Call as MatcherCall, Matcher, Question},
        probe::{Call as ProbeJob, Next, Probe},
    },
    error::CallError,
    pool::Version,
    status::Difference,
    text::one_line,
    types::{
        bootstrap::{Context, Prepared, Refusal},
        events::{Decision, Event},
        matcher::{Constraint, ConstraintError, Verdict},
        probe::Request,
        step::{Answer, Step},
    },
};

/// Characters of each side that are shown.
const SHOWN: usize = 200;

fn shown(what: &impl Debug) -> String {
    let line = one_line(&format!("{what:?}"));
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn compared<T: PartialEq + Debug>(question: impl FnOnce() -> String, serving: &T, shadow: &T) -> Comparison {
    if serving == shadow {
        Comparison::Same
    } else {
        Comparison::Different(Difference {
            question: question(),
            serving: shown(serving),
            shadow: shown(shadow),
        })
    }
}

/// Lists part at their first different member.
fn compared_lists<T: PartialEq + Debug>(
    question: impl Fn(usize) -> String,
    serving: &[T],
    shadow: &[T],
) -> Comparison {
    let parted = (0..serving.len().max(shadow.len())).find(|at| serving.get(*at) != shadow.get(*at));
    match parted {
        None => Comparison::Same,
        Some(at) => compared(|| question(at), &serving.get(at), &shadow.get(at)),
    }
}

pub(crate) enum MatcherSample {
    Validate(Vec<Constraint>, Vec<ConstraintError>),
    /// With the agent set's revision at the call.
    Evaluate(Question, u64, Vec<Verdict>),
    Place(Question, u64, u32, Vec<u32>),
}

impl Comparable for Matcher {
    type Sample = MatcherSample;

    async fn compare(version: &Version<Self>, sample: MatcherSample) -> Result<Comparison, CallError> {
        match sample {
            MatcherSample::Validate(constraints, serving) => {
                let question = format!("validate {}", shown(&constraints));
                let shadow = version
                    .ask(&mut version.least_loaded(), |reply| MatcherCall::Validate {
                        constraints,
                        reply,
                    })
                    .await?;
                // Compare the constraints with errors, not the messages.
                let wrong = |errors: &[ConstraintError]| {
                    let mut wrong: Vec<u32> = errors.iter().map(|it| it.constraint).collect();
                    wrong.sort_unstable();
                    wrong.dedup();
                    wrong
                };
                Ok(compared(|| question, &wrong(&serving), &wrong(&shadow)))
            }
            MatcherSample::Evaluate(question, revision, serving) => {
                let (agent_set, asked) = (Arc::clone(&question.agent_set), question.clone());
                let mut handle = version.near(agent_set.id() as usize);
                let shadow = version
                    .ask(&mut handle, |reply| MatcherCall::Evaluate { question, reply })
                    .await?;
                if agent_set.revision() != revision {
                    return Ok(Comparison::Stale);
                }
                let agent = |at: usize| asked.candidates.get(at).map(|it| it.agent);
                Ok(compared_lists(
                    |at| format!("evaluate {} on agent {:?}", shown(&asked.task), agent(at)),
                    &serving,
                    &shadow,
                ))
            }
            MatcherSample::Place(question, revision, count, serving) => {
                let (agent_set, task) = (Arc::clone(&question.agent_set), question.task.clone());
                let mut handle = version.near(agent_set.id() as usize);
                let shadow = version
                    .ask(&mut handle, |reply| MatcherCall::Place {
                        question,
                        count,
                        reply,
                    })
                    .await?;
                if agent_set.revision() != revision {
                    return Ok(Comparison::Stale);
                }
                Ok(compared(
                    || format!("place {count} of {}", shown(&task)),
                    &serving,
                    &shadow,
                ))
            }
        }
    }
}

pub(crate) struct FilterSample {
    pub(crate) view: Arc<SharedQuery>,
    /// None: only opened.
    pub(crate) events: Option<Arc<[Event]>>,
    pub(crate) serving: Result<Vec<Decision>, String>,
}

impl Comparable for Filter {
    type Sample = FilterSample;

    async fn compare(version: &Version<Self>, sample: FilterSample) -> Result<Comparison, CallError> {
        let FilterSample {
            view,
            events,
            serving,
        } = sample;
        let mut handle = version.near(view.id as usize);
        let query = shown(&view.query);
        let asked = events.clone();
        let shadow: Result<Vec<Decision>, String> = if let Some(events) = events {
            version
                .ask(&mut handle, |reply| FilterCall::Decide { view, events, reply })
                .await?
        } else {
            let opened = version.ask(&mut handle, |reply| FilterCall::Open { view, reply });
            opened.await?.map(|()| Vec::new())
        };
        Ok(match (serving, shadow) {
            (Ok(serving), Ok(shadow)) => {
                let read = |decisions: Vec<Decision>| decisions.into_iter().map(meant).collect::<Vec<_>>();
                let kind = |at: usize| {
                    let event = asked.as_ref().and_then(|events| events.get(at));
                    event.map(|it| it.kind.clone()).unwrap_or_default()
                };
                compared_lists(
                    |at| format!("{} to {query}", one_line(&kind(at))),
                    &read(serving),
                    &read(shadow),
                )
            }
            // Both refuse; the words are each one's own.
            (Err(_), Err(_)) => Comparison::Same,
            (serving, shadow) => compared(|| query, &serving.err(), &shadow.err()),
        })
    }
}

#[derive(Debug, PartialEq)]
enum Meant {
    Pass,
    Drop,
    Replace(Value),
}

/// Documents are compared, not their texts.
fn meant(decision: Decision) -> Meant {
    match decision {
        Decision::Pass => Meant::Pass,
        Decision::Drop => Meant::Drop,
        // The engine let only objects through.
        Decision::Replace(json) => Meant::Replace(serde_json::from_str(&json).unwrap_or_default()),
    }
}

impl Comparable for Bootstrap {
    type Sample = (Context, Vec<u8>, Result<Prepared, Refusal>);

    async fn compare(version: &Version<Self>, sample: Self::Sample) -> Result<Comparison, CallError> {
        let (context, script, serving) = sample;
        let question = format!("{:?} {}", context.role, one_line(&context.task));
        let job = |reply| BootstrapCall {
            context,
            script,
            reply,
        };
        let shadow = version.ask(&mut version.least_loaded(), job).await?;
        Ok(match (&serving, &shadow) {
            (Err(a), Err(b)) if a.retry == b.retry => Comparison::Same,
            _ => compared(|| question, &serving, &shadow),
        })
    }
}

/// An attempt with the answers to its steps, and its end.
pub(crate) struct ProbeSample {
    pub(crate) request: Arc<Request>,
    pub(crate) steps: Vec<(Step, Answer)>,
    pub(crate) end: Step,
}

impl Comparable for Probe {
    type Sample = ProbeSample;

    async fn compare(version: &Version<Self>, sample: ProbeSample) -> Result<Comparison, CallError> {
        let ProbeSample { request, steps, end } = sample;
        let question = |number: usize| format!("step {number} of a look at {}", one_line(&request.run_spec));
        let mut handle = version.least_loaded();
        let asked = Arc::clone(&request);
        let begin = |reply| ProbeJob::Begin {
            request: asked,
            until: None,
            reply,
        };
        let (lease, mut step) = version.ask(&mut handle, begin).await?;
        let count = steps.len();
        for (number, (serving, answer)) in steps.into_iter().enumerate() {
            if step != serving {
                return Ok(compared(|| question(number + 1), &serving, &step));
            }
            let key = lease.key;
            step = match version
                .ask(&mut handle, |reply| ProbeJob::Next {
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
            // The words of a failure are each one's own.
            (Step::Failed(a), Step::Failed(b)) if a.reason == b.reason => Comparison::Same,
            _ => compared(|| question(count + 1), &end, &step),
        })
    }
}
