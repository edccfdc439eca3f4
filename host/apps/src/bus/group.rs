//! Subscribers with the same query: one view, one call per batch, one chunk for all of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::sync::CancellationToken;
use transom_plugin_host::CallError;
use transom_plugin_host::events::{Decision, Event, OpenError};

use super::stream::{Chunk, Subscriber, Subscription};
use super::{Bus, Listener, Lost, MAX_EVENT, Metrics, Published, StreamKey, frame};
use crate::seams::View;

/// Events per call of the component.
const BATCH: usize = 256;
/// A batch with this many bytes takes no further event. It fits into the memory of a small
/// component.
const BATCH_BYTES: usize = 1 << 20;
/// Delays between retries while the component is busy.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(20),
    Duration::from_millis(200),
    Duration::from_secs(1),
];
/// Delay before the one retry of an event, or of the empty batch, after a fault.
const ONCE_MORE: Duration = Duration::from_millis(100);
/// Timeout of a call, whatever the component's own limits are.
const DECISION_TIMEOUT: Duration = Duration::from_secs(30);

/// One group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) key: StreamKey,
    view: Arc<dyn View>,
    subscribers: Mutex<Vec<Subscriber>>,
    /// Bytes of events that are published but not yet decided.
    behind: AtomicUsize,
    /// Cancelled when the last subscriber has left.
    pub(super) stop: CancellationToken,
}

/// Why the component returned no decisions.
enum Unanswered {
    /// The call failed in the component; other events or a retry may succeed.
    Fault(String),
    /// There is no component, or it no longer accepts the query.
    Gone(String),
}

impl Group {
    pub(super) fn new(key: StreamKey, view: Arc<dyn View>) -> Self {
        Self {
            key,
            view,
            subscribers: Mutex::new(Vec::new()),
            behind: AtomicUsize::new(0),
            stop: CancellationToken::new(),
        }
    }

    /// Adds a subscriber, which receives events from the number `from` on.
    pub(super) fn add(&self, id: u64, from: u64, bus: Bus, listener: Listener) -> Subscription {
        let (subscriber, subscription) = super::stream::open(id, from, bus, self.key.clone(), listener);
        self.subscribers().push(subscriber);
        subscription
    }

    /// Removes a subscriber. Returns whether the group is empty now.
    pub(super) fn remove(&self, id: u64) -> bool {
        let mut subscribers = self.subscribers();
        subscribers.retain(|subscriber| subscriber.id != id);
        subscribers.is_empty()
    }

    /// Closes every stream of the group with a reason. Returns their number.
    pub(super) fn close_all(&self, reason: &str) -> usize {
        self.stop.cancel();
        let subscribers = std::mem::take(&mut *self.subscribers());
        for subscriber in &subscribers {
            subscriber.close(reason);
        }
        subscribers.len()
    }

    /// Counts a published event. Returns the bytes that wait for the component.
    pub(super) fn published(&self, bytes: usize) -> usize {
        self.behind.fetch_add(bytes, Ordering::AcqRel) + bytes
    }

    /// Sends a decided batch to all subscribers. Returns the numbers of queued frames and closed
    /// subscribers.
    fn deliver(&self, batch: &[Arc<Published>], decisions: &[Decision], term: u64) -> (u64, u64) {
        let mut subscribers = self.subscribers();
        let Some(first) = batch.first() else { return (0, 0) };
        let whole = self.chunk(batch, decisions, term, first.sequence);
        let (mut frames, before) = (0, subscribers.len());
        subscribers.retain(|subscriber| {
            // A subscriber that joined within this batch only gets later events.
            let chunk = if subscriber.from <= first.sequence {
                whole.clone()
            } else {
                self.chunk(batch, decisions, term, subscriber.from)
            };
            frames += u64::from(chunk.events);
            chunk.events == 0 || subscriber.offer(chunk)
        });
        (frames, (before - subscribers.len()) as u64)
    }

