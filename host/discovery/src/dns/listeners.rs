//! The DNS ports: binding them, and serving them until the token is cancelled.
//!
//! [`udp`], [`tcp`] and [`tls`] carry packets, the latter two over [`connection`]s.

pub mod connection;
mod tcp;
pub mod tls;
mod udp;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, UdpSocket};
use tokio_util::sync::CancellationToken;

use super::{Handler, notify};
use crate::{Config, Error, Result};
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
}

impl Sockets {
    /// Binds the port for UDP and TCP, and the one for TLS; port 0 finds one that is free for both.
    pub(crate) async fn bind(config: &Config) -> Result<Self> {
        let addr = SocketAddr::from((config.listener, config.port));
        let mut tries = if addr.port() == 0 { BIND_ATTEMPTS } else { 1 };
        let (udp, tcp, addr) = loop {
            tries -= 1;
            match bind_both(addr).await {
                Err(Error::Dns { protocol: "UDP", .. }) if tries > 0 => {}
                bound => break bound?,
            }
        };
        let mut tls = None;
        if let (Some(port), Some(certificate), Some(key)) =
            (config.tls_port, &config.tls_certificate, &config.tls_key)
        {
            let certificate = Certificate::read(certificate, key, Protocol::Tls).await?;
            let addr = (config.listener, port).into();
            let listener = TcpListener::bind(addr).await.map_err(|source| Error::Dns {
                addr,
                protocol: "TLS",
                source,
            })?;
            tls = Some((listener, certificate));
        }
        Ok(Self { udp, tcp, addr, tls })
    }

    /// The address of UDP and TCP.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address of DNS over TLS.
    pub(crate) fn tls_addr(&self) -> Option<SocketAddr> {
        self.tls.as_ref()?.0.local_addr().ok()
    }
}

async fn bind_both(addr: SocketAddr) -> Result<(Vec<UdpSocket>, TcpListener, SocketAddr)> {
    let refused = |protocol| {
        move |source| Error::Dns {
            addr,
            protocol,
            source,
        }
    };
    // TCP first: its port is exclusive, while the UDP sockets share theirs.
    let tcp = TcpListener::bind(addr).await.map_err(refused("TCP"))?;
    let addr = tcp.local_addr().map_err(refused("TCP"))?;
    let udp = udp::bind(addr).map_err(refused("UDP"))?;
    Ok((udp, tcp, addr))
}

/// Answers queries and notifies secondaries until the token is cancelled.
pub(crate) async fn serve(sockets: Sockets, handler: Handler, config: &Config, token: CancellationToken) {
    tracing::info!(listener = "dns", addr = %sockets.addr, "listening");
    let handler = Arc::new(handler);
    let over_tls = async {
        if let Some((listener, certificate)) = sockets.tls {
            let addr = listener.local_addr().ok();
            tracing::info!(listener = "dns over tls", ?addr, "listening");
            let (handler, stops) = (Arc::clone(&handler), token.clone());
            let converse = move |stream, client| {
                let (handler, token) = (Arc::clone(&handler), stops.clone());
                async move {
                    serve_connection(stream, client, &*handler, ConnectionLimits::default(), &token).await;
                }
            };
            let limits = tls::ListenerLimits::default();
            tls::serve(listener, certificate, limits, converse, token.clone()).await;
        }
    };
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
        over_tls,
        notify::serve(config.also_notify.clone(), Arc::clone(&handler), token.clone()),
        stopping,
    );
}
