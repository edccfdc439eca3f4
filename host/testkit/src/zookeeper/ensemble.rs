//! Three servers that can be killed, paused and cut off from each other and from their clients.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::Process;
use crate::{WAIT_TIMEOUT, free_port};

/// The number of servers.
const SERVERS: usize = 3;
/// What [`Ensemble::cut`] calls all clients.
pub const CLIENTS: usize = SERVERS;

/// An ensemble of three servers, numbered from 0. They reach each other, and clients reach them,
/// through proxies that pass bytes on. Ends when dropped.
#[derive(Debug)]
pub struct Ensemble {
    servers: Vec<Process>,
    clients: Vec<SocketAddr>,
    /// Bytes from the first to the second wait.
    cut: watch::Sender<BTreeSet<(usize, usize)>>,
}

impl Ensemble {
    /// Starts the servers and waits until one of them leads.
    pub async fn start() -> Self {
        let cut = watch::Sender::new(BTreeSet::new());
        let ports: Vec<u16> = (0..3 * SERVERS).map(|_| free_port()).collect();
        let (client_ports, rest) = ports.split_at(SERVERS);
        let (quorum_ports, election_ports) = rest.split_at(SERVERS);
        let (mut servers, mut clients) = (Vec::new(), Vec::new());
        for (number, client_port) in client_ports.iter().enumerate() {
            let mut members = String::new();
            for other in 0..SERVERS {
                let mut way = [quorum_ports[other], election_ports[other]];
                if other != number {
                    for port in &mut way {
                        *port = proxy((number, other), *port, &cut).await.port();
                    }
                }
                let [quorum, election] = way;
                let _ = writeln!(members, "server.{}=127.0.0.1:{quorum}:{election}", other + 1);
            }
            let server = Process::new(*client_port, &members);
            std::fs::write(server.dir.path().join("data/myid"), (number + 1).to_string()).unwrap();
            clients.push(proxy((CLIENTS, number), server.port, &cut).await);
            servers.push(server);
        }
        let mut ensemble = Self {
            servers,
            clients,
            cut,
        };
        for number in 0..SERVERS {
            ensemble.start_again(number);
        }
        ensemble.leader().await;
        ensemble
    }

    /// The servers, as `host:port` separated by commas.
    pub fn address(&self) -> String {
        let addresses: Vec<_> = self.clients.iter().map(ToString::to_string).collect();
        addresses.join(",")
    }

    /// The same without the proxies, for measurements.
    pub fn direct_address(&self) -> String {
        let addresses: Vec<_> = self.servers.iter().map(Process::address).collect();
        addresses.join(",")
    }

    /// The server that leads, once one does.
    pub async fn leader(&self) -> usize {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            for (number, server) in self.servers.iter().enumerate() {
                if server.mode().await.as_deref() == Some("leader") {
                    return number;
                }
            }
            let logs: Vec<_> = self.servers.iter().map(Process::log).collect();
            assert!(Instant::now() < deadline, "no server leads: {logs:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Kills a server; its data stay.
    pub async fn kill(&mut self, server: usize) {
        self.servers[server].stop().await;
    }

    /// Starts a killed server.
    pub fn start_again(&mut self, server: usize) {
        self.servers[server].start();
    }

    /// Stops the process of a server, which its peers do not notice at first.
    pub fn pause(&self, server: usize) {
        self.signal(server, Signal::SIGSTOP);
    }

    /// Continues a paused server.
    pub fn resume(&self, server: usize) {
        self.signal(server, Signal::SIGCONT);
    }

    /// Lets bytes from one server to another one, or from or to the clients, wait.
    pub fn cut(&self, from: usize, to: usize) {
        self.cut.send_modify(|cut| {
            cut.insert((from, to));
        });
    }

    /// Lets all bytes pass again.
    pub fn heal(&self) {
        self.cut.send_modify(BTreeSet::clear);
    }

    fn signal(&self, server: usize, signal: Signal) {
        let child = self.servers[server].child.as_ref();
        if let Some(id) = child.and_then(tokio::process::Child::id) {
            kill(Pid::from_raw(id.try_into().unwrap()), signal).unwrap();
        }
    }
}

/// A proxy on the way from one to another, in front of a port; it ends with the test's runtime.
async fn proxy(
    (from, to): (usize, usize),
    port: u16,
    cut: &watch::Sender<BTreeSet<(usize, usize)>>,
) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let cut = cut.subscribe();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let cut = cut.clone();
            tokio::spawn(async move {
                // Without a listener there, the connection of the caller ends.
                let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else {
                    return;
                };
                let _ = (near.set_nodelay(true), far.set_nodelay(true));
                let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                tokio::select! {
                    () = pass(near_in, far_out, (from, to), cut.clone()) => {}
                    () = pass(far_in, near_out, (to, from), cut) => {}
                }
            });
        }
    });
    address
}

/// Passes bytes on until the connection ends.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    way: (usize, usize),
    mut cut: watch::Receiver<BTreeSet<(usize, usize)>>,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if cut.wait_for(|cut| !cut.contains(&way)).await.is_err() {
            return;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
    // The end of a connection does not pass either.
    let _ = cut.wait_for(|cut| !cut.contains(&way)).await;
}
