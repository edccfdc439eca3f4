//! The DNS ports: binding them, and serving them until the token is cancelled.
//!
//! [`udp`] and [`tcp`] carry packets, [`tls`] the same as [`tcp`] within TLS, and [`https`]
//! HTTP requests within TLS. [`connection`] answers the queries of a TCP connection, [`accept`] has
//! the loop that accepts connections.

mod accept;
pub mod connection;
pub mod https;
mod tcp;
pub mod tls;
mod udp;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use transom_web::ConnectionSlot;

use super::{Handler, notify};
use crate::{Error, Result, Settings};
use connection::{ConnectionLimits, serve_connection};
use tls::{Certificate, Protocol};

/// Attempts to find a port that is free for both UDP and TCP.
const BIND_ATTEMPTS: usize = 16;

/// The bound DNS ports, before they are served.
#[derive(Debug)]
pub(crate) struct Sockets {
    udp: Vec<UdpSocket>,
    tcp: TcpListener,
    addr: SocketAddr,
    tls: Option<(TcpListener, Certificate)>,
    https: Option<(TcpListener, Certificate)>,
}

impl Sockets {
    /// Binds the port for UDP and TCP, and those of encrypted DNS; port 0 finds one that is free
    /// for both.
    pub(crate) async fn bind(settings: &Settings) -> Result<Self> {
        let addr = SocketAddr::from((settings.listener, settings.port));
        let mut tries = if addr.port() == 0 { BIND_ATTEMPTS } else { 1 };
        let (udp, tcp, addr) = loop {
            tries -= 1;
            match bind_both(addr).await {
                Err(Error::Dns { protocol: "UDP", .. }) if tries > 0 => {}
                bound => break bound?,
            }
        };
        Ok(Self {
            udp,
            tcp,
            addr,
            tls: bind_tls(settings, settings.tls_port, Protocol::Tls, "TLS").await?,
            https: bind_tls(settings, settings.https_port, Protocol::Https, "HTTPS").await?,
        })
    }

    /// The address of UDP and TCP.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address of DNS over TLS.
    pub(crate) fn tls_addr(&self) -> Option<SocketAddr> {
        self.tls.as_ref()?.0.local_addr().ok()
    }

    /// The address of DNS over HTTPS.
    pub(crate) fn https_addr(&self) -> Option<SocketAddr> {
        self.https.as_ref()?.0.local_addr().ok()
    }
}

/// The certificate for a port, if both are configured.
async fn certificate(
    settings: &Settings,
    port: Option<u16>,
    protocol: Protocol,
) -> Result<Option<(SocketAddr, Certificate)>> {
    let (Some(port), Some(certificate), Some(key)) = (port, &settings.tls_certificate, &settings.tls_key)
    else {
        return Ok(None);
    };
    let certificate = Certificate::read(certificate, key, protocol).await?;
    Ok(Some(((settings.listener, port).into(), certificate)))
}

async fn bind_tls(
    settings: &Settings,
    port: Option<u16>,
    protocol: Protocol,
    name: &'static str,
) -> Result<Option<(TcpListener, Certificate)>> {
    let Some((addr, certificate)) = certificate(settings, port, protocol).await? else {
        return Ok(None);
    };
    let listener = TcpListener::bind(addr).await.map_err(|source| Error::Dns {
        addr,
        protocol: name,
        source,
    })?;
    Ok(Some((listener, certificate)))
}

async fn bind_both(addr: SocketAddr) -> Result<(Vec<UdpSocket>, TcpListener, SocketAddr)> {
    let rejected = |protocol| {
        move |source| Error::Dns {
            addr,
            protocol,
            source,
        }
    };
    // TCP first: its port is exclusive, while the UDP sockets share theirs.
    let tcp = TcpListener::bind(addr).await.map_err(rejected("TCP"))?;
    let addr = tcp.local_addr().map_err(rejected("TCP"))?;
    let udp = udp::bind(addr).map_err(rejected("UDP"))?;
    Ok((udp, tcp, addr))
}

/// Answers queries and notifies secondaries until the token is cancelled.
pub(crate) async fn serve(
    sockets: Sockets,
    handler: Handler,
    secondaries: Vec<SocketAddr>,
    token: CancellationToken,
) {
    tracing::info!(
        listener = "dns",
        addr = %sockets.addr,
        tls = ?sockets.tls_addr(),
        https = ?sockets.https_addr(),
        "listening"
    );
    let handler = Arc::new(handler);
    // Forwarded queries must not delay the shutdown.
    let stopping = async {
        token.cancelled().await;
        handler.stop().await;
    };
    tokio::join!(
        udp::serve(sockets.udp, Arc::clone(&handler), token.clone()),
        tcp::serve(
            sockets.tcp,
            Arc::clone(&handler),
            tcp::ListenerLimits::default(),
            token.clone()
        ),
        serve_encrypted(
            "dns-tls",
            sockets.tls,
            &handler,
            &token,
            |stream, client, slot, handler, token| async move {
                let limits = ConnectionLimits::default();
                serve_connection(stream, client, &*handler, limits, &slot, &token).await;
            }
        ),
        serve_encrypted(
            "dns-https",
            sockets.https,
            &handler,
            &token,
            |stream, client, slot, handler, token| async move {
                https::serve_requests(stream, client, handler, https::LIMITS, slot, &token).await;
            }
        ),
        notify::serve(secondaries, Arc::clone(&handler), token.clone()),
        stopping,
    );
}

/// Serves a TLS port, if there is one, with a function for its connections.
async fn serve_encrypted<C, F>(
    name: &'static str,
    port: Option<(TcpListener, Certificate)>,
    handler: &Arc<Handler>,
    token: &CancellationToken,
    converse: C,
) where
    C: Fn(TlsStream<TcpStream>, SocketAddr, ConnectionSlot, Arc<Handler>, CancellationToken) -> F
        + Clone
        + Send
        + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let Some((listener, certificate)) = port else {
        return;
    };
    let (handler, stops) = (Arc::clone(handler), token.clone());
    let converse =
        move |stream, client, slot| converse(stream, client, slot, Arc::clone(&handler), stops.clone());
    let limits = tls::ListenerLimits::default();
    tls::serve(name, listener, certificate, limits, converse, token.clone()).await;
}
