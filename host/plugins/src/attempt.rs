//! One look at one task: asks the component what to do next, does it, and hands back what came of it, until it is done.
//!
//! Between steps the attempt holds no instance, only a handle inside one (where each call has an instance of its own, it keeps that). When that instance is replaced for reasons that are not this
//! attempt's, the attempt begins again, a bounded number of times and within the same deadline. After the request's timeout input and
//! output answer `timed-out`, and the component gets to say what that means (a late connection is an outcome for tcp checks); one
//! further step of input or output ends the attempt.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    engine::worlds::probe::{AttemptHandle, Call, LAST_WORD, Next, Probe},
    error::CallError,
    net::{Denial, Network, SystemNames},
    pool::Version,
    reserved::Reserved,
    shadow::{ActiveVersion, ProbeSample, Shadow},
    types::{
        probe::{CommandLine, CommandOutput, Endpoint, Failure, IoError, Outcome, Reason, Request, Runner},
        step::{Answer, Step},
    },
};

/// How often an attempt begins again because its instance went away.
const RESTARTS: u32 = 3;
/// What a component sees of a command's output: the end.
const COMMAND_TAIL: usize = 4096;

/// Runs an attempt to its end on one version of a plugin.
pub(crate) async fn run_probe(
    active: &ActiveVersion<Probe>,
    request: Request,
    runner: Option<Arc<dyn Runner>>,
    reserved: &Reserved,
    token: &CancellationToken,
) -> Result<Outcome, Failure> {
    let version: &Version<Probe> = &active.primary;
    let _in_flight = version.context.enter().map_err(|error| failure(&error))?;
    let limits = &version.context.limits;
    let time = request.timeout.min(limits.attempt_time);
    let deadline = Instant::now() + time;
    let attempt = Attempt {
        version,
        shadow: active.shadow_for_call(),
        runner,
        reserved,
        deadline,
        until: deadline + LAST_WORD,
        request: Arc::new(request),
    };
    // The component's own last word after the deadline is bounded too.
    let last_word = deadline + limits.wall_clock.min(LAST_WORD);
    tokio::select! {
        found = tokio::time::timeout_at(last_word, attempt.run()) => found.unwrap_or_else(|_| Err(late(time))),
        () = token.cancelled() => Err(failure(&CallError::Stopped)),
    }
}

struct Attempt<'a> {
    version: &'a Version<Probe>,
    /// To be asked the same afterwards.
    shadow: Option<Arc<Shadow<Probe>>>,
    runner: Option<Arc<dyn Runner>>,
    reserved: &'a Reserved,
    deadline: Instant,
    /// When nobody waits for it any more.
    until: Instant,
    request: Arc<Request>,
}

/// How one beginning of an attempt ended.
enum AttemptEnd {
    Finished(Result<Outcome, Failure>),
    Lost,
}

