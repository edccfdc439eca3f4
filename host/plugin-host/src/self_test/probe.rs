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

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Answer as Keys, PreparedCase, Testable, answer as keys, ask};
use crate::{
    network::own_header,
    runtime::engine::{
        Instance,
        worlds::probe::{Call, Next, Probe, Released},
    },
    worlds::{
        probe::{CommandOutput, Endpoint, IoError, Outcome, Port, Reason, Request},
        step::{Answer, HttpResponse, Step},
    },
};

/// One recorded attempt.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Case {
    endpoint: Option<String>,
    #[serde(default = "root")]
    path: String,
    command: Option<String>,
    #[serde(default)]
    settings: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    answers: Vec<Given>,
    expect: Option<Expected>,
}

fn root() -> String {
    "/".to_owned()
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
enum Given {
    Http(GivenResponse),
    Connected(u64),
    Sent(bool),
    Received(String),
    Ran(GivenOutput),
    Error(GivenError),
}

impl Given {
    /// As a case writes it.
    fn key(&self) -> &'static str {
        match self {
            Given::Http(_) => "http",
            Given::Connected(_) => "connected",
            Given::Sent(_) => "sent",
            Given::Received(_) => "received",
            Given::Ran(_) => "ran",
            Given::Error(_) => "error",
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenResponse {
    status: u16,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(default)]
    body: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct GivenOutput {
    exit_code: i32,
    #[serde(default)]
    stdout: String,
    #[serde(default)]
    stderr: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum GivenError {
    Denied,
    Unresolved,
    Refused,
    Unreachable,
    TimedOut,
    Closed,
    Tls,
    Protocol,
    Unavailable,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) enum Expected {
    Http(u16),
    Tcp(bool),
    Command(i32),
    Custom(serde_json::Value),
    Failed(Reason),
}

/// An attempt, and the answers to its steps.
pub(crate) struct Recorded {
    request: Arc<Request>,
    answers: Vec<Given>,
}

impl Testable for Probe {
    type Case = Case;
    type Question = Recorded;
    type Found = Expected;

    fn prepare_case(case: Case) -> Result<PreparedCase<Self>, String> {
        let request = Arc::new(request(&case)?);
        let question = Recorded {
            request,
            answers: case.answers,
        };
        Ok(PreparedCase {
            question,
            expected: case.expect.map(|it| keys("expect", it)),
        })
    }

    async fn execute(
        instance: &mut Instance<Self>,
        shared: &Arc<Released>,
        recorded: &Recorded,
    ) -> Result<Expected, String> {
        let request = Arc::clone(&recorded.request);
        let (lease, mut step) = ask(instance, shared, |reply| Call::Begin {
            request,
            until: None,
            reply,
        })
        .await?;
        for given in &recorded.answers {
            if let Some(found) = end(&step) {
                let found = super::text(&keys("expect", found));
                return Err(format!("it ended with {found} before it used all answers"));
            }
            let answer = answer(&step, given.clone())?;
            let key = lease.key;
            let next = |reply| Call::Next {
                key,
                answer,
                until: None,
                reply,
            };
            step = match ask(instance, shared, next).await? {
                Next::Step(step) => step,
                Next::Lost => return Err("it lost its attempt".to_owned()),
            };
        }
        end(&step).ok_or_else(|| format!("after the last answer it requests {}", name(&step)))
    }

    fn to_answer(_recorded: &Recorded, found: Expected) -> Keys {
        keys("expect", found)
    }
}

fn request(case: &Case) -> Result<Request, String> {
    let endpoint = case.endpoint.as_deref().map(endpoint).transpose()?;
    let ports = endpoint.clone().into_iter().map(|endpoint| Port {
        name: None,
        protocol: "tcp".to_owned(),
        endpoint,
    });
    Ok(Request {
        run_spec: "/self-test".to_owned(),
        task: "self-case.1".to_owned(),
        agent: "localhost".to_owned(),
        labels: Vec::new(),
        ports: ports.collect(),
        endpoint,
        path: case.path.clone(),
        command: case.command.clone(),
        settings: serde_json::Value::Object(case.settings.clone()).to_string(),
        previous: None,
        timeout: Duration::from_secs(20),
        extensions: Vec::new(),
    })
}

fn endpoint(text: &str) -> Result<Endpoint, String> {
    let wrong = || format!("`endpoint` is {text:?}; expected \"host:port\"");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    Ok(Endpoint {
        host: host.trim_matches(['[', ']']).to_owned(),
        port: port.parse().map_err(|_| wrong())?,
    })
}

/// What an attempt that is over found.
fn end(step: &Step) -> Option<Expected> {
    Some(match step {
        Step::Done(Outcome::Http(status)) => Expected::Http(*status),
        Step::Done(Outcome::Tcp(fine)) => Expected::Tcp(*fine),
        Step::Done(Outcome::Command(code)) => Expected::Command(*code),
        // The engine let only objects through.
        Step::Done(Outcome::Custom(json)) => Expected::Custom(serde_json::from_str(json).unwrap_or_default()),
        Step::Failed(why) => Expected::Failed(why.reason),
        _ => return None,
    })
}

fn name(step: &Step) -> &'static str {
    match step {
        Step::Http(_) => "an HTTP exchange",
        Step::Connect(..) => "a connection",
        Step::Send(_) => "sending",
        Step::Receive(_) => "receiving",
        Step::Run(_) => "a command",
        Step::Done(_) | Step::Failed(_) => "the end",
    }
}

/// What the test has come of the step.
fn answer(step: &Step, given: Given) -> Result<Answer, String> {
    if let Step::Http(request) = step
        && let Some(name) = own_header(request)
        && !matches!(given, Given::Error(GivenError::Protocol))
    {
        return Err(format!(
            "it asks for an HTTP exchange with the header {name}, which is the host's to set: in service the answer to that is the \
             error `protocol`"
        ));
    }
    Ok(match (step, given) {
        (Step::Http(_), Given::Http(it)) => Answer::Http(Ok(HttpResponse {
            status: it.status,
            headers: it.headers,
            body: it.body.into_bytes(),
            elapsed: Duration::from_millis(1),
        })),
        (Step::Connect(..), Given::Connected(millis)) => Answer::Connected(Ok(Duration::from_millis(millis))),
        (Step::Send(_), Given::Sent(true)) => Answer::Sent(Ok(())),
        (Step::Send(_), Given::Sent(false)) => Answer::Sent(Err(IoError::Closed)),
        (Step::Receive(_), Given::Received(text)) => Answer::Received(Ok(text.into_bytes())),
        (Step::Run(_), Given::Ran(it)) => Answer::Ran(Ok(CommandOutput {
            exit_code: it.exit_code,
            stdout: it.stdout.into_bytes(),
            stderr: it.stderr.into_bytes(),
        })),
        (Step::Http(_), Given::Error(it)) => Answer::Http(Err(error(it))),
        (Step::Connect(..), Given::Error(it)) => Answer::Connected(Err(error(it))),
        (Step::Send(_), Given::Error(it)) => Answer::Sent(Err(error(it))),
        (Step::Receive(_), Given::Error(it)) => Answer::Received(Err(error(it))),
        (Step::Run(_), Given::Error(it)) => Answer::Ran(Err(error(it))),
        (step, given) => {
            let given = given.key();
            return Err(format!("it requests {}, the test answers `{given}`", name(step)));
        }
    })
}

fn error(it: GivenError) -> IoError {
    let text = || "from the self-test".to_owned();
    match it {
        GivenError::Denied => IoError::Denied,
        GivenError::Unresolved => IoError::Unresolved,
        GivenError::Refused => IoError::Refused,
        GivenError::Unreachable => IoError::Unreachable,
        GivenError::TimedOut => IoError::TimedOut,
        GivenError::Closed => IoError::Closed,
        GivenError::Tls => IoError::Tls(text()),
        GivenError::Protocol => IoError::Protocol(text()),
        GivenError::Unavailable => IoError::Unavailable(text()),
    }
}
