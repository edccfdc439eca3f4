//! Calls the matcher. After a failure it backs off, and returns the same error until the backoff has
//! passed.
//!
//! A failure concerns the run spec or the matcher. After a call that trapped, exceeded a limit or had
//! an invalid result, the matcher gets a simple question. If it answers, only that run spec backs
//! off, and the others are placed; if not, all do. Calls for failing run specs together take a tenth
//! of the time at most, so that many of them do not delay the others either.
#![allow(
    clippy::disallowed_methods,
    reason = "a failed matcher is asked again after a backoff"
)]

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;
use transom_common::Backoff;
use transom_common::error_chain;
use transom_plugin_host::CallError;
use transom_plugin_host::matcher::{Agent, Candidate, Task, Verdict};

use crate::PendingExplanation;
use crate::matching::failures::Failures;
use crate::matching::matcher::Matcher;
use crate::retry::Retry;

/// Maximum candidates that the matcher evaluates in one call.
const MAX_EVALUATED: usize = 2048;

/// No failing run spec is tried again for this many times the duration of the last failed call.
const PAUSE_FACTOR: u32 = 9;

/// The run spec of the question that shows whether the matcher works at all.
const SIMPLE_RUN_SPEC: &str = "/simple-question";

/// The matcher in use. Its errors are messages for users.
pub(crate) struct MatcherClient {
    matcher: Box<dyn Matcher>,
    /// The backoff of a matcher that fails for every run spec, and its error.
    retry: Retry,
    error: Option<String>,
    /// The run specs that cannot be placed.
    failing: Failures,
    /// The run specs whose kill selection fails. A matcher that fails on them may still place tasks.
    failing_kills: Failures,
    /// No failing run spec is tried before.
    paused_until: Option<Instant>,
    failures: Counter,
}

impl MatcherClient {
    pub(crate) fn new(matcher: Box<dyn Matcher>, backoff: Backoff, failures: Counter) -> Self {
        Self {
            matcher,
            retry: Retry::new(backoff),
            error: None,
            failing: Failures::new(backoff),
            failing_kills: Failures::new(backoff),
            paused_until: None,
            failures,
        }
    }

    /// Replaces the matcher by another one, whose agent set is empty.
    pub(crate) fn replace(&mut self, matcher: Box<dyn Matcher>) {
        self.matcher = matcher;
    }

    pub(crate) fn update(&mut self, changed: Vec<Agent>, removed: Vec<u32>) {
        self.matcher.update(changed, removed);
    }

    /// Selects agents for up to `count` more instances. The caller reports the result with
    /// [`MatcherClient::succeeded`] or [`MatcherClient::rejected_choice`].
    pub(crate) async fn place(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
        count: u32,
    ) -> Result<Vec<u32>, String> {
        self.check_backoff(&task.run_spec)?;
        let started_at = Instant::now();
        match self.matcher.place(task, candidates, count).await {
            Ok(chosen) => Ok(chosen),
            Err(error) => Err(self.failed(task, candidates, &error, started_at).await),
        }
    }

    /// Evaluates whether one more instance may run on each of the candidates. Also returns how many
    /// candidates each matcher has rejected, if there are several.
    pub(crate) async fn evaluate(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
    ) -> Result<(Vec<Verdict>, Vec<(String, u32)>), String> {
        self.check_backoff(&task.run_spec)?;
        let mut verdicts = Vec::with_capacity(candidates.len());
        let mut rejections: Vec<(String, u32)> = Vec::new();
        for part in candidates.chunks(MAX_EVALUATED) {
            let started_at = Instant::now();
            match self.matcher.evaluate(task, part).await {
                Ok(part) => verdicts.extend(part),
                Err(error) => return Err(self.failed(task, part, &error, started_at).await),
            }
            for (name, count) in self.matcher.rejections() {
                match rejections.iter_mut().find(|(known, _)| known == name) {
                    Some((_, sum)) => *sum += count,
                    None => rejections.push((name.clone(), *count)),
                }
            }
        }
        Ok((verdicts, rejections))
    }

    /// Whether a kill selection may be requested now for this run spec.
    pub(crate) fn can_select_kills(&self, run_spec: &str) -> bool {
        let error = self.failing_kills.error_during_backoff(run_spec, Instant::now());
        error.is_none()
    }

    /// Selects which `count` of the placed instances to kill, as indices; `None` if the matcher
    /// failed, which starts a backoff.
    pub(crate) async fn select_kills(&mut self, task: &Task, count: u32) -> Option<Vec<u32>> {
        let started_at = Instant::now();
        let run_spec = &task.run_spec;
        match self.matcher.select_kills(task, count).await {
            Ok(chosen) => {
                self.failing_kills.succeeded(run_spec);
                Some(chosen)
            }
            Err(error) => {
                self.failures.inc();
                let error = error_chain(&error);
                tracing::warn!(
                    run_spec,
                    error,
                    "matcher call failed; scaling down waits, retrying"
                );
                let (now, pause) = (Instant::now(), started_at.elapsed() * PAUSE_FACTOR);
                self.failing_kills.failed(run_spec, error, pause, now);
                None
            }
        }
    }

