//! Attempts of world `check-probe`.

use std::time::Duration;

use serde_json::Value;
use transom_plugin_cases::{
    Answer as CaseAnswer, answer,
    forms::Bytes,
    probe::{
        Case, ErrorKind, Expected, GivenAnswer, GivenError, GivenOutput, GivenPort, GivenRequest,
        GivenResponse, GivenStep, GivenTls,
    },
};

use crate::worlds::{
    probe::{CommandLine, Endpoint, IoError, Outcome, Port, Request},
    step::{Answer, HttpRequest, Step, Tls},
};

/// Converts an attempt.
pub(crate) fn case(request: &Request, steps: &[(Step, Answer)]) -> Case {
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
        previous: request.previous.as_ref().map(expected),
        timeout_millis: Some(u32::try_from(request.timeout.as_millis()).unwrap_or(u32::MAX)),
        extensions: request.extensions.clone(),
        steps: Some(steps.iter().filter_map(|(step, _)| given_step(step)).collect()),
        answers: steps.iter().map(|(_, answer)| given_answer(answer)).collect(),
        expect: None,
    }
}

/// Converts a case to a request. The error names the mistake in it.
pub(crate) fn request(case: &Case) -> Result<Request, String> {
    let to_endpoint = |text: &String| endpoint(text);
    let named = case.endpoint.as_ref().map(to_endpoint).transpose()?;
    let ports = match &case.ports {
        Some(ports) => ports.iter().map(port).collect::<Result<_, _>>()?,
        None => named.iter().cloned().map(tcp_port).collect(),
    };
    let text = |given: &Option<String>, default: &str| given.clone().unwrap_or_else(|| default.to_owned());
    Ok(Request {
        run_spec: text(&case.run_spec, "/self-test"),
        task: text(&case.task, "self-case.1"),
        agent: text(&case.agent, "localhost"),
        labels: case.labels.clone(),
        ports,
        endpoint: named,
        path: case.path.clone(),
        command: case.command.clone(),
        settings: Value::Object(case.settings.clone()).to_string(),
        previous: case.previous.as_ref().map(outcome).transpose()?,
        timeout: Duration::from_millis(case.timeout_millis.unwrap_or(20_000).into()),
        extensions: case.extensions.clone(),
    })
}

/// The port of a case that only has an endpoint.
fn tcp_port(endpoint: Endpoint) -> Port {
    Port {
        name: None,
        protocol: "tcp".to_owned(),
        endpoint,
    }
}

fn port(given: &GivenPort) -> Result<Port, String> {
    Ok(Port {
        name: given.name.clone(),
        protocol: given.protocol.clone(),
        endpoint: endpoint(&given.endpoint)?,
    })
}

fn endpoint(text: &str) -> Result<Endpoint, String> {
    let invalid = || format!("`endpoint` is {text:?}; expected \"host:port\"");
    let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
    Ok(Endpoint {
        host: host.trim_matches(['[', ']']).to_owned(),
        port: port.parse().map_err(|_| invalid())?,
    })
}

/// The result of an attempt, if this step ends it.
pub(crate) fn result_of(step: &Step) -> Option<Expected> {
    match step {
        Step::Done(outcome) => Some(expected(outcome)),
        Step::Failed(why) => Some(Expected::Failed(why.reason)),
        _ => None,
    }
}

/// Converts a result.
pub(crate) fn expected(outcome: &Outcome) -> Expected {
    match outcome {
        Outcome::Http(status) => Expected::Http(*status),
        Outcome::Tcp(is_connected) => Expected::Tcp(*is_connected),
        Outcome::Command(code) => Expected::Command(*code),
        // The engine lets only JSON objects through.
        Outcome::Custom(json) => Expected::Custom(serde_json::from_str(json).unwrap_or_default()),
    }
}

fn outcome(expected: &Expected) -> Result<Outcome, String> {
    Ok(match expected {
        Expected::Http(status) => Outcome::Http(*status),
        Expected::Tcp(is_connected) => Outcome::Tcp(*is_connected),
        Expected::Command(code) => Outcome::Command(*code),
        Expected::Custom(document) => Outcome::Custom(document.to_string()),
        Expected::Failed(_) => return Err("`previous` is a failure; expected a result".to_owned()),
    })
}

/// Converts a step, which is the component's answer to a call: what it requests, or its result.
pub(crate) fn answer_of(step: &Step) -> CaseAnswer {
    match result_of(step) {
        Some(result) => answer("expect", result),
        None => answer("expect", given_step(step)),
    }
}

