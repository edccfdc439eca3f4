//! Lookups over TCP: so many connections at a time. What a client sends without waiting for answers is answered together, in
//! the order it came, and as much of it as fits the connection's own buffer.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::handler::{Handler, Transport};

/// What the port puts up with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at a time; further ones wait in the system's queue.
    pub(super) connections: usize,
    /// For a whole query to arrive, counted from the answer before it.
    pub(super) ask_within: Duration,
    /// For answers to be taken.
    pub(super) take_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            ask_within: Duration::from_secs(10),
            take_within: Duration::from_secs(4),
        }
    }
}

/// Pause after an accept that failed; retrying at once would only burn the processor.
const PAUSE: Duration = Duration::from_millis(100);
/// Queries of one connection that wait to be answered: this and one more of any size.
const BUFFER: usize = 16 << 10;
/// Answers are sent when they are so much, and what comes next is answered then.
const ANSWERS: usize = 64 << 10;

/// Answers until the token is cancelled; then connections end with the answers they are at.
pub(super) async fn serve(
    listener: TcpListener,
    handler: Arc<Handler>,
    limits: Limits,
    token: CancellationToken,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = token.cancelled() => break,
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a query was too much; its connection has ended");
                }
                continue;
            }
            accepted = listener.accept(), if connections.len() < limits.connections => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                // Answers are written whole; waiting to put more into a packet would only delay them.
                let _ = stream.set_nodelay(true);
                connections.spawn(converse(stream, Arc::clone(&handler), limits, token.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept DNS connections for the moment");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Answers one connection until its client ends it, is too slow, or sends what is no query.
pub(super) async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    handler: Arc<Handler>,
    limits: Limits,
    token: CancellationToken,
) {
    let mut asked = Asked::default();
    let mut answers = Vec::new();
    loop {
        let arriving = asked.arrive(&mut stream, limits.ask_within);
        let arrived = tokio::select! {
            () = token.cancelled() => return,
            arrived = arriving => arrived,
        };
        if !arrived {
            return;
        }
        let zone = handler.zone();
        let mut goes_on = true;
        while goes_on && answers.len() < ANSWERS {
            let Some(query) = asked.next() else { break };
            goes_on = framed(&mut answers, |out| {
                handler.reply(zone.as_deref(), query, Transport::Tcp, out)
            });
        }
        match timeout(limits.take_within, stream.write_all(&answers)).await {
            Ok(Ok(())) if goes_on => answers.clear(),
            _ => return,
        }
    }
}

/// Writes an answer with its length before it. Whether there is one.
fn framed(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
    let start = out.len();
    out.extend_from_slice(&[0, 0]);
    if write(out)
        && let Ok(length) = u16::try_from(out.len() - start - 2)
    {
        out[start..start + 2].copy_from_slice(&length.to_be_bytes());
        return true;
    }
    out.truncate(start);
    false
}

/// What a client has sent: queries, each with its length before it.
#[derive(Default)]
struct Asked {
    bytes: Vec<u8>,
    /// What was handed out already.
    done: usize,
}

impl Asked {
    /// Waits for a whole query. Whether there is one, and not too late.
    async fn arrive(&mut self, stream: &mut (impl AsyncRead + Unpin), within: Duration) -> bool {
        let by = Instant::now() + within;
        self.bytes.drain(..self.done);
        self.done = 0;
        while self.whole().is_none() {
            let missing = self.length().map_or(2, |length| 2 + length);
            self.bytes
                .reserve(missing.max(BUFFER) - self.bytes.len().min(BUFFER));
            match timeout_at(by, stream.read_buf(&mut self.bytes)).await {
                Ok(Ok(read)) if read > 0 => {}
                _ => return false,
            }
        }
        true
    }

    /// The next query, if all of it is there.
    fn next(&mut self) -> Option<&[u8]> {
        let length = self.whole()?;
        let start = self.done + 2;
        self.done = start + length;
        self.bytes.get(start..self.done)
    }

    /// The length of the next query, if all of it is there.
    fn whole(&self) -> Option<usize> {
        let length = self.length()?;
        (self.bytes.len() >= self.done + 2 + length).then_some(length)
    }

    fn length(&self) -> Option<usize> {
        let head: &[u8; 2] = self.bytes.get(self.done..)?.first_chunk()?;
        Some(u16::from_be_bytes(*head).into())
    }
}

#[cfg(test)]
mod tests;
