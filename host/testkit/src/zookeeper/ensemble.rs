//! Three servers that can be killed, paused and cut off from each other and from their clients.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, prlimit};
use tokio::time::{Instant, sleep};

use super::Process;
use crate::proxies::Proxies;
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
    proxies: Proxies,
}

impl Ensemble {
    /// Starts the servers and waits until one of them leads.
    pub async fn start() -> Self {
        let proxies = Proxies::default();
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
                        *port = proxies.proxy((number, other), *port).await.port();
                    }
                }
                let [quorum, election] = way;
                let _ = writeln!(members, "server.{}=127.0.0.1:{quorum}:{election}", other + 1);
            }
            let server = Process::new(*client_port, &members);
            std::fs::write(server.dir.path().join("data/myid"), (number + 1).to_string()).unwrap();
            clients.push(proxies.proxy((CLIENTS, number), server.port).await);
            servers.push(server);
        }
        let mut ensemble = Self {
            servers,
            clients,
            proxies,
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

    /// Lets every write of a server to its disk fail, as if that were full, until it is started again.
    pub fn fill_disk(&self, server: usize) {
        let child = self.servers[server].child.as_ref();
        let id = child
            .and_then(tokio::process::Child::id)
            .expect("a running server");
        let pid = rustix::process::Pid::from_raw(id.try_into().unwrap());
        let none = Rlimit {
            current: Some(0),
            maximum: None,
        };
        prlimit(pid, Resource::Fsize, none).unwrap();
    }

    /// Lets bytes from one server to another one, or from or to the clients, wait.
    pub fn cut(&self, from: usize, to: usize) {
        self.proxies.cut(from, to);
    }

    /// Lets all bytes pass again.
    pub fn heal(&self) {
        self.proxies.heal();
    }

    fn signal(&self, server: usize, signal: Signal) {
        let child = self.servers[server].child.as_ref();
        if let Some(id) = child.and_then(tokio::process::Child::id) {
            kill(Pid::from_raw(id.try_into().unwrap()), signal).unwrap();
        }
    }
}
