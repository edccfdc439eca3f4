//! Lookups over DNS. What is answered is decided in [`answer`]; packets become questions and answers packets in
//! [`handler`] and [`wire`]; [`udp`] and [`tcp`] carry them.
//!
//! Work is bounded where it comes in: a packet is answered before the next one is taken from the same socket or
//! connection, connections are so many at a time, and nobody is waited for without a deadline.

pub mod access;
mod answer;
pub mod connection;
pub mod forward;
mod handler;
<<<<<<< HEAD
mod notify;
=======
pub mod limit;
mod packet;
>>>>>>> 0c14918 (discovery: names of others are forwarded, within bounds)
mod quick;
mod tcp;
<<<<<<< HEAD
mod transfer;
=======
pub mod tls;
>>>>>>> 889e460 (discovery: a port for DNS over TLS)
mod udp;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, UdpSocket};
use tokio_util::sync::CancellationToken;

pub(crate) use handler::Handler;

use crate::{Config, Error, Result};

/// Free ports that are tried: UDP and TCP need the same one.
const TRIES: usize = 16;

/// The DNS port, taken and not served yet.
#[derive(Debug)]
pub(crate) struct Sockets {
    udp: Vec<UdpSocket>,
    tcp: TcpListener,
    addr: SocketAddr,
}

impl Sockets {
    /// Takes a port for UDP and TCP; port 0 takes one that is free for both.
    pub(crate) async fn bind(addr: SocketAddr) -> Result<Self> {
        let mut tries = if addr.port() == 0 { TRIES } else { 1 };
        loop {
            tries -= 1;
            match Self::bind_both(addr).await {
                Err(Error::Dns { protocol: "UDP", .. }) if tries > 0 => {}
                bound => return bound,
            }
        }
    }

    async fn bind_both(addr: SocketAddr) -> Result<Self> {
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
        Ok(Self { udp, tcp, addr })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

/// Answers, and tells secondaries of changes, until the token is cancelled.
pub(crate) async fn serve(sockets: Sockets, handler: Handler, config: &Config, token: CancellationToken) {
    tracing::info!(listener = "dns", addr = %sockets.addr, "listening");
    let handler = Arc::new(handler);
    tokio::join!(
        udp::serve(sockets.udp, Arc::clone(&handler), token.clone()),
        tcp::serve(
            sockets.tcp,
            Arc::clone(&handler),
            tcp::Limits::default(),
            token.clone()
        ),
        notify::serve(config.secondaries.clone(), handler, token),
    );
}
