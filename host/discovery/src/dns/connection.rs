//! Lookups on one connection, whatever carries it: TCP, or TLS over it.
//!
//! Queries may come before earlier ones are answered (RFC 7766, section 6.2.1), and one that takes long holds up no other;
//! some are answered at a time, so many and no more. An answer that is ready goes out before the next query is read, so who
//! takes none is not read from either.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use futures::stream::{self, FuturesUnordered, Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Answers queries that come on connections.
pub trait Respond: Send + Sync + 'static {
    /// The packet that answers one from this client; none to what is no query, and then the connection ends.
    fn reply(&self, packet: &[u8], client: SocketAddr) -> impl Future<Output = Option<Vec<u8>>> + Send;
}

/// What a connection is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For a whole query to arrive, counted from what was asked or answered before it.
    pub ask_within: Duration,
    /// For an answer to be taken.
    pub take_within: Duration,
    /// Queries that are answered at a time; further ones are not read yet.
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
    let (reader, mut writer) = tokio::io::split(stream);
    let mut queries = pin!(queries(reader));
    let mut answers = FuturesUnordered::new();
    let (mut open, mut deadline) = (true, Instant::now() + patience.ask_within);
    loop {
        let query = tokio::select! {
            biased;
            Some(answer) = answers.next() => {
                match answer {
                    Some(answer) => {
                        let written = timeout(patience.take_within, write(&mut writer, answer)).await;
                        let Ok(Ok(())) = written else { return };
                    }
                    None => open = false,
                }
                deadline = Instant::now() + patience.ask_within;
                continue;
            }
            () = token.cancelled(), if open => None,
            query = queries.next(), if open && answers.len() < patience.at_once => query,
            () = sleep_until(deadline), if open && answers.is_empty() => None,
            else => break,
        };
        match query {
            Some(query) => {
                answers.push(async move { respond.reply(&query, client).await });
                deadline = Instant::now() + patience.ask_within;
            }
            None => open = false,
        }
    }
    // TLS says that this is the end and no break; who is gone does not mind.
    let _ = timeout(patience.take_within, writer.shutdown()).await;
}

/// Queries as they come, up to the end of the connection.
fn queries(reader: impl AsyncRead + Unpin) -> impl Stream<Item = Vec<u8>> {
    stream::unfold(reader, async |mut reader| {
        let query = read(&mut reader).await.ok()?;
        Some((query, reader))
    })
}

async fn read(reader: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut query = vec![0; reader.read_u16().await?.into()];
    reader.read_exact(&mut query).await?;
    Ok(query)
}

/// In one piece, so that it does not wait for an acknowledgement of its length.
async fn write(writer: &mut (impl AsyncWrite + Unpin), answer: Vec<u8>) -> io::Result<()> {
    let size = u16::try_from(answer.len()).map_err(io::Error::other)?;
    writer
        .write_all(&[&size.to_be_bytes()[..], &answer].concat())
        .await?;
    writer.flush().await
}

#[cfg(test)]
mod tests;
