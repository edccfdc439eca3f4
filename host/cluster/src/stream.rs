//! Reads a stream of records, which also ends at a heartbeat timeout or a change of the leader.

use crate::detector::{Changes, Master};
use crate::error::{Error, Result, TransportError};
use crate::http::address;
use crate::recordio::Decoder;
use bytes::Bytes;
use reqwest::Response;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use url::Url;

/// The assumed interval until the stream advertises its own.
pub(crate) const DEFAULT_INTERVAL: Duration = Duration::from_secs(15);
/// The maximum margin beyond two intervals.
const MAX_HEARTBEAT_MARGIN: Duration = Duration::from_secs(5);

/// A stream, its master's URL, and the changes of the leader that end it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) url: Url,
    pub(crate) response: Response,
    pub(crate) changes: Option<Changes>,
}

/// The records of one answer, in order.
#[derive(Debug)]
pub(crate) struct RecordStream {
    opened: Opened,
    decoder: Decoder,
    ready: VecDeque<Result<Bytes>>,
    heartbeat_timeout: Duration,
    /// When data last arrived, or reading began.
    last_received: Instant,
    ended: bool,
}

impl RecordStream {
    pub(crate) fn new(opened: Opened, limit: u64) -> Self {
        Self {
            opened,
            decoder: Decoder::new(limit),
            ready: VecDeque::new(),
            heartbeat_timeout: heartbeat_timeout(DEFAULT_INTERVAL),
            last_received: Instant::now(),
            ended: false,
        }
    }

    /// Sets the advertised heartbeat interval.
    pub(crate) fn set_heartbeat_interval(&mut self, interval: Duration) {
        self.heartbeat_timeout = heartbeat_timeout(interval);
    }

    /// The next record; none when the server has ended the stream properly. After an error or the
    /// end, every further call returns none. Dropping this future loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                self.ended |= record.is_err();
                return record.map(Some);
            }
            if self.ended {
                return Ok(None);
            }
            // Data that arrived between two reads counts before the timeout is checked.
            let deadline = self
                .last_received
                .checked_add(self.heartbeat_timeout)
                .unwrap_or_else(far_future);
            let Opened {
                url,
                response,
                changes,
            } = &mut self.opened;
            let error = tokio::select! {
                biased;
                leader = leader_elsewhere(changes.as_mut(), url) => Error::LeaderMoved {
                    address: address(url),
                    leader: leader.to_string(),
                },
                chunk = timeout_at(deadline, response.chunk()) => match chunk {
                    Ok(Ok(Some(bytes))) => {
                        self.last_received = Instant::now();
                        self.ready.extend(self.decoder.push(&bytes));
                        continue;
                    }
                    Ok(Ok(None)) => {
                        self.ended = true;
                        self.decoder.finish()?;
                        continue;
                    }
                    Ok(Err(error)) => Error::Broken {
                        address: address(url),
                        source: TransportError::new(error),
                    },
                    Err(_) => Error::Silent {
                        address: address(url),
                        for_: self.heartbeat_timeout,
                    },
                },
            };
            self.ended = true;
            return Err(error);
        }
    }
}

/// The next leader that is not at `url`; never returns without a source of changes.
async fn leader_elsewhere(changes: Option<&mut Changes>, url: &Url) -> Arc<Master> {
    match changes {
        Some(changes) => changes.next_not_at(url).await,
        None => std::future::pending().await,
    }
}

/// A deadline in the far future.
fn far_future() -> Instant {
    Instant::now() + Duration::from_hours(24 * 365)
}

/// The heartbeat timeout: two intervals, and a margin for a late heartbeat.
fn heartbeat_timeout(interval: Duration) -> Duration {
    interval
        .saturating_mul(2)
        .saturating_add((interval / 2).min(MAX_HEARTBEAT_MARGIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_heartbeats_may_be_missed() {
        for (interval, expected) in [(15.0, 35.0), (1.0, 2.5), (0.2, 0.5), (60.0, 125.0)] {
            assert_eq!(
                heartbeat_timeout(Duration::from_secs_f64(interval)),
                Duration::from_secs_f64(expected)
            );
        }
        assert_eq!(heartbeat_timeout(Duration::MAX), Duration::MAX);
    }
}
