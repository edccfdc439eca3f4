//! TLS ports: DNS over TLS (RFC 7858), and the outer layer of [DNS over HTTPS](super::https).
//!
//! The [`Certificate`] is reloaded when its files change; if the new one is invalid, the old one
//! stays in service. Handshakes have a deadline, and the number of connections is limited.

mod certificate;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

pub use certificate::{Certificate, Protocol};

/// The limits of the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Connections including handshakes; further ones wait in the system's queue.
    pub max_connections: usize,
    /// For a handshake.
    pub handshake_timeout: Duration,
    /// Between checks of the certificate's files.
    pub reload_interval: Duration,
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self {
            max_connections: 256,
            handshake_timeout: Duration::from_secs(5),
            reload_interval: Duration::from_secs(10),
        }
    }
}

/// After a failed accept, to avoid a busy loop.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Accepts connections and passes each one, decrypted, to `converse` until the token is cancelled;
/// then waits for open connections. `converse` has to watch the same token, flush its output and
/// shut the stream down.
pub async fn serve<C, F>(
    listener: TcpListener,
    mut certificate: Certificate,
    limits: ListenerLimits,
    converse: C,
    token: CancellationToken,
) where
    C: Fn(TlsStream<TcpStream>, SocketAddr) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let acceptor = certificate.acceptor();
    let mut reload_tick = interval(limits.reload_interval);
    reload_tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
            _ = reload_tick.tick() => {
                certificate.reload_if_changed().await;
                continue;
            }
            accepted = listener.accept(), if connections.len() < limits.max_connections => accepted,
        };
        match accepted {
            Ok((stream, client)) => {
                let (acceptor, converse, token) = (acceptor.clone(), converse.clone(), token.clone());
                connections.spawn(async move {
                    if let Some(stream) = shake_hands(stream, acceptor, limits, &token).await {
                        converse(stream, client).await;
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "accepting TLS connections failed; retrying");
                tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn shake_hands(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    limits: ListenerLimits,
    token: &CancellationToken,
) -> Option<TlsStream<TcpStream>> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let shaken = timeout(limits.handshake_timeout, acceptor.accept(stream));
    match token.run_until_cancelled(shaken).await? {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            None
        }
        Err(_) => {
            tracing::debug!("TLS handshake timeout");
            None
        }
    }
}
