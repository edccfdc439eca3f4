//! One subscriber: a bounded queue of chunks, and the byte stream of its HTTP response.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

use super::signals::Signals;
use super::{Bus, Listener, StreamKey, frame};

/// The maximum number of queued events of a subscriber; one more closes its stream.
pub(crate) const MAX_QUEUED_EVENTS: usize = 8192;
/// The maximum size of the queued events in bytes.
pub(crate) const MAX_QUEUED_BYTES: usize = 16 << 20;
/// The maximum number of chunks in one write, and the size from which a write takes no further
/// chunk.
const MAX_JOINED_CHUNKS: usize = 64;
const MIN_JOINED_BYTES: usize = 64 << 10;
/// Interval of the empty lines on an idle stream.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Joined frames.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) bytes: Bytes,
    pub(super) events: u32,
}

/// The bus's end of a stream. Dropping it ends the stream after the queued chunks.
#[derive(Debug)]
pub(super) struct Subscriber {
    /// Number of the next event for this subscriber.
    pub(super) next: u64,
    /// Whether it resumes an earlier stream, so that missing events are reported to it as a gap.
    pub(super) resumes: bool,
    queue: mpsc::UnboundedSender<Chunk>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: AtomicUsize,
    bytes: AtomicUsize,
    /// Whether the group waits for room in the queue.
    replaying: AtomicBool,
    /// `None` for a stream of this daemon itself.
    listener: Option<Listener>,
    end: Mutex<Option<StreamEnd>>,
}

/// Why a stream ends.
#[derive(Debug)]
struct StreamEnd {
    comment: String,
    /// Whether the queued chunks are discarded, because the client does not keep up with them.
    immediately: bool,
}

impl Subscriber {
    /// Queues a chunk. Returns false when the stream is closed, because its queue is full or the
    /// client has left.
    pub(super) fn offer(&self, chunk: Chunk) -> bool {
        let events = chunk.events as usize;
        let bytes = chunk.bytes.len();
        let waiting = self.shared.waiting.fetch_add(events, Ordering::AcqRel);
        let waiting_bytes = self.shared.bytes.fetch_add(bytes, Ordering::AcqRel);
        // A single chunk may exceed the limit when the queue is empty: it is sent immediately.
        if waiting > 0 && waiting + events > MAX_QUEUED_EVENTS {
            self.end(
                &format!("slow client: more than {MAX_QUEUED_EVENTS} events are queued"),
                true,
            );
            return false;
        }
        if waiting > 0 && waiting_bytes + bytes > MAX_QUEUED_BYTES {
            self.end(
                &format!("slow client: more than {MAX_QUEUED_BYTES} bytes of events are queued"),
                true,
            );
            return false;
        }
        self.queue.send(chunk).is_ok()
    }

    /// Whether the queue has room for a whole batch of past events. If not, the group is woken when
    /// the client has read something.
    pub(super) fn has_room(&self, events: usize, bytes: usize) -> bool {
        let has_room = || {
            let waiting = self.shared.waiting.load(Ordering::Acquire);
            let waiting_bytes = self.shared.bytes.load(Ordering::Acquire);
            waiting == 0
                || (waiting + events <= MAX_QUEUED_EVENTS && waiting_bytes + bytes <= MAX_QUEUED_BYTES)
        };
        if has_room() {
            return true;
        }
        self.shared.replaying.store(true, Ordering::SeqCst);
        // The client may have emptied the queue after the check and before the flag was set.
        has_room()
    }

    /// Whether the client has left.
    pub(super) fn has_left(&self) -> bool {
        self.queue.is_closed()
    }

    /// Ends the stream after the queued chunks, with the reason.
    pub(super) fn close(&self, reason: &str) {
        self.end(reason, false);
    }

    fn end(&self, reason: &str, immediately: bool) {
        *self.shared.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(StreamEnd {
            comment: frame::comment(reason),
            immediately,
        });
        if immediately && let Some(listener) = &self.shared.listener {
            tracing::info!(
                client = listener.client,
                url = transom_web::truncated(&listener.url),
                reason,
                "event stream closed"
            );
            listener.disconnect.schedule();
        }
    }
}

/// Identifies a subscriber in the bus.
#[derive(Debug)]
pub(super) struct Membership {
    pub(super) bus: Bus,
    pub(super) key: StreamKey,
    pub(super) signals: Arc<Signals>,
    /// `None` for a stream of this daemon itself.
    pub(super) listener: Option<Listener>,
}

