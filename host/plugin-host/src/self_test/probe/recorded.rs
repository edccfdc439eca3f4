//! Recorded attempts as cases.

use super::{Case, Expected, Given, GivenPort, GivenStep};
use crate::worlds::{
    probe::Request,
    step::{Answer, Step},
};

/// An attempt. `end`: its last step; none if a call of it failed.
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
        // The API of apps lets only objects through.
        settings: serde_json::from_str(&request.settings).unwrap_or_default(),
        previous: request.previous.as_ref().map(Expected::of),
        timeout_millis: Some(u32::try_from(request.timeout.as_millis()).unwrap_or(u32::MAX)),
        extensions: request.extensions.clone(),
        steps: Some(steps.iter().filter_map(|(step, _)| GivenStep::of(step)).collect()),
        answers: steps.iter().map(|(_, answer)| Given::of(answer)).collect(),
        expect: end.and_then(super::end),
    }
}
