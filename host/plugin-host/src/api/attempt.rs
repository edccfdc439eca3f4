//! One attempt to probe a task: asks the component for the next step, performs it and returns the
//! answer, until the component is done.
//!
//! Between steps the attempt holds only a handle in an instance (or the instance itself, with
//! `instances = "per-call"`). If that instance is replaced for a reason that is not this attempt's,
//! the attempt restarts, a bounded number of times and within the same deadline. After the
//! request's timeout, input and output are answered with `timed-out`, so that the component can
//! interpret that (a late connection is a result of tcp checks); one further step ends the attempt.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use transom_registry::network::{Reserved, SystemResolver};

use crate::{
    error::CallError,
    network::{Denial, Network},
    runtime::{
        active_version::ActiveVersion,
        engine::worlds::probe::{AttemptHandle, Call, LAST_WORD, Next, Probe},
        pool::Version,
        recording::{ObservedCall, Recorder, is_fault},
        shadow::{Shadow, calls::ProbeSample},
        version_context::VersionContext,
    },
    worlds::{
        probe::{CommandLine, CommandOutput, Endpoint, Failure, IoError, Outcome, Reason, Request, Runner},
        step::{Answer, Step},
    },
};

/// Maximum restarts of an attempt whose instance is gone.
const RESTARTS: u32 = 3;
/// Bytes of a command's output that a component receives: the end.
const COMMAND_TAIL: usize = 4096;

/// Runs an attempt to its end on one version of a plugin.
pub(crate) async fn run_probe(
    active: &ActiveVersion<Probe>,
    request: Request,
    runner: Option<Arc<dyn Runner>>,
    reserved: &Reserved,
    token: &CancellationToken,
) -> Result<Outcome, Failure> {
    let version: &Version<Probe> = active.primary();
    let entered = active.enter().map_err(|error| failure(&error))?;
    let limits = &version.context.limits;
    let time = request.timeout.min(limits.attempt_time);
    let deadline = Instant::now() + time;
    let attempt = Attempt {
        version,
        recording: Recording::begin(&version.context),
        shadow: entered.shadow.clone(),
        runner,
        reserved,
        deadline,
        until: deadline + LAST_WORD,
        request: Arc::new(request),
    };
    // The component's last call after the deadline is bounded, too.
    let last_word = deadline + limits.wall_clock.min(LAST_WORD);
    tokio::select! {
        found = tokio::time::timeout_at(last_word, attempt.run()) => found.unwrap_or_else(|_| Err(late(time))),
        () = token.cancelled() => Err(failure(&CallError::Stopped)),
    }
}

struct Attempt<'a> {
    version: &'a Version<Probe>,
    /// The recorder of a recorded attempt, and when it began.
    recording: Option<Recording<'a>>,
    /// Receives the transcript afterwards.
    shadow: Option<Arc<Shadow<Probe>>>,
    runner: Option<Arc<dyn Runner>>,
    reserved: &'a Reserved,
    deadline: Instant,
    /// The deadline with its grace period.
    until: Instant,
    request: Arc<Request>,
}

