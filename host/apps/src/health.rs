//! Evaluates the results of a health check: whether an instance is healthy, and when its task is
//! killed. Pure.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use transom_plugin_host::probe::{Failure, Outcome, Reason};

use crate::model::HealthCheck;
use crate::time::Moment;

/// The results of one health check of one task so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HealthState {
    pub(crate) first_success: Option<Moment>,
    pub(crate) last_success: Option<Moment>,
    pub(crate) last_failure: Option<Moment>,
    pub(crate) last_failure_cause: Option<Arc<str>>,
    pub(crate) consecutive_failures: u32,
    /// When the first of these failures was, also of those under an earlier leader.
    pub(crate) failing_since: Option<Moment>,
    /// The attempts since the last result.
    pub(crate) no_result: Option<Arc<NoResult>>,
    /// Whether it is the last result under an earlier leader: it is shown, but no deployment relies on
    /// it.
    pub(crate) is_restored: bool,
}

/// Attempts in a row without the result that a check needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoResult {
    pub(crate) count: u32,
    pub(crate) since: Moment,
    pub(crate) last: Failure,
}

impl NoResult {
    /// Adds an attempt to those in a row.
    pub(crate) fn add(earlier: Option<Self>, failure: &Failure, now: Moment) -> Self {
        let (count, since) = earlier.map_or((0, now), |row| (row.count, row.since));
        Self {
            count: count.saturating_add(1),
            since,
            last: failure.clone(),
        }
    }

    /// Whether the component, and not the task, is the cause.
    pub(crate) fn is_of_plugin(&self) -> bool {
        matches!(
            self.last.reason,
            Reason::Denied | Reason::Internal | Reason::Plugin
        )
    }
}

/// The stored part of a [`HealthState`]: whether the last result was a success, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredHealth {
    pub(crate) alive: bool,
    /// The time of the result that changed it.
    pub(crate) at: Moment,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_success: Option<Moment>,
}

impl HealthState {
    /// Its stored part; `None` without a result.
    pub(crate) fn to_stored(&self) -> Option<StoredHealth> {
        let alive = self.is_alive();
        let last = if alive {
            self.last_success
        } else {
            self.failing_since.or(self.last_failure)
        };
        Some(StoredHealth {
            alive,
            at: last?,
            first_success: self.first_success,
        })
    }

    /// The last known health, from an earlier leader. Its failures do not count, so that only new ones
    /// end a task.
    pub(crate) fn of_stored(stored: StoredHealth) -> Self {
        let StoredHealth {
            alive,
            at,
            first_success,
        } = stored;
        Self {
            first_success,
            last_success: alive.then_some(at),
            last_failure: (!alive).then_some(at),
            failing_since: (!alive).then_some(at),
            is_restored: true,
            ..Self::default()
        }
    }

    /// Whether there is a result.
    pub(crate) fn is_known(&self) -> bool {
        self.last_success.is_some() || self.last_failure.is_some()
    }

    /// Whether the last result was a success.
    pub(crate) fn is_alive(&self) -> bool {
        self.last_success
            .is_some_and(|success| self.last_failure.is_none_or(|failure| success > failure))
    }
}

/// The meaning of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HealthVerdict {
    Healthy,
    /// The task is unhealthy for this reason.
    Unhealthy(String),
    /// The task keeps its health: the result must be ignored.
    Unchanged,
    /// The task keeps its health: the probe could not be made.
    NoResult(Failure),
}

/// The task that a health check probes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbedTask {
    /// When the task was first reported as running.
    pub(crate) started: Moment,
    /// Whether failures may kill the task. Agents kill for the checks that they make, and an
    /// unreachable task is never killed.
    pub(crate) may_be_killed: bool,
}

/// The effects of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) state: HealthState,
    /// Whether it is a failure that is counted.
    pub(crate) failed: bool,
    /// The new health by this check, if it has changed.
    pub(crate) alive: Option<bool>,
    /// Whether the task must be killed.
    pub(crate) kill: bool,
}

