//! The source of the records: the master's event stream or its state document.
//!
//! A master that is restarting and one without a stream look alike at first. A starting master
//! answers 404 for about 0.2 s, until its routes exist, and then 503 while it recovers; one that is
//! too old always answers 404. [`Attempts`] distinguishes them by the time alone, which it takes as a
//! parameter; it does no I/O.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use transom_common::Backoff;

/// The delay between attempts to open the stream.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(15));

/// The present source of the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Source {
    /// None: no master can be reached. The last zone stays in service.
    #[default]
    None,
    /// The master's event stream.
    Stream,
    /// The master's state document, read every `refresh_seconds`.
    Polling,
}

impl Source {
    /// The two that provide records.
    pub(crate) const WORKING: &'static [Self] = &[Self::Stream, Self::Polling];

    /// Its name in `/ready` and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Stream => "stream",
            Self::Polling => "polling",
        }
    }
}

/// The source, shared between the follower and readers.
#[derive(Debug, Default)]
pub(crate) struct AtomicSource(AtomicU8);

impl AtomicSource {
    pub(crate) fn get(&self) -> Source {
        match self.0.load(Ordering::Relaxed) {
            number if number == Source::Stream as u8 => Source::Stream,
            number if number == Source::Polling as u8 => Source::Polling,
            _ => Source::None,
        }
    }

    /// Sets it and returns the previous one.
    pub(crate) fn replace(&self, source: Source) -> Source {
        let before = self.get();
        self.0.store(source as u8, Ordering::Relaxed);
        before
    }
}

/// How long a master may be incomplete: without an event stream, or without its agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamTimeouts {
    /// A master that answers 404 for this long has no event stream. Any other answer resets the
    /// time.
    pub not_found: Duration,
    /// How often the stream is retried on a master without one.
    pub retry: Duration,
    /// How long the first zone waits for agents that have not registered with a new leader. Real ones
    /// need up to a minute.
    pub agents: Duration,
}

impl Default for StreamTimeouts {
    fn default() -> Self {
        Self {
            not_found: Duration::from_secs(30),
            retry: Duration::from_secs(30),
            agents: Duration::from_mins(1),
        }
    }
}

/// Why the stream could not be opened, or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The connection failed, timed out or broke.
    Broken,
    /// 503: the master is not ready, and its state document may be empty until it is.
    NotReady,
    /// 404.
    NotFound,
    /// Any other error status, which is permanent.
    Rejected,
}

/// What to do after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    /// Whether to poll the state document meanwhile.
    pub(crate) poll: bool,
    /// The delay before the next attempt.
    pub(crate) retry: Duration,
}

/// Failed attempts since the stream was last open.
#[derive(Debug)]
pub(crate) struct Attempts {
    stream_timeouts: StreamTimeouts,
    failures: u32,
    not_found_since: Option<Instant>,
    /// The first failure since the stream was last open.
    lost_since: Option<Instant>,
}

impl Attempts {
    pub(crate) fn new(stream_timeouts: StreamTimeouts) -> Self {
        Self {
            stream_timeouts,
            failures: 0,
            not_found_since: None,
            lost_since: None,
        }
    }

