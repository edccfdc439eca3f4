//! Lookups over TCP, with a limited number of connections.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use transom_web::Connections;

use super::accept;
use super::connection::{ConnectionLimits, serve_connection};
use crate::dns::respond::Respond;

/// The limits of the port.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListenerLimits {
    /// Open connections; further ones replace idle ones.
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

/// Serves until the token is cancelled; open connections finish their answers.
pub(super) async fn serve<R: Respond>(
    listener: TcpListener,
    respond: Arc<R>,
    limits: ListenerLimits,
    token: CancellationToken,
) {
    let stops = token.clone();
    let converse = move |stream, client, slot| {
        let (respond, token) = (Arc::clone(&respond), stops.clone());
        async move { serve_connection(stream, client, &*respond, limits.connection, &slot, &token).await }
    };
    let places = Connections::new("dns", limits.max_connections);
    accept::serve(listener, places, converse, token).await;
}

#[cfg(test)]
mod tests;
