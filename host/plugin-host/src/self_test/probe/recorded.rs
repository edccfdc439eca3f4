//! Recorded attempts as cases.

use serde_json::Value;

use super::{Case, Expected, GivenAnswer, GivenPort, GivenStep};
use crate::worlds::{
    probe::{Outcome, Request},
    step::{Answer, Step},
};

/// Converts an attempt. `result_of`: its last step; `None` if one of its calls failed.
pub(crate) fn attempt(request: &Request, steps: &[(Step, Answer)], end: Option<&Step>) -> Case {
    let ports = request.ports.iter().map(|it| GivenPort {
        name: it.name.clone(),
        protocol: it.protocol.clone(),
        endpoint: it.endpoint.to_string(),
    });
    Case {
        run_spec: Some(request.run_spec.clone()),
        task: Some(request.task.clone()),
        agent: Some(request.agent.clone()),
        labels: request.labels.clone(),
        ports: Some(ports.collect()),
        endpoint: request.endpoint.as_ref().map(ToString::to_string),
        path: request.path.clone(),
        command: request.command.clone(),
        // The API of apps lets only JSON objects through.
        settings: serde_json::from_str(&request.settings).unwrap_or_default(),
        previous: request.previous.as_ref().map(Expected::of),
        timeout_millis: Some(u32::try_from(request.timeout.as_millis()).unwrap_or(u32::MAX)),
        extensions: request.extensions.clone(),
        steps: Some(steps.iter().filter_map(|(step, _)| GivenStep::of(step)).collect()),
        answers: steps.iter().map(|(_, answer)| GivenAnswer::of(answer)).collect(),
        expect: end.and_then(super::result_of),
    }
}

/// Converts a step to the form of a case. `null` if it ends the attempt.
pub(crate) fn step_form(step: &Step) -> Value {
    // A step of a case can always be converted to JSON.
    serde_json::to_value(GivenStep::of(step)).unwrap_or_default()
}

/// Converts an answer to the form of a case.
pub(crate) fn answer_form(answer: &Answer) -> Value {
    serde_json::to_value(GivenAnswer::of(answer)).unwrap_or_default()
}

/// Converts a result to the form of a case.
pub(crate) fn outcome_form(outcome: &Outcome) -> Value {
    serde_json::to_value(Expected::of(outcome)).unwrap_or_default()
}
