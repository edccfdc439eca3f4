//! Resuming a stream after the last event that its client has seen.

use std::fmt;
use std::str::FromStr;

use super::ring::Ring;

/// The id of an event, as frames show it: `TERM-NUMBER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventId {
    /// Incremented at every start of a leader.
    pub(crate) term: u64,
    pub(crate) sequence: u64,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.term, self.sequence)
    }
}

impl FromStr for EventId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |digits: &str| {
            // The standard parser would also accept a sign.
            let digits = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
            digits.and_then(|digits| digits.parse().ok()).ok_or(())
        };
        let (term, sequence) = text.split_once('-').ok_or(())?;
        Ok(Self {
            term: number(term)?,
            sequence: number(sequence)?,
        })
    }
}

/// The maximum length of a client's id in a gap; longer ids are truncated.
const MAX_CLIENT_ID_CHARS: usize = 64;

/// Events that a resumed stream misses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// The client's id.
    pub(crate) from: String,
    /// The id of the last missed event.
    pub(crate) to: EventId,
    pub(crate) reason: String,
}

/// The position at which a stream resumes after the event `last`: the number of its first event,
/// and the gap before that event, if there is one. After a gap of unknown length the position is
/// `now`.
pub(super) fn resume(last: &str, term: u64, ring: &Ring, now: u64) -> (u64, Option<Gap>) {
    let gap = |first: u64, reason: String| {
        let to = EventId {
            term,
            sequence: first - 1,
        };
        let from = last.chars().take(MAX_CLIENT_ID_CHARS).collect();
        (first, Some(Gap { from, to, reason }))
    };
    let Ok(id) = last.parse::<EventId>() else {
        let expected = EventId { term, sequence: 17 };
        return gap(
            now,
            format!("the last event id is not valid; expected an id such as {expected}"),
        );
    };
    if id.term != term {
        return gap(
            now,
            format!(
                "the last event was sent by another leader or before a restart: its term is {}, this one is {term}",
                id.term
            ),
        );
    }
    match id.sequence.checked_add(1) {
        Some(first) if first > now => gap(now, "the last event id is ahead of this stream".to_owned()),
        Some(first) if first < ring.oldest() => {
            let oldest = EventId {
                term,
                sequence: ring.oldest(),
            };
            gap(
                oldest.sequence,
                format!("the events after it are no longer in the buffer; the oldest one in it is {oldest}"),
            )
        }
        Some(first) => (first, None),
        None => gap(now, "the last event id is ahead of this stream".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Published;
    use super::super::ring::Bounds;
    use super::*;

    /// A ring with the events 8 to 10; the events 1 to 7 were evicted.
    fn ring() -> Ring {
        let mut ring = Ring::new(Bounds {
            events: 3,
            bytes: 1000,
        });
        for sequence in 1..=10 {
            ring.push(Published {
                sequence,
                at: jiff::Timestamp::UNIX_EPOCH,
                kind: "api_post_event",
                subject: None,
                body: String::new(),
                light: None,
            });
        }
        ring
    }

    #[test]
    fn stream_resumes_after_the_last_event_or_with_a_gap() {
        // The last id; the first event, the last missed event and a part of the reason.
        let cases = [
            ("4-10", 11, None),
            ("4-9", 10, None),
            ("4-7", 8, None),
            (
                "4-6",
                8,
                Some((7, "no longer in the buffer; the oldest one in it is 4-8")),
            ),
            ("4-0", 8, Some((7, "no longer in the buffer"))),
            ("3-9", 11, Some((10, "its term is 3, this one is 4"))),
            ("5-1", 11, Some((10, "another leader"))),
            ("4-11", 11, Some((10, "ahead"))),
            ("4-18446744073709551615", 11, Some((10, "ahead"))),
            ("4-18446744073709551616", 11, Some((10, "such as 4-17"))),
            ("", 11, Some((10, "is not valid"))),
            ("4", 11, Some((10, "is not valid"))),
            ("4-+9", 11, Some((10, "is not valid"))),
            ("4--9", 11, Some((10, "is not valid"))),
            ("4-9-1", 11, Some((10, "is not valid"))),
            ("\u{1f6a2}", 11, Some((10, "is not valid"))),
        ];
        for (last, first, gap) in cases {
            let (found, actual_gap) = resume(last, 4, &ring(), 11);
            assert_eq!(found, first, "{last}");
            let actual_gap = actual_gap.as_ref();
            assert_eq!(
                actual_gap.map(|gap| gap.to.sequence),
                gap.map(|(to, _)| to),
                "{last}"
            );
            if let (Some(actual_gap), Some((_, reason))) = (actual_gap, gap) {
                assert_eq!(actual_gap.from, last);
                assert!(
                    actual_gap.reason.contains(reason),
                    "{last}: {}",
                    actual_gap.reason
                );
            }
        }
        let long = resume(&"9".repeat(9000), 4, &ring(), 11).1;
        assert_eq!(long.map(|gap| gap.from.len()), Some(MAX_CLIENT_ID_CHARS));
    }
}