/// The end of one run of an attempt.
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
            "plugin `{name}` lost the attempt {} times: its instances fail repeatedly",
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
            Err(error) => return self.failed(&error, self.transcript()),
        };
        let limits = &self.version.context.limits;
        let mut network = Network {
            grants: &self.version.context.grants,
            names: &SystemResolver,
            reserved: self.reserved,
            task: self.own_endpoints(),
            deadline: self.deadline,
            input: limits.attempt_input,
            output: limits.attempt_output,
            connection: None,
            denial: None,
        };
        let mut transcript = self.transcript();
        let mut late_steps = 0;
        for taken in 0u32.. {
            if let Step::Done(_) | Step::Failed(_) = &step
                && let Some(transcript) = transcript.take()
            {
                self.submit(transcript, &step);
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
                    "plugin `{}` requested another step after its attempt timed out ({time:?})",
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
                Err(error) => return self.failed(&error, transcript),
            };
        }
        AttemptEnd::Finished(Err(late(self.request.timeout)))
    }

    /// If anybody wants it.
    fn transcript(&self) -> Option<Transcript> {
        (self.shadow.is_some() || self.recording.is_some()).then(Transcript::default)
    }

    /// Hands the transcript of a finished attempt to the shadow and to the call log.
    fn submit(&self, transcript: Transcript, end: &Step) {
        if transcript.is_too_large() {
            if let Some(recording) = &self.recording {
                recording.recorder.metrics.too_large.inc();
            }
            return;
        }
        if let Some(recording) = &self.recording {
            recording.end(self, transcript.steps.clone(), Some(end.clone()), None);
        }
        if let Some(shadow) = &self.shadow {
            shadow.submit(ProbeSample {
                request: Arc::clone(&self.request),
                steps: transcript.steps,
                end: end.clone(),
            });
        }
    }

    /// A call of the attempt failed.
    fn failed(&self, error: &CallError, transcript: Option<Transcript>) -> AttemptEnd {
        if let Some((recording, transcript)) = self.recording.as_ref().zip(transcript)
            && is_fault(error)
            && !transcript.is_too_large()
        {
            recording.end(self, transcript.steps, None, Some(error));
        }
        AttemptEnd::Finished(Err(failure(error)))
    }

    fn endless(&self, steps: u32) -> Failure {
        let name = &self.version.context.name;
        let message = format!("plugin `{name}` did not finish within {steps} steps (limits.steps)");
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

    /// Performs a step. None for steps that end an attempt.
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
                        why: "grants.command is missing".to_owned(),
                    }));
                    Answer::Ran(Err(IoError::Denied))
                }
            }
            Step::Done(_) | Step::Failed(_) => return None,
        })
    }

    async fn run_command(&self, command: CommandLine) -> Result<CommandOutput, IoError> {
        let Some(runner) = &self.runner else {
            return Err(IoError::Unavailable(
                "this host cannot run commands in tasks".into(),
            ));
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

/// An attempt that is recorded.
struct Recording<'a> {
    recorder: &'a Recorder,
    began: std::time::Instant,
}

impl<'a> Recording<'a> {
    /// None: it is not.
    fn begin(context: &'a VersionContext) -> Option<Recording<'a>> {
        let recorder = context.recorder()?;
        let began = recorder.begin()?;
        Some(Recording { recorder, began })
    }

    fn end(
        &self,
        attempt: &Attempt<'_>,
        steps: Vec<(Step, Answer)>,
        end: Option<Step>,
        fault: Option<&CallError>,
    ) {
        let call = ObservedCall::Attempt {
            request: Arc::clone(&attempt.request),
            steps,
            end,
        };
        let memory = attempt.version.context.metrics.memory_peak();
        self.recorder.end(self.began, call, fault, memory);
    }
}

/// Maximum bytes of a transcript; longer attempts are neither compared nor recorded.
const MAX_TRANSCRIPT: usize = 256 << 10;

/// An attempt's steps and their answers, for the shadow version and the call log.
#[derive(Default)]
struct Transcript {
    steps: Vec<(Step, Answer)>,
    bytes: usize,
}

impl Transcript {
    fn note(&mut self, step: Step, answer: &Answer) {
        self.bytes += step.bytes() + answer.bytes();
        if self.is_too_large() {
            self.steps = Vec::new();
        } else {
            self.steps.push((step, answer.clone()));
        }
    }

    fn is_too_large(&self) -> bool {
        self.bytes > MAX_TRANSCRIPT
    }
}

fn late(limit: Duration) -> Failure {
    Failure {
        reason: Reason::TimedOut,
        message: format!("no result within {limit:?}"),
    }
}

pub(crate) fn failure(error: &CallError) -> Failure {
    Failure {
        reason: Reason::Plugin,
        message: error.to_string(),
    }
}
