//! Backoff of a run spec whose tasks keep ending: the delay before its next launch.
//!
//! The first failure delays by `initial`; each further failure multiplies the delay by `factor`, up
//! to `max`. The delay is reset if no failure follows for longer than `max` after it has ended, and by
//! every new configuration.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// How the delay grows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackoffPolicy {
    /// The delay after the first failure.
    pub initial: Duration,
    /// Each further failure multiplies the delay by this.
    pub factor: f64,
    /// The longest delay.
    pub max: Duration,
}

/// The backoff of one run spec in one configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LaunchBackoff {
    /// The last delay in seconds.
    seconds: Option<f64>,
    until: Option<Timestamp>,
}

impl LaunchBackoff {
    /// Records a failure.
    pub fn record_failure(&mut self, policy: &BackoffPolicy, now: Timestamp) {
        self.reset_if_expired(policy, now);
        let next = match self.seconds {
            None => policy.initial.as_secs_f64(),
            Some(seconds) => seconds * policy.factor,
        };
        let seconds = next.min(policy.max.as_secs_f64());
        self.seconds = Some(seconds);
        let delay = SignedDuration::from_millis((seconds * 1000.0) as i64);
        self.until = Some(now.checked_add(delay).unwrap_or(Timestamp::MAX));
    }

    /// The end of the delay, if it is in the future. Until then nothing may be launched.
    pub fn until(&self, now: Timestamp) -> Option<Timestamp> {
        self.until.filter(|until| *until > now)
    }

    fn reset_if_expired(&mut self, policy: &BackoffPolicy, now: Timestamp) {
        let quiet = |until| Duration::try_from(now.duration_since(until)).unwrap_or_default();
        if self.until.is_some_and(|until| quiet(until) > policy.max) {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_grows_up_to_the_limit_and_is_reset_after_a_quiet_time() {
        let policy = BackoffPolicy {
            initial: Duration::from_secs(1),
            factor: 2.0,
            max: Duration::from_secs(5),
        };
        let start = Timestamp::from_second(1_000_000).unwrap();
        let at = |millis| start + SignedDuration::from_millis(millis);
        let mut backoff = LaunchBackoff::default();
        assert_eq!(backoff.until(start), None);
        for expected in [1000, 2000, 4000, 5000, 5000] {
            backoff.record_failure(&policy, start);
            assert_eq!(backoff.until(start), Some(at(expected)));
        }
        assert_eq!(backoff.until(at(5000)), None, "the delay is over");
        backoff.record_failure(&policy, at(9_000));
        assert_eq!(
            backoff.until(start),
            Some(at(14_000)),
            "the earlier delay still counts"
        );
        backoff.record_failure(&policy, at(14_000 + 5_001));
        assert_eq!(
            backoff.until(start),
            Some(at(20_001)),
            "begins with the first delay again"
        );
    }

    #[test]
    fn maximum_delay_does_not_overflow() {
        let policy = BackoffPolicy {
            initial: Duration::MAX,
            factor: 10.0,
            max: Duration::MAX,
        };
        let mut backoff = LaunchBackoff::default();
        backoff.record_failure(&policy, Timestamp::UNIX_EPOCH);
        assert_eq!(backoff.until(Timestamp::UNIX_EPOCH), Some(Timestamp::MAX));
    }
}
