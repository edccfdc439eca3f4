//! Evaluates health check results. Does no I/O.

use crate::wire::json as doc;
use serde_json::Value;
use std::time::Duration;

/// The action that follows a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing has changed, or the grace period is running.
    Nothing,
    /// Report the result to the framework.
    Report(bool),
    /// Report the task as unhealthy, then kill it.
    Kill,
}

/// A task's health so far.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    grace: Duration,
    allowed: u64,
    failures: u64,
    last: Option<bool>,
}

impl Health {
    /// From the task's `HealthCheck`.
    pub(crate) fn new(check: &Value) -> Self {
        let grace = doc::number(check, &["grace_period_seconds"]).unwrap_or(10.0);
        Self {
            grace: Duration::try_from_secs_f64(grace).unwrap_or_default(),
            allowed: check["consecutive_failures"].as_u64().unwrap_or(3),
            failures: 0,
            last: None,
        }
    }

    /// Evaluates a result that arrived `since` the start of the task. Failures in the grace period
    /// count only after a first success. Every other failure is reported; a success is reported
    /// only if it is a change. If the check allows zero failures, the task is never killed.
    pub(crate) fn observe(&mut self, healthy: bool, since: Duration) -> Verdict {
        if healthy {
            self.failures = 0;
            return if self.last.replace(true) == Some(true) {
                Verdict::Nothing
            } else {
                Verdict::Report(true)
            };
        }
        if self.last.is_none() && since < self.grace {
            return Verdict::Nothing;
        }
        self.last = Some(false);
        self.failures += 1;
        if self.allowed > 0 && self.failures >= self.allowed {
            Verdict::Kill
        } else {
            Verdict::Report(false)
        }
    }

    /// The last reported health.
    pub(crate) fn last(&self) -> Option<bool> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn health_results_cause_reports_and_kills_as_recorded() {
        type Steps = &'static [(bool, u64, Verdict)];
        use Verdict::{Kill, Nothing, Report};
        let cases: [(&str, Steps); 4] = [
            (
                "fails from the start",
                &[
                    (false, 1, Nothing),
                    (false, 2, Report(false)),
                    (false, 3, Report(false)),
                    (false, 4, Kill),
                ],
            ),
            (
                "flaps",
                &[
                    (true, 1, Report(true)),
                    (false, 2, Report(false)),
                    (true, 3, Report(true)),
                    (true, 4, Nothing),
                ],
            ),
            (
                "fails early after a success",
                &[(true, 0, Report(true)), (false, 1, Report(false))],
            ),
            (
                "recovers within the grace period",
                &[(false, 0, Nothing), (true, 1, Report(true))],
            ),
        ];
        for (what, steps) in cases {
            let mut health = Health::new(&json!({"grace_period_seconds": 2.0, "consecutive_failures": 3}));
            for (index, (result, at, expected)) in steps.iter().enumerate() {
                assert_eq!(
                    health.observe(*result, Duration::from_secs(*at)),
                    *expected,
                    "{what}, step {index}"
                );
            }
        }
    }

    #[test]
    fn zero_allowed_failures_never_kill() {
        let mut health = Health::new(&json!({"grace_period_seconds": 0.0, "consecutive_failures": 0}));
        for _ in 0..10 {
            assert_eq!(
                health.observe(false, Duration::from_secs(1)),
                Verdict::Report(false)
            );
        }
    }
}
