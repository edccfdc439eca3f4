//! Lookups over TCP: so many connections at a time. What a client sends without waiting for answers is answered together, in
//! the order it came, and as much of it as fits the connection's own buffer.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::handler::{Client, Handler, Reply, Transport};

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
            Ok((stream, client)) => {
                // Answers are written whole; waiting to put more into a packet would only delay them.
                let _ = stream.set_nodelay(true);
                connections.spawn(converse(
                    stream,
                    client.ip(),
                    Arc::clone(&handler),
                    limits,
                    token.clone(),
                ));
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
    client: IpAddr,
    handler: Arc<Handler>,
    limits: Limits,
    token: CancellationToken,
) {
    let client = Client {
        ip: client.to_canonical(),
        over: Transport::Tcp,
    };
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
        let mut then = Reply::Written;
        while matches!(then, Reply::Written) && answers.len() < ANSWERS {
            let Some(query) = asked.next() else { break };
            then = framed(&mut answers, |out| {
                handler.reply(zone.as_ref(), query, client, out)
            });
        }
        if !taken(&mut stream, &mut answers, limits).await {
            return;
        }
        match then {
            Reply::Written => {}
            Reply::Silence | Reply::Elsewhere(_) => return,
            Reply::Transfer(mut transfer) => {
                while let Some(message) = transfer.next() {
                    framed(&mut answers, |out| {
                        out.extend_from_slice(&message);
                        Reply::Written
                    });
                    if !taken(&mut stream, &mut answers, limits).await {
                        return;
                    }
                }
            }
        }
    }
}

/// Sends what there is to send. Whether the client took it.
async fn taken(stream: &mut (impl AsyncWrite + Unpin), answers: &mut Vec<u8>, limits: Limits) -> bool {
    let sent = timeout(limits.take_within, stream.write_all(answers)).await;
    answers.clear();
    matches!(sent, Ok(Ok(())))
}

/// Writes an answer, if there is one, with its length before it.
fn framed(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Reply) -> Reply {
    let start = out.len();
    out.extend_from_slice(&[0, 0]);
    let reply = write(out);
    match u16::try_from(out.len() - start - 2) {
        Ok(length) if matches!(reply, Reply::Written) => {
            out[start..start + 2].copy_from_slice(&length.to_be_bytes());
        }
        _ => out.truncate(start),
    }
    reply
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
