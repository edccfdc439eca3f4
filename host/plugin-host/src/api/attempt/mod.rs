//! One attempt to probe a task: requests the next step from the component, performs it and returns
//! the answer, until the component ends the attempt.
//!
//! Between steps the attempt only keeps a handle in an instance (or the instance itself, with
//! `instances = "per-call"`). If that instance is replaced for a reason that this attempt did not
//! cause, the attempt restarts, a bounded number of times and within the same deadline. After the
//! request's timeout, steps of input and output are answered with `timed-out`, so that the
//! component can interpret that (a late connection is a result of tcp checks); one further step
//! ends the attempt.

mod transcript;

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use transom_registry::network::{Reserved, SystemResolver};

use super::attempt_log::AttemptLog;
use crate::{
    error::CallError,
    network::{Denial, Network},
    runtime::{
        active_version::ActiveVersion,
        candidate::Candidate,
        engine::worlds::probe::{AttemptHandle, Call, LAST_WORD, Next, Probe},
        pool::Version,
        recording::is_fault,
        shadow::calls::ProbeSample,
    },
    worlds::{
        probe::{CommandLine, CommandOutput, Endpoint, Failure, IoError, Outcome, Reason, Request, Runner},
        step::{Answer, Step},
    },
};
use transcript::{Recording, Transcript};

/// Maximum number of restarts of an attempt after the loss of its instance.
const RESTARTS: u32 = 3;
/// Number of steps without a delay. Probes of common protocols need fewer.
const PROMPT_STEPS: u32 = 16;
/// Minimum delay of a further step. A component that connects again and again would otherwise keep a
/// processor busy with the host's work, which its own limits do not cover.
const STEP_DELAY: Duration = Duration::from_millis(1);
/// Maximum number of bytes of a command's output that a component receives, from the end.
const COMMAND_TAIL: usize = 4096;

/// Maximum duration of an attempt that fails on a canary before its first step and is then repeated
/// on the serving version. It bounds how long the caller waits beyond the attempt's timeout.
const REPEATED_WITHIN: Duration = Duration::from_millis(500);
/// Grace period of a canary's attempt after its deadline. It is shorter than that of the serving
/// version, so that the attempt ends before its caller's timeout, which would count as a failure of
/// the task.
const LAST_WORD_OF_CANARY: Duration = Duration::from_millis(500);

/// Runs an attempt to its end on one version of a plugin.
pub(crate) async fn run_probe(
    active: &ActiveVersion<Probe>,
    request: Request,
    runner: Option<Arc<dyn Runner>>,
    reserved: &Reserved,
    token: &CancellationToken,
) -> Result<Outcome, Failure> {
    let began = Instant::now();
    let request = Arc::new(request);
    let on = |version, canary, compared: Option<&Arc<Candidate<Probe>>>| {
        let (request, runner) = (Arc::clone(&request), runner.clone());
        Attempt::new(version, canary, compared.cloned(), request, runner, reserved)
    };
    if let Some(canary) = active.canary(|key| key.part(&request.task)) {
        let attempt = on(&canary.version, true, canary.samples().then_some(canary));
        match attempt.bounded(token).await {
            AttemptResult::Found(result) => {
                canary.stats.answered();
                return result;
            }
            AttemptResult::Unanswered {
                failure,
                stepped,
                fault,
            } => {
                if fault {
                    canary.stats.failed();
                }
                if stepped || began.elapsed() > REPEATED_WITHIN {
                    return Err(failure);
                }
            }
        }
    }
    let attempt = on(active.primary(), false, active.shadow());
    attempt.bounded(token).await.into_result()
}

/// Makes an attempt on a version whose calls do not count, and logs each step.
pub(crate) async fn run_logged(
    version: &Version<Probe>,
    request: Request,
    runner: Option<Arc<dyn Runner>>,
    reserved: &Reserved,
    token: &CancellationToken,
    log: &AttemptLog,
) -> Result<Outcome, Failure> {
    let attempt = Attempt {
        log: Some(log),
        ..Attempt::new(version, false, None, Arc::new(request), runner, reserved)
    };
    attempt.bounded(token).await.into_result()
}