    fn chunk(&self, batch: &[Arc<Published>], decisions: &[Decision], term: u64, from: u64) -> Chunk {
        let mut text = String::new();
        let mut events = 0;
        for (event, decision) in batch
            .iter()
            .zip(decisions)
            .filter(|(event, _)| event.sequence >= from)
        {
            let body = self.body(event);
            let replaced = match decision {
                Decision::Pass => None,
                Decision::Drop => continue,
                Decision::Replace(text) => {
                    let replaced = frame::replacement(body, text);
                    if replaced.is_none() {
                        tracing::warn!(
                            kind = event.kind,
                            "event dropped: the replacement by the events component is not a JSON object"
                        );
                        continue;
                    }
                    replaced
                }
            };
            let id = self.key.ids.then_some((term, event.sequence));
            frame::append(&mut text, event.kind, replaced.as_deref().unwrap_or(body), id);
            events += 1;
        }
        Chunk {
            bytes: Bytes::from(text),
            events,
        }
    }

    fn body<'a>(&self, event: &'a Published) -> &'a str {
        match &event.light {
            Some(light) if self.key.light => light,
            _ => &event.body,
        }
    }

    /// Calls the view with a batch. An event on which the component fails is dropped; an error is
    /// the reason for closing the streams.
    async fn decide(&self, batch: &[Arc<Published>], metrics: &Metrics) -> Result<Vec<Decision>, String> {
        let events: Vec<Event> = batch
            .iter()
            .map(|event| Event {
                sequence: event.sequence,
                kind: event.kind.to_owned(),
                subject: event.subject.clone(),
                body: self.body(event).to_owned(),
            })
            .collect();
        let decided = match self.ask(&events).await {
            Ok(decisions) => Ok(decisions),
            Err(Unanswered::Gone(reason)) => Err(reason),
            Err(Unanswered::Fault(_)) if events.is_empty() => self.stands().await.map(|()| Vec::new()),
            Err(Unanswered::Fault(_)) => {
                let each = tokio::time::timeout(DECISION_TIMEOUT, self.one_by_one(&events, metrics));
                each.await.unwrap_or_else(|_| {
                    Err(format!(
                        "the events component failed on {} events; deciding them one by one timed out after {DECISION_TIMEOUT:?}",
                        events.len()
                    ))
                })
            }
        };
        let mut decisions = decided?;
        for (event, decision) in events.iter().zip(&mut decisions) {
            if let Decision::Replace(text) = decision
                && text.len() > MAX_EVENT
            {
                let bytes = text.len();
                tracing::warn!(
                    kind = event.kind,
                    sequence = event.sequence,
                    "event dropped: the replacement by the events component has {bytes} bytes, the limit is {MAX_EVENT}"
                );
                metrics.lost(Lost::TooLarge);
                *decision = Decision::Drop;
            }
        }
        Ok(decisions)
    }

    /// Decides each event alone after a fault, so that one event harms no other. A batch of one
    /// counts as the first attempt of its event.
    async fn one_by_one(&self, events: &[Event], metrics: &Metrics) -> Result<Vec<Decision>, String> {
        let mut decisions = Vec::with_capacity(events.len());
        for event in events {
            match self.alone(event, events.len() == 1).await {
                Ok(mut decided) => decisions.append(&mut decided),
                Err(Unanswered::Gone(reason)) => return Err(reason),
                Err(Unanswered::Fault(reason)) => {
                    // A component that fails on an empty batch is broken; the event is not the
                    // cause.
                    self.stands().await?;
                    tracing::warn!(
                        kind = event.kind,
                        sequence = event.sequence,
                        subject = event.subject,
                        "event dropped: the events component failed: {reason}"
                    );
                    metrics.lost(Lost::Undecided);
                    decisions.push(Decision::Drop);
                }
            }
        }
        Ok(decisions)
    }

    /// Decides one event, in two attempts at most.
    async fn alone(&self, event: &Event, failed: bool) -> Result<Vec<Decision>, Unanswered> {
        let event = std::slice::from_ref(event);
        if !failed {
            match self.ask(event).await {
                Err(Unanswered::Fault(_)) => {}
                answer => return answer,
            }
        }
        tokio::time::sleep(ONCE_MORE).await;
        self.ask(event).await
    }

    /// Checks with an empty batch, in two attempts at most, that the view still answers.
    async fn stands(&self) -> Result<(), String> {
        if self.ask(&[]).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(ONCE_MORE).await;
        match self.ask(&[]).await {
            Ok(_) => Ok(()),
            Err(Unanswered::Fault(reason) | Unanswered::Gone(reason)) => Err(reason),
        }
    }

    /// Calls the view with a batch; retries a few times while it is busy.
    async fn ask(&self, events: &[Event]) -> Result<Vec<Decision>, Unanswered> {
        let gone = |reason: String| Err(Unanswered::Gone(reason));
        let mut pauses = PAUSES.into_iter();
        loop {
            let error = match tokio::time::timeout(DECISION_TIMEOUT, self.view.decide(events)).await {
                Ok(Ok(decisions)) if decisions.len() == events.len() => return Ok(decisions),
                Ok(Ok(decisions)) => {
                    return gone(format!(
                        "the events component decided {} of {} events",
                        decisions.len(),
                        events.len()
                    ));
                }
                Ok(Err(OpenError::Refused(text))) => {
                    return gone(format!("the query is rejected now: {text}"));
                }
                Ok(Err(OpenError::Call(error))) => match error {
                    CallError::Missing { .. } | CallError::Stopped => return gone(error.to_string()),
                    CallError::Trapped { .. }
                    | CallError::TimedOut { .. }
                    | CallError::CpuExhausted { .. }
                    | CallError::OutOfMemory { .. }
                    | CallError::Malformed { .. } => return Err(Unanswered::Fault(error.to_string())),
                    CallError::Busy { .. } | CallError::Disabled { .. } => error.to_string(),
                },
                Err(_) => {
                    return gone(format!(
                        "the events component timed out after {DECISION_TIMEOUT:?}"
                    ));
                }
            };
            let Some(pause) = pauses.next() else {
                return gone(error);
            };
            tokio::time::sleep(pause).await;
        }
    }

    fn subscribers(&self) -> MutexGuard<'_, Vec<Subscriber>> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves a group until its last subscriber has left or the bus ends.
