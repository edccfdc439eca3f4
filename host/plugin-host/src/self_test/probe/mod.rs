//! Self-tests of world `check-probe`: a request, the answer to each step, and the result.
//!
//! ```toml
//! [[self-test]]
//! endpoint = "10.0.0.1:80"                 # the check's port; left out: it names none
//! path = "/health"                         # also `command` and `settings`
//! answers = [{ http = { status = 503, body = "no" } }]
//!           # or { connected = 3 }, { sent = true }, { received = "text" }, { ran = { exit-code = 1, stdout = "", stderr = "" } },
//!           # or { error = "refused" } to whatever it asks for
//! expect = { http = 503 }                  # or { tcp = true }, { command = 1 }, { custom = {} }, { failed = "timed-out" }
//! ```
//!
//! Also: `run-spec`, `task`, `agent`, `labels` and `extensions` (pairs), `ports` (a list of `{ name
//! = "http", protocol = "tcp", endpoint = "10.0.0.1:80" }`), `previous` (as `expect`),
//! `timeout-millis`, and `steps`: the steps that the component has to request, one for each answer,
//! in the form of recorded calls. Bytes that are not UTF-8 are `{ hex = "…" }`.

mod given_answer;
pub(super) mod recorded;
mod steps;

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{CaseAgents, CaseAnswer, PreparedCase, Testable, ask, case_answer};
use crate::{
    network::first_host_header,
    runtime::engine::{
        Instance,
        worlds::probe::{Call, Next, Probe, ReleasedAttempts},
    },
    worlds::{
        probe::{Endpoint, Outcome, Port, Reason, Request},
        step::{Answer, Step},
    },
};
use given_answer::{GivenAnswer, GivenError};
use steps::GivenStep;

/// One recorded attempt.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Case {
    #[serde(skip_serializing_if = "Option::is_none")]
    run_spec: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    labels: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ports: Option<Vec<GivenPort>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    #[serde(default = "root")]
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    settings: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<Expected>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_millis: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    extensions: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<Vec<GivenStep>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    answers: Vec<GivenAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expect: Option<Expected>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct GivenPort {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    protocol: String,
    endpoint: String,
}

fn root() -> String {
    "/".to_owned()
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) enum Expected {
    Http(u16),
    Tcp(bool),
    Command(i32),
    Custom(Value),
    Failed(Reason),
}

/// An attempt, and the answers to its steps.
pub(crate) struct AttemptQuestion {
    request: Arc<Request>,
    steps: Option<Vec<GivenStep>>,
    answers: Vec<GivenAnswer>,
}

impl Testable for Probe {
    type Case = Case;
    type Question = AttemptQuestion;
    type Output = Expected;

    fn prepare_case(case: Case, _: Option<&Arc<CaseAgents>>) -> Result<PreparedCase<Self>, String> {
        let request = Arc::new(request(&case)?);
        if let Some(steps) = case.steps.as_ref().filter(|it| it.len() != case.answers.len()) {
            let (steps, answers) = (steps.len(), case.answers.len());
            return Err(format!(
                "`steps` has {steps} members; expected one for each of the {answers} answers"
            ));
        }
        let question = AttemptQuestion {
            request,
            steps: case.steps,
            answers: case.answers,
        };
        Ok(PreparedCase {
            question,
            expected: case.expect.map(|it| case_answer("expect", it)),
        })
    }

    async fn execute(
        instance: &mut Instance<Self>,
        shared: &Arc<ReleasedAttempts>,
        question: &AttemptQuestion,
    ) -> Result<Expected, String> {
        let step = last_step(instance, shared, question).await?;
        result_of(&step).ok_or_else(|| format!("after the last answer it requests {}", step_name(&step)))
    }

    fn to_answer(_recorded: &AttemptQuestion, found: Expected) -> CaseAnswer {
        case_answer("expect", found)
    }
}

/// Executes an attempt up to the step after the last answer.
async fn last_step(
    instance: &mut Instance<Probe>,
    shared: &Arc<ReleasedAttempts>,
    question: &AttemptQuestion,
) -> Result<Step, String> {
    let request = Arc::clone(&question.request);
    let (handle, mut step) = ask(instance, shared, |reply| Call::Begin {
        request,
        deadline: None,
        reply,
    })
    .await?;
    for (at, given) in question.answers.iter().enumerate() {
        if let Some(found) = result_of(&step) {
            let found = super::format_answer(&case_answer("expect", found));
            return Err(format!("the attempt ended with {found} and left answers unused"));
        }
        let expected = question.steps.as_ref().and_then(|steps| steps.get(at));
        if let Some(expected) = expected {
            steps::check(&step, expected).map_err(|error| format!("step {}: {error}", at + 1))?;
        }
        let answer = answer(&step, given.clone())?;
        let key = handle.key;
        let next = |reply| Call::Next {
            key,
            answer,
            deadline: None,
            reply,
        };
        step = match ask(instance, shared, next).await? {
            Next::Step(step) => step,
            Next::Lost => return Err("the attempt was interrupted".to_owned()),
        };
    }
    Ok(step)
}

