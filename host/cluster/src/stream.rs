//! A long answer made of records: reading it, and noticing that nothing comes any more.

use crate::error::{Error, Result, TransportError};
use crate::recordio::Decoder;
use bytes::Bytes;
use reqwest::Response;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The interval that is assumed until the stream advertises its own.
pub(crate) const DEFAULT_INTERVAL: Duration = Duration::from_secs(15);
/// What is allowed beyond two intervals, at most.
const MAX_GRACE: Duration = Duration::from_secs(5);

/// The records of one answer, in order.
#[derive(Debug)]
pub(crate) struct RecordStream {
    address: String,
    response: Response,
    decoder: Decoder,
    ready: VecDeque<Result<Bytes>>,
    silence: Duration,
    /// When something came last, or reading began.
    heard: Instant,
    ended: bool,
}

impl RecordStream {
    pub(crate) fn new(address: String, response: Response, limit: u64) -> Self {
        Self {
            address,
            response,
            decoder: Decoder::new(limit),
            ready: VecDeque::new(),
            silence: silence(DEFAULT_INTERVAL),
            heard: Instant::now(),
            ended: false,
        }
    }

    /// From now on something is promised every `interval`.
    pub(crate) fn expect_every(&mut self, interval: Duration) {
        self.silence = silence(interval);
    }

    /// The next record; none when the other side has ended the stream in good order. After an error the stream is
    /// over, and so is it after the end: both then stay what they were, as none. Dropping this future loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                self.ended |= record.is_err();
                return record.map(Some);
            }
            if self.ended {
                return Ok(None);
            }
            // What has come while nobody was reading is taken before the time is looked at.
            let deadline = self.heard.checked_add(self.silence).unwrap_or_else(far);
            match timeout_at(deadline, self.response.chunk()).await {
                Ok(Ok(Some(bytes))) => {
                    self.heard = Instant::now();
                    self.ready.extend(self.decoder.push(&bytes));
                }
                Ok(Ok(None)) => {
                    self.ended = true;
                    self.decoder.finish()?;
                }
                Ok(Err(error)) => {
                    self.ended = true;
                    let source = TransportError::new(error);
                    return Err(Error::Broken {
                        address: self.address.clone(),
                        source,
                    });
                }
                Err(_) => {
                    self.ended = true;
                    return Err(Error::Silent {
                        address: self.address.clone(),
                        for_: self.silence,
                    });
                }
            }
        }
    }
}

/// A deadline for those that have none.
fn far() -> Instant {
    Instant::now() + Duration::from_hours(24 * 365)
}

/// How long nothing may come: two heartbeats may be missed, and the last be a little late.
fn silence(interval: Duration) -> Duration {
    interval
        .saturating_mul(2)
        .saturating_add((interval / 2).min(MAX_GRACE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_heartbeats_may_be_missed() {
        for (interval, expected) in [(15.0, 35.0), (1.0, 2.5), (0.2, 0.5), (60.0, 125.0)] {
            assert_eq!(
                silence(Duration::from_secs_f64(interval)),
                Duration::from_secs_f64(expected)
            );
        }
        assert_eq!(silence(Duration::MAX), Duration::MAX);
    }
}
