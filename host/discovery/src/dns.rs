//! Lookups over DNS. What is answered is decided in [`answer`], and for the common questions in [`quick`]; packets become
//! questions and answers packets in [`handler`] and [`wire`]; [`udp`], [`tcp`] and [`tls`] carry them, the latter two by
//! [`connection`]s. Names of others are a matter of [`forward`] and [`access`]; [`transfer`] and [`notify`] are for name servers that
//! follow the zone, and [`limit`] is against those who have others attacked with our answers.
//!
//! Work is bounded where it comes in: a packet that takes no waiting is answered before the next one is taken from the same
//! socket or connection, the others and connections are so many at a time, and nobody is waited for without a deadline.

pub mod access;
mod answer;
mod client;
pub mod connection;
pub mod forward;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod handler;
pub mod limit;
mod notify;
mod packet;
mod quick;
mod tcp;
pub mod tls;
mod transfer;
mod udp;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, UdpSocket};
use tokio_util::sync::CancellationToken;

use connection::{Patience, serve_connection};
use tls::Certificate;

pub(crate) use handler::Handler;

use crate::{Config, Error, Result};

/// Free ports that are tried: UDP and TCP need the same one.
const TRIES: usize = 16;

/// The DNS ports, taken and not served yet.
#[derive(Debug)]
pub(crate) struct Sockets {
    udp: Vec<UdpSocket>,
    tcp: TcpListener,
    addr: SocketAddr,
    tls: Option<(TcpListener, Certificate)>,
}

impl Sockets {
    /// Takes a port for UDP and TCP, and the one for TLS; port 0 takes one that is free for both.
    pub(crate) async fn bind(config: &Config) -> Result<Self> {
        let addr = SocketAddr::from((config.listener, config.port));
        let mut tries = if addr.port() == 0 { TRIES } else { 1 };
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
            let certificate = Certificate::read(certificate, key).await?;
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

    /// Where UDP and TCP are answered.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where DNS over TLS is.
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
    // TCP first: its port is nobody else's, while sockets for UDP share theirs with each other.
    let tcp = TcpListener::bind(addr).await.map_err(refused("TCP"))?;
    let addr = tcp.local_addr().map_err(refused("TCP"))?;
    let udp = udp::bind(addr).map_err(refused("UDP"))?;
    Ok((udp, tcp, addr))
}

/// Answers, and tells secondaries of changes, until the token is cancelled.
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
                    serve_connection(stream, client, &*handler, Patience::default(), &token).await;
                }
            };
            let limits = tls::Limits::default();
            tls::serve(listener, certificate, limits, converse, token.clone()).await;
        }
    };
    // Who waits for others must not hold up the end.
    let stopping = async {
        token.cancelled().await;
        handler.stop().await;
    };
    tokio::join!(
        udp::serve(sockets.udp, Arc::clone(&handler), token.clone()),
        tcp::serve(
            sockets.tcp,
            Arc::clone(&handler),
            tcp::Limits::default(),
            token.clone()
        ),
        over_tls,
        notify::serve(config.also_notify.clone(), Arc::clone(&handler), token.clone()),
        stopping,
    );
}
