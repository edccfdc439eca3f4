//! Statistics of measured times.

use std::time::Duration;

use serde_json::{Value, json};

/// The durations of single calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallTimes(Vec<Duration>);

impl CallTimes {
    pub(crate) fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub(crate) fn extend(&mut self, other: CallTimes) {
        self.0.extend(other.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// A quantile, in thousandths.
    pub(crate) fn quantile(&self, per_mille: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let last = sorted.len().saturating_sub(1);
        sorted.get(last * per_mille / 1000).copied().unwrap_or_default()
    }

    pub(crate) fn median(&self) -> Duration {
        self.quantile(500)
    }

    pub(crate) fn mean(&self) -> Duration {
        let calls = u32::try_from(self.len()).unwrap_or(u32::MAX).max(1);
        self.0.iter().sum::<Duration>() / calls
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "calls": self.len(),
            "p50_us": micros(self.median()),
            "p99_us": micros(self.quantile(990)),
            "max_us": micros(self.quantile(1000)),
        })
    }
}

/// A duration in microseconds, rounded to a nanosecond.
pub(crate) fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// A duration in milliseconds, rounded to a microsecond.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

pub(crate) fn ratio(one: Duration, other: Duration) -> f64 {
    rounded(one.as_secs_f64() / other.as_secs_f64())
}

/// A number rounded to two decimal places.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
