//! Exponential backoff.

use std::time::Duration;

use crate::ambient;

/// Exponential backoff: `base`, doubled with each further failure, up to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first failure.
    pub base: Duration,
    /// The longest wait.
    pub max: Duration,
}

impl Backoff {
    /// A backoff between `base` and `max`.
    pub const fn new(base: Duration, max: Duration) -> Self {
        Self { base, max }
    }

    /// The delay after a failure that `attempts` earlier failures preceded: `base` for 0.
    pub fn after(&self, attempts: u32) -> Duration {
        self.base
            .saturating_mul(2_u32.saturating_pow(attempts))
            .min(self.max)
    }

    /// The delay of [`Self::after`], multiplied by a random factor between 0.5 and 1, so that
    /// clients that failed together do not retry together.
    pub fn jittered(&self, attempts: u32) -> Duration {
        self.after(attempts).mul_f64(1.0 - ambient::fraction() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));

    #[test]
    fn backoff_doubles_up_to_the_maximum() {
        for (attempts, seconds) in [(0, 1), (1, 2), (3, 8), (5, 32), (6, 60), (40, 60), (u32::MAX, 60)] {
            let wait = BACKOFF.after(attempts);
            assert_eq!(wait, Duration::from_secs(seconds), "attempts {attempts}");
        }
    }

    #[test]
    fn jitter_takes_away_at_most_half_and_varies() {
        for (attempts, seconds) in [(0, 1), (2, 4), (u32::MAX, 60)] {
            let full_wait = Duration::from_secs(seconds);
            let waits: Vec<_> = (0..50).map(|_| BACKOFF.jittered(attempts)).collect();
            assert!(
                waits
                    .iter()
                    .all(|wait| (full_wait / 2..=full_wait).contains(wait)),
                "{attempts}: {waits:?}"
            );
            assert!(
                waits.iter().any(|wait| *wait != waits[0]),
                "{attempts}: no jitter"
            );
        }
    }
}
