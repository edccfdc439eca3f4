//! Calls the matcher. After a failure it backs off, and returns the same error until the backoff
//! has passed.
#![allow(
    clippy::disallowed_methods,
    reason = "a failed matcher is asked again after a backoff"
)]

use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;
use transom_common::Backoff;
use transom_common::error_chain;
use transom_plugin_host::matcher::{Agent, Candidate, Task, Verdict};

use crate::PendingExplanation;
use crate::matching::matcher::Matcher;
use crate::subscription::retry::Retry;

/// The matcher in use. Its errors are messages for users.
pub(crate) struct MatcherClient {
    matcher: Box<dyn Matcher>,
    retry: Retry,
    /// The backoff of kill selections.
    kill_retry: Retry,
    error: Option<String>,
    failures: Counter,
}

impl MatcherClient {
    pub(crate) fn new(matcher: Box<dyn Matcher>, backoff: Backoff, failures: Counter) -> Self {
        Self {
            matcher,
            retry: Retry::new(backoff),
            kill_retry: Retry::new(backoff),
            error: None,
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
        self.check_backoff()?;
        let chosen = self.matcher.place(task, candidates, count).await;
        chosen.map_err(|error| self.failed(error_chain(&error)))
    }

    /// Evaluates whether one more instance may run on each of the candidates.
    pub(crate) async fn evaluate(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
    ) -> Result<Vec<Verdict>, String> {
        self.check_backoff()?;
        let verdicts = self.matcher.evaluate(task, candidates).await;
        verdicts.map_err(|error| self.failed(error_chain(&error)))
    }

    /// How many candidates each matcher has rejected, if there are several.
    pub(crate) fn refusals(&self) -> Vec<(String, u32)> {
        self.matcher.refusals().to_vec()
    }

    /// Whether kill selections may be requested now. A matcher that fails on them may still place
    /// tasks, so they have their own backoff.
    pub(crate) fn can_select_kills(&self) -> bool {
        !self.kill_retry.is_backing_off(Instant::now())
    }

    /// Selects which `count` of the placed instances to kill, as indices; `None` if the matcher
    /// failed. The caller reports the results of all selections with
    /// [`MatcherClient::kill_selections_finished`].
    pub(crate) async fn select_kills(&mut self, task: &Task, count: u32) -> Option<Vec<u32>> {
        let chosen = self.matcher.select_kills(task, count).await;
        let failed = |error| {
            self.failures.inc();
            let (run_spec, error) = (&task.run_spec, error_chain(&error));
            tracing::warn!(
                run_spec,
                error,
                "matcher call failed; scaling down waits, retrying"
            );
        };
        chosen.map_err(failed).ok()
    }

    /// Explains where one more instance may run. Earlier failures and the backoff are ignored.
    pub(crate) fn explain(&self, task: Task) -> PendingExplanation {
        self.matcher.explain(task)
    }

    /// Starts a backoff if any of the kill selections failed.
    pub(crate) fn kill_selections_finished(&mut self, failed: bool) {
        if failed {
            self.kill_retry.failed(Instant::now());
        } else {
            self.kill_retry.succeeded();
        }
    }

    /// Returns the last error during the backoff.
    fn check_backoff(&self) -> Result<(), String> {
        match &self.error {
            Some(error) if self.retry.is_backing_off(Instant::now()) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Records that the matcher's choice was used.
    pub(crate) fn succeeded(&mut self) {
        self.retry.succeeded();
        self.error = None;
    }

    /// Records a failure: the matcher chose an agent without room.
    pub(crate) fn rejected_choice(&mut self, agent: u32) -> String {
        self.failed(format!(
            "the matcher chose agent {agent}, whose offers have no room for the task; choice rejected"
        ))
    }

    fn failed(&mut self, message: String) -> String {
        self.failures.inc();
        tracing::warn!(error = message, "matcher call failed; launches paused, retrying");
        self.retry.failed(Instant::now());
        self.error = Some(message.clone());
        message
    }

    /// Handles a possible change of the matcher: ends the backoff after a failure.
    pub(crate) fn matcher_changed(&mut self) {
        for retry in [&mut self.retry, &mut self.kill_retry] {
            if retry.is_failing() {
                retry.end_backoff(Instant::now());
            }
        }
    }

    /// Whether the backoff has passed. True once after each failure.
    pub(crate) fn take_due(&mut self, now: Instant) -> bool {
        self.retry.take_due(now)
    }

    /// The time at which the next backoff ends.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        let (retry, kill_retry) = (self.retry.next(now), self.kill_retry.next(now));
        retry.into_iter().chain(kill_retry).min()
    }
}
