//! At most one log message a minute about things that clients can cause at will.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub(crate) struct Throttle(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    suppressed: u64,
}

impl Throttle {
    /// How many messages were suppressed since the last one, if this one may be logged.
    pub(crate) fn pass(&self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state
            .last
            .is_some_and(|last| now.saturating_duration_since(last) < INTERVAL)
        {
            state.suppressed += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_passes_each_minute() {
        let (throttle, start) = (Throttle::default(), Instant::now());
        for (seconds, expected) in [(0, Some(0)), (1, None), (59, None), (60, Some(2)), (61, None)] {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(throttle.pass_at(now), expected, "{seconds}");
        }
    }
}
