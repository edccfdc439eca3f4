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
        engine::worlds::probe::{AttemptHandle, Call, LATE_CALL_TIMEOUT, Next, Probe},
        pool::Version,
        shadow::attempt_sample,
    },
    worlds::{
        probe::{CommandLine, CommandOutput, Endpoint, Failure, IoError, Outcome, Reason, Request, Runner},
        step::{Answer, Step},
    },
};
use transcript::{AttemptRecording, Transcript};

/// Maximum number of restarts of an attempt after the loss of its instance.
const MAX_RESTARTS: u32 = 3;
/// Number of steps without a delay. Probes of common protocols need fewer.
const PROMPT_STEPS: u32 = 16;
/// Minimum delay of a further step. A component that connects again and again would otherwise keep a
/// processor busy with the host's work, which its own limits do not cover.
const STEP_DELAY: Duration = Duration::from_millis(1);
/// Maximum number of bytes of a command's output that a component receives, from the end.
const MAX_COMMAND_OUTPUT: usize = 4096;

/// Maximum duration of an attempt that fails on a canary before its first step and is then repeated
/// on the serving version. It bounds how long the caller waits beyond the attempt's timeout.
const MAX_CANARY_TIME_BEFORE_RETRY: Duration = Duration::from_millis(500);
/// Grace period of a canary's attempt after its deadline. It is shorter than that of the serving
/// version, so that the attempt ends before its caller's timeout, which would count as a failure of
/// the task.
const LATE_CANARY_CALL_TIMEOUT: Duration = Duration::from_millis(500);

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
    let new_attempt = |version, canary, compared: Option<&Arc<Candidate<Probe>>>| {
        let (request, runner) = (Arc::clone(&request), runner.clone());
        Attempt::new(version, canary, compared.cloned(), request, runner, reserved)
    };
    if let Some(canary) = active.canary(|key| key.part(&request.task)) {
        let attempt = new_attempt(&canary.version, true, canary.should_sample().then_some(canary));
        match attempt.run_to_deadline(token).await {
            AttemptResult::Answered(result) => {
                canary.stats.count_answer();
                return result;
            }
            AttemptResult::Unanswered {
                failure,
                has_stepped,
                fault,
            } => {
                if fault {
                    canary.stats.count_failure();
                }
                if has_stepped || began.elapsed() > MAX_CANARY_TIME_BEFORE_RETRY {
                    return Err(failure);
                }
            }
        }
    }
    let attempt = new_attempt(active.primary(), false, active.shadow());
    attempt.run_to_deadline(token).await.into_result()
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
    attempt.run_to_deadline(token).await.into_result()
}

struct Attempt<'a> {
    version: &'a Version<Probe>,
    is_canary: bool,
    /// Records each step for an operator.
    log: Option<&'a AttemptLog>,
    /// The recording of this attempt and its start time, if it is recorded.
    recording: Option<AttemptRecording<'a>>,
    /// Receives the transcript at the end, for comparison.
    compared: Option<Arc<Candidate<Probe>>>,
    runner: Option<Arc<dyn Runner>>,
    reserved: &'a Reserved,
    /// Time from the beginning of the attempt to its deadline.
    max_duration: Duration,
    deadline: Instant,
    /// The deadline including the grace period.
    call_deadline: Instant,
    request: Arc<Request>,
}

/// The end of one run of an attempt.
enum AttemptEnd {
    Result(AttemptResult),
    Lost,
}

enum AttemptResult {
    /// The component's result.
    Answered(Result<Outcome, Failure>),
    /// The component did not execute the call, or the call failed.
    Unanswered {
        failure: Failure,
        /// Whether the host performed a step.
        has_stepped: bool,
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
            AttemptResult::Answered(result) => result,
            AttemptResult::Unanswered { failure, .. } => Err(failure),
        }
    }

    /// The component did not finish the attempt.
    fn unfinished(failure: Failure) -> AttemptResult {
        AttemptResult::Unanswered {
            failure,
            has_stepped: true,
            fault: true,
        }
    }

    /// A call failed. `has_stepped`: the host had performed a step before.
    fn failed(error: &CallError, has_stepped: bool) -> AttemptResult {
        AttemptResult::Unanswered {
            failure: failure(error),
            has_stepped,
            fault: error.is_fault(),
        }
    }
}

