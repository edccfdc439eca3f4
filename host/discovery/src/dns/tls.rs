//! DNS over TLS (RFC 7858): connections that nobody on the way can read or change.
//!
//! The [`Certificate`] is read again when its files change; one that cannot be used then leaves the one before it in service. A
//! connection has a deadline for its handshake, and there are so many at a time. What is said on a connection is others'
//! business.

mod certificate;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

pub use certificate::Certificate;

/// What the port puts up with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time, handshakes included; further ones wait in the system's queue.
    pub connections: usize,
    /// For a handshake.
    pub handshake_within: Duration,
    /// Between two looks at the certificate's files.
    pub look_every: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            handshake_within: Duration::from_secs(5),
            look_every: Duration::from_secs(10),
        }
    }
}

/// Pause after an accept that failed; retrying at once would only burn the processor.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections and hands each one to `converse`, decrypted, until the token is cancelled; then waits for those that
/// are open. `converse` ends them: it watches the same token, flushes what it writes, and shuts the stream down, which tells
/// the client that this is the end and no break.
pub async fn serve<C, F>(
    listener: TcpListener,
    mut certificate: Certificate,
    limits: Limits,
    converse: C,
    token: CancellationToken,
) where
    C: Fn(TlsStream<TcpStream>, SocketAddr) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let acceptor = certificate.acceptor();
    let mut look = interval(limits.look_every);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
            _ = look.tick() => {
                certificate.look().await;
                continue;
            }
            accepted = listener.accept(), if connections.len() < limits.connections => accepted,
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
                tracing::warn!(%error, "cannot accept DNS connections over TLS for the moment");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn shake_hands(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    limits: Limits,
    token: &CancellationToken,
) -> Option<TlsStream<TcpStream>> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "answers may be delayed by the system");
    }
    let shaken = timeout(limits.handshake_within, acceptor.accept(stream));
    match token.run_until_cancelled(shaken).await? {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a TLS handshake failed");
            None
        }
        Err(_) => {
            tracing::debug!("a TLS handshake took too long");
            None
        }
    }
}
