//! Replicas on agents that do not answer.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// An unreachable replica is kept for at least this time plus the difference between `expunge_after`
/// and `inactive_after`. Upstream searches for such replicas only periodically, for the first time
/// after five minutes, and an agent that restarts in the meantime recovers its tasks.
const EXPUNGE_GRACE: Duration = Duration::from_mins(5);

/// The strategy for replicas on unreachable agents. Times count from the moment at which the
/// replica became unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreachableStrategy {
    /// The replica is neither replaced nor expunged.
    Disabled,
    /// The replica is replaced after one period and expunged after another.
    Enabled {
        /// After this time it is inactive: another replica replaces it. It may still return.
        inactive_after: Duration,
        /// After this time it is expunged: its task is killed if it ever returns.
        expunge_after: Duration,
    },
}

impl UnreachableStrategy {
    /// Whether a replica that is unreachable since `since` is to be replaced.
    pub(crate) fn is_inactive(self, since: Timestamp, now: Timestamp) -> bool {
        matches!(self, Self::Enabled { inactive_after, .. } if elapsed(since, now) >= inactive_after)
    }

    /// Whether an inactive replica that is unreachable since `since` is to be expunged.
    pub(crate) fn is_expunged(self, since: Timestamp, now: Timestamp) -> bool {
        let Self::Enabled {
            inactive_after,
            expunge_after,
        } = self
        else {
            return false;
        };
        let replaced = expunge_after
            .saturating_sub(inactive_after)
            .saturating_add(EXPUNGE_GRACE);
        elapsed(since, now) >= expunge_after.max(replaced)
    }
}

/// The time since `since`; zero if the clock was set back.
pub(crate) fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    let elapsed: SignedDuration = now.duration_since(since);
    Duration::try_from(elapsed).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn times_count_from_the_loss_of_the_agent() {
        let enabled = |inactive, expunge| UnreachableStrategy::Enabled {
            inactive_after: Duration::from_secs(inactive),
            expunge_after: Duration::from_secs(expunge),
        };
        // Strategy, first second at which it is inactive, first second at which it is expunged.
        for (strategy, inactive, expunged) in [
            (enabled(0, 0), 0, 300),
            (enabled(10, 30), 10, 320),
            (enabled(300, 600), 300, 600),
            // Never before `expunge_after`.
            (enabled(1800, 3600), 1800, 3600),
        ] {
            let start = at(1000);
            assert!(strategy.is_inactive(start, at(1000 + inactive)), "{strategy:?}");
            assert!(
                inactive == 0 || !strategy.is_inactive(start, at(999 + inactive)),
                "{strategy:?}"
            );
            assert!(strategy.is_expunged(start, at(1000 + expunged)), "{strategy:?}");
            assert!(!strategy.is_expunged(start, at(999 + expunged)), "{strategy:?}");
        }
        let disabled = UnreachableStrategy::Disabled;
        assert!(!disabled.is_inactive(at(0), at(1_000_000)) && !disabled.is_expunged(at(0), at(1_000_000)));
        // If the clock is set back, no replica becomes inactive.
        assert!(!enabled(10, 30).is_inactive(at(1000), at(0)));
    }
}
