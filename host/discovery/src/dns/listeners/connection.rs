//! Lookups on one connection, TCP or TLS.
//!
//! Clients may pipeline queries (RFC 7766, section 6.2.1). Queries that arrive together are
//! answered together; a forwarded query does not block later ones, and the number of those in
//! flight is bounded. Answers are written before more is read, so a client that does not read is
//! not read from.

use std::net::SocketAddr;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use transom_web::ConnectionSlot;

use crate::dns::respond::{Client, Reply, Respond, Transport};

/// The limits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The timeout for a whole query to arrive, since the last query or answer.
    pub query_timeout: Duration,
    /// The timeout for the client to read answers.
    pub write_timeout: Duration,
    /// The maximum number of forwarded queries in flight; at the maximum no more queries are read.
    pub max_inflight: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            query_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(4),
            max_inflight: 8,
        }
    }
}

/// The minimum size of a read.
const MIN_READ_BYTES: usize = 16 << 10;
/// Buffered answers are sent at this size.
const MAX_BUFFERED_BYTES: usize = 64 << 10;

/// Answers queries until the client closes the connection, is too slow or sends a malformed query,
/// or the token is cancelled. Queries received by then are still answered. The slot is busy while a
/// query is being answered.
pub async fn serve_connection<S, R>(
    stream: S,
    client: SocketAddr,
    respond: &R,
    limits: ConnectionLimits,
    slot: &ConnectionSlot,
    token: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    R: Respond,
{
    let client = Client::new(client.ip(), Transport::Tcp);
    let (mut reader, writer) = tokio::io::split(stream);
    let mut queries = QueryBuffer::default();
    let mut answers = AnswerBuffer {
        writer,
        bytes: Vec::new(),
        write_timeout: limits.write_timeout,
    };
    let mut pending = FuturesUnordered::new();
    let mut is_busy = false;
    let (mut is_open, mut deadline) = (true, Instant::now() + limits.query_timeout);
    loop {
        while is_open && pending.len() < limits.max_inflight && answers.bytes.len() < MAX_BUFFERED_BYTES {
            let Some(query) = queries.next() else { break };
            if !is_busy && !slot.begin() {
                return;
            }
            is_busy = true;
            deadline = Instant::now() + limits.query_timeout;
            match answers.frame(|out| respond.respond(query, client, out)) {
                Reply::Written => {}
                Reply::Last | Reply::Silence => is_open = false,
                Reply::Later(answer) => pending.push(answer),
                Reply::Messages(mut next) => {
                    while let Some(message) = next() {
                        answers.push(&message);
                        if !answers.flush().await {
                            return;
                        }
                    }
                    deadline = Instant::now() + limits.query_timeout;
                }
            }
        }
        if !answers.flush().await {
            return;
        }
        let has_room = pending.len() < limits.max_inflight;
        if is_open && has_room && queries.next_length().is_some() {
            continue;
        }
        if is_busy && pending.is_empty() {
            slot.end();
            is_busy = false;
        }
        tokio::select! {
            biased;
            Some(answer) = pending.next() => {
                answers.push(&answer);
                deadline = Instant::now() + limits.query_timeout;
            }
            () = token.cancelled(), if is_open => is_open = false,
            () = slot.evicted(), if is_open => is_open = false,
            has_more = queries.read_more(&mut reader), if is_open && has_room => is_open = has_more,
            () = sleep_until(deadline), if is_open && pending.is_empty() => is_open = false,
            else => break,
        }
    }
    // For TLS this sends close_notify, by which the client knows that the answers are complete.
    let _ = timeout(limits.write_timeout, answers.writer.shutdown()).await;
}

/// Answers to be sent, each with a length prefix.
struct AnswerBuffer<W> {
    writer: W,
    bytes: Vec<u8>,
    write_timeout: Duration,
}

impl<W: AsyncWrite + Unpin> AnswerBuffer<W> {
    /// Appends an answer, if `write` writes one.
    fn frame(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Reply) -> Reply {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        let reply = write(&mut self.bytes);
        match u16::try_from(self.bytes.len() - start - 2) {
            Ok(length) if matches!(reply, Reply::Written | Reply::Last) => {
                self.bytes[start..start + 2].copy_from_slice(&length.to_be_bytes());
            }
            _ => self.bytes.truncate(start),
        }
        reply
    }

    fn push(&mut self, answer: &[u8]) {
        self.frame(|out| {
            out.extend_from_slice(answer);
            Reply::Written
        });
    }

    /// Sends the buffer. Returns whether the client read it in time.
    async fn flush(&mut self) -> bool {
        if self.bytes.is_empty() {
            return true;
        }
        let sending = async {
            self.writer.write_all(&self.bytes).await?;
            self.writer.flush().await
        };
        let sent = timeout(self.write_timeout, sending).await;
        self.bytes.clear();
        matches!(sent, Ok(Ok(())))
    }
}

/// Received queries, each with a length prefix.
#[derive(Default)]
struct QueryBuffer {
    bytes: Vec<u8>,
    /// The offset of the first query that is not handled yet.
    consumed: usize,
}

impl QueryBuffer {
    /// Reads more. Returns whether the client may send more.
    async fn read_more(&mut self, reader: &mut (impl AsyncRead + Unpin)) -> bool {
        self.bytes.drain(..self.consumed);
        self.consumed = 0;
        // Space for the whole next query, which has at most 64 KiB.
        let missing = self
            .length_prefix()
            .map_or(2, |length| 2 + length)
            .saturating_sub(self.bytes.len());
        self.bytes.reserve(missing.max(MIN_READ_BYTES));
        matches!(reader.read_buf(&mut self.bytes).await, Ok(read) if read > 0)
    }

    /// The next query, if it is complete.
    fn next(&mut self) -> Option<&[u8]> {
        let length = self.next_length()?;
        let start = self.consumed + 2;
        self.consumed = start + length;
        self.bytes.get(start..self.consumed)
    }

    /// The length of the next query, if it is complete.
    fn next_length(&self) -> Option<usize> {
        let length = self.length_prefix()?;
        (self.bytes.len() >= self.consumed + 2 + length).then_some(length)
    }

    fn length_prefix(&self) -> Option<usize> {
        let head: &[u8; 2] = self.bytes.get(self.consumed..)?.first_chunk()?;
        Some(u16::from_be_bytes(*head).into())
    }
}

#[cfg(test)]
mod tests;
