//! The last events of the term, in order, each serialised once and shared by all readers.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;

use super::Published;

/// The limits of the ring: number of events and bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) events: usize,
    pub(super) bytes: usize,
}

/// A bounded buffer of events with consecutive numbers.
#[derive(Debug)]
pub(super) struct Ring {
    events: VecDeque<Arc<Published>>,
    bytes: usize,
    bounds: Bounds,
    /// The number of the next event.
    next: u64,
}

/// The requested event was evicted; the oldest kept event has this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Evicted {
    pub(super) oldest: u64,
}

impl Ring {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            events: VecDeque::new(),
            bytes: 0,
            bounds,
            next: 1,
        }
    }

    /// The number of the next event.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// The number of the oldest event that is kept; that of the next one if none is.
    pub(super) fn oldest(&self) -> u64 {
        self.next - self.events.len() as u64
    }

    /// When the oldest kept event was published.
    pub(super) fn oldest_at(&self) -> Option<Timestamp> {
        self.events.front().map(|event| event.at)
    }

    /// The number of the first kept event that was published at `since` or later; that of the next
    /// event if there is none.
    pub(super) fn first_since(&self, since: Timestamp) -> u64 {
        self.oldest() + self.events.partition_point(|event| event.at < since) as u64
    }

    /// Appends the event with the number [`next`](Self::next), and drops the oldest ones beyond the
    /// bounds. The newest one is always kept.
    pub(super) fn push(&mut self, event: Published) {
        debug_assert_eq!(event.sequence, self.next);
        self.next += 1;
        self.bytes += event.bytes();
        self.events.push_back(Arc::new(event));
        while self.events.len() > 1
            && (self.events.len() > self.bounds.events || self.bytes > self.bounds.bytes)
        {
            if let Some(oldest) = self.events.pop_front() {
                self.bytes -= oldest.bytes();
            }
        }
    }

    /// The events from the number `from` up to but not including `until`: at most `count`. The last
    /// one is the event with which the total reaches `bytes`.
    pub(super) fn read(
        &self,
        from: u64,
        until: u64,
        count: usize,
        bytes: usize,
    ) -> Result<Vec<Arc<Published>>, Evicted> {
        let oldest = self.oldest();
        let Some(skipped) = from.checked_sub(oldest) else {
            return Err(Evicted { oldest });
        };
        let mut taken = 0;
        let wanted = self.events.iter().skip(skipped as usize).take(count);
        Ok(wanted
            .take_while(|event| {
                let fits = event.sequence < until && taken < bytes;
                taken += event.bytes();
                fits
            })
            .cloned()
            .collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn ring(events: usize, bytes: usize, pushed: &[usize]) -> Ring {
        let mut ring = Ring::new(Bounds { events, bytes });
        for length in pushed {
            ring.push(Published {
                sequence: ring.next(),
                at: at(ring.next()),
                kind: "api_post_event",
                subject: None,
                body: "x".repeat(*length),
                light: None,
            });
        }
        ring
    }

    /// Each event is published a second after the one before it.
    fn at(sequence: u64) -> Timestamp {
        Timestamp::from_second(sequence.cast_signed()).unwrap()
    }

    #[test]
    fn events_since_a_time_begin_with_the_first_kept_one() {
        let ring = ring(4, 1000, &[10; 6]);
        assert_eq!(ring.oldest_at(), Some(at(3)));
        for (since, first) in [(1, 3), (3, 3), (5, 5), (6, 6), (7, 7)] {
            assert_eq!(ring.first_since(at(since)), first, "{since}");
        }
        let empty = Ring::new(Bounds { events: 1, bytes: 1 });
        assert_eq!((empty.first_since(at(0)), empty.oldest_at()), (1, None));
    }

    fn numbers(ring: &Ring, from: u64, until: u64, count: usize, bytes: usize) -> Result<Vec<u64>, Evicted> {
        let read = ring.read(from, until, count, bytes)?;
        Ok(read.iter().map(|event| event.sequence).collect())
    }

    #[test]
    fn ring_keeps_the_newest_events_within_both_bounds() {
        for (events, bytes, pushed, oldest) in [
            (3, 100, &[][..], 1),
            (3, 100, &[1, 1, 1], 1),
            (3, 100, &[1, 1, 1, 1, 1], 3),
            (9, 100, &[40, 40, 40], 2),
            // An event that exceeds the limit is kept if it is the newest.
            (9, 100, &[40, 400], 2),
            (9, 100, &[400, 40], 2),
        ] {
            assert_eq!(
                ring(events, bytes, pushed).oldest(),
                oldest,
                "{events} {bytes} {pushed:?}"
            );
        }
    }

    #[test]
    fn reads_are_bounded_and_report_eviction() {
        let ring = ring(4, 1000, &[10; 6]);
        let all = u64::MAX;
        assert_eq!(numbers(&ring, 3, all, 9, 999), Ok(vec![3, 4, 5, 6]));
        assert_eq!(numbers(&ring, 2, all, 9, 999), Err(Evicted { oldest: 3 }));
        assert_eq!(numbers(&ring, 4, all, 2, 999), Ok(vec![4, 5]));
        assert_eq!(numbers(&ring, 3, 5, 9, 999), Ok(vec![3, 4]));
        assert_eq!(
            numbers(&ring, 3, all, 9, 15),
            Ok(vec![3, 4]),
            "the second event reaches the limit"
        );
        assert_eq!(numbers(&ring, 7, all, 9, 999), Ok(vec![]));
        assert_eq!(numbers(&ring, 70, all, 9, 999), Ok(vec![]));
    }
}