/// Converts a step to the form of a case. `None` if the step ends the attempt.
pub(crate) fn given_step(step: &Step) -> Option<GivenStep> {
    Some(match step {
        Step::Http(request) => GivenStep::Http(given_request(request)),
        Step::Connect(to, tls) => GivenStep::Connect {
            to: to.to_string(),
            tls: tls.as_ref().map(given_tls),
        },
        Step::Send(bytes) => GivenStep::Send(Bytes::of(bytes)),
        Step::Receive(max_bytes) => GivenStep::Receive(*max_bytes),
        Step::Run(CommandLine::Shell(line)) => GivenStep::Shell(line.clone()),
        Step::Run(CommandLine::Argv(words)) => GivenStep::Argv(words.clone()),
        Step::Done(_) | Step::Failed(_) => return None,
    })
}

fn given_request(request: &HttpRequest) -> GivenRequest {
    GivenRequest {
        method: request.method.clone(),
        to: request.endpoint.to_string(),
        tls: request.tls.as_ref().map(given_tls),
        path: request.path.clone(),
        headers: request.headers.clone(),
        body: Bytes::of(&request.body),
        max_body: request.max_body,
        redirects: request.redirects,
    }
}

fn given_tls(tls: &Tls) -> GivenTls {
    GivenTls {
        server_name: tls.server_name.clone(),
        verify: tls.verify,
    }
}

/// Converts the answer to a step.
pub(crate) fn given_answer(answer: &Answer) -> GivenAnswer {
    match answer {
        Answer::Http(Ok(it)) => GivenAnswer::Http(GivenResponse {
            status: it.status,
            headers: it.headers.clone(),
            body: Bytes::of(&it.body),
            elapsed_millis: millis(it.elapsed),
        }),
        Answer::Connected(Ok(elapsed)) => GivenAnswer::Connected(millis(*elapsed)),
        Answer::Sent(Ok(())) => GivenAnswer::Sent(true),
        Answer::Received(Ok(bytes)) => GivenAnswer::Received(Bytes::of(bytes)),
        Answer::Ran(Ok(it)) => GivenAnswer::Ran(GivenOutput {
            exit_code: it.exit_code,
            stdout: Bytes::of(&it.stdout),
            stderr: Bytes::of(&it.stderr),
        }),
        Answer::Http(Err(error))
        | Answer::Connected(Err(error))
        | Answer::Sent(Err(error))
        | Answer::Received(Err(error))
        | Answer::Ran(Err(error)) => GivenAnswer::Error(given_error(error)),
    }
}

/// Converts to milliseconds, the unit of the interface.
fn millis(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

fn given_error(error: &IoError) -> GivenError {
    let detailed = |kind, message: &String| GivenError::Detailed {
        kind,
        message: message.clone(),
    };
    GivenError::Kind(match error {
        IoError::Denied => ErrorKind::Denied,
        IoError::Unresolved => ErrorKind::Unresolved,
        IoError::Refused => ErrorKind::Refused,
        IoError::Unreachable => ErrorKind::Unreachable,
        IoError::TimedOut => ErrorKind::TimedOut,
        IoError::Closed => ErrorKind::Closed,
        IoError::Tls(text) => return detailed(ErrorKind::Tls, text),
        IoError::Protocol(text) => return detailed(ErrorKind::Protocol, text),
        IoError::Unavailable(text) => return detailed(ErrorKind::Unavailable, text),
    })
}

/// Converts an error of a case.
pub(crate) fn io_error(given: GivenError) -> IoError {
    let (kind, text) = match given {
        GivenError::Kind(kind) => (kind, "from the self-test".to_owned()),
        GivenError::Detailed { kind, message } => (kind, message),
    };
    match kind {
        ErrorKind::Denied => IoError::Denied,
        ErrorKind::Unresolved => IoError::Unresolved,
        ErrorKind::Refused => IoError::Refused,
        ErrorKind::Unreachable => IoError::Unreachable,
        ErrorKind::TimedOut => IoError::TimedOut,
        ErrorKind::Closed => IoError::Closed,
        ErrorKind::Tls => IoError::Tls(text),
        ErrorKind::Protocol => IoError::Protocol(text),
        ErrorKind::Unavailable => IoError::Unavailable(text),
    }
}
