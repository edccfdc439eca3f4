//! Helpers for benchmarks of a service and for tests with thousands of changes: the daemon
//! with only one service, and a cluster that answers immediately and runs nothing, so that
//! measured times are the daemon's.

pub mod cluster;
pub mod daemon;

use std::time::Duration;

use serde_json::{Value, json};

/// A duration in seconds.
pub fn seconds(time: Duration) -> f64 {
    rounded(time.as_secs_f64())
}

/// A number rounded to three decimal places.
pub fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// Quantiles in milliseconds.
pub fn quantiles(mut times: Vec<Duration>) -> Value {
    times.sort_unstable();
    let at = |of_hundred: usize| {
        let time = times.get((times.len() - 1) * of_hundred / 100);
        time.map(|time| rounded(time.as_secs_f64() * 1e3))
    };
    json!({"count": times.len(), "p50": at(50), "p99": at(99), "max": at(100)})
}