    /// The number of failed attempts.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Resets the attempts, because the stream has been opened.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
        self.not_found_since = None;
        self.lost_since = None;
    }

    /// Restarts the times, because the next attempt goes to another master.
    pub(crate) fn other_master(&mut self) {
        self.not_found_since = None;
        self.lost_since = None;
    }

    /// Counts a failed attempt and returns what to do next. `from_stream`: records from a stream are in
    /// service.
    pub(crate) fn failed(&mut self, failure: Failure, from_stream: bool, now: Instant) -> Next {
        self.failures = self.failures.saturating_add(1);
        self.not_found_since = (failure == Failure::NotFound).then(|| self.not_found_since.unwrap_or(now));
        let lost_for = now - *self.lost_since.get_or_insert(now);
        let not_found_for = self.not_found_since.map_or(Duration::ZERO, |since| now - since);
        let no_stream = match failure {
            Failure::Rejected => true,
            Failure::NotFound => not_found_for >= self.stream_timeouts.not_found,
            Failure::Broken | Failure::NotReady => false,
        };
        let poll = no_stream
            || match failure {
                // Without records from a stream the state document is the best source at once. A
                // master that is only starting answers 404 for it, too.
                Failure::NotFound => !from_stream,
                // A new leader that does not know its election yet redirects to the dead one, and
                // the document of a master that is recovering has empty lists. So records from a
                // stream stay while an election or a recovery may be the reason.
                Failure::Broken if from_stream => lost_for >= self.stream_timeouts.not_found,
                // The first retry of a broken stream is immediate; the document is polled after the
                // second failure.
                Failure::Broken => self.failures > 1,
                Failure::NotReady | Failure::Rejected => false,
            };
        let mut retry = BACKOFF.jittered(self.failures.saturating_sub(1));
        if no_stream {
            retry = self.stream_timeouts.retry;
        } else if failure == Failure::NotFound {
            // No later than the time at which another 404 changes the decision.
            retry = retry.min(self.stream_timeouts.not_found.saturating_sub(not_found_for));
        }
        Next { poll, retry }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: f64) -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_secs_f64(seconds)
    }

    /// For failures at these seconds: whether the document is polled, and whether the master counts
    /// as one without a stream.
    fn decisions(from_stream: bool, failures: &[(f64, Failure)]) -> Vec<(bool, bool)> {
        let stream_timeouts = StreamTimeouts::default();
        let mut attempts = Attempts::new(stream_timeouts);
        let decisions = failures.iter().map(|(at, failure)| {
            let next = attempts.failed(*failure, from_stream, after(*at));
            (next.poll, next.retry == stream_timeouts.retry)
        });
        decisions.collect()
    }

    #[test]
    fn attempts_poll_after_404_for_thirty_seconds() {
        use Failure::{Broken, NotFound, NotReady};
        const RETRIED: (bool, bool) = (false, false);
        const POLLED: (bool, bool) = (true, true);
        // A master that restarts: 404, then 503, then the stream.
        let restart = [(0.0, Broken), (0.2, NotFound), (0.5, NotReady), (1.2, NotReady)];
        assert_eq!(decisions(true, &restart), [RETRIED; 4]);
        // A master that keeps answering 404.
        let old = [
            (0.0, NotFound),
            (12.0, NotFound),
            (29.9, NotFound),
            (30.0, NotFound),
            (60.0, NotFound),
        ];
        assert_eq!(decisions(true, &old), [RETRIED, RETRIED, RETRIED, POLLED, POLLED]);
        // Any other answer restarts the time of 404.
        let again = [
            (0.0, NotFound),
            (20.0, NotReady),
            (31.0, NotFound),
            (60.9, NotFound),
            (61.0, NotFound),
        ];
        assert_eq!(
            decisions(true, &again),
            [RETRIED, RETRIED, RETRIED, RETRIED, POLLED]
        );
    }

    #[test]
    fn attempts_poll_at_once_without_records_from_a_stream() {
        use Failure::{NotFound, NotReady};
        let old = [(0.0, NotFound), (29.0, NotFound), (30.0, NotFound)];
        // The stream is retried with the usual delay until the master counts as one without a stream.
        assert_eq!(
            decisions(false, &old),
            [(true, false), (true, false), (true, true)]
        );
        // The document of a master that is recovering has empty lists, so it is not polled.
        assert_eq!(
            decisions(false, &[(0.0, NotReady), (60.0, NotReady)]),
            [(false, false); 2]
        );
    }

    #[test]
    fn attempts_poll_immediately_when_rejected_and_after_second_broken_stream() {
        use Failure::{Broken, Rejected};
        assert_eq!(
            decisions(true, &[(0.0, Rejected), (30.0, Rejected)]),
            [(true, true); 2]
        );
        assert_eq!(
            decisions(false, &[(0.0, Broken), (0.2, Broken)]),
            [(false, false), (true, false)]
        );
    }

    #[test]
    fn broken_stream_keeps_its_records_while_a_leader_may_be_elected() {
        use Failure::Broken;
        let failover = [(0.0, Broken), (0.2, Broken), (29.9, Broken), (30.0, Broken)];
        let expected = [(false, false), (false, false), (false, false), (true, false)];
        assert_eq!(decisions(true, &failover), expected);
    }

    #[test]
    fn attempts_restart_404_timer_for_another_master() {
        let mut attempts = Attempts::new(StreamTimeouts::default());
        attempts.failed(Failure::NotFound, true, after(0.0));
        attempts.other_master();
        assert!(!attempts.failed(Failure::NotFound, true, after(31.0)).poll);
        assert!(attempts.failed(Failure::NotFound, true, after(61.0)).poll);
        attempts.succeeded();
        assert!(!attempts.failed(Failure::NotFound, true, after(62.0)).poll);
    }

    #[test]
    fn atomic_source_returns_what_was_set() {
        let current = AtomicSource::default();
        assert_eq!(current.get(), Source::None);
        for source in [Source::Stream, Source::Polling, Source::None] {
            current.replace(source);
            assert_eq!(current.get(), source);
        }
    }

    #[test]
    fn retry_delay_grows_to_its_maximum_with_jitter() {
        for (failures, longest) in [(1, 200), (2, 400), (4, 1600), (8, 15_000), (1000, 15_000)] {
            let longest = Duration::from_millis(longest);
            let pause = || {
                let mut attempts = Attempts::new(StreamTimeouts::default());
                attempts.failures = failures - 1;
                attempts.failed(Failure::Broken, true, after(0.0)).retry
            };
            let pauses: Vec<_> = (0..50).map(|_| pause()).collect();
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
