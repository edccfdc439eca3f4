//! Evaluates health check results. Does no I/O.

use crate::wire::json as doc;
use serde_json::Value;
use std::time::Duration;

/// The action that follows a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HealthAction {
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
    grace_period: Duration,
    allowed_failures: u64,
    failures: u64,
    last_reported: Option<bool>,
}

impl Health {
    /// From the task's `HealthCheck`.
    pub(crate) fn new(check: &Value) -> Self {
        let grace_period = doc::number(check, &["grace_period_seconds"]).unwrap_or(10.0);
        Self {
            grace_period: Duration::try_from_secs_f64(grace_period).unwrap_or_default(),
            allowed_failures: check["consecutive_failures"].as_u64().unwrap_or(3),
            failures: 0,
            last_reported: None,
        }
    }

    /// Evaluates a result that arrived `elapsed` after the start of the task. Failures in the grace period
    /// count only after a first success. Every other failure is reported; a success is reported
    /// only if it is a change. If the check allows zero failures, the task is never killed.
    pub(crate) fn observe(&mut self, healthy: bool, elapsed: Duration) -> HealthAction {
        if healthy {
            self.failures = 0;
            return if self.last_reported.replace(true) == Some(true) {
                HealthAction::Nothing
            } else {
                HealthAction::Report(true)
            };
        }
        if self.last_reported.is_none() && elapsed < self.grace_period {
            return HealthAction::Nothing;
        }
        self.last_reported = Some(false);
        self.failures += 1;
        if self.allowed_failures > 0 && self.failures >= self.allowed_failures {
            HealthAction::Kill
        } else {
            HealthAction::Report(false)
        }
    }

    /// The last reported health.
    pub(crate) fn last_reported(&self) -> Option<bool> {
        self.last_reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn health_results_cause_reports_and_kills_as_recorded() {
        type Steps = &'static [(bool, u64, HealthAction)];
        use HealthAction::{Kill, Nothing, Report};
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
                HealthAction::Report(false)
            );
        }
    }
}
