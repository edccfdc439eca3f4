//! One query to one resolver: a new socket, port and id each time, and over UDP a random case of the
//! name where the resolver repeats it, so that a forged reply has to guess all of them.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout, timeout_at};

use prometheus_client::metrics::counter::Counter;

use super::query::Query;
use super::reply::{Reply, ReplyKind};
use crate::dns::Transport;
use crate::dns::packet::set_truncated;

/// The delay before a UDP query is resent, as packets may be lost; the client's own retry is
/// coalesced with the query in flight.
const RESEND_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of times that a UDP query is sent.
const MAX_SENDS: usize = 3;
/// The maximum number of unrelated packets that are ignored while waiting for a reply.
const MAX_UNRELATED_PACKETS: usize = 64;
/// How long the reply may follow one with another case of the name, which may have been forged.
const OTHER_CASE_GRACE: Duration = Duration::from_millis(250);

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("timeout")]
    Silent,
    #[error("cannot be reached")]
    Unreachable(#[source] io::Error),
    #[error("the resolver closed the connection")]
    Closed(#[source] io::Error),
    #[error("invalid reply")]
    Broken,
    #[error("too many unrelated packets")]
    Unrelated,
    #[error("reply with another case of the name")]
    OtherCase,
    #[error("cannot open a socket")]
    Local(#[source] io::Error),
    #[error("too many queries in flight")]
    Busy,
}

impl Failure {
    /// Whether the resolver itself failed, not one query or this machine.
    pub(super) fn is_the_resolvers(&self) -> bool {
        matches!(self, Self::Silent | Self::Unreachable(_))
    }

    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Silent => "timeout",
            Self::Unreachable(_) => "unreachable",
            Self::Closed(_) => "closed",
            Self::Broken | Self::Unrelated => "broken",
            Self::OtherCase => "other_case",
            Self::Local(_) => "local",
            Self::Busy => "busy",
        }
    }
}

/// Sends a query and waits at most `time_limit`. Over UDP with a counter, the name is sent in random
/// case, and replies with another case are counted and not used.
pub(super) async fn exchange(
    addr: SocketAddr,
    query: &Query,
    transport: Transport,
    time_limit: Duration,
    other_cases: Option<&Counter>,
) -> Result<Reply, Failure> {
    match transport {
        Transport::Udp => match other_cases {
            Some(_) => udp(addr, &query.with_random_case(), time_limit, other_cases).await,
            None => udp(addr, query, time_limit, None).await,
        },
        Transport::Tcp => timeout(time_limit, tcp(addr, query))
            .await
            .unwrap_or(Err(Failure::Silent)),
    }
}

async fn udp(
    addr: SocketAddr,
    query: &Query,
    time_limit: Duration,
    other_cases: Option<&Counter>,
) -> Result<Reply, Failure> {
    let local_addr: SocketAddr = match addr {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let deadline = Instant::now() + time_limit;
    // The system picks a random port; a connected socket receives packets of that resolver only.
    let socket = UdpSocket::bind(local_addr).await.map_err(Failure::Local)?;
    socket.connect(addr).await.map_err(Failure::Unreachable)?;
    let id = rand::random();
    let packet = query.packet(id);
    // One byte more than the limit, to detect a longer reply.
    let mut buffer = vec![0; query.max_udp_reply_bytes() + 1];
    for sent in 1..=MAX_SENDS {
        socket.send(&packet).await.map_err(Failure::Unreachable)?;
        let until = if sent == MAX_SENDS {
            deadline
        } else {
            deadline.min(Instant::now() + RESEND_INTERVAL)
        };
        let receiving = receive_reply(&socket, &mut buffer, query, id, other_cases);
        match timeout_at(until, receiving).await {
            Ok(Err(Failure::OtherCase)) => {
                // The packet has arrived, so it is not sent again.
                let until = deadline.min(Instant::now() + OTHER_CASE_GRACE);
                let receiving = receive_after_other_case(&socket, &mut buffer, query, id, other_cases);
                return timeout_at(until, receiving)
                    .await
                    .unwrap_or(Err(Failure::OtherCase));
            }
            Ok(result) => return result,
            Err(_) if Instant::now() >= deadline => break,
            Err(_) => {}
        }
    }
    Err(Failure::Silent)
}

/// Waits for a reply with the right case after others.
async fn receive_after_other_case(
    socket: &UdpSocket,
    buffer: &mut [u8],
    query: &Query,
    id: u16,
    other_cases: Option<&Counter>,
) -> Result<Reply, Failure> {
    for _ in 0..MAX_UNRELATED_PACKETS {
        match receive_reply(socket, buffer, query, id, other_cases).await {
            Ok(reply) => return Ok(reply),
            Err(Failure::OtherCase) => {}
            Err(_) => break,
        }
    }
    Err(Failure::OtherCase)
}

/// Waits for the reply and ignores unrelated packets.
async fn receive_reply(
    socket: &UdpSocket,
    buffer: &mut [u8],
    query: &Query,
    id: u16,
    other_cases: Option<&Counter>,
) -> Result<Reply, Failure> {
    for _ in 0..MAX_UNRELATED_PACKETS {
        let size = socket.recv(buffer).await.map_err(Failure::Unreachable)?;
        if size == buffer.len() {
            set_truncated(buffer);
        }
        match Reply::classify(query, id, &buffer[..size]) {
            ReplyKind::Reply(reply) => match other_cases {
                Some(counter) if !reply.repeats_case(query) => {
                    counter.inc();
                    return Err(Failure::OtherCase);
                }
                _ => return Ok(reply),
            },
            ReplyKind::Invalid => return Err(Failure::Broken),
            ReplyKind::Unrelated => {}
        }
    }
    Err(Failure::Unrelated)
}

async fn tcp(addr: SocketAddr, query: &Query) -> Result<Reply, Failure> {
    let mut stream = TcpStream::connect(addr).await.map_err(Failure::Unreachable)?;
    let id = rand::random();
    let packet = query.packet(id);
    // At most as long as the client's packet, whose length has 16 bits.
    let framed = [&(packet.len() as u16).to_be_bytes()[..], &packet].concat();
    stream.write_all(&framed).await.map_err(Failure::Closed)?;
    let size = stream.read_u16().await.map_err(Failure::Closed)?;
    let mut reply = vec![0; size.into()];
    stream.read_exact(&mut reply).await.map_err(Failure::Closed)?;
    match Reply::classify(query, id, &reply) {
        ReplyKind::Reply(reply) => Ok(reply),
        ReplyKind::Invalid | ReplyKind::Unrelated => Err(Failure::Broken),
    }
}
