//! Accepting the connections of a port, TCP or TLS, up to a limit.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The delay after a failed accept, to avoid a busy loop.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Accepts connections and passes each one to `converse` until the token is cancelled; then waits
/// for the open ones. `converse` has to watch the same token. While `max_connections` are open,
/// further ones wait in the system's queue.
pub(super) async fn serve<C, F>(
    listener: TcpListener,
    max_connections: usize,
    converse: C,
    token: CancellationToken,
) where
    C: Fn(TcpStream, SocketAddr) -> F,
    F: Future<Output = ()> + Send + 'static,
{
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
            accepted = listener.accept(), if connections.len() < max_connections => accepted,
        };
        match accepted {
            Ok((stream, client)) => {
                // Answers are written completely; Nagle's algorithm would only delay them.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "cannot set TCP_NODELAY");
                }
                connections.spawn(converse(stream, client));
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