struct Attempt<'a> {
    version: &'a Version<Probe>,
    canary: bool,
    /// Records each step for an operator.
    log: Option<&'a AttemptLog>,
    /// The recording of this attempt and its start time, if it is recorded.
    recording: Option<Recording<'a>>,
    /// Receives the transcript at the end, for comparison.
    compared: Option<Arc<Candidate<Probe>>>,
    runner: Option<Arc<dyn Runner>>,
    reserved: &'a Reserved,
    /// Time from the beginning of the attempt to its deadline.
    time: Duration,
    deadline: Instant,
    /// The deadline including the grace period.
    until: Instant,
    request: Arc<Request>,
}

/// The end of one run of an attempt.
enum AttemptEnd {
    Result(AttemptResult),
    Lost,
}

enum AttemptResult {
    /// The component's result.
    Found(Result<Outcome, Failure>),
    /// The component did not execute the call, or the call failed.
    Unanswered {
        failure: Failure,
        /// Whether the host performed a step.
        stepped: bool,
        /// Whether it is the component's fault.
        fault: bool,
    },
}

impl AttemptEnd {
    fn unfinished(failure: Failure) -> AttemptEnd {
        AttemptEnd::Result(AttemptResult::unfinished(failure))
    }
}

impl AttemptResult {
    fn into_result(self) -> Result<Outcome, Failure> {
        match self {
            AttemptResult::Found(result) => result,
            AttemptResult::Unanswered { failure, .. } => Err(failure),
        }
    }

    /// The component did not finish the attempt.
    fn unfinished(failure: Failure) -> AttemptResult {
        AttemptResult::Unanswered {
            failure,
            stepped: true,
            fault: true,
        }
    }

    /// A call failed. `stepped`: the host had performed a step before.
    fn failed(error: &CallError, stepped: bool) -> AttemptResult {
        AttemptResult::Unanswered {
            failure: failure(error),
            stepped,
            fault: is_fault(error),
        }
    }
}

