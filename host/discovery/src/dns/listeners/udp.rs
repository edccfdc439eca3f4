//! Lookups over UDP. Several sockets share the port, and the system distributes clients over them.
//! Packets are received, answered and sent in batches; bursts queue in the system's bounded socket
//! buffer only. A panic while answering loses one packet.

mod pktinfo;

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket as StdUdpSocket};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::dns::Handler;
use crate::dns::respond::{Client, Reply, Transport};
use crate::zone::Zone;
use pktinfo::LocalAddr;

/// More than any query needs; a longer packet is cut and answered with FORMERR.
const MAX_PACKET_BYTES: usize = 4096;
/// Packets that are received, answered and sent together.
const BATCH_PACKETS: usize = 64;
/// Batches before the task yields.
const BATCHES_PER_TURN: usize = 16;
/// The requested receive buffer of each socket; the system may grant less.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;
/// The timeout of sending while the socket's buffer is full; clients retry.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);
/// The delay after a receive error, to avoid a busy loop.
const RECEIVE_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Binds one socket for each runtime thread. A wildcard listener also binds the same number for each
/// address that the machine has now: packets of these sockets need no control message with the
/// destination, which would cost a tenth of the throughput. The wildcard sockets serve the rest, such
/// as addresses added later.
pub(super) fn bind(addr: SocketAddr) -> io::Result<Vec<UdpSocket>> {
    let threads = Handle::current().metrics().num_workers();
    let first = socket(addr)?;
    let addr = first.local_addr()?;
    let mut sockets = vec![first];
    while sockets.len() < threads {
        sockets.push(socket(addr)?);
    }
    if addr.ip().is_unspecified() {
        let both_families = addr.is_ipv6() && !SockRef::from(&sockets[0]).only_v6()?;
        for ip in pktinfo::addresses(addr.ip(), both_families) {
            let socket_addr = SocketAddr::new(ip, addr.port());
            match (0..threads)
                .map(|_| socket(socket_addr))
                .collect::<io::Result<Vec<_>>>()
            {
                Ok(more) => sockets.extend(more),
                Err(error) => {
                    tracing::debug!(addr = %socket_addr, %error, "cannot bind a DNS socket for this address; the wildcard socket serves it");
                }
            }
        }
    }
    Ok(sockets)
}

fn socket(addr: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    // Best effort: systems have their own limit.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
    pktinfo::enable(&socket, addr)?;
    socket.bind(&addr.into())?;
    UdpSocket::from_std(StdUdpSocket::from(socket))
}

/// Answers packets.
pub(super) trait RespondToPackets: Send + Sync + 'static {
    /// The state from which all packets of a batch are answered.
    type Snapshot;

    fn snapshot(&self) -> Self::Snapshot;

    /// Appends the answer to `out`, or returns how to get it.
    fn respond(&self, snapshot: &Self::Snapshot, packet: &[u8], client: Client, out: &mut Vec<u8>) -> Reply;

    /// Applies rate limiting to the answer in `out` from `start` on. Returns whether anything is
    /// left to send.
    fn limited(&self, client: IpAddr, start: usize, out: &mut Vec<u8>) -> bool;
}

impl RespondToPackets for Handler {
    type Snapshot = Option<Arc<Zone>>;

    fn snapshot(&self) -> Self::Snapshot {
        self.zone()
    }

    fn respond(&self, zone: &Self::Snapshot, packet: &[u8], client: Client, out: &mut Vec<u8>) -> Reply {
        self.reply(zone.as_ref(), packet, client, out)
    }

    fn limited(&self, client: IpAddr, start: usize, out: &mut Vec<u8>) -> bool {
        self.limited(client, start, out)
    }
}

/// Answers until the token is cancelled.
pub(super) async fn serve<R: RespondToPackets>(
    sockets: Vec<UdpSocket>,
    respond: Arc<R>,
    token: CancellationToken,
) {
    let mut workers = JoinSet::new();
    let forwarding = TaskTracker::new();
    for socket in sockets {
        let worker = Worker {
            socket: Arc::new(socket),
            respond: Arc::clone(&respond),
            forwarding: forwarding.clone(),
        };
        let token = token.clone();
        workers.spawn(async move {
            token.run_until_cancelled(worker.supervise()).await;
        });
    }
    while workers.join_next().await.is_some() {}
    forwarding.close();
    // Forwarded queries have their own deadlines; their clients still get answers.
    forwarding.wait().await;
}

/// Answers the packets of one socket.
struct Worker<R> {
    socket: Arc<UdpSocket>,
    respond: Arc<R>,
    /// Answers that wait for resolvers.
    forwarding: TaskTracker,
}

