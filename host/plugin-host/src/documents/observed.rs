//! [`ObservedCall`]: a call of any world with its answer.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};
use transom_plugin_cases::{Answer as CaseAnswer, answer};

use super::{bootstrap, events, matcher, probe};
use crate::worlds::{
    agent_mirror::AgentSnapshot,
    bootstrap::{Context, Prepared, Rejection},
    events::{Decision, Event, SharedQuery},
    matcher::{Candidate, Constraint, ConstraintError, Task, Verdict},
    probe::Request,
    step::{Answer, Step},
};

/// Minimum size in bytes of an agent in a set.
const MIN_AGENT_BYTES: usize = 32;

/// A call with its answer. The answer is `None` if the call ended in a fault.
#[derive(Debug)]
pub(crate) enum ObservedCall {
    Validate {
        constraints: Vec<Constraint>,
        errors: Option<Vec<ConstraintError>>,
    },
    Evaluate {
        agents: AgentSnapshot,
        task: Task,
        candidates: Vec<Candidate>,
        verdicts: Option<Vec<Verdict>>,
    },
    Place {
        agents: AgentSnapshot,
        task: Task,
        candidates: Vec<Candidate>,
        count: u32,
        chosen: Option<Vec<u32>>,
    },
    SelectKills {
        agents: AgentSnapshot,
        task: Task,
        count: u32,
        chosen: Option<Vec<u32>>,
    },
    Open {
        view: Arc<SharedQuery>,
        opened: Option<Result<(), String>>,
    },
    Decide {
        view: Arc<SharedQuery>,
        events: Arc<[Event]>,
        decisions: Option<Result<Vec<Decision>, String>>,
    },
    Prepare {
        context: Context,
        script: Vec<u8>,
        prepared: Option<Result<Prepared, Rejection>>,
    },
    /// An attempt with all its steps and the answers to them.
    Attempt {
        request: Arc<Request>,
        steps: Vec<(Step, Answer)>,
        end: Option<Step>,
    },
}

impl ObservedCall {
    /// Converts it to a case. A matcher's agents, which belong into the case under the key
    /// `agents`, are left out, because many calls share a set ([`matcher::agents`]).
    pub(crate) fn case(&self) -> Map<String, Value> {
        let mut case = match self {
            ObservedCall::Validate { constraints, .. } => keys(&matcher::validate(constraints)),
            ObservedCall::Evaluate {
                agents,
                task,
                candidates,
                ..
            } => keys(&matcher::evaluate(agents, task, candidates)),
            ObservedCall::Place {
                agents,
                task,
                candidates,
                count,
                ..
            } => keys(&matcher::place(agents, task, candidates, *count)),
            ObservedCall::SelectKills {
                agents, task, count, ..
            } => keys(&matcher::select_kills(agents, task, *count)),
            ObservedCall::Open { view, .. } => keys(&events::case(&view.query, &[])),
            ObservedCall::Decide { view, events, .. } => keys(&events::case(&view.query, events)),
            ObservedCall::Prepare { context, script, .. } => keys(&bootstrap::case(context, script)),
            ObservedCall::Attempt { request, steps, .. } => keys(&probe::case(request, steps)),
        };
        case.extend(self.answer().into_iter().flatten());
        case
    }

    /// Converts its answer. `None` after a fault.
    pub(crate) fn answer(&self) -> Option<CaseAnswer> {
        match self {
            ObservedCall::Validate { errors, .. } => {
                Some(answer("expect", matcher::invalid(errors.as_ref()?)))
            }
            ObservedCall::Evaluate {
                agents,
                candidates,
                verdicts,
                ..
            } => Some(matcher::verdicts(agents, candidates, verdicts.as_ref()?)),
            ObservedCall::Place { agents, chosen, .. } => Some(matcher::placed(agents, chosen.as_ref()?)),
            ObservedCall::SelectKills { chosen, .. } => Some(answer("expect", chosen.as_ref()?)),
            ObservedCall::Open { opened, .. } => {
                let opened = opened.as_ref()?.as_ref();
                Some(events::answer_of(opened.map(|()| Vec::new()).map_err(drop)))
            }
            ObservedCall::Decide { decisions, .. } => {
                let decisions = decisions.as_ref()?.as_ref();
                Some(events::answer_of(decisions.cloned().map_err(drop)))
            }
            ObservedCall::Prepare { prepared, .. } => Some(bootstrap::answer_of(prepared.as_ref()?, true)),
            ObservedCall::Attempt { end, .. } => Some(answer("expect", probe::result_of(end.as_ref()?)?)),
        }
    }

    /// The name of the call in its world.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            ObservedCall::Validate { .. } => "validate",
            ObservedCall::Evaluate { .. } => "evaluate",
            ObservedCall::Place { .. } => "place",
            ObservedCall::SelectKills { .. } => "select-kills",
            ObservedCall::Open { .. } => "open",
            ObservedCall::Decide { .. } => "decide",
            ObservedCall::Prepare { .. } => "prepare",
            ObservedCall::Attempt { .. } => "attempt",
        }
    }

    /// The agent set of a matcher's call.
    pub(crate) fn agents(&self) -> Option<&AgentSnapshot> {
        match self {
            ObservedCall::Evaluate { agents, .. }
            | ObservedCall::Place { agents, .. }
            | ObservedCall::SelectKills { agents, .. } => Some(agents),
            _ => None,
        }
    }

    /// Approximate size in bytes of the parts that may be large. It bounds the memory of the queue.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            ObservedCall::Validate { .. } | ObservedCall::Open { .. } | ObservedCall::SelectKills { .. } => 0,
            ObservedCall::Evaluate { candidates, .. } | ObservedCall::Place { candidates, .. } => {
                candidates.len() * MIN_AGENT_BYTES
            }
            ObservedCall::Decide {
                events, decisions, ..
            } => {
                let bodies: usize = events.iter().map(|it| it.body.len()).sum();
                let replaced = decisions.iter().flatten().flatten().map(|it| match it {
                    Decision::Replace(body) => body.len(),
                    Decision::Pass | Decision::Drop => 0,
                });
                bodies + replaced.sum::<usize>()
            }
            ObservedCall::Prepare { script, prepared, .. } => {
                let prepared = prepared.iter().flatten().map(|it| it.script.len());
                script.len() + prepared.sum::<usize>()
            }
            ObservedCall::Attempt { steps, .. } => steps
                .iter()
                .map(|(step, answer)| step.bytes() + answer.bytes())
                .sum(),
        }
    }
}

fn keys(case: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(case) {
        Ok(Value::Object(keys)) => keys,
        // A case is always a table.
        _ => Map::new(),
    }
}
