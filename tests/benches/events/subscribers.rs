//! Thousands of event streams over plain sockets that only count events: a load generator that
//! parses nothing and therefore uses little of the machine's processor time.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use memchr::memmem::Finder;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// The beginning of the frame of each counted event.
const FRAME: &[u8] = b"event: status_update_event\r\n";
/// Maximum of connections that are opened concurrently.
const MAX_CONNECTING: usize = 256;
/// Maximum of bytes of one read.
const BUFFER_BYTES: usize = 64 << 10;
/// Interval between two evaluations of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Timeout of every condition.
const WAIT_TIMEOUT: Duration = Duration::from_mins(5);

/// The progress of one stream.
#[derive(Debug, Default)]
struct Received {
    events: AtomicU64,
    /// The time of the last read, in nanoseconds since the streams were opened.
    at: AtomicU64,
}

/// Open streams with the same query; dropping them closes all.
pub(crate) struct Subscribers {
    received: Arc<[Received]>,
    epoch: Instant,
    reading: JoinSet<()>,
}

impl Subscribers {
    /// Opens `count` streams and returns when each has received its response's head. `last` is the
    /// event after which the streams resume. Each set of streams has its own source address
    /// (127.0.0.`host`), because the ports of closed connections stay in use for a minute.
    pub(crate) async fn open(
        address: SocketAddr,
        count: usize,
        host: u8,
        path: impl Fn(usize) -> String,
        last: Option<&str>,
    ) -> Subscribers {
        let epoch = Instant::now();
        let received: Arc<[Received]> = (0..count).map(|_| Received::default()).collect();
        let last = last.map_or_else(String::new, |last| format!("Last-Event-ID: {last}\r\n"));
        let request = |number| {
            format!(
                "GET {} HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n{last}\r\n",
                path(number)
            )
        };
        let connecting = futures::stream::iter(0..count)
            .map(|number| async move { (number, connect(address, host, number).await) })
            .buffer_unordered(MAX_CONNECTING);
        let mut connecting = std::pin::pin!(connecting);
        let mut reading = JoinSet::new();
        while let Some((number, mut stream)) = connecting.next().await {
            let request = request(number);
            stream.write_all(request.as_bytes()).await.expect("a request");
            reading.spawn(read(stream, number, Arc::clone(&received), epoch));
        }
        let subscribers = Subscribers {
            received,
            epoch,
            reading,
        };
        subscribers
            .wait_until("the heads of all responses", |one| {
                one.at.load(Ordering::Acquire) > 0
            })
            .await;
        subscribers
    }

    /// Waits until each stream has received this number of events since it was opened. Returns the
    /// times when the first and the last stream had.
    pub(crate) async fn wait_for_events(&self, events: u64) -> (Instant, Instant) {
        self.wait_until("the events", |one| one.events.load(Ordering::Acquire) >= events)
            .await;
        let times = || {
            let times = self.received.iter();
            times.map(|one| self.epoch + Duration::from_nanos(one.at.load(Ordering::Acquire)))
        };
        let first = times().min().expect("a stream");
        (first, times().max().expect("a stream"))
    }

    /// The maximum of events that a stream has received.
    pub(crate) fn max_events(&self) -> u64 {
        let counts = self.received.iter();
        counts
            .map(|one| one.events.load(Ordering::Acquire))
            .max()
            .unwrap_or_default()
    }

    async fn wait_until(&self, what: &str, done: impl Fn(&Received) -> bool) {
        let begun = Instant::now();
        let mut waiting = 0;
        while waiting < self.received.len() {
            // The next evaluation begins at the first stream that is not done.
            match self.received[waiting..].iter().position(|one| !done(one)) {
                None => return,
                Some(more) => waiting += more,
            }
            assert!(
                begun.elapsed() < WAIT_TIMEOUT,
                "timed out waiting for {what}; {} streams are open",
                self.reading.len()
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

async fn connect(address: SocketAddr, host: u8, number: usize) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0));
    socket.bind(from).expect("an address of loopback");
    let stream = socket.connect(address).await;
    stream.unwrap_or_else(|error| panic!("connection {number}: {error}"))
}

async fn read(stream: TcpStream, number: usize, received: Arc<[Received]>, epoch: Instant) {
    let finder = Finder::new(FRAME);
    let mine = &received[number];
    // The end of the last read, which may contain the beginning of a frame.
    let mut tail: Vec<u8> = Vec::new();
    let mut is_head = true;
    loop {
        stream.readable().await.expect("a socket");
        let count = BUFFERS.with_borrow_mut(|buffer| {
            let length = match stream.try_read(buffer) {
                Ok(0) => panic!("stream {number} was closed"),
                Ok(length) => length,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return None,
                Err(error) => panic!("stream {number}: {error}"),
            };
            let bytes = &buffer[..length];
            if is_head {
                let text = String::from_utf8_lossy(&bytes[..length.min(200)]);
                assert!(text.starts_with("HTTP/1.1 200"), "stream {number}: {text}");
                is_head = false;
            }
            tail.extend_from_slice(&bytes[..length.min(FRAME.len() - 1)]);
            let across = finder.find_iter(&tail).count();
            tail.clear();
            tail.extend_from_slice(&bytes[length.saturating_sub(FRAME.len() - 1)..]);
            Some(across + finder.find_iter(bytes).count())
        });
        if let Some(count) = count {
            let now = u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
            mine.at.store(now, Ordering::Release);
            mine.events.fetch_add(count as u64, Ordering::Release);
        }
    }
}

thread_local! {
    /// One buffer per thread: a stream needs it only during a read.
    static BUFFERS: std::cell::RefCell<Vec<u8>> = std::cell::RefCell::new(vec![0; BUFFER_BYTES]);
}
