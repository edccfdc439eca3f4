//! Lookups on one connection, whatever carries it: TCP, or TLS over it.
//!
//! Queries may come before earlier ones are answered (RFC 7766, section 6.2.1). All that came together are answered together;
//! one that has to wait for others holds up none behind it, and so many wait at a time. What is answered goes out before more is
//! read, so who takes nothing is not read from either.

use std::net::SocketAddr;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// What becomes of a query.
pub enum Reply {
    /// Its answer was written.
    Written,
    /// Its answer was written, and is the last one: it made no sense, and what comes behind it may make none either.
    Last,
    /// It gets none: it is no request.
    Silence,
    /// The answer has to be waited for. It has deadlines of its own, and can be left to a task.
    Later(BoxFuture<'static, Vec<u8>>),
    /// The answer is many messages: these, until there is none.
    Messages(Box<dyn FnMut() -> Option<Vec<u8>> + Send>),
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Written => "Written",
            Self::Last => "Last",
            Self::Silence => "Silence",
            Self::Later(_) => "Later",
            Self::Messages(_) => "Messages",
        })
    }
}

/// Answers queries that come on connections.
pub trait Respond: Send + Sync + 'static {
    /// Writes the packet that answers one from this client to the end of `out`, or says what it takes. After what is no
    /// request the connection ends.
    fn respond(&self, packet: &[u8], client: SocketAddr, out: &mut Vec<u8>) -> Reply;
}

/// What a connection is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For a whole query to arrive, counted from what was asked or answered before it.
    pub ask_within: Duration,
    /// For answers to be taken.
    pub take_within: Duration,
    /// Queries that wait for others at a time; further ones are not read yet.
    pub at_once: usize,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            ask_within: Duration::from_secs(10),
            take_within: Duration::from_secs(4),
            at_once: 8,
        }
    }
}

/// What is read at a time, at least.
const READ: usize = 16 << 10;
/// Answers go out when they are so much.
const ANSWERS: usize = 64 << 10;

/// Answers until the client ends the connection, is too slow, or sends what is no query; or until the token is cancelled.
/// What was asked by then is answered before the end.
pub async fn serve_connection<S, R>(
    stream: S,
    client: SocketAddr,
    respond: &R,
    patience: Patience,
    token: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    R: Respond,
{
    let (mut reader, writer) = tokio::io::split(stream);
    let mut asked = Asked::default();
    let mut answers = Answers {
        writer,
        bytes: Vec::new(),
        within: patience.take_within,
    };
    let mut later = FuturesUnordered::new();
    let (mut open, mut deadline) = (true, Instant::now() + patience.ask_within);
    loop {
        while open && later.len() < patience.at_once && answers.bytes.len() < ANSWERS {
            let Some(query) = asked.next() else { break };
            deadline = Instant::now() + patience.ask_within;
            match answers.frame(|out| respond.respond(query, client, out)) {
                Reply::Written => {}
                Reply::Last | Reply::Silence => open = false,
                Reply::Later(answer) => later.push(answer),
                Reply::Messages(mut next) => {
                    while let Some(message) = next() {
                        answers.put(&message);
                        if !answers.taken().await {
                            return;
                        }
                    }
                    deadline = Instant::now() + patience.ask_within;
                }
            }
        }
        if !answers.taken().await {
            return;
        }
        let room = later.len() < patience.at_once;
        if open && room && asked.whole().is_some() {
            continue;
        }
        tokio::select! {
            biased;
            Some(answer) = later.next() => {
                answers.put(&answer);
                deadline = Instant::now() + patience.ask_within;
            }
            () = token.cancelled(), if open => open = false,
            more = asked.more(&mut reader), if open && room => open = more,
            () = sleep_until(deadline), if open && later.is_empty() => open = false,
            else => break,
        }
    }
    // TLS says that this is the end and no break; who is gone does not mind.
    let _ = timeout(patience.take_within, answers.writer.shutdown()).await;
}

/// What is to go out: answers, each with its length before it.
struct Answers<W> {
    writer: W,
    bytes: Vec<u8>,
    within: Duration,
}

impl<W: AsyncWrite + Unpin> Answers<W> {
    /// Has an answer written, if there is one.
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

    fn put(&mut self, answer: &[u8]) {
        self.frame(|out| {
            out.extend_from_slice(answer);
            Reply::Written
        });
    }

    /// Sends what there is. Whether the client took it in time.
    async fn taken(&mut self) -> bool {
        if self.bytes.is_empty() {
            return true;
        }
        let sending = async {
            self.writer.write_all(&self.bytes).await?;
            self.writer.flush().await
        };
        let sent = timeout(self.within, sending).await;
        self.bytes.clear();
        matches!(sent, Ok(Ok(())))
    }
}

/// What a client has sent: queries, each with its length before it.
#[derive(Default)]
struct Asked {
    bytes: Vec<u8>,
    /// What was handed out already.
    done: usize,
}

impl Asked {
    /// Reads what has come. Whether there may be more.
    async fn more(&mut self, reader: &mut (impl AsyncRead + Unpin)) -> bool {
        self.bytes.drain(..self.done);
        self.done = 0;
        // All of the query that is coming, which is at most 64 KiB, and what comes with it.
        let missing = self
            .length()
            .map_or(2, |length| 2 + length)
            .saturating_sub(self.bytes.len());
        self.bytes.reserve(missing.max(READ));
        matches!(reader.read_buf(&mut self.bytes).await, Ok(read) if read > 0)
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