/// Applies the result of an attempt that ended `now`. As in upstream, failures before the first
/// success are ignored until the grace period ends, and the failure after `maxConsecutiveFailures`
/// kills the task.
pub(crate) fn observe(
    state: &HealthState,
    verdict: &HealthVerdict,
    check: &HealthCheck,
    probed_task: ProbedTask,
    now: Moment,
) -> Observation {
    let mut next = HealthState {
        is_restored: false,
        no_result: None,
        ..state.clone()
    };
    let mut observation = Observation {
        state: state.clone(),
        failed: false,
        alive: None,
        kill: false,
    };
    match verdict {
        HealthVerdict::Unchanged => return observation,
        HealthVerdict::NoResult(failure) => {
            let earlier = state.no_result.as_deref().cloned();
            observation.state.no_result = Some(Arc::new(NoResult::add(earlier, failure, now)));
            return observation;
        }
        HealthVerdict::Healthy => {
            next.failing_since = None;
            next.first_success.get_or_insert(now);
            // A success in the same millisecond as the last failure must be the later one.
            next.last_success = Some(match state.last_failure {
                Some(failure) if failure >= now => failure.plus_millis(1),
                _ => now,
            });
            next.consecutive_failures = 0;
        }
        HealthVerdict::Unhealthy(cause) => {
            let grace = i64::from(check.grace_period_seconds) * 1000;
            if state.first_success.is_none() && now.millis_since(probed_task.started) < grace {
                observation.state.no_result = None;
                return observation;
            }
            let max = check.max_consecutive_failures;
            observation.failed = true;
            observation.kill = max > 0 && state.consecutive_failures >= max && probed_task.may_be_killed;
            next.last_failure = Some(now.max(state.last_success.unwrap_or(now)));
            next.failing_since.get_or_insert(now);
            next.last_failure_cause = Some(cause.as_str().into());
            next.consecutive_failures = state.consecutive_failures.saturating_add(1);
        }
    }
    let alive = next.is_alive();
    observation.alive = (alive != state.is_alive()).then_some(alive);
    observation.state = next;
    observation
}

/// Evaluates the result of a probe that this daemon made.
pub(crate) fn evaluate(check: &HealthCheck, result: &Result<Outcome, Failure>) -> HealthVerdict {
    match result {
        Ok(Outcome::Http(200..=399) | Outcome::Tcp(true)) => HealthVerdict::Healthy,
        Ok(Outcome::Http(100..=199)) if check.ignore_http_1xx == Some(true) => HealthVerdict::Unchanged,
        Ok(Outcome::Http(status)) => HealthVerdict::Unhealthy(status_text(*status)),
        Ok(Outcome::Tcp(false)) => HealthVerdict::Unhealthy("the connection failed".to_owned()),
        // The component reported the result of another kind of check.
        Ok(Outcome::Command(_) | Outcome::Custom(_)) => HealthVerdict::Unchanged,
        Err(failure) => match failure.reason {
            Reason::TimedOut | Reason::Unreachable | Reason::Invalid => {
                HealthVerdict::Unhealthy(failure.message.clone())
            }
            // A missing or failing component must not kill every task.
            Reason::Denied | Reason::Internal | Reason::Plugin => HealthVerdict::NoResult(failure.clone()),
        },
    }
}

/// A status of HTTP in words.
pub(crate) fn status_text(status: u16) -> String {
    StatusCode::from_u16(status).map_or_else(|_| status.to_string(), |status| status.to_string())
}

/// The time from the start of the task to the first attempt, as in upstream.
pub(crate) fn first_attempt(check: &HealthCheck) -> Duration {
    Duration::from_secs(u64::from(check.interval_seconds.min(5)))
}

#[cfg(test)]
#[path = "health_tests.rs"]
mod tests;