pub(super) async fn run(group: Arc<Group>, mut events: broadcast::Receiver<Arc<Published>>, bus: Bus) {
    let mut changes = bus.shared.policies.changes();
    loop {
        let mut batch = Vec::new();
        let mut behind = None;
        tokio::select! {
            () = group.stop.cancelled() => return,
            () = bus.shared.token.cancelled() => {
                bus.dissolve(&group, "this daemon is stopping, or does not lead any more");
                return;
            }
            received = events.recv() => match received {
                Ok(event) => batch.push(event),
                Err(RecvError::Lagged(missed)) => behind = Some(missed),
                Err(RecvError::Closed) => return,
            },
            // A plugin has changed: an empty batch checks whether the view still works.
            _ = changes.recv() => {}
        }
        let mut taken = batch.first().map_or(0, |event| event.bytes());
        while batch.len() < BATCH && taken < BATCH_BYTES && behind.is_none() {
            match events.try_recv() {
                Ok(event) => {
                    taken += event.bytes();
                    batch.push(event);
                }
                Err(broadcast::error::TryRecvError::Lagged(missed)) => behind = Some(missed),
                Err(_) => break,
            }
        }
        let decided = if let Some(missed) = behind {
            Err(format!(
                "{missed} events were lost, because the events component does not keep up"
            ))
        } else {
            tokio::select! {
                // A batch may take a while, and the events behind it take memory.
                () = group.stop.cancelled() => return,
                decided = group.decide(&batch, &bus.shared.metrics) => decided,
            }
        };
        group.behind.fetch_sub(taken, Ordering::AcqRel);
        match decided {
            Ok(decisions) => {
                let (frames, closed) = group.deliver(&batch, &decisions, bus.shared.term);
                bus.shared.metrics.delivered.inc_by(frames);
                bus.shared.metrics.closed.inc_by(closed);
            }
            Err(reason) => {
                bus.dissolve(&group, &reason);
                return;
            }
        }
    }
}
