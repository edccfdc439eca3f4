//! One question to one resolver: a fresh socket, port and id each time, so that a forged reply has both to guess.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout, timeout_at};

use super::Transport;
use super::query::Query;
use super::reply::{Heard, Reply};
use crate::dns::packet::mark_cut;

/// After this a query over UDP is sent again: it may have been lost, and its client's own repetition only joins it.
const AGAIN: Duration = Duration::from_secs(1);
/// Times that it is sent at most.
const SENDS: usize = 3;
/// Packets of somebody else that are looked at while waiting for a reply.
const STRANGERS: usize = 64;

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("no reply in time")]
    Silent,
    #[error("cannot be reached")]
    Unreachable(#[source] io::Error),
    #[error("it ended the connection")]
    Closed(#[source] io::Error),
    #[error("its reply makes no sense")]
    Broken,
    #[error("too many replies to something else")]
    Strangers,
    #[error("no socket to ask from")]
    Local(#[source] io::Error),
    #[error("too many questions under way")]
    Busy,
}

impl Failure {
    /// Whether this is about the resolver, and not about one question or this machine.
    pub(super) fn is_the_resolvers(&self) -> bool {
        matches!(self, Self::Silent | Self::Unreachable(_))
    }

    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Silent => "timeout",
            Self::Unreachable(_) => "unreachable",
            Self::Closed(_) => "closed",
            Self::Broken | Self::Strangers => "broken",
            Self::Local(_) => "local",
            Self::Busy => "busy",
        }
    }
}

/// Asks, and waits no longer than `within`.
pub(super) async fn exchange(
    addr: SocketAddr,
    query: &Query,
    over: Transport,
    within: Duration,
) -> Result<Reply, Failure> {
    match over {
        Transport::Udp => udp(addr, query, within).await,
        Transport::Tcp => timeout(within, tcp(addr, query))
            .await
            .unwrap_or(Err(Failure::Silent)),
    }
}

async fn udp(addr: SocketAddr, query: &Query, within: Duration) -> Result<Reply, Failure> {
    let any: SocketAddr = match addr {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let deadline = Instant::now() + within;
    // The system picks the port, at random; being connected, the socket takes packets from that resolver only.
    let socket = UdpSocket::bind(any).await.map_err(Failure::Local)?;
    socket.connect(addr).await.map_err(Failure::Unreachable)?;
    let id = rand::random();
    let packet = query.packet(id);
    // A byte more, to see when a reply is longer than it should be.
    let mut buffer = vec![0; query.expected() + 1];
    for sent in 1..=SENDS {
        socket.send(&packet).await.map_err(Failure::Unreachable)?;
        let until = if sent == SENDS {
            deadline
        } else {
            deadline.min(Instant::now() + AGAIN)
        };
        match timeout_at(until, listen(&socket, &mut buffer, query, id)).await {
            Ok(heard) => return heard,
            Err(_) if Instant::now() >= deadline => break,
            Err(_) => {}
        }
    }
    Err(Failure::Silent)
}

/// Waits for the reply; what is none is passed over.
async fn listen(socket: &UdpSocket, buffer: &mut [u8], query: &Query, id: u16) -> Result<Reply, Failure> {
    for _ in 0..STRANGERS {
        let size = socket.recv(buffer).await.map_err(Failure::Unreachable)?;
        if size == buffer.len() {
            mark_cut(buffer);
        }
        match Reply::hear(query, id, &buffer[..size]) {
            Heard::Reply(reply) => return Ok(reply),
            Heard::Broken => return Err(Failure::Broken),
            Heard::Another => {}
        }
    }
    Err(Failure::Strangers)
}

async fn tcp(addr: SocketAddr, query: &Query) -> Result<Reply, Failure> {
    let mut stream = TcpStream::connect(addr).await.map_err(Failure::Unreachable)?;
    let id = rand::random();
    let packet = query.packet(id);
    // It came in a packet whose length has 16 bits.
    let framed = [&(packet.len() as u16).to_be_bytes()[..], &packet].concat();
    stream.write_all(&framed).await.map_err(Failure::Closed)?;
    let size = stream.read_u16().await.map_err(Failure::Closed)?;
    let mut reply = vec![0; size.into()];
    stream.read_exact(&mut reply).await.map_err(Failure::Closed)?;
    match Reply::hear(query, id, &reply) {
        Heard::Reply(reply) => Ok(reply),
        Heard::Broken | Heard::Another => Err(Failure::Broken),
    }
}
