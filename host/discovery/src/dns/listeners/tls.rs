//! TLS ports: DNS over TLS (RFC 7858), and the outer layer of [DNS over HTTPS](super::https).
//!
//! The [`Certificate`] is reloaded when its files change; if the new one is invalid, the old one
//! stays in service. Handshakes have a deadline, and the number of connections is limited.

mod certificate;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use transom_web::{ConnectionSlot, Connections};

use super::accept;
pub use certificate::{Certificate, Protocol};

/// The limits of the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Connections including handshakes; further ones replace idle ones.
    pub max_connections: usize,
    /// The timeout of a handshake.
    pub handshake_timeout: Duration,
    /// The interval between checks of the certificate's files.
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

/// Passes each connection, decrypted, to `converse` until the token is cancelled; then waits for
/// open connections. `converse` has to watch the same token, flush its output and shut the stream
/// down. `port` is the name for logs and metrics.
pub async fn serve<C, F>(
    port: &'static str,
    listener: TcpListener,
    mut certificate: Certificate,
    limits: ListenerLimits,
    converse: C,
    token: CancellationToken,
) where
    C: Fn(TlsStream<TcpStream>, SocketAddr, ConnectionSlot) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let (acceptor, stops) = (certificate.acceptor(), token.clone());
    let places = Connections::new(port, limits.max_connections);
    let decrypted = move |stream, client, slot: ConnectionSlot| {
        let (acceptor, converse, token) = (acceptor.clone(), converse.clone(), stops.clone());
        async move {
            let stream = tokio::select! {
                stream = shake_hands(stream, acceptor, limits, &token) => stream,
                () = slot.evicted() => None,
            };
            if let Some(stream) = stream {
                converse(stream, client, slot).await;
            }
        }
    };
    tokio::join!(
        certificate.keep_current(limits.reload_interval, &token),
        accept::serve(listener, places, decrypted, token.clone()),
    );
}

async fn shake_hands(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    limits: ListenerLimits,
    token: &CancellationToken,
) -> Option<TlsStream<TcpStream>> {
    let handshake = timeout(limits.handshake_timeout, acceptor.accept(stream));
    match token.run_until_cancelled(handshake).await? {
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
