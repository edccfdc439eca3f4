//! Runs cases of world `check-probe`: attempts with the recorded answers to their steps.

use std::{sync::Arc, time::Duration};

use transom_plugin_cases::{
    Answer as CaseAnswer, answer, format_answer,
    probe::{Case, ErrorKind, Expected, GivenAnswer, GivenError, GivenStep, check_step},
};

use super::{CaseAgents, PreparedCase, Testable, ask};
use crate::{
    documents::probe::{given_step, io_error, request, result_of},
    network::first_host_header,
    runtime::engine::{
        Instance,
        worlds::probe::{Call, Next, Probe, ReleasedAttempts},
    },
    worlds::{
        probe::{CommandOutput, IoError, Request},
        step::{Answer, HttpResponse, Step},
    },
};

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
            expected: case.expect.map(|it| answer("expect", it)),
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
        answer("expect", found)
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
            let found = format_answer(&answer("expect", found));
            return Err(format!("the attempt ended with {found} and left answers unused"));
        }
        let expected = question.steps.as_ref().and_then(|steps| steps.get(at));
        if let Some(expected) = expected {
            check_step(given_step(&step).as_ref(), expected)
                .map_err(|error| format!("step {}: {error}", at + 1))?;
        }
        let answer = step_answer(&step, given.clone())?;
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
fn step_answer(step: &Step, given: GivenAnswer) -> Result<Answer, String> {
    if let Step::Http(request) = step
        && let Some(name) = first_host_header(request)
        && !is_protocol_error(&given)
    {
        return Err(format!(
            "it asks for an HTTP exchange with the header {name}, which only the host may set; in service this step \
             fails with `protocol`"
        ));
    }
    Ok(match (step, given) {
        (Step::Http(_), GivenAnswer::Http(it)) => Answer::Http(Ok(HttpResponse {
            status: it.status,
            headers: it.headers,
            body: it.body.into_bytes(),
            elapsed: Duration::from_millis(it.elapsed_millis),
        })),
        (Step::Connect(..), GivenAnswer::Connected(millis)) => {
            Answer::Connected(Ok(Duration::from_millis(millis)))
        }
        (Step::Send(_), GivenAnswer::Sent(true)) => Answer::Sent(Ok(())),
        (Step::Send(_), GivenAnswer::Sent(false)) => Answer::Sent(Err(IoError::Closed)),
        (Step::Receive(_), GivenAnswer::Received(bytes)) => Answer::Received(Ok(bytes.into_bytes())),
        (Step::Run(_), GivenAnswer::Ran(it)) => Answer::Ran(Ok(CommandOutput {
            exit_code: it.exit_code,
            stdout: it.stdout.into_bytes(),
            stderr: it.stderr.into_bytes(),
        })),
        (Step::Http(_), GivenAnswer::Error(it)) => Answer::Http(Err(io_error(it))),
        (Step::Connect(..), GivenAnswer::Error(it)) => Answer::Connected(Err(io_error(it))),
        (Step::Send(_), GivenAnswer::Error(it)) => Answer::Sent(Err(io_error(it))),
        (Step::Receive(_), GivenAnswer::Error(it)) => Answer::Received(Err(io_error(it))),
        (Step::Run(_), GivenAnswer::Error(it)) => Answer::Ran(Err(io_error(it))),
        (step, given) => {
            let given = given.key();
            return Err(format!(
                "it requests {}, the test answers `{given}`",
                step_name(step)
            ));
        }
    })
}

fn is_protocol_error(given: &GivenAnswer) -> bool {
    matches!(
        given,
        GivenAnswer::Error(
            GivenError::Kind(ErrorKind::Protocol)
                | GivenError::Detailed {
                    kind: ErrorKind::Protocol,
                    ..
                }
        )
    )
}
