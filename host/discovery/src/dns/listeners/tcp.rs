//! Lookups over TCP, with a limited number of connections.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::connection::{ConnectionLimits, serve_connection};
use crate::dns::respond::Respond;

/// The limits of the port.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListenerLimits {
    /// Further connections wait in the system's queue.
    pub(super) max_connections: usize,
    /// The limits of each connection.
    pub(super) connection: ConnectionLimits,
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self {
            max_connections: 256,
            connection: ConnectionLimits::default(),
        }
    }
}

/// After a failed accept, to avoid a busy loop.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Serves until the token is cancelled; open connections finish their answers.
pub(super) async fn serve<R: Respond>(
    listener: TcpListener,
    respond: Arc<R>,
    limits: ListenerLimits,
    token: CancellationToken,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = token.cancelled() => break,
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "panic while answering a DNS query; connection closed");
                }
                continue;
            }
            accepted = listener.accept(), if connections.len() < limits.max_connections => accepted,
        };
        match accepted {
            Ok((stream, client)) => {
                // Answers are written completely; Nagle's algorithm would only delay them.
                let _ = stream.set_nodelay(true);
                let (respond, token) = (Arc::clone(&respond), token.clone());
                connections.spawn(async move {
                    serve_connection(stream, client, &*respond, limits.connection, &token).await;
                });
            }
            Err(error) => {
                tracing::warn!(%error, "accepting DNS connections failed; retrying");
                tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests;
