//! Lookups over TCP: so many connections at a time, and one query of each, answered before the next one is read.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::handler::{Handler, Transport};

/// What the port puts up with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at a time; further ones wait in the system's queue.
    pub(super) connections: usize,
    /// For a whole query to arrive, counted from the answer before it.
    pub(super) ask_within: Duration,
    /// For an answer to be taken.
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

/// Answers until the token is cancelled; then connections end with the answer they are at.
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
async fn converse(mut stream: TcpStream, handler: Arc<Handler>, limits: Limits, token: CancellationToken) {
    loop {
        let asked = tokio::select! {
            () = token.cancelled() => return,
            asked = timeout(limits.ask_within, read(&mut stream)) => asked,
        };
        let Ok(Ok(query)) = asked else { return };
        let Some(reply) = handler.reply(&query, Transport::Tcp) else {
            return;
        };
        match timeout(limits.take_within, write(&mut stream, &reply)).await {
            Ok(Ok(())) => {}
            _ => return,
        }
    }
}

async fn read(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut query = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut query).await?;
    Ok(query)
}

/// In one piece, so that it does not wait for an acknowledgement of its length.
async fn write(stream: &mut TcpStream, reply: &[u8]) -> std::io::Result<()> {
    let size = u16::try_from(reply.len()).map_err(std::io::Error::other)?;
    let mut framed = Vec::with_capacity(2 + reply.len());
    framed.extend(size.to_be_bytes());
    framed.extend(reply);
    stream.write_all(&framed).await
}

#[cfg(test)]
mod tests;
