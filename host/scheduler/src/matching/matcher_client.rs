//! The matcher as the actor asks it: one that failed is left alone for a while, and what it failed with is the
//! answer meanwhile.

use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;
use transom_plugins::matcher::{Agent, Candidate, Task, Verdict};

use crate::error::error_chain;
use crate::matching::matcher::Matcher;
use crate::subscription::retry::{Backoff, Retry};

/// The matcher in use. The errors of its questions are texts to show.
pub(crate) struct MatcherClient {
    matcher: Box<dyn Matcher>,
    retry: Retry,
    error: Option<String>,
    failures: Counter,
}

impl MatcherClient {
    pub(crate) fn new(matcher: Box<dyn Matcher>, backoff: Backoff, failures: Counter) -> Self {
        Self {
            matcher,
            retry: Retry::new(backoff),
            error: None,
            failures,
        }
    }

    /// Another matcher, which knows no agents yet.
    pub(crate) fn replace(&mut self, matcher: Box<dyn Matcher>) {
        self.matcher = matcher;
    }

    pub(crate) fn update(&mut self, changed: Vec<Agent>, gone: Vec<u32>) {
        self.matcher.update(changed, gone);
    }

    /// Agents for up to `count` further instances. To be followed by [`MatcherClient::succeeded`] or
    /// [`MatcherClient::rejected_choice`].
    pub(crate) async fn place(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
        count: u32,
    ) -> Result<Vec<u32>, String> {
        self.backing_off()?;
        let chosen = self.matcher.place(task, candidates, count).await;
        chosen.map_err(|error| self.failed(error_chain(&error)))
    }

    /// Whether one more instance may go to each of the candidates.
    pub(crate) async fn judge(
        &mut self,
        task: &Task,
        candidates: &[Candidate],
    ) -> Result<Vec<Verdict>, String> {
        self.backing_off()?;
        let verdicts = self.matcher.evaluate(task, candidates).await;
        verdicts.map_err(|error| self.failed(error_chain(&error)))
    }

    /// One that failed lately is not asked.
    fn backing_off(&self) -> Result<(), String> {
        match &self.error {
            Some(error) if self.retry.waits(Instant::now()) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Its choice was good.
    pub(crate) fn succeeded(&mut self) {
        self.retry.succeeded();
        self.error = None;
    }

    /// Its choice named an agent without room.
    pub(crate) fn rejected_choice(&mut self, agent: u32) -> String {
        self.failed(format!(
            "the attribute matcher chose agent {agent}, which has no room: its answer cannot be used"
        ))
    }

    fn failed(&mut self, message: String) -> String {
        self.failures.inc();
        tracing::warn!(
            error = message,
            "the attribute matcher gave no answer; nothing is launched without it"
        );
        self.retry.failed(Instant::now());
        self.error = Some(message.clone());
        message
    }

    /// Something may have changed for it: one that failed is asked again soon.
    pub(crate) fn changed(&mut self) {
        if self.retry.is_failing() {
            self.retry.hasten(Instant::now());
        }
    }

    /// It may be asked again: true once after each failure.
    pub(crate) fn take_due(&mut self, now: Instant) -> bool {
        self.retry.take_due(now)
    }

    /// When that will be.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        self.retry.next(now)
    }
}
