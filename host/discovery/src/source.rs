//! What the records are made from, and when that changes: the master's stream of events or its state document.
//!
//! A master that cannot be followed right now and one that has no stream look alike at first. A starting master answers
//! 404 for a moment (some 0.2 s), because its routes are not there yet, and then 503 while it recovers; a master that is
//! too old answers 404 for ever. [`Attempts`] tells them apart by time alone, and knows no clock and no network.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rand::Rng;
use tokio::time::Instant;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// What the records are made from at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Source {
    /// Nothing: no master has been reached yet, or none can be reached any more. The last zone stays in service.
    #[default]
    None,
    /// The master's stream of events.
    Stream,
    /// The master's state document, read every `refresh_seconds`.
    Polling,
}

impl Source {
    /// The two that records can come from.
    pub(crate) const WORKING: [Self; 2] = [Self::Stream, Self::Polling];

    /// As `/ready` and the metrics name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Stream => "stream",
            Self::Polling => "polling",
        }
    }
}

/// A source that is read anywhere and set in one place.
#[derive(Debug, Default)]
pub(crate) struct Current(AtomicU8);

impl Current {
    pub(crate) fn get(&self) -> Source {
        match self.0.load(Ordering::Relaxed) {
            number if number == Source::Stream as u8 => Source::Stream,
            number if number == Source::Polling as u8 => Source::Polling,
            _ => Source::None,
        }
    }

    /// Sets it, and returns what it was.
    pub(crate) fn replace(&self, source: Source) -> Source {
        let before = self.get();
        self.0.store(source as u8, Ordering::Relaxed);
        before
    }
}

/// How long a master is given before it counts as one without a stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// A master that answers 404 for this long has no stream of events. The time begins anew with every other answer.
    pub not_found: Duration,
    /// The same while no records from a stream are in service: the state document is the best there is then.
    pub not_found_at_first: Duration,
    /// How often the stream of a master that has none is tried again.
    pub retry: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            not_found: Duration::from_secs(30),
            not_found_at_first: Duration::from_secs(3),
            retry: Duration::from_secs(30),
        }
    }
}

/// Why the stream could not be opened, or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The master could not be reached or did not answer in time, or the stream broke.
    Broken,
    /// 503: the master is not ready, and its state document may be empty until it is.
    NotReady,
    /// 404.
    NotFound,
    /// Any other refusal, which does not pass by itself.
    Refused,
}

/// What to do after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    /// Whether records are to be had from the state document meanwhile.
    pub(crate) poll: bool,
    /// When the stream is to be tried again, counted from the failed attempt.
    pub(crate) retry: Duration,
}

/// The failed attempts to open the stream since it was open last.
#[derive(Debug)]
pub(crate) struct Attempts {
    patience: Patience,
    failures: u32,
    not_found_since: Option<Instant>,
}

impl Attempts {
    pub(crate) fn new(patience: Patience) -> Self {
        Self {
            patience,
            failures: 0,
            not_found_since: None,
        }
    }

    /// How many there were.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// The stream is open.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
        self.not_found_since = None;
    }

    /// Another master is asked from now on.
    pub(crate) fn other_master(&mut self) {
        self.not_found_since = None;
    }

    /// Another attempt failed. `from_stream`: records from a stream are in service.
    pub(crate) fn failed(&mut self, failure: Failure, from_stream: bool, now: Instant) -> Next {
        self.failures = self.failures.saturating_add(1);
        self.not_found_since = (failure == Failure::NotFound).then(|| self.not_found_since.unwrap_or(now));
        let not_found_for = self.not_found_since.map_or(Duration::ZERO, |since| now - since);
        let no_stream = match failure {
            Failure::Refused => true,
            Failure::NotFound => not_found_for >= self.patience.not_found,
            Failure::Broken | Failure::NotReady => false,
        };
        let poll = no_stream
            || match failure {
                Failure::NotFound => !from_stream && not_found_for >= self.patience.not_found_at_first,
                // A stream that broke is opened again at once; where that does not help the document may be had.
                Failure::Broken => self.failures > 1,
                Failure::NotReady | Failure::Refused => false,
            };
        let mut retry = pause(self.failures);
        if no_stream {
            retry = self.patience.retry;
        } else if failure == Failure::NotFound {
            // No later than when the next attempt decides something.
            let decided_at = if from_stream || poll {
                self.patience.not_found
            } else {
                self.patience.not_found_at_first.min(self.patience.not_found)
            };
            retry = retry.min(decided_at.saturating_sub(not_found_for));
        }
        Next { poll, retry }
    }
}

