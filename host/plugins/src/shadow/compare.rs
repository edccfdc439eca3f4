//! Asking again what was answered, and where the answers part.

use std::{fmt::Debug, sync::Arc};

use serde_json::Value;

use super::{Compared, Shadowed};
use crate::{
    engine::worlds::{
        bootstrap::{Bootstrap, Job as BootstrapJob},
        events::{Filter, Job as FilterJob, Opened},
        matcher::{Job as MatcherJob, Matcher, Question},
        probe::{Job as ProbeJob, Next, Probe},
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

fn compared<T: PartialEq + Debug>(question: impl FnOnce() -> String, serving: &T, beside: &T) -> Compared {
    if serving == beside {
        Compared::Same
    } else {
        Compared::Different(Difference {
            question: question(),
            serving: shown(serving),
            beside: shown(beside),
        })
    }
}

/// Lists part at their first different member.
fn compared_lists<T: PartialEq + Debug>(
    question: impl Fn(usize) -> String,
    serving: &[T],
    beside: &[T],
) -> Compared {
    let parted = (0..serving.len().max(beside.len())).find(|at| serving.get(*at) != beside.get(*at));
    match parted {
        None => Compared::Same,
        Some(at) => compared(|| question(at), &serving.get(at), &beside.get(at)),
    }
}

pub(crate) enum MatcherSample {
    Validate(Vec<Constraint>, Vec<ConstraintError>),
    /// With the agent set's revision when it was asked.
    Evaluate(Question, u64, Vec<Verdict>),
    Place(Question, u64, u32, Vec<u32>),
}

impl Shadowed for Matcher {
    type Sample = MatcherSample;

    async fn compare(version: &Version<Self>, sample: MatcherSample) -> Result<Compared, CallError> {
        match sample {
            MatcherSample::Validate(constraints, serving) => {
                let question = format!("validate {}", shown(&constraints));
                let beside = version
                    .ask(&mut version.least_loaded(), |reply| MatcherJob::Validate {
                        constraints,
                        reply,
                    })
                    .await?;
                // Which constraints are wrong matters, not how that is said.
                let wrong = |errors: &[ConstraintError]| {
                    let mut wrong: Vec<u32> = errors.iter().map(|it| it.constraint).collect();
                    wrong.sort_unstable();
                    wrong.dedup();
                    wrong
                };
                Ok(compared(|| question, &wrong(&serving), &wrong(&beside)))
            }
            MatcherSample::Evaluate(question, revision, serving) => {
                let (agent_set, asked) = (Arc::clone(&question.agent_set), question.clone());
                let mut seat = version.near(agent_set.id() as usize);
                let beside = version
                    .ask(&mut seat, |reply| MatcherJob::Evaluate { question, reply })
                    .await?;
                if agent_set.revision() != revision {
                    return Ok(Compared::Stale);
                }
                let agent = |at: usize| asked.candidates.get(at).map(|it| it.agent);
                Ok(compared_lists(
                    |at| format!("judge {} on agent {:?}", shown(&asked.task), agent(at)),
                    &serving,
                    &beside,
                ))
            }
            MatcherSample::Place(question, revision, count, serving) => {
                let (agent_set, task) = (Arc::clone(&question.agent_set), question.task.clone());
                let mut seat = version.near(agent_set.id() as usize);
                let beside = version
                    .ask(&mut seat, |reply| MatcherJob::Place {
                        question,
                        count,
                        reply,
                    })
                    .await?;
                if agent_set.revision() != revision {
                    return Ok(Compared::Stale);
                }
                Ok(compared(
                    || format!("place {count} of {}", shown(&task)),
                    &serving,
                    &beside,
                ))
            }
        }
    }
}

pub(crate) struct FilterSample {
    pub(crate) view: Arc<Opened>,
    /// None: only opened.
    pub(crate) events: Option<Arc<[Event]>>,
    pub(crate) serving: Result<Vec<Decision>, String>,
}

impl Shadowed for Filter {
    type Sample = FilterSample;

    async fn compare(version: &Version<Self>, sample: FilterSample) -> Result<Compared, CallError> {
        let FilterSample {
            view,
            events,
            serving,
        } = sample;
        let mut seat = version.near(view.id as usize);
        let query = shown(&view.query);
        let asked = events.clone();
        let beside: Result<Vec<Decision>, String> = if let Some(events) = events {
            version
                .ask(&mut seat, |reply| FilterJob::Decide { view, events, reply })
                .await?
        } else {
            let opened = version.ask(&mut seat, |reply| FilterJob::Open { view, reply });
            opened.await?.map(|()| Vec::new())
        };
        Ok(match (serving, beside) {
            (Ok(serving), Ok(beside)) => {
                let read = |decisions: Vec<Decision>| decisions.into_iter().map(meant).collect::<Vec<_>>();
                let kind = |at: usize| {
                    let event = asked.as_ref().and_then(|events| events.get(at));
                    event.map(|it| it.kind.clone()).unwrap_or_default()
                };
                compared_lists(
                    |at| format!("{} to {query}", one_line(&kind(at))),
                    &read(serving),
                    &read(beside),
                )
            }
            // Both refuse; the words are each one's own.
            (Err(_), Err(_)) => Compared::Same,
            (serving, beside) => compared(|| query, &serving.err(), &beside.err()),
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

impl Shadowed for Bootstrap {
    type Sample = (Context, Vec<u8>, Result<Prepared, Refusal>);

    async fn compare(version: &Version<Self>, sample: Self::Sample) -> Result<Compared, CallError> {
        let (context, script, serving) = sample;
        let question = format!("{:?} {}", context.role, one_line(&context.task));
        let job = |reply| BootstrapJob {
            context,
            script,
            reply,
        };
        let beside = version.ask(&mut version.least_loaded(), job).await?;
        Ok(match (&serving, &beside) {
            (Err(a), Err(b)) if a.retry == b.retry => Compared::Same,
            _ => compared(|| question, &serving, &beside),
        })
    }
}

/// An attempt with what came of its steps; the last of them is its end.
pub(crate) struct ProbeSample {
    pub(crate) request: Arc<Request>,
    pub(crate) steps: Vec<(Step, Answer)>,
    pub(crate) end: Step,
}

impl Shadowed for Probe {
    type Sample = ProbeSample;

    async fn compare(version: &Version<Self>, sample: ProbeSample) -> Result<Compared, CallError> {
        let ProbeSample { request, steps, end } = sample;
        let question = |number: usize| format!("step {number} of a look at {}", one_line(&request.run_spec));
        let mut seat = version.least_loaded();
        let asked = Arc::clone(&request);
        let begin = |reply| ProbeJob::Begin {
            request: asked,
            until: None,
            reply,
        };
        let (lease, mut step) = version.ask(&mut seat, begin).await?;
        let count = steps.len();
        for (number, (serving, answer)) in steps.into_iter().enumerate() {
            if step != serving {
                return Ok(compared(|| question(number + 1), &serving, &step));
            }
            let key = lease.key;
            step = match version
                .ask(&mut seat, |reply| ProbeJob::Next {
                    key,
                    answer,
                    until: None,
                    reply,
                })
                .await?
            {
                Next::Step(step) => step,
                Next::Lost => return Ok(Compared::Stale),
            };
        }
        Ok(match (&end, &step) {
            // The words of a failure are each one's own.
            (Step::Failed(a), Step::Failed(b)) if a.reason == b.reason => Compared::Same,
            _ => compared(|| question(count + 1), &end, &step),
        })
    }
}
