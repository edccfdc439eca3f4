//! A proxy in front of event streams that breaks each connection after a number of bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Minimum of bytes that a connection passes: more than a response's head and one event, so that each
/// connection makes progress.
const MIN_BYTES: usize = 3000;
/// Range of the additional bytes of a connection; a prime, so that breaks fall at any position of
/// an event.
const EXTRA_BYTES_RANGE: usize = 2503;

/// A field without an event, as one chunk of a chunked body: clients wait 20 ms before they connect
/// again instead of their default of seconds.
const RETRY_FIELD: &[u8] = b"b\r\nretry: 20\r\n\r\n";

/// A running proxy.
pub struct BreakingProxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// `None` while the daemon is down; connections then wait.
    daemon: watch::Sender<Option<SocketAddr>>,
    is_breaking: AtomicBool,
    broken_connections: AtomicUsize,
}

impl BreakingProxy {
    /// Starts listening in front of `daemon`.
    pub async fn before(daemon: SocketAddr) -> BreakingProxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            daemon: watch::Sender::new(Some(daemon)),
            is_breaking: AtomicBool::new(true),
            broken_connections: AtomicUsize::new(0),
        });
        let serving = Arc::clone(&shared);
        // The task ends with the test's runtime.
        tokio::spawn(async move {
            let mut number = 0;
            while let Ok((client, _)) = listener.accept().await {
                number += 1;
                let bytes = MIN_BYTES + number * 617 % EXTRA_BYTES_RANGE;
                tokio::spawn(forward_connection(client, bytes, Arc::clone(&serving)));
            }
        });
        BreakingProxy { address, shared }
    }

    /// The number of connections that the proxy has broken.
    pub fn broken_connections(&self) -> usize {
        self.shared.broken_connections.load(Ordering::Relaxed)
    }

    /// Stops breaking connections.
    pub fn stop_breaking(&self) {
        self.shared.is_breaking.store(false, Ordering::Relaxed);
    }

    /// Sets the daemon's address; connections wait while it is `None`.
    pub fn set_daemon(&self, address: Option<SocketAddr>) {
        self.shared.daemon.send_replace(address);
    }
}

/// Forwards one connection until a peer closes it or its bytes are used up.
async fn forward_connection(client: TcpStream, bytes: usize, shared: Arc<Shared>) -> Option<()> {
    let mut daemon = shared.daemon.subscribe();
    let address = daemon.wait_for(Option::is_some).await.ok()?.as_ref().copied()?;
    let upstream = TcpStream::connect(address).await.ok()?;
    let (mut requests, mut answers) = client.into_split();
    let (mut from, mut to) = upstream.into_split();
    let forward = async {
        let _ = tokio::io::copy(&mut requests, &mut to).await;
    };
    let forward_back = async {
        let (mut head, mut remaining) = (Some(Vec::new()), bytes);
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
                    seen.splice(end + 4..end + 4, RETRY_FIELD.iter().copied());
                }
                answer = seen;
            }
            if answer.len() >= remaining && shared.is_breaking.load(Ordering::Relaxed) {
                // Counted before the break, so that a client that sees the break also sees the new
                // number.
                shared.broken_connections.fetch_add(1, Ordering::Relaxed);
                return answers.write_all(&answer[..remaining]).await.ok();
            }
            remaining = remaining.saturating_sub(answer.len()).max(1);
            answers.write_all(&answer).await.ok()?;
        }
    };
    tokio::select! {
        () = forward => None,
        outcome = forward_back => outcome,
    }
}
