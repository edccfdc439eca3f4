//! Converts recorded calls to cases, with their answers as the expected ones. Parts of a call that
//! a case cannot express are not recorded.

use serde::Serialize;
use serde_json::{Map, Value};

use super::{bootstrap, events, matcher, probe};
use crate::{runtime::recording::ObservedCall, worlds::agent_mirror::AgentSnapshot};

/// Converts a call without its agents ([`agents_of`]), which belong into the case under the key
/// `agents`.
pub(crate) fn case_of(call: &ObservedCall) -> Map<String, Value> {
    use matcher::recorded::{evaluate, place, select_kills, validate};
    match call {
        ObservedCall::Validate { constraints, errors } => keys(&validate(constraints, errors.as_deref())),
        ObservedCall::Evaluate {
            agents,
            task,
            candidates,
            verdicts,
        } => keys(&evaluate(agents, task, candidates, verdicts.as_deref())),
        ObservedCall::Place {
            agents,
            task,
            candidates,
            count,
            chosen,
        } => keys(&place(agents, task, candidates, *count, chosen.as_deref())),
        ObservedCall::SelectKills {
            agents,
            task,
            count,
            chosen,
        } => keys(&select_kills(agents, task, *count, chosen.as_deref())),
        ObservedCall::Open { view, opened } => {
            let decisions = opened
                .as_ref()
                .map(|it| it.as_ref().map(|()| &[][..]).map_err(drop));
            keys(&events::recorded(&view.query, &[], decisions))
        }
        ObservedCall::Decide {
            view,
            events,
            decisions,
        } => {
            let decisions = decisions.as_ref().map(|it| it.as_deref().map_err(drop));
            keys(&events::recorded(&view.query, events, decisions))
        }
        ObservedCall::Prepare {
            context,
            script,
            prepared,
        } => keys(&bootstrap::recorded(context, script, prepared.as_ref())),
        ObservedCall::Attempt { request, steps, end } => {
            keys(&probe::recorded::attempt(request, steps, end.as_ref()))
        }
    }
}

/// The agents of a call, in the order of their handles.
pub(crate) fn agents_of(agents: &AgentSnapshot) -> Value {
    let agents: Vec<_> = agents.iter().map(matcher::GivenAgent::of).collect();
    // Agents can always be converted to JSON.
    serde_json::to_value(agents).unwrap_or_default()
}

fn keys(case: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(case) {
        Ok(Value::Object(keys)) => keys,
        // A case is always a table.
        _ => Map::new(),
    }
}
