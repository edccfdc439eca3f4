//! A proxy in front of event streams that breaks each connection after a number of bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Minimum of bytes that a connection passes unless a test sets another: more than a response's
/// head and one event, so that each connection makes progress.
const FEWEST: usize = 3000;
/// Range of the additional bytes of a connection; a prime, so that breaks fall at any position of
/// an event.
const SPREAD: usize = 2503;

/// A field without an event, as one chunk of a chunked body: clients wait 20 ms before they connect
/// again instead of their default of seconds.
const RETRY: &[u8] = b"b\r\nretry: 20\r\n\r\n";

/// A running proxy.
pub struct Breaking {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// `None` while the daemon is down; connections then wait.
    daemon: watch::Sender<Option<SocketAddr>>,
    breaks: AtomicBool,
    broken: AtomicUsize,
}

impl Breaking {
    /// Starts listening in front of `daemon`.
    pub async fn before(daemon: SocketAddr) -> Breaking {
        Breaking::after(FEWEST, daemon).await
    }

    /// Starts a proxy whose connections pass at least `fewest` bytes.
    pub async fn after(fewest: usize, daemon: SocketAddr) -> Breaking {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            daemon: watch::Sender::new(Some(daemon)),
            breaks: AtomicBool::new(true),
            broken: AtomicUsize::new(0),
        });
        let serving = Arc::clone(&shared);
        // The task ends with the test's runtime.
        tokio::spawn(async move {
            let mut number = 0;
            while let Ok((client, _)) = listener.accept().await {
                number += 1;
                let bytes = fewest + number * 617 % SPREAD;
                tokio::spawn(pass(client, bytes, Arc::clone(&serving)));
            }
        });
        Breaking { address, shared }
    }

    /// The number of connections that the proxy has broken.
    pub fn broken(&self) -> usize {
        self.shared.broken.load(Ordering::Relaxed)
    }

    /// Stops breaking connections.
    pub fn calm(&self) {
        self.shared.breaks.store(false, Ordering::Relaxed);
    }

    /// Sets the daemon's address; connections wait while it is `None`.
    pub fn daemon(&self, address: Option<SocketAddr>) {
        self.shared.daemon.send_replace(address);
    }
}

/// Forwards one connection until a peer closes it or its bytes are used up.
async fn pass(client: TcpStream, bytes: usize, shared: Arc<Shared>) -> Option<()> {
    let mut daemon = shared.daemon.subscribe();
    let address = daemon.wait_for(Option::is_some).await.ok()?.as_ref().copied()?;
    let upstream = TcpStream::connect(address).await.ok()?;
    let (mut requests, mut answers) = client.into_split();
    let (mut from, mut to) = upstream.into_split();
    let forward = async {
        let _ = tokio::io::copy(&mut requests, &mut to).await;
    };
    let back = async {
        let (mut head, mut left) = (Some(Vec::new()), bytes);
        let mut buffer = vec![0; 16 << 10];
        loop {
            let read = from.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
            let mut answer = buffer[..read].to_vec();
            if let Some(mut seen) = head.take() {
                seen.append(&mut answer);
                let end = seen.windows(4).position(|four| four == b"\r\n\r\n");
                let Some(end) = end else {
                    head = Some(seen);
                    continue;
                };
                if seen.starts_with(b"HTTP/1.1 200") {
                    seen.splice(end + 4..end + 4, RETRY.iter().copied());
                }
                answer = seen;
            }
            if answer.len() >= left && shared.breaks.load(Ordering::Relaxed) {
                // Counted before the break, so that a client that sees the break also sees the new
                // number.
                shared.broken.fetch_add(1, Ordering::Relaxed);
                return answers.write_all(&answer[..left]).await.ok();
            }
            left = left.saturating_sub(answer.len()).max(1);
            answers.write_all(&answer).await.ok()?;
        }
    };
    tokio::select! {
        () = forward => None,
        done = back => done,
    }
}