    /// Forgets the failures of kill selections, because none is queued.
    pub(crate) fn forget_kill_failures(&mut self) {
        self.failing_kills.retain(|_| false);
    }

    /// Explains where one more instance may run. Earlier failures and the backoff are ignored.
    pub(crate) fn explain(&self, task: Task) -> PendingExplanation {
        self.matcher.explain(task)
    }

    /// Returns the last error during the backoff of the matcher or of the run spec.
    fn check_backoff(&mut self, run_spec: &str) -> Result<(), String> {
        let now = Instant::now();
        if let Some(error) = &self.error
            && self.retry.is_backing_off(now)
        {
            return Err(error.clone());
        }
        let error = match self.paused_until.filter(|until| *until > now) {
            Some(until) => self.failing.postpone(run_spec, until),
            None => self.failing.error_during_backoff(run_spec, now),
        };
        error.map_or(Ok(()), |error| Err(error.to_owned()))
    }

    /// Whether the last call for the run spec failed.
    pub(crate) fn is_failing(&self, run_spec: &str) -> bool {
        self.failing.contains(run_spec)
    }

    /// Whether the next call for the run spec would be made although the last one failed.
    pub(crate) fn would_retry(&mut self, run_spec: &str) -> bool {
        self.is_failing(run_spec) && self.check_backoff(run_spec).is_ok()
    }

    /// Forgets the failures of the run specs for which `is_pending` is false.
    pub(crate) fn retain_failures(&mut self, is_pending: impl Fn(&str) -> bool) {
        self.failing.retain(is_pending);
    }

    /// Records that the matcher's answer for this run spec was used.
    pub(crate) fn succeeded(&mut self, run_spec: &str) {
        self.retry.succeeded();
        self.error = None;
        self.failing.succeeded(run_spec);
    }

    /// Records a failure: the matcher chose an agent without room.
    pub(crate) fn rejected_choice(&mut self, run_spec: &str, agent: u32) -> String {
        let message = format!(
            "the matcher chose agent {agent}, whose offers have no room for the task; choice rejected"
        );
        self.failures.inc();
        self.run_spec_failed(run_spec, message, Duration::ZERO)
    }

    /// Records a failed call, for the run spec or for all.
    async fn failed(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
        error: &CallError,
        started_at: Instant,
    ) -> String {
        self.failures.inc();
        let (message, duration) = (error_chain(error), started_at.elapsed());
        if error.is_fault() && self.answers_a_simple_question(candidates).await {
            return self.run_spec_failed(&task.run_spec, message, duration);
        }
        tracing::warn!(error = message, "matcher call failed; launches paused, retrying");
        self.retry.failed(Instant::now());
        self.error = Some(message.clone());
        message
    }

    /// A matcher that answers this works. The answer also ends a row of faults, after which the
    /// plugin host would disable it.
    async fn answers_a_simple_question(&mut self, candidates: &[Candidate]) -> bool {
        let task = Task {
            run_spec: SIMPLE_RUN_SPEC.to_owned(),
            instances: 1,
            ..Task::default()
        };
        let first = candidates.get(..1).unwrap_or_default();
        self.matcher.evaluate(&task, first).await.is_ok()
    }

    fn run_spec_failed(&mut self, run_spec: &str, message: String, duration: Duration) -> String {
        tracing::warn!(
            run_spec,
            error = message,
            "matcher call failed; its launches are paused, retrying"
        );
        let (now, pause) = (Instant::now(), duration * PAUSE_FACTOR);
        self.paused_until = Some(now + pause);
        self.failing.failed(run_spec, message.clone(), pause, now);
        message
    }

    /// Handles a possible change of the matcher: ends the backoffs after failures.
    pub(crate) fn matcher_changed(&mut self) {
        let now = Instant::now();
        if self.retry.is_failing() {
            self.retry.end_backoff(now);
        }
        self.paused_until = None;
        self.failing.end_backoffs(now);
        self.failing_kills.end_backoffs(now);
    }

    /// Whether a backoff has passed. True once after each failure.
    pub(crate) fn take_due(&mut self, now: Instant) -> bool {
        // The next turn requests the kill selections that are due.
        self.failing_kills.take_due(now);
        self.retry.take_due(now) | self.failing.take_due(now)
    }

    /// The time at which the next backoff ends.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        let ends = [
            self.retry.next(now),
            self.failing.next(),
            self.failing_kills.next(),
        ];
        ends.into_iter().flatten().min()
    }
}