/// Creates both ends of a stream whose first event has the number `next`.
pub(super) fn open(next: u64, resumes: bool, membership: Membership) -> (Subscriber, Subscription) {
    // Bounded by `offer`, by events and bytes.
    let (queue, chunks) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared {
        listener: membership.listener.clone(),
        ..Shared::default()
    });
    let subscriber = Subscriber {
        next,
        resumes,
        queue,
        shared: Arc::clone(&shared),
    };
    let subscription = Subscription {
        chunks,
        shared,
        sent_at: Instant::now(),
        keep_alive: Box::pin(tokio::time::sleep(KEEP_ALIVE)),
        ended: false,
        detach_on_drop: DetachOnDrop(membership),
    };
    (subscriber, subscription)
}

/// The client's end of a stream: yields chunks, keep-alives between them, and finally the reason
/// for the end. Dropping it detaches the subscriber from the bus.
#[derive(Debug)]
pub(crate) struct Subscription {
    chunks: mpsc::UnboundedReceiver<Chunk>,
    shared: Arc<Shared>,
    sent_at: Instant,
    keep_alive: Pin<Box<Sleep>>,
    ended: bool,
    detach_on_drop: DetachOnDrop,
}

impl Subscription {
    /// Joins all waiting chunks, up to a limit.
    fn joined(&mut self, first: Chunk) -> Bytes {
        let mut chunks = vec![first];
        let mut bytes = chunks.iter().map(|chunk| chunk.bytes.len()).sum::<usize>();
        while chunks.len() < MAX_JOINED_CHUNKS
            && bytes < MIN_JOINED_BYTES
            && let Ok(chunk) = self.chunks.try_recv()
        {
            bytes += chunk.bytes.len();
            chunks.push(chunk);
        }
        let events: usize = chunks.iter().map(|chunk| chunk.events as usize).sum();
        self.shared.waiting.fetch_sub(events, Ordering::AcqRel);
        self.shared.bytes.fetch_sub(bytes, Ordering::AcqRel);
        if self.shared.replaying.swap(false, Ordering::SeqCst) {
            self.detach_on_drop.0.signals.wake.notify_one();
        }
        match chunks.as_slice() {
            [only] => only.bytes.clone(),
            several => {
                let mut joined = Vec::with_capacity(bytes);
                for chunk in several {
                    joined.extend_from_slice(&chunk.bytes);
                }
                joined.into()
            }
        }
    }

    /// The reason for an end before which the queued chunks are not sent.
    fn ended_immediately(&self) -> Option<String> {
        let mut end = self.shared.end.lock().unwrap_or_else(PoisonError::into_inner);
        end.take_if(|end| end.immediately).map(|end| end.comment)
    }
}

impl Stream for Subscription {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        if let Some(comment) = this.ended_immediately() {
            this.ended = true;
            this.chunks.close();
            while this.chunks.try_recv().is_ok() {}
            return Poll::Ready(Some(Ok(Bytes::from(comment))));
        }
        match this.chunks.poll_recv(context) {
            Poll::Ready(Some(chunk)) => {
                this.sent_at = Instant::now();
                let bytes = this.joined(chunk);
                return Poll::Ready(Some(Ok(bytes)));
            }
            Poll::Ready(None) => {
                this.ended = true;
                let mut end = this.shared.end.lock().unwrap_or_else(PoisonError::into_inner);
                return Poll::Ready(end.take().map(|end| Ok(Bytes::from(end.comment))));
            }
            Poll::Pending => {}
        }
        // The timer is not reset for each chunk, but only when it fires.
        while this.keep_alive.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            if now >= this.sent_at + KEEP_ALIVE {
                this.sent_at = now;
                this.keep_alive.as_mut().reset(now + KEEP_ALIVE);
                return Poll::Ready(Some(Ok(Bytes::from_static(frame::KEEP_ALIVE.as_bytes()))));
            }
            this.keep_alive.as_mut().reset(this.sent_at + KEEP_ALIVE);
        }
        Poll::Pending
    }
}

/// Detaches the subscriber when the client's end is dropped, for whatever reason.
#[derive(Debug)]
struct DetachOnDrop(Membership);

impl Drop for DetachOnDrop {
    fn drop(&mut self) {
        let Membership {
            bus,
            key,
            signals,
            listener,
        } = &self.0;
        bus.detach(key, signals, listener.as_ref());
    }
}
