//! Limits how often a message is logged about things that clients can cause at will.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_mins(1);

/// The maximum number of messages a minute about rejected requests.
const REJECTIONS: u32 = 100;

#[derive(Debug)]
pub(crate) struct Throttle {
    per_interval: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    begun: Option<Instant>,
    passed: u32,
    suppressed: u64,
}

impl Throttle {
    /// One message a minute.
    pub(crate) fn once() -> Self {
        Self::new(1)
    }

    /// For messages about each rejected request.
    pub(crate) fn of_rejections() -> Self {
        Self::new(REJECTIONS)
    }

    fn new(per_interval: u32) -> Self {
        Self {
            per_interval,
            state: Mutex::default(),
        }
    }

    /// How many messages were suppressed since the last one, if this one may be logged.
    pub(crate) fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |begun| now.saturating_duration_since(begun) >= INTERVAL;
        if state.begun.is_none_or(is_over) {
            state.begun = Some(now);
            state.passed = 0;
        }
        if state.passed == self.per_interval {
            state.suppressed += 1;
            return None;
        }
        state.passed += 1;
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_messages_pass_each_minute() {
        let start = Instant::now();
        for (throttle, expected) in [
            (Throttle::once(), [Some(0), None, None, Some(2), None]),
            (Throttle::new(2), [Some(0), Some(0), None, Some(1), Some(0)]),
        ] {
            for (seconds, expected) in [0, 1, 59, 60, 61].into_iter().zip(expected) {
                let now = start + Duration::from_secs(seconds);
                assert_eq!(throttle.pass_at(now), expected, "{seconds}");
            }
        }
    }
}
