//! Lookups over DNS: sockets, and the bridge to the server library. What is answered is decided in [`answer`].

mod answer;
mod handler;

use std::net::SocketAddr;
use std::time::Duration;

use hickory_server::Server;
use tokio::net::{TcpListener, UdpSocket};
use tokio_util::sync::CancellationToken;

pub(crate) use handler::Handler;

use crate::{Error, Result};

/// A TCP connection that asks nothing for so long is closed.
const IDLE: Duration = Duration::from_secs(30);
/// Answers that may wait on one TCP connection for its client to read them.
const WAITING: usize = 64;
/// Free ports that are tried: UDP and TCP need the same one.
const TRIES: usize = 16;

/// The DNS port, taken and not served yet.
#[derive(Debug)]
pub(crate) struct Sockets {
    udp: UdpSocket,
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
                Err(Error::Dns { protocol: "TCP", .. }) if tries > 0 => {}
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
        let udp = UdpSocket::bind(addr).await.map_err(refused("UDP"))?;
        let addr = udp.local_addr().map_err(refused("UDP"))?;
        let tcp = TcpListener::bind(addr).await.map_err(refused("TCP"))?;
        Ok(Self { udp, tcp, addr })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

/// Answers until the token is cancelled.
pub(crate) async fn serve(sockets: Sockets, handler: Handler, token: CancellationToken) {
    tracing::info!(listener = "dns", addr = %sockets.addr, "listening");
    let mut server = Server::new(handler);
    server.register_socket(sockets.udp);
    server.register_listener(sockets.tcp, IDLE, WAITING);
    tokio::select! {
        () = token.cancelled() => {}
        ended = server.block_until_done() => {
            // Nothing but a socket that the system took away ends it.
            tracing::error!(?ended, "lookups over DNS have ended");
            return;
        }
    }
    if let Err(error) = server.shutdown_gracefully().await {
        tracing::debug!(%error, "the DNS port was not closed cleanly");
    }
}