impl<R> Clone for Worker<R> {
    fn clone(&self) -> Self {
        Self {
            socket: Arc::clone(&self.socket),
            respond: Arc::clone(&self.respond),
            forwarding: self.forwarding.clone(),
        }
    }
}

impl<R: RespondToPackets> Worker<R> {
    /// Restarts the worker after a panic outside of [`Batch::answer`]; its batch is lost.
    async fn supervise(self) {
        loop {
            let mut answering = JoinSet::new();
            answering.spawn(self.clone().answer());
            if let Some(Err(error)) = answering.join_next().await {
                tracing::error!(%error, "panic while receiving or sending DNS packets; batch dropped");
            }
        }
    }

    async fn answer(self) {
        // Buffers are allocated with the first packet; many sockets never receive one.
        let _ = self.socket.readable().await;
        let addr = self.socket.local_addr();
        let mut batch = Batch::new(addr.is_ok_and(|addr| addr.ip().is_unspecified()));
        loop {
            if let Err(error) = self.process_batches(&mut batch).await {
                tracing::warn!(%error, "receiving DNS packets failed; retrying");
                tokio::time::sleep(RECEIVE_RETRY_INTERVAL).await;
            }
        }
    }

    /// Waits for packets and answers them.
    async fn process_batches(&self, batch: &mut Batch) -> io::Result<()> {
        let socket = &self.socket;
        socket.readable().await?;
        for _ in 0..BATCHES_PER_TURN {
            match socket.try_io(Interest::READABLE, || batch.receive(socket)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            batch.answer(socket, &self.respond, &self.forwarding);
            batch.send_all(socket).await;
            if batch.received.len() < BATCH_PACKETS {
                return Ok(());
            }
        }
        tokio::task::yield_now().await;
        Ok(())
    }
}

/// The client, and the local address that the query was sent to.
type Peer = (Option<SockaddrStorage>, Option<LocalAddr>);

/// Packets and their answers.
struct Batch {
    /// Whether its socket is bound to the wildcard address.
    is_wildcard: bool,
    packets: Vec<[u8; MAX_PACKET_BYTES]>,
    /// The length and peer of each packet; local addresses only for wildcard sockets.
    received: Vec<(usize, Peer)>,
    /// How many of the packets were answered, or dropped by a panic.
    answered: usize,
    /// All answers, concatenated.
    answers: Vec<u8>,
    /// The range and the client of each answer.
    unsent: Vec<(Range<usize>, Peer)>,
}

impl Batch {
    fn new(is_wildcard: bool) -> Self {
        Self {
            is_wildcard,
            packets: vec![[0; MAX_PACKET_BYTES]; BATCH_PACKETS],
            received: Vec::with_capacity(BATCH_PACKETS),
            answered: 0,
            answers: Vec::with_capacity(BATCH_PACKETS * 512),
            unsent: Vec::with_capacity(BATCH_PACKETS),
        }
    }

    /// Receives pending packets without waiting.
    fn receive(&mut self, socket: &UdpSocket) -> io::Result<()> {
        self.received.clear();
        let room = self.is_wildcard.then(pktinfo::cmsg_space);
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BATCH_PACKETS, room);
        let mut slices: Vec<_> = self
            .packets
            .iter_mut()
            .map(|packet| [IoSliceMut::new(packet)])
            .collect();
        let flags = MsgFlags::MSG_DONTWAIT;
        let messages = recvmmsg(socket.as_raw_fd(), &mut headers, slices.iter_mut(), flags, None)?;
        self.received.extend(messages.map(|message| {
            let control_messages = self.is_wildcard.then(|| message.cmsgs().ok()).flatten();
            let local = control_messages.and_then(|mut control_messages| {
                control_messages.find_map(|message| LocalAddr::from_cmsg(&message))
            });
            (message.bytes, (message.address, local))
        }));
        Ok(())
    }

    /// Answers the batch from one snapshot. Forwarded queries are left to tasks. A packet that
    /// causes a panic is dropped.
    fn answer<R: RespondToPackets>(
        &mut self,
        socket: &Arc<UdpSocket>,
        respond: &Arc<R>,
        tasks: &TaskTracker,
    ) {
        self.answers.clear();
        self.unsent.clear();
        self.answered = 0;
        let snapshot = respond.snapshot();
        while self.answered < self.received.len() {
            let answering = AssertUnwindSafe(|| self.answer_rest(&snapshot, socket, respond, tasks));
            if catch_unwind(answering).is_err() {
                tracing::error!("panic while answering a DNS packet; packet dropped");
                let end = self.unsent.last().map_or(0, |(range, _)| range.end);
                self.answers.truncate(end);
            }
        }
    }