/// Doubling from the first pause to the longest, each between half and all of it.
fn pause(failures: u32) -> Duration {
    let longest = FIRST_PAUSE
        .saturating_mul(1 << failures.saturating_sub(1).min(16))
        .min(LONGEST_PAUSE);
    longest.mul_f64(rand::rng().random_range(0.5..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: f64) -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_secs_f64(seconds)
    }

    /// Feeds failures at these seconds, and tells of each whether the document is polled and whether the master counts
    /// as one without a stream.
    fn told(from_stream: bool, failures: &[(f64, Failure)]) -> Vec<(bool, bool)> {
        let patience = Patience::default();
        let mut attempts = Attempts::new(patience);
        let told = failures.iter().map(|(at, failure)| {
            let next = attempts.failed(*failure, from_stream, after(*at));
            (next.poll, next.retry == patience.retry)
        });
        told.collect()
    }

    #[test]
    fn a_404_is_taken_for_a_starting_master_until_it_has_lasted_for_long() {
        use Failure::{Broken, NotFound, NotReady};
        const RETRIED: (bool, bool) = (false, false);
        const POLLED: (bool, bool) = (true, true);
        // As a master restarts: 404, then 503, then the stream is there.
        let restart = [(0.0, Broken), (0.2, NotFound), (0.5, NotReady), (1.2, NotReady)];
        assert_eq!(told(true, &restart), [RETRIED; 4]);
        // One that goes on with it.
        let old = [
            (0.0, NotFound),
            (12.0, NotFound),
            (29.9, NotFound),
            (30.0, NotFound),
            (60.0, NotFound),
        ];
        assert_eq!(told(true, &old), [RETRIED, RETRIED, RETRIED, POLLED, POLLED]);
        // Any other answer shows that the time was not one of 404 alone.
        let again = [
            (0.0, NotFound),
            (20.0, NotReady),
            (31.0, NotFound),
            (60.9, NotFound),
            (61.0, NotFound),
        ];
        assert_eq!(told(true, &again), [RETRIED, RETRIED, RETRIED, RETRIED, POLLED]);
    }

    #[test]
    fn the_document_is_read_sooner_where_no_records_from_a_stream_are_in_service() {
        use Failure::{NotFound, NotReady};
        let old = [
            (0.0, NotFound),
            (2.9, NotFound),
            (3.0, NotFound),
            (29.0, NotFound),
            (30.0, NotFound),
        ];
        // The stream is tried as often as before until the master counts as one without.
        let expected = [
            (false, false),
            (false, false),
            (true, false),
            (true, false),
            (true, true),
        ];
        assert_eq!(told(false, &old), expected);
        // A master that recovers shows empty lists in its document.
        assert_eq!(
            told(false, &[(0.0, NotReady), (60.0, NotReady)]),
            [(false, false); 2]
        );
    }

    #[test]
    fn a_refusal_means_polling_at_once_and_a_broken_stream_only_the_second_time() {
        use Failure::{Broken, Refused};
        assert_eq!(told(true, &[(0.0, Refused), (30.0, Refused)]), [(true, true); 2]);
        assert_eq!(
            told(true, &[(0.0, Broken), (0.2, Broken)]),
            [(false, false), (true, false)]
        );
    }

    #[test]
    fn another_master_is_given_its_own_time() {
        let mut attempts = Attempts::new(Patience::default());
        attempts.failed(Failure::NotFound, true, after(0.0));
        attempts.other_master();
        assert!(!attempts.failed(Failure::NotFound, true, after(31.0)).poll);
        assert!(attempts.failed(Failure::NotFound, true, after(61.0)).poll);
        attempts.succeeded();
        assert!(!attempts.failed(Failure::NotFound, true, after(62.0)).poll);
    }

    #[test]
    fn the_current_source_is_read_as_it_was_set() {
        let current = Current::default();
        assert_eq!(current.get(), Source::None);
        for source in [Source::Stream, Source::Polling, Source::None] {
            current.replace(source);
            assert_eq!(current.get(), source);
        }
    }

    #[test]
    fn pauses_grow_to_a_bound_and_vary() {
        for (failures, longest) in [(1, 200), (2, 400), (4, 1600), (8, 15_000), (1000, 15_000)] {
            let longest = Duration::from_millis(longest);
            let pauses: Vec<_> = (0..50).map(|_| pause(failures)).collect();
            assert!(
                pauses.iter().all(|pause| (longest / 2..=longest).contains(pause)),
                "{failures}: {pauses:?}"
            );
            assert!(
                pauses.iter().any(|pause| *pause != pauses[0]),
                "{failures}: no jitter"
            );
        }
    }
}
