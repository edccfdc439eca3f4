//! Backoff of an app whose tasks keep ending: the delay before its next launch.
//!
//! The first failure delays by `backoffSeconds`; each further failure multiplies the delay by
//! `backoffFactor`, up to `maxLaunchDelaySeconds`. The delay is reset after `maxLaunchDelaySeconds`
//! without a failure, counted from its end, and by every new configuration. Pure: the caller passes
//! the time.

use crate::model::App;
use crate::time::Moment;

/// The backoff of one app in one configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Backoff {
    seconds: Option<f64>,
    until: Option<Moment>,
}

impl Backoff {
    /// Records a failure.
    pub(crate) fn failed(&mut self, app: &App, now: Moment) {
        self.expire(app, now);
        let most = f64::from(app.max_launch_delay_seconds);
        let next = match self.seconds {
            None => f64::from(app.backoff_seconds),
            Some(seconds) => seconds * app.backoff_factor,
        };
        let seconds = next.min(most);
        self.seconds = Some(seconds);
        self.until = Some(now.plus_millis((seconds * 1000.0) as i64));
    }

    /// The end of the delay, if it is in the future. Until then nothing may be launched.
    pub(crate) fn until(&self, now: Moment) -> Option<Moment> {
        self.until.filter(|until| *until > now)
    }

    fn expire(&mut self, app: &App, now: Moment) {
        let quiet = i64::from(app.max_launch_delay_seconds) * 1000;
        if self.until.is_some_and(|until| now.millis_since(until) > quiet) {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use crate::testing::app;
    use serde_json::json;

    #[test]
    fn grows_up_to_the_limit_and_is_forgotten() {
        let app = app(
            &json!({"id": "/a", "cmd": "sleep 1", "backoffSeconds": 1, "backoffFactor": 2, "maxLaunchDelaySeconds": 5}),
        );
        let start = Moment::now();
        let mut backoff = Backoff::default();
        assert_eq!(backoff.until(start), None);
        for expected in [1000, 2000, 4000, 5000, 5000] {
            backoff.failed(&app, start);
            assert_eq!(backoff.until(start).unwrap().millis_since(start), expected);
        }
        assert_eq!(backoff.until(start.plus_millis(5000)), None, "the delay is over");
        backoff.failed(&app, start.plus_millis(9_000));
        assert_eq!(
            backoff.until(start).unwrap(),
            start.plus_millis(14_000),
            "still remembered"
        );
        backoff.failed(&app, start.plus_millis(14_000 + 5_001));
        assert_eq!(
            backoff.until(start).unwrap(),
            start.plus_millis(20_001),
            "begins anew"
        );
    }
}