    /// Answers the packets that are not done, until one of them causes a panic.
    fn answer_rest<R: RespondToPackets>(
        &mut self,
        snapshot: &R::Snapshot,
        socket: &Arc<UdpSocket>,
        respond: &Arc<R>,
        tasks: &TaskTracker,
    ) {
        for ((size, peer), packet) in self.received.iter().zip(&self.packets).skip(self.answered) {
            self.answered += 1;
            let start = self.answers.len();
            let ip = addr(peer.0.as_ref()).map_or(Ipv4Addr::UNSPECIFIED.into(), |client| client.ip());
            let client = Client::new(ip, Transport::Udp);
            match respond.respond(snapshot, &packet[..*size], client, &mut self.answers) {
                Reply::Written | Reply::Last => {}
                // Transfers over UDP are one message.
                Reply::Messages(mut next) => self.answers.extend(next().unwrap_or_default()),
                Reply::Later(answer) => {
                    let (socket, respond, peer) = (Arc::clone(socket), Arc::clone(respond), *peer);
                    tasks.spawn(async move {
                        let mut answer = answer.await;
                        if respond.limited(client.ip, 0, &mut answer) {
                            send(&socket, &answer, peer).await;
                        }
                    });
                    continue;
                }
                Reply::Silence => continue,
            }
            if respond.limited(client.ip, start, &mut self.answers) {
                self.unsent.push((start..self.answers.len(), *peer));
            }
        }
    }

    async fn send_all(&mut self, socket: &UdpSocket) {
        let sending = async {
            while !self.unsent.is_empty() {
                match socket.try_io(Interest::WRITABLE, || self.send(socket)) {
                    Ok(sent) => drop(self.unsent.drain(..sent)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        if socket.writable().await.is_err() {
                            return;
                        }
                    }
                    Err(error) => {
                        // The error belongs to the first answer only.
                        tracing::debug!(%error, "sending a DNS answer failed");
                        self.unsent.remove(0);
                    }
                }
            }
        };
        if tokio::time::timeout(SEND_TIMEOUT, sending).await.is_err() {
            tracing::debug!(
                answers = self.unsent.len(),
                "timeout sending DNS answers; answers dropped"
            );
        }
    }

    /// Sends the answers of one local address without waiting. Returns how many were sent.
    fn send(&self, socket: &UdpSocket) -> io::Result<usize> {
        let from = self.unsent.first().and_then(|(_, (_, local))| *local);
        let together = self.unsent.iter().take_while(|(_, (_, local))| *local == from);
        let answers = together.map(|(range, (client, _))| (&self.answers[range.clone()], *client));
        send_now(socket, from, answers)
    }
}

/// Sends answers from one local address without waiting. Returns how many were sent.
fn send_now<'a>(
    socket: &UdpSocket,
    from: Option<LocalAddr>,
    answers: impl Iterator<Item = (&'a [u8], Option<SockaddrStorage>)>,
) -> io::Result<usize> {
    let (slices, clients): (Vec<_>, Vec<_>) = answers
        .map(|(answer, client)| ([IoSlice::new(answer)], client))
        .unzip();
    let sent = pktinfo::with_source(from, |message, room| {
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(slices.len(), room);
        let flags = MsgFlags::MSG_DONTWAIT;
        let sent = sendmmsg(socket.as_raw_fd(), &mut headers, &slices, clients, message, flags);
        sent.map(Iterator::count)
    })?;
    match sent {
        0 => Err(Errno::EAGAIN.into()),
        sent => Ok(sent),
    }
}

async fn send(socket: &UdpSocket, answer: &[u8], (client, local): Peer) {
    let sending = socket.async_io(Interest::WRITABLE, || {
        send_now(socket, local, std::iter::once((answer, client)))
    });
    match tokio::time::timeout(SEND_TIMEOUT, sending).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "sending a DNS answer failed"),
        Err(_) => tracing::debug!("timeout sending a DNS answer"),
    }
}

/// The client's address.
fn addr(client: Option<&SockaddrStorage>) -> Option<SocketAddr> {
    let client = client?;
    let v4 = client.as_sockaddr_in().map(|v4| SocketAddrV4::from(*v4).into());
    v4.or_else(|| client.as_sockaddr_in6().map(|v6| SocketAddrV6::from(*v6).into()))
}

#[cfg(test)]
mod tests;
