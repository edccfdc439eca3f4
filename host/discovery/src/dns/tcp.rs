//! Lookups over TCP: so many connections at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::connection::{Patience, Respond, serve_connection};

/// What the port puts up with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at a time; further ones wait in the system's queue.
    pub(super) connections: usize,
    /// What a connection is given.
    pub(super) patience: Patience,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            patience: Patience::default(),
        }
    }
}

/// Pause after an accept that failed; retrying at once would only burn the processor.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers until the token is cancelled; then connections end with the answers they are at.
pub(super) async fn serve<R: Respond>(
    listener: TcpListener,
    respond: Arc<R>,
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
                let (respond, token) = (Arc::clone(&respond), token.clone());
                connections.spawn(async move {
                    serve_connection(stream, client, &*respond, limits.patience, &token).await;
                });
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

#[cfg(test)]
mod tests;
