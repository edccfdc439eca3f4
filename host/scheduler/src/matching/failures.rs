//! Run specs for which the matcher fails, each with a backoff of its own. The code reads no clock;
//! `now` is an argument.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;
use transom_common::Backoff;

/// The failing run specs, by their ids.
#[derive(Debug)]
pub(crate) struct Failures {
    backoff: Backoff,
    by_spec: HashMap<String, Failure>,
    /// The ends of the backoffs that have not passed.
    by_due: BTreeSet<(Instant, String)>,
}

#[derive(Debug)]
struct Failure {
    attempt: u32,
    due: Instant,
    /// The last error, for users.
    error: String,
}

impl Failures {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            by_spec: HashMap::new(),
            by_due: BTreeSet::new(),
        }
    }

    /// Records a failure and starts the backoff, which lasts at least for `pause`.
    pub(crate) fn failed(&mut self, run_spec: &str, error: String, pause: Duration, now: Instant) {
        let attempt = self.by_spec.get(run_spec).map_or(0, |failure| failure.attempt);
        self.succeeded(run_spec);
        let due = now + self.backoff.jittered(attempt).max(pause);
        let failure = Failure {
            attempt: attempt.saturating_add(1),
            due,
            error,
        };
        self.by_spec.insert(run_spec.to_owned(), failure);
        self.by_due.insert((due, run_spec.to_owned()));
    }

    /// Records a success, or that the run spec is gone.
    pub(crate) fn succeeded(&mut self, run_spec: &str) {
        if let Some(failure) = self.by_spec.remove(run_spec) {
            self.by_due.remove(&(failure.due, run_spec.to_owned()));
        }
    }

    /// Whether the last call for the run spec failed.
    pub(crate) fn contains(&self, run_spec: &str) -> bool {
        self.by_spec.contains_key(run_spec)
    }

    /// The error of a run spec whose backoff has not passed.
    pub(crate) fn error_during_backoff(&self, run_spec: &str, now: Instant) -> Option<&str> {
        let failure = self.by_spec.get(run_spec)?;
        (failure.due > now).then_some(&failure.error)
    }

    /// Continues the backoff of a failing run spec until `due`, and returns its error.
    pub(crate) fn postpone(&mut self, run_spec: &str, due: Instant) -> Option<&str> {
        let failure = self.by_spec.get_mut(run_spec)?;
        self.by_due.remove(&(failure.due, run_spec.to_owned()));
        failure.due = failure.due.max(due);
        self.by_due.insert((failure.due, run_spec.to_owned()));
        Some(&failure.error)
    }

    /// Forgets the run specs for which `is_pending` is false.
    pub(crate) fn retain(&mut self, is_pending: impl Fn(&str) -> bool) {
        self.by_spec.retain(|run_spec, _| is_pending(run_spec));
        self.by_due
            .retain(|(_, run_spec)| self.by_spec.contains_key(run_spec));
    }

    /// Whether a backoff has passed. True once after each failure.
    pub(crate) fn take_due(&mut self, now: Instant) -> bool {
        let mut is_due = false;
        while self.by_due.first().is_some_and(|(due, _)| *due <= now) {
            self.by_due.pop_first();
            is_due = true;
        }
        is_due
    }

    /// The time at which the next backoff ends.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.by_due.first().map(|(due, _)| *due)
    }

    /// Ends all backoffs now.
    pub(crate) fn end_backoffs(&mut self, now: Instant) {
        self.by_due.clear();
        for (run_spec, failure) in &mut self.by_spec {
            failure.due = failure.due.min(now);
            self.by_due.insert((failure.due, run_spec.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_spec_has_its_own_backoff() {
        let start = Instant::now();
        let second = |n: u64| start + Duration::from_secs(n);
        let mut failures = Failures::new(Backoff {
            base: Duration::from_secs(10),
            max: Duration::from_secs(1000),
        });
        failures.failed("/a", "trap".to_owned(), Duration::ZERO, start);
        failures.failed("/b", "slow".to_owned(), Duration::from_secs(500), start);
        assert_eq!(failures.error_during_backoff("/a", second(1)), Some("trap"));
        assert_eq!(failures.error_during_backoff("/c", second(1)), None);
        assert!(!failures.take_due(second(1)) && failures.next().is_some());
        assert!(failures.take_due(second(20)) && !failures.take_due(second(20)));
        assert_eq!(failures.error_during_backoff("/a", second(20)), None);
        assert_eq!(failures.error_during_backoff("/b", second(20)), Some("slow"));
        // A second failure in a row has a longer backoff; a success ends it.
        assert!(failures.contains("/a"));
        failures.failed("/a", "trap".to_owned(), Duration::ZERO, second(20));
        assert!(failures.error_during_backoff("/a", second(29)).is_some());
        failures.succeeded("/a");
        assert!(!failures.contains("/a") && failures.error_during_backoff("/a", second(29)).is_none());
        assert_eq!(failures.postpone("/b", second(900)), Some("slow"));
        assert_eq!(failures.next(), Some(second(900)));
        failures.end_backoffs(second(40));
        assert!(failures.take_due(second(40)) && failures.next().is_none());
        failures.retain(|run_spec| run_spec != "/b");
        assert!(!failures.contains("/b"));
    }
}