impl<'a> Attempt<'a> {
    fn new(
        version: &'a Version<Probe>,
        is_canary: bool,
        compared: Option<Arc<Candidate<Probe>>>,
        request: Arc<Request>,
        runner: Option<Arc<dyn Runner>>,
        reserved: &'a Reserved,
    ) -> Attempt<'a> {
        let max_duration = request.timeout.min(version.context.limits.attempt_time);
        let deadline = Instant::now() + max_duration;
        Attempt {
            version,
            is_canary,
            log: None,
            recording: None,
            compared,
            runner,
            reserved,
            max_duration,
            deadline,
            call_deadline: deadline + LATE_CALL_TIMEOUT,
            request,
        }
    }

    async fn run_to_deadline(mut self, token: &CancellationToken) -> AttemptResult {
        let _in_flight = match self.version.context.begin_call() {
            Ok(in_flight) => in_flight,
            Err(error) => return AttemptResult::failed(&error, false),
        };
        if self.log.is_none() {
            self.recording = AttemptRecording::begin(&self.version.context);
        }
        // The component's last call after the deadline is bounded, too.
        let grace = if self.is_canary {
            LATE_CANARY_CALL_TIMEOUT
        } else {
            LATE_CALL_TIMEOUT
        };
        let latest_end = self.deadline + self.version.context.limits.wall_clock.min(grace);
        tokio::select! {
            result = tokio::time::timeout_at(latest_end, self.run()) => {
                result.unwrap_or_else(|_| AttemptResult::unfinished(self.timeout_failure(self.max_duration)))
            }
            () = token.cancelled() => AttemptResult::failed(&CallError::Stopped, true),
        }
    }

    async fn run(&self) -> AttemptResult {
        for run in 0..=MAX_RESTARTS {
            if let AttemptEnd::Result(mut result) = self.run_once().await {
                if let AttemptResult::Unanswered { has_stepped, .. } = &mut result {
                    *has_stepped |= run > 0;
                }
                return result;
            }
        }
        let name = &self.version.context.name;
        let message = format!(
            "the attempt was interrupted {} times: instances of plugin `{name}` fail repeatedly",
            MAX_RESTARTS + 1
        );
        AttemptResult::unfinished(Failure {
            reason: Reason::Plugin,
            message,
        })
    }

    async fn run_once(&self) -> AttemptEnd {
        if let Some(log) = self.log {
            log.begin_run();
        }
        let mut instance = self.version.least_loaded();
        let request = Arc::clone(&self.request);
        let (handle, mut step): (AttemptHandle, Step) = match self
            .version
            .ask(&mut instance, |reply| Call::Begin {
                request,
                deadline: Some(self.call_deadline),
                reply,
            })
            .await
        {
            Ok(begun) => begun,
            Err(error) => return self.failed(&error, self.transcript(), false),
        };
        let limits = &self.version.context.limits;
        let names = SystemResolver::for_probe(self.deadline);
        let mut network = Network {
            grants: &self.version.context.grants,
            names: &names,
            reserved: self.reserved,
            task: self.own_endpoints(),
            agent: &self.request.agent,
            deadline: self.deadline,
            input: limits.attempt_input,
            output: limits.attempt_output,
            connection: None,
            denial: None,
        };
        let mut transcript = self.transcript();
        let mut late_steps = 0;
        for step_count in 0u32.. {
            if let Step::Done(_) | Step::Failed(_) = &step
                && let Some(transcript) = transcript.take()
            {
                self.submit(transcript, &step);
            }
            match step {
                Step::Done(outcome) => return AttemptEnd::Result(AttemptResult::Answered(Ok(outcome))),
                Step::Failed(why) => return AttemptEnd::Result(AttemptResult::Answered(Err(why))),
                _ if step_count >= limits.steps => {
                    return AttemptEnd::unfinished(self.fail_after_max_steps(limits.steps));
                }
                _ if Instant::now() >= self.deadline => late_steps += 1,
                _ => {}
            }
            if late_steps > 1 {
                let time = self.request.timeout;
                self.version.context.count_unfinished(&format!(
                    "plugin `{}` requested another step after its attempt timed out ({time:?})",
                    self.version.context.name
                ));
                break;
            }
            if step_count >= PROMPT_STEPS {
                tokio::time::sleep(STEP_DELAY).await;
            }
            let requested = (transcript.is_some() || self.log.is_some()).then(|| step.clone());
            let began = Instant::now();
            let Some(answer) = self.perform(&mut network, step).await else {
                break;
            };
            if let (Some(log), Some(step)) = (self.log, &requested) {
                log.log_step(began, step.clone(), &answer);
            }
            if let (Some(transcript), Some(step)) = (&mut transcript, requested) {
                transcript.add_step(step, &answer);
            }
            let key = handle.key;
            step = match self
                .version
                .ask(&mut instance, |reply| Call::Next {
                    key,
                    answer,
                    deadline: Some(self.call_deadline),
                    reply,
                })
                .await
            {
                Ok(Next::Step(step)) => step,
                Ok(Next::Lost) => return AttemptEnd::Lost,
                Err(error) => return self.failed(&error, transcript, true),
            };
        }
        AttemptEnd::unfinished(self.timeout_failure(self.request.timeout))
    }

    /// The failure of an attempt that did not end in time. A canary that hangs does not count as a
    /// failure of the task.
    fn timeout_failure(&self, limit: Duration) -> Failure {
        let name = &self.version.context.name;
        if self.is_canary {
            return Failure {
                reason: Reason::Plugin,
                message: format!("the canary of plugin `{name}` returned no result within {limit:?}"),
            };
        }
        Failure {
            reason: Reason::TimedOut,
            message: format!("no result within {limit:?}"),
        }
    }

    /// Peak linear memory of the version in bytes.
    fn memory_peak(&self) -> u64 {
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
                self.memory_peak(),
                transcript.steps.clone(),
                Some(end.clone()),
                None,
            );
        }
        if let Some(candidate) = &self.compared {
            candidate.submit(attempt_sample(
                Arc::clone(&self.request),
                transcript.steps,
                end.clone(),
            ));
        }
    }

    /// Ends the attempt after a failed call.
    fn failed(&self, error: &CallError, transcript: Option<Transcript>, has_stepped: bool) -> AttemptEnd {
        if let Some((recording, transcript)) = self.recording.as_ref().zip(transcript)
            && error.is_fault()
            && !transcript.is_too_large()
        {
            recording.end(
                &self.request,
                self.memory_peak(),
                transcript.steps,
                None,
                Some(error),
            );
        }
        AttemptEnd::Result(AttemptResult::failed(error, has_stepped))
    }

    fn fail_after_max_steps(&self, steps: u32) -> Failure {
        let name = &self.version.context.name;
        let message = format!("plugin `{name}` did not finish within {steps} steps (limits.steps)");
        self.version.context.count_unfinished(&message);
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
            Step::Receive(max_bytes) => Answer::Received(network.receive(max_bytes).await),
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
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        let run = runner.run(command, remaining);
        let mut output = tokio::time::timeout(remaining, run)
            .await
            .unwrap_or(Err(IoError::TimedOut))?;
        for stream in [&mut output.stdout, &mut output.stderr] {
            stream.drain(..stream.len().saturating_sub(MAX_COMMAND_OUTPUT));
        }
        Ok(output)
    }

    fn note_denial(&self, denial: Option<Denial>) {
        if let Some(Denial { wanted, why }) = denial {
            if let Some(log) = self.log {
                log.set_denial(&format!("{wanted}: {why}"));
            }
            let run_spec = Some(self.request.run_spec.as_str());
            self.version.context.record_denial(&wanted, Some(&why), run_spec);
        }
    }
}

pub(crate) fn failure(error: &CallError) -> Failure {
    Failure {
        reason: Reason::Plugin,
        message: error.to_string(),
    }
}
