//! Samples the calls of a serving version, with their answers, for the call log.
//!
//! A sampled call and its answer go through a bounded queue to the writer of the log. When the
//! queue is full, the record is dropped and counted. The writer does everything that takes time:
//! conversion, masking and writing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::sync::{Notify, mpsc, oneshot};

use crate::{
    documents::ObservedCall, error::CallError, manifest::masks::Masks, observe::metrics::RecordingMetrics,
    worlds::WorldName,
};

/// The version whose calls are recorded.
#[derive(Debug)]
pub(crate) struct RecordedVersion {
    pub(crate) plugin: String,
    pub(crate) version: String,
    /// `sha256:` and the component's digest.
    pub(crate) digest: String,
    /// `sha256:` and the digest of the manifest.
    pub(crate) manifest: String,
    pub(crate) world: WorldName,
    pub(crate) masks: Arc<Masks>,
}

/// A sampled call in the queue to the writer of the log.
#[derive(Debug)]
pub(crate) struct Observation {
    pub(crate) version: Arc<RecordedVersion>,
    /// Milliseconds since 1970.
    pub(crate) at: u64,
    pub(crate) call: ObservedCall,
    pub(crate) fault: Option<String>,
    /// Duration for the caller, including the wait for an instance.
    pub(crate) duration: Duration,
    /// Peak linear memory of the version's largest instance: bytes.
    pub(crate) memory: u64,
    pub(crate) metrics: RecordingMetrics,
}

/// A message to the writer of the log.
#[derive(Debug)]
pub(crate) enum Message {
    Call(Box<Observation>),
    /// The writer responds when everything queued before it is written.
    Flush(oneshot::Sender<()>),
}

/// The queue to the writer of the log. After each batch the writer sleeps until a pause has passed,
/// the queue is half full or a flush is requested. It does not wait for single messages, because
/// sending a message takes several times as long if it wakes another thread.
#[derive(Clone, Debug)]
pub(crate) struct CallQueue {
    messages: mpsc::Sender<Message>,
    /// Ends the writer's wait.
    write_now: Arc<Notify>,
}

impl CallQueue {
    /// Returns the queue, its receiver, and the signal that ends the writer's wait early.
    pub(crate) fn new(size: usize) -> (CallQueue, mpsc::Receiver<Message>, Arc<Notify>) {
        let (messages, receiver) = mpsc::channel(size);
        let write_now = Arc::new(Notify::new());
        let queue = CallQueue {
            messages,
            write_now: Arc::clone(&write_now),
        };
        (queue, receiver, write_now)
    }

    /// Queues a call. False if the queue is full or the writer has ended.
    fn try_send(&self, call: Observation) -> bool {
        let sent = self.messages.try_send(Message::Call(Box::new(call))).is_ok();
        if self.messages.capacity() <= self.messages.max_capacity() / 2 {
            self.write_now.notify_one();
        }
        sent
    }

    /// Waits until everything queued before is written. `None` if the writer has ended.
    pub(crate) async fn flush(&self) -> Option<()> {
        let (done, written) = oneshot::channel();
        self.messages.send(Message::Flush(done)).await.ok()?;
        self.write_now.notify_one();
        written.await.ok()
    }
}

/// Sends the calls of one serving version to the call log.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) version: Arc<RecordedVersion>,
    pub(crate) queue: CallQueue,
    pub(crate) sample_percent: u64,
    /// Maximum size of a record in bytes.
    pub(crate) max_record: usize,
    pub(crate) metrics: RecordingMetrics,
    pub(crate) calls: AtomicU64,
}

impl Recorder {
    /// Counts a call. Returns its start time if it is in the sample.
    pub(crate) fn begin(&self) -> Option<Instant> {
        let call = self.calls.fetch_add(1, Relaxed);
        is_sampled(call, self.sample_percent).then(Instant::now)
    }

    /// Queues a call for the log, unless it is too large or the queue is full.
    pub(crate) fn end(&self, began: Instant, call: ObservedCall, fault: Option<&CallError>, memory: u64) {
        if call.bytes() > self.max_record {
            self.metrics.too_large.inc();
            return;
        }
        let observation = Observation {
            version: Arc::clone(&self.version),
            at: millis_now(),
            call,
            fault: fault.map(CallError::to_string),
            duration: began.elapsed(),
            memory,
            metrics: self.metrics.clone(),
        };
        if !self.queue.try_send(observation) {
            self.metrics.dropped.inc();
        }
    }
}

/// Whether the call with this number is in a sample of `per_cent` of a hundred calls, spread
/// evenly.
pub(crate) fn is_sampled(call: u64, per_cent: u64) -> bool {
    let call = call % 100;
    call * per_cent / 100 != (call + 1) * per_cent / 100
}

/// Milliseconds since 1970.
pub(crate) fn millis_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future as _,
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;
    use crate::observe::metrics::Metrics;

    fn recorder(queue: CallQueue) -> Recorder {
        let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
        let version = RecordedVersion {
            plugin: "p".to_owned(),
            version: "1".to_owned(),
            digest: String::new(),
            manifest: String::new(),
            world: WorldName::AttributeMatcher,
            masks: Arc::default(),
        };
        Recorder {
            version: Arc::new(version),
            queue,
            sample_percent: 100,
            max_record: 1000,
            metrics: metrics.recording("p"),
            calls: AtomicU64::new(0),
        }
    }

    fn call() -> ObservedCall {
        ObservedCall::Validate {
            constraints: Vec::new(),
            errors: None,
        }
    }

    #[test]
    fn sampling_matches_the_percentage() {
        for per_cent in [1, 7, 50, 99, 100] {
            let chosen = (0..1000).filter(|call| is_sampled(*call, per_cent)).count() as u64;
            assert_eq!(chosen, per_cent * 10, "{per_cent} %");
        }
    }

    #[test]
    fn calls_are_dropped_and_counted_when_the_queue_is_full() {
        let (queue, mut messages, _) = CallQueue::new(2);
        let recorder = recorder(queue);
        for _ in 0..5 {
            let began = recorder.begin().unwrap();
            recorder.end(began, call(), None, 0);
        }
        assert_eq!(recorder.metrics.dropped.get(), 3);
        assert!(messages.try_recv().is_ok());
        recorder.end(Instant::now(), call(), None, 0);
        assert_eq!(recorder.metrics.dropped.get(), 3);
    }

    #[test]
    fn writer_is_woken_only_by_a_queue_that_is_half_full() {
        let (queue, _messages, write_now) = CallQueue::new(4);
        let recorder = recorder(queue);
        let mut woken = pin!(write_now.notified());
        let mut context = Context::from_waker(Waker::noop());
        recorder.end(Instant::now(), call(), None, 0);
        assert!(woken.as_mut().poll(&mut context).is_pending());
        recorder.end(Instant::now(), call(), None, 0);
        assert!(woken.as_mut().poll(&mut context).is_ready());
    }
}
