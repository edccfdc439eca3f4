//! Waiting for conditions.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

/// The timeout of every wait in a test: generous, because test machines are small and busy. Only a
/// broken program reaches it.
pub const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

/// How often a condition is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Calls `attempt` until it returns `Ok`, and returns that value. After [`WAIT_TIMEOUT`] the test
/// fails with `what` and the last error.
pub async fn eventually<T>(what: &str, attempt: impl AsyncFnMut() -> Result<T, String>) -> T {
    retry_until(Instant::now() + WAIT_TIMEOUT, POLL_INTERVAL, what, attempt)
        .await
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Calls `attempt` every `poll_interval` until it returns `Ok`. After `deadline` the error contains
/// `what` and the last error of `attempt`.
pub async fn retry_until<T>(
    deadline: Instant,
    poll_interval: Duration,
    what: &str,
    mut attempt: impl AsyncFnMut() -> Result<T, String>,
) -> Result<T, String> {
    let mut tick = interval(poll_interval);
    // Missed ticks are not made up for, so that a slow server does not get a burst of calls.
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() >= deadline => {
                return Err(format!("timed out waiting for {what}; last seen: {error}"));
            }
            Err(_) => {}
        }
    }
}

/// Waits until `condition` is true. After [`WAIT_TIMEOUT`] the test fails with `what`.
pub async fn wait_for(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        let mut tick = interval(Duration::from_millis(5));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !condition().await {
            tick.tick().await;
        }
    };
    assert!(
        timeout(WAIT_TIMEOUT, waiting).await.is_ok(),
        "timed out waiting for {what}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn eventually_returns_the_first_success() {
        let mut calls = 0;
        let found = eventually("the third call", async || {
            calls += 1;
            if calls == 3 {
                Ok(calls)
            } else {
                Err(calls.to_string())
            }
        })
        .await;
        assert_eq!(found, 3);
    }

    #[tokio::test]
    async fn retry_until_reports_the_last_error_after_the_deadline() {
        let mut calls = 0;
        let error = retry_until(
            Instant::now(),
            POLL_INTERVAL,
            "a success",
            async || -> Result<(), _> {
                calls += 1;
                Err(format!("failure {calls}"))
            },
        )
        .await;
        assert_eq!(
            error,
            Err("timed out waiting for a success; last seen: failure 1".to_owned())
        );
    }

    #[tokio::test]
    async fn wait_for_ends_when_the_condition_is_true() {
        let mut calls = 0;
        wait_for("the third call", async || {
            calls += 1;
            calls == 3
        })
        .await;
        assert_eq!(calls, 3);
    }
}
