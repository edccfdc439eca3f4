//! Accepting the connections of a port, TCP or TLS. At the limit, a new connection replaces an idle one.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use transom_web::{ConnectionSlot, Connections};

/// The delay after a failed accept, to avoid a busy loop.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Accepts connections and passes each one to `converse` until the token is cancelled; then waits
/// for the open ones. `converse` has to watch the same token, to mark the connection as busy in its slot,
/// and to close it when the slot is given to another one.
pub(super) async fn serve<C, F>(
    listener: TcpListener,
    places: Connections,
    converse: C,
    token: CancellationToken,
) where
    C: Fn(TcpStream, SocketAddr, ConnectionSlot) -> F + Clone + Send + 'static,
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
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, client)) => {
                let slot = places.admit(client).await;
                // Answers are written completely; Nagle's algorithm would only delay them.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "cannot set TCP_NODELAY");
                }
                let (places, converse, token) = (places.clone(), converse.clone(), token.clone());
                connections.spawn(async move {
                    let slot = match slot {
                        Some(slot) => Some(slot),
                        None => token.run_until_cancelled(places.wait(client)).await.flatten(),
                    };
                    if let Some(slot) = slot {
                        converse(stream, client, slot).await;
                    }
                });
            }
            // A place that is not used gives its file descriptor to the waiting connection.
            Err(error) if is_out_of_files(&error) && places.relieve() => tokio::task::yield_now().await,
            Err(error) => {
                tracing::warn!(%error, "accepting DNS connections failed; retrying");
                tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Whether the process or the system has its maximum of open files (`EMFILE`, `ENFILE`).
fn is_out_of_files(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(24 | 23))
}
