//! Lookups over UDP. Several sockets share the port and the system spreads clients over them. Packets are received, answered
//! and sent in batches: what comes faster waits in the system's buffer, which is bounded, and nowhere else.

mod local;

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket as StdUdpSocket};
use std::ops::Range;
use std::os::fd::AsRawFd;
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

use super::client::{Client, Transport};
use super::connection::Reply;
use super::handler::Handler;
use local::Local;

/// More than any query has; the rest of a longer one is lost, and it is answered as one that cannot be read.
const LARGEST: usize = 4096;
/// Packets that are received, answered and sent at once.
const BATCH: usize = 64;
/// Batches until others get their turn.
const BATCHES: usize = 16;
/// What the system is asked to hold for each socket, as far as it lets us.
const BUFFER: usize = 4 << 20;
/// Nobody waits longer for a socket whose buffer is full; who asked will ask again.
const SEND_WITHIN: Duration = Duration::from_secs(1);
/// Pause after a packet could not be received; retrying at once would only burn the processor.
const PAUSE: Duration = Duration::from_millis(100);

/// The sockets of one port, one for each of the runtime's threads. A listener on all addresses has as many for each address that the
/// machine has now: a packet to such a socket needs no control message that tells its destination, which costs a tenth of the rate.
/// The sockets for all addresses answer what is left, such as addresses that the machine gets later.
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
        for ip in local::addresses(addr.ip(), both_families) {
            let own = SocketAddr::new(ip, addr.port());
            match (0..threads).map(|_| socket(own)).collect::<io::Result<Vec<_>>>() {
                Ok(more) => sockets.extend(more),
                Err(error) => {
                    tracing::debug!(addr = %own, %error, "no DNS socket of its own for this address");
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
    // A wish: systems have a bound of their own.
    let _ = socket.set_recv_buffer_size(BUFFER);
    local::tell(&socket, addr)?;
    socket.bind(&addr.into())?;
    UdpSocket::from_std(StdUdpSocket::from(socket))
}

/// Answers until the token is cancelled.
pub(super) async fn serve(sockets: Vec<UdpSocket>, handler: Arc<Handler>, token: CancellationToken) {
    let mut workers = JoinSet::new();
    let later = TaskTracker::new();
    for socket in sockets {
        let worker = Worker {
            socket: Arc::new(socket),
            handler: Arc::clone(&handler),
            later: later.clone(),
        };
        let token = token.clone();
        workers.spawn(async move {
            token.run_until_cancelled(worker.watched()).await;
        });
    }
    while workers.join_next().await.is_some() {}
    later.close();
    // They have deadlines of their own; who asked is not left without an answer.
    later.wait().await;
}

/// Answers what comes to one socket.
#[derive(Clone)]
struct Worker {
    socket: Arc<UdpSocket>,
    handler: Arc<Handler>,
    /// Answers that others have to be asked for.
    later: TaskTracker,
}

impl Worker {
    /// A packet that is too much for us is lost; its socket goes on with the next one.
    async fn watched(self) {
        loop {
            let mut answering = JoinSet::new();
            answering.spawn(self.clone().answer());
            if let Some(Err(error)) = answering.join_next().await {
                tracing::error!(%error, "a packet was too much; going on with the next one");
            }
        }
    }

    async fn answer(self) {
        // No buffers before the first packet: most sockets of a machine with many addresses never receive one.
        let _ = self.socket.readable().await;
        let addr = self.socket.local_addr();
        let mut batch = Batch::new(addr.is_ok_and(|addr| addr.ip().is_unspecified()));
        loop {
            if let Err(error) = self.turn(&mut batch).await {
                tracing::warn!(%error, "cannot receive DNS packets for the moment");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Waits for packets and answers what there is.
    async fn turn(&self, batch: &mut Batch) -> io::Result<()> {
        let socket = &self.socket;
        socket.readable().await?;
        for _ in 0..BATCHES {
            match socket.try_io(Interest::READABLE, || batch.receive(socket)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            batch.answer(socket, &self.handler, &self.later);
            batch.send_all(socket).await;
            if batch.received.len() < BATCH {
                return Ok(());
            }
        }
        tokio::task::yield_now().await;
        Ok(())
    }
}

/// Who asked, and which address of this machine.
type Peer = (Option<SockaddrStorage>, Option<Local>);

/// Packets and their answers.
struct Batch {
    /// Whether its socket takes what comes to any address of this machine.
    is_for_all: bool,
    packets: Vec<[u8; LARGEST]>,
    /// How long each packet is, who sent it, and where to, on a socket that is for all of this machine's addresses.
    received: Vec<(usize, Peer)>,
    /// All answers, one behind the other.
    answers: Vec<u8>,
    /// Where each answer is, and whose it is.
    unsent: Vec<(Range<usize>, Peer)>,
}

impl Batch {
    fn new(is_for_all: bool) -> Self {
        Self {
            is_for_all,
            packets: vec![[0; LARGEST]; BATCH],
            received: Vec::with_capacity(BATCH),
            answers: Vec::with_capacity(BATCH * 512),
            unsent: Vec::with_capacity(BATCH),
        }
    }

    /// Takes what has come, without waiting.
    fn receive(&mut self, socket: &UdpSocket) -> io::Result<()> {
        self.received.clear();
        let room = self.is_for_all.then(local::room);
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, room);
        let mut slices: Vec<_> = self
            .packets
            .iter_mut()
            .map(|packet| [IoSliceMut::new(packet)])
            .collect();
        let flags = MsgFlags::MSG_DONTWAIT;
        let messages = recvmmsg(socket.as_raw_fd(), &mut headers, slices.iter_mut(), flags, None)?;
        self.received.extend(messages.map(|message| {
            let told = self.is_for_all.then(|| message.cmsgs().ok()).flatten();
            let local = told.and_then(|mut told| told.find_map(|told| Local::told(&told)));
            (message.bytes, (message.address, local))
        }));
        Ok(())
    }

    /// Answers what was received, all of it from one zone. What others have to be asked for is left to tasks.
    fn answer(&mut self, socket: &Arc<UdpSocket>, handler: &Arc<Handler>, tasks: &TaskTracker) {
        self.answers.clear();
        self.unsent.clear();
        let zone = handler.zone();
        for ((size, peer), packet) in self.received.iter().zip(&self.packets) {
            let start = self.answers.len();
            let asker = Client {
                ip: addr(peer.0.as_ref())
                    .map_or(Ipv4Addr::UNSPECIFIED.into(), |client| client.ip().to_canonical()),
                over: Transport::Udp,
            };
            match handler.reply(zone.as_ref(), &packet[..*size], asker, &mut self.answers) {
                Reply::Written | Reply::Last => {}
                // Transfers over UDP are one message.
                Reply::Messages(mut next) => self.answers.extend(next().unwrap_or_default()),
                Reply::Later(answer) => {
                    let (socket, handler, peer) = (Arc::clone(socket), Arc::clone(handler), *peer);
                    tasks.spawn(async move {
                        let mut answer = answer.await;
                        if handler.limited(asker.ip, 0, &mut answer) {
                            send(&socket, &answer, peer).await;
                        }
                    });
                    continue;
                }
                Reply::Silence => continue,
            }
            if handler.limited(asker.ip, start, &mut self.answers) {
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
                        // It is the first one's; the others have to do with others.
                        tracing::debug!(%error, "an answer was not sent");
                        self.unsent.remove(0);
                    }
                }
            }
        };
        if tokio::time::timeout(SEND_WITHIN, sending).await.is_err() {
            tracing::debug!(answers = self.unsent.len(), "answers were not sent in time");
        }
    }

    /// Sends what there is to send from one address, without waiting. How many were.
    fn send(&self, socket: &UdpSocket) -> io::Result<usize> {
        let from = self.unsent.first().and_then(|(_, (_, local))| *local);
        let together = self.unsent.iter().take_while(|(_, (_, local))| *local == from);
        let answers = together.map(|(place, (client, _))| (&self.answers[place.clone()], *client));
        send_now(socket, from, answers)
    }
}

/// Sends answers from one address, without waiting. How many were.
fn send_now<'a>(
    socket: &UdpSocket,
    from: Option<Local>,
    answers: impl Iterator<Item = (&'a [u8], Option<SockaddrStorage>)>,
) -> io::Result<usize> {
    let (slices, clients): (Vec<_>, Vec<_>) = answers
        .map(|(answer, client)| ([IoSlice::new(answer)], client))
        .unzip();
    let sent = local::from(from, |message, room| {
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
    match tokio::time::timeout(SEND_WITHIN, sending).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an answer was not sent"),
        Err(_) => tracing::debug!("an answer was not sent in time"),
    }
}

/// Whose packet it is.
fn addr(client: Option<&SockaddrStorage>) -> Option<SocketAddr> {
    let client = client?;
    let v4 = client.as_sockaddr_in().map(|v4| SocketAddrV4::from(*v4).into());
    v4.or_else(|| client.as_sockaddr_in6().map(|v6| SocketAddrV6::from(*v6).into()))
}

#[cfg(test)]
mod tests;