impl<'a> Attempt<'a> {
    fn new(
        version: &'a Version<Probe>,
        canary: bool,
        compared: Option<Arc<Candidate<Probe>>>,
        request: Arc<Request>,
        runner: Option<Arc<dyn Runner>>,
        reserved: &'a Reserved,
    ) -> Attempt<'a> {
        let time = request.timeout.min(version.context.limits.attempt_time);
        let deadline = Instant::now() + time;
        Attempt {
            version,
            canary,
            log: None,
            recording: None,
            compared,
            runner,
            reserved,
            time,
            deadline,
            until: deadline + LAST_WORD,
            request,
        }
    }

    async fn bounded(mut self, token: &CancellationToken) -> AttemptResult {
        let _in_flight = match self.version.context.enter() {
            Ok(in_flight) => in_flight,
            Err(error) => return AttemptResult::failed(&error, false),
        };
        if self.log.is_none() {
            self.recording = Recording::begin(&self.version.context);
        }
        // The component's last call after the deadline is bounded, too.
        let grace = if self.canary {
            LAST_WORD_OF_CANARY
        } else {
            LAST_WORD
        };
        let last_word = self.deadline + self.version.context.limits.wall_clock.min(grace);
        tokio::select! {
            found = tokio::time::timeout_at(last_word, self.run()) => {
                found.unwrap_or_else(|_| AttemptResult::unfinished(self.late(self.time)))
            }
            () = token.cancelled() => AttemptResult::failed(&CallError::Stopped, true),
        }
    }

    async fn run(&self) -> AttemptResult {
        for run in 0..=RESTARTS {
            if let AttemptEnd::Result(mut result) = self.run_once().await {
                if let AttemptResult::Unanswered { stepped, .. } = &mut result {
                    *stepped |= run > 0;
                }
                return result;
            }
        }
        let name = &self.version.context.name;
        let message = format!(
            "plugin `{name}` lost the attempt {} times: its instances fail repeatedly",
            RESTARTS + 1
        );
        AttemptResult::unfinished(Failure {
            reason: Reason::Plugin,
            message,
        })
    }

    async fn run_once(&self) -> AttemptEnd {
        if let Some(log) = self.log {
            log.run_begins();
        }
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
            Err(error) => return self.failed(&error, self.transcript(), false),
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
                Step::Done(outcome) => return AttemptEnd::Result(AttemptResult::Found(Ok(outcome))),
                Step::Failed(why) => return AttemptEnd::Result(AttemptResult::Found(Err(why))),
                _ if taken >= limits.steps => return AttemptEnd::unfinished(self.endless(limits.steps)),
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
            if taken >= PROMPT_STEPS {
                tokio::time::sleep(STEP_DELAY).await;
            }
            let asked = (transcript.is_some() || self.log.is_some()).then(|| step.clone());
            let began = Instant::now();
            let Some(answer) = self.perform(&mut network, step).await else {
                break;
            };
            if let (Some(log), Some(step)) = (self.log, &asked) {
                log.note(began, step.clone(), &answer);
            }
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
                Err(error) => return self.failed(&error, transcript, true),
            };
        }
        AttemptEnd::unfinished(self.late(self.request.timeout))
    }

    /// The failure of an attempt that did not end in time. A canary that hangs does not count as a
    /// failure of the task.
    fn late(&self, limit: Duration) -> Failure {
        let name = &self.version.context.name;
        if self.canary {
            return Failure {
                reason: Reason::Plugin,
                message: format!("no result of plugin `{name}`, whose canary looked, within {limit:?}"),
            };
        }
        Failure {
            reason: Reason::TimedOut,
            message: format!("no result within {limit:?}"),
        }
    }

    /// Peak linear memory of the version in bytes.
    fn memory(&self) -> u64 {
        self.version.context.metrics.memory_peak()
    }

    /// Starts a transcript if the attempt is compared or recorded.
    fn transcript(&self) -> Option<Transcript> {
        (self.compared.is_some() || self.recording.is_some()).then(Transcript::default)
    }

    /// Passes the transcript of a finished attempt to the comparison and to the call log.
    fn submit(&self, transcript: Transcript, end: &Step) {
        if transcript.is_too_large() {
            if let Some(recording) = &self.recording {
                recording.recorder.metrics.too_large.inc();
            }
            return;
        }
        if let Some(recording) = &self.recording {
            recording.end(
                &self.request,
                self.memory(),
                transcript.steps.clone(),
                Some(end.clone()),
                None,
            );
        }
        if let Some(candidate) = &self.compared {
            candidate.submit(ProbeSample {
                request: Arc::clone(&self.request),
                steps: transcript.steps,
                end: end.clone(),
            });
        }
    }

    /// Ends the attempt after a failed call.
    fn failed(&self, error: &CallError, transcript: Option<Transcript>, stepped: bool) -> AttemptEnd {
        if let Some((recording, transcript)) = self.recording.as_ref().zip(transcript)
            && is_fault(error)
            && !transcript.is_too_large()
        {
            recording.end(&self.request, self.memory(), transcript.steps, None, Some(error));
        }
        AttemptEnd::Result(AttemptResult::failed(error, stepped))
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

    /// Performs a step. `None` for steps that end an attempt.
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
            if let Some(log) = self.log {
                log.denied(&format!("{wanted}: {why}"));
            }
            let run_spec = Some(self.request.run_spec.as_str());
            self.version.context.denied(&wanted, Some(&why), run_spec);
        }
    }
}

pub(crate) fn failure(error: &CallError) -> Failure {
    Failure {
        reason: Reason::Plugin,
        message: error.to_string(),
    }
}