impl Attempt<'_> {
    async fn run(&self) -> Result<Outcome, Failure> {
        for _ in 0..=RESTARTS {
            if let AttemptEnd::Finished(result) = self.run_once().await {
                return result;
            }
        }
        let name = &self.version.context.name;
        let message = format!(
            "plugin `{name}` lost the attempt {} times: its instances keep failing",
            RESTARTS + 1
        );
        Err(Failure {
            reason: Reason::Plugin,
            message,
        })
    }

    async fn run_once(&self) -> AttemptEnd {
        let mut instance = self.version.least_loaded();
        let request = Arc::clone(&self.request);
        let (handle, mut step): (AttemptHandle, Step) = match self
            .version
            .ask(&mut instance, |reply| Call::Begin {
                request,
                until: Some(self.until),
                reply,
            })
            .await
        {
            Ok(begun) => begun,
            Err(error) => return AttemptEnd::Finished(Err(failure(&error))),
        };
        let limits = &self.version.context.limits;
        let mut network = Network {
            grants: &self.version.context.grants,
            names: &SystemNames,
            reserved: self.reserved,
            task: self.own_endpoints(),
            deadline: self.deadline,
            input: limits.attempt_input,
            output: limits.attempt_output,
            connection: None,
            denial: None,
        };
        let mut transcript = self.shadow.as_ref().map(|_| Transcript::default());
        let mut late_steps = 0;
        for taken in 0u32.. {
            if let Step::Done(_) | Step::Failed(_) = &step
                && let Some((shadow, transcript)) = self.shadow.as_ref().zip(transcript.take())
            {
                transcript.submit(shadow, &self.request, step.clone());
            }
            match step {
                Step::Done(outcome) => return AttemptEnd::Finished(Ok(outcome)),
                Step::Failed(why) => return AttemptEnd::Finished(Err(why)),
                _ if taken >= limits.steps => return AttemptEnd::Finished(Err(self.endless(limits.steps))),
                _ if Instant::now() >= self.deadline => late_steps += 1,
                _ => {}
            }
            if late_steps > 1 {
                let time = self.request.timeout;
                self.version.context.unfinished(&format!(
                    "plugin `{}` went on after it was told that its attempt's time of {time:?} was over",
                    self.version.context.name
                ));
                break;
            }
            let asked = transcript.as_ref().map(|_| step.clone());
            let Some(answer) = self.perform(&mut network, step).await else {
                break;
            };
            if let (Some(transcript), Some(step)) = (&mut transcript, asked) {
                transcript.note(step, &answer);
            }
            let key = handle.key;
            step = match self
                .version
                .ask(&mut instance, |reply| Call::Next {
                    key,
                    answer,
                    until: Some(self.until),
                    reply,
                })
                .await
            {
                Ok(Next::Step(step)) => step,
                Ok(Next::Lost) => return AttemptEnd::Lost,
                Err(error) => return AttemptEnd::Finished(Err(failure(&error))),
            };
        }
        AttemptEnd::Finished(Err(late(self.request.timeout)))
    }

    fn endless(&self, steps: u32) -> Failure {
        let name = &self.version.context.name;
        let message = format!("plugin `{name}` was not done after {steps} steps (limits.steps)");
        self.version.context.unfinished(&message);
        Failure {
            reason: Reason::Plugin,
            message,
        }
    }

    fn own_endpoints(&self) -> Vec<Endpoint> {
        let ports = self.request.ports.iter().map(|port| &port.endpoint);
        ports.chain(&self.request.endpoint).cloned().collect()
    }

    /// None for steps that end an attempt.
    async fn perform(&self, network: &mut Network<'_>, step: Step) -> Option<Answer> {
        Some(match step {
            Step::Http(request) => {
                let result = network.http(request).await;
                self.note_denial(network.denial.take());
                Answer::Http(result)
            }
            Step::Connect(to, tls) => {
                let result = network.connect(&to, tls.as_ref()).await;
                self.note_denial(network.denial.take());
                Answer::Connected(result)
            }
            Step::Send(bytes) => Answer::Sent(network.send(&bytes).await),
            Step::Receive(most) => Answer::Received(network.receive(most).await),
            Step::Run(command) => {
                if self.version.context.grants.command {
                    Answer::Ran(self.run_command(command).await)
                } else {
                    self.note_denial(Some(Denial {
                        wanted: "a command".to_owned(),
                        why: "it needs grants.command".to_owned(),
                    }));
                    Answer::Ran(Err(IoError::Denied))
                }
            }
            Step::Done(_) | Step::Failed(_) => return None,
        })
    }

    async fn run_command(&self, command: CommandLine) -> Result<CommandOutput, IoError> {
        let Some(runner) = &self.runner else {
            return Err(IoError::Unavailable("nothing here runs commands in tasks".into()));
        };
        let left = self.deadline.saturating_duration_since(Instant::now());
        let run = runner.run(command, left);
        let mut output = tokio::time::timeout(left, run)
            .await
            .unwrap_or(Err(IoError::TimedOut))?;
        for stream in [&mut output.stdout, &mut output.stderr] {
            stream.drain(..stream.len().saturating_sub(COMMAND_TAIL));
        }
        Ok(output)
    }

    fn note_denial(&self, denial: Option<Denial>) {
        if let Some(Denial { wanted, why }) = denial {
            let run_spec = Some(self.request.run_spec.as_str());
            self.version.context.denied(&wanted, Some(&why), run_spec);
        }
    }
}

/// Bytes of a transcript; a longer attempt is not compared.
const MAX_TRANSCRIPT: usize = 256 << 10;

/// An attempt's steps and what came of them, for a version that is to be asked the same.
#[derive(Default)]
struct Transcript {
    steps: Vec<(Step, Answer)>,
    bytes: usize,
}

impl Transcript {
    fn note(&mut self, step: Step, answer: &Answer) {
        self.bytes += step.bytes() + answer.bytes();
        if self.bytes <= MAX_TRANSCRIPT {
            self.steps.push((step, answer.clone()));
        } else {
            self.steps = Vec::new();
        }
    }

    fn submit(self, shadow: &Shadow<Probe>, request: &Arc<Request>, end: Step) {
        if self.bytes <= MAX_TRANSCRIPT {
            shadow.submit(ProbeSample {
                request: Arc::clone(request),
                steps: self.steps,
                end,
            });
        }
    }
}

fn late(limit: Duration) -> Failure {
    Failure {
        reason: Reason::TimedOut,
        message: format!("not done within {limit:?}"),
    }
}

pub(crate) fn failure(error: &CallError) -> Failure {
    Failure {
        reason: Reason::Plugin,
        message: error.to_string(),
    }
}
