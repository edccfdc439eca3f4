//! One subscriber: a bounded queue of chunks, and the byte stream of its HTTP response.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::{Bus, Listener, StreamKey, frame};

/// Events that may be queued for a subscriber; one more closes its stream.
pub(crate) const MAX_QUEUED_EVENTS: usize = 1024;
/// The same in bytes.
pub(crate) const MAX_QUEUED_BYTES: usize = 16 << 20;
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
    pub(super) id: u64,
    /// Number of the first event for this subscriber.
    pub(super) from: u64,
    queue: mpsc::Sender<Chunk>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: AtomicUsize,
    bytes: AtomicUsize,
    last_words: Mutex<Option<String>>,
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
            self.close(&format!(
                "slow client: more than {MAX_QUEUED_EVENTS} events are queued"
            ));
            return false;
        }
        if waiting > 0 && waiting_bytes + bytes > MAX_QUEUED_BYTES {
            self.close(&format!(
                "slow client: more than {MAX_QUEUED_BYTES} bytes of events are queued"
            ));
            return false;
        }
        self.queue.try_send(chunk).is_ok()
    }

    /// Sets the reason for the end of the stream, which is sent last.
    pub(super) fn close(&self, reason: &str) {
        *self
            .shared
            .last_words
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(frame::comment(reason));
    }
}

/// Creates both ends.
pub(super) fn open(
    id: u64,
    from: u64,
    bus: Bus,
    key: StreamKey,
    listener: Listener,
) -> (Subscriber, Subscription) {
    let (queue, chunks) = mpsc::channel(MAX_QUEUED_EVENTS);
    let shared = Arc::new(Shared::default());
    let mut keep_alive = tokio::time::interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let subscriber = Subscriber {
        id,
        from,
        queue,
        shared: Arc::clone(&shared),
    };
    let leaving = Leaving {
        id,
        bus,
        key,
        listener,
    };
    (
        subscriber,
        Subscription {
            chunks,
            shared,
            keep_alive,
            ended: false,
            _leaving: leaving,
        },
    )
}

/// The client's end: chunks, keep-alives between them, and finally the reason for its end. Dropping
/// it detaches it from the bus.
#[derive(Debug)]
pub(crate) struct Subscription {
    chunks: mpsc::Receiver<Chunk>,
    shared: Arc<Shared>,
    keep_alive: Interval,
    ended: bool,
    _leaving: Leaving,
}

impl Stream for Subscription {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        match this.chunks.poll_recv(context) {
            Poll::Ready(Some(chunk)) => {
                this.shared
                    .waiting
                    .fetch_sub(chunk.events as usize, Ordering::AcqRel);
                this.shared.bytes.fetch_sub(chunk.bytes.len(), Ordering::AcqRel);
                this.keep_alive.reset();
                Poll::Ready(Some(Ok(chunk.bytes)))
            }
            Poll::Ready(None) => {
                this.ended = true;
                let words = this
                    .shared
                    .last_words
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take();
                Poll::Ready(words.map(|words| Ok(Bytes::from(words))))
            }
            Poll::Pending if this.keep_alive.poll_tick(context).is_ready() => {
                Poll::Ready(Some(Ok(Bytes::from_static(frame::KEEP_ALIVE.as_bytes()))))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Detaches the subscriber when the client's end is dropped, for whatever reason.
#[derive(Debug)]
struct Leaving {
    id: u64,
    bus: Bus,
    key: StreamKey,
    listener: Listener,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.bus.detach(&self.key, self.id, &self.listener);
    }
}