/// What an attempt requests next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedStep {
    /// The key of the answers to this step: `http`, `connected`, `sent`, `received` or `ran`.
    pub key: &'static str,
    /// Maximum number of bytes that the step requests, of a body or of the connection.
    pub max_bytes: u32,
}

/// Returns what the component requests after the last answer. `None` if the attempt is over.
pub(crate) async fn requested_step(
    instance: &mut Instance<Probe>,
    shared: &Arc<ReleasedAttempts>,
    question: &AttemptQuestion,
) -> Result<Option<RequestedStep>, String> {
    let (key, max_bytes) = match last_step(instance, shared, question).await? {
        Step::Http(request) => ("http", request.max_body),
        Step::Connect(..) => ("connected", 0),
        Step::Send(_) => ("sent", 0),
        Step::Receive(max_bytes) => ("received", max_bytes),
        Step::Run(_) => ("ran", 0),
        Step::Done(_) | Step::Failed(_) => return Ok(None),
    };
    Ok(Some(RequestedStep { key, max_bytes }))
}

fn request(case: &Case) -> Result<Request, String> {
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
        previous: case.previous.as_ref().map(Expected::outcome).transpose()?,
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

impl Expected {
    fn of(outcome: &Outcome) -> Expected {
        match outcome {
            Outcome::Http(status) => Expected::Http(*status),
            Outcome::Tcp(is_connected) => Expected::Tcp(*is_connected),
            Outcome::Command(code) => Expected::Command(*code),
            // The engine lets only JSON objects through.
            Outcome::Custom(json) => Expected::Custom(serde_json::from_str(json).unwrap_or_default()),
        }
    }

    fn outcome(&self) -> Result<Outcome, String> {
        Ok(match self {
            Expected::Http(status) => Outcome::Http(*status),
            Expected::Tcp(is_connected) => Outcome::Tcp(*is_connected),
            Expected::Command(code) => Outcome::Command(*code),
            Expected::Custom(document) => Outcome::Custom(document.to_string()),
            Expected::Failed(_) => return Err("`previous` is a failure; expected a result".to_owned()),
        })
    }
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
fn result_of(step: &Step) -> Option<Expected> {
    match step {
        Step::Done(outcome) => Some(Expected::of(outcome)),
        Step::Failed(why) => Some(Expected::Failed(why.reason)),
        _ => None,
    }
}

fn step_name(step: &Step) -> &'static str {
    match step {
        Step::Http(_) => "an HTTP exchange",
        Step::Connect(..) => "a connection",
        Step::Send(_) => "sending",
        Step::Receive(_) => "receiving",
        Step::Run(_) => "a command",
        Step::Done(_) | Step::Failed(_) => "the end",
    }
}

/// Converts the answer that the case gives to a step. Fails if it does not answer this step.
fn answer(step: &Step, given: GivenAnswer) -> Result<Answer, String> {
    if let Step::Http(request) = step
        && let Some(name) = first_host_header(request)
        && !matches!(&given, GivenAnswer::Error(error) if error.is_protocol())
    {
        return Err(format!(
            "it asks for an HTTP exchange with the header {name}, which only the host may set; in service this step \
             fails with `protocol`"
        ));
    }
    Ok(match (step, given) {
        (Step::Http(_), GivenAnswer::Http(it)) => Answer::Http(Ok(it.into_response())),
        (Step::Connect(..), GivenAnswer::Connected(millis)) => {
            Answer::Connected(Ok(Duration::from_millis(millis)))
        }
        (Step::Send(_), GivenAnswer::Sent(true)) => Answer::Sent(Ok(())),
        (Step::Send(_), GivenAnswer::Sent(false)) => Answer::Sent(Err(GivenError::closed())),
        (Step::Receive(_), GivenAnswer::Received(bytes)) => Answer::Received(Ok(bytes.into_bytes())),
        (Step::Run(_), GivenAnswer::Ran(it)) => Answer::Ran(Ok(it.into_output())),
        (Step::Http(_), GivenAnswer::Error(it)) => Answer::Http(Err(it.into_error())),
        (Step::Connect(..), GivenAnswer::Error(it)) => Answer::Connected(Err(it.into_error())),
        (Step::Send(_), GivenAnswer::Error(it)) => Answer::Sent(Err(it.into_error())),
        (Step::Receive(_), GivenAnswer::Error(it)) => Answer::Received(Err(it.into_error())),
        (Step::Run(_), GivenAnswer::Error(it)) => Answer::Ran(Err(it.into_error())),
        (step, given) => {
            let given = given.key();
            return Err(format!(
                "it requests {}, the test answers `{given}`",
                step_name(step)
            ));
        }
    })
}
