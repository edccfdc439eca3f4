//! Subscribers with an equal query: one view, one question for a batch, one chunk for all.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::sync::CancellationToken;
use transom_plugins::CallError;
use transom_plugins::events::{Decision, Event, OpenError};

use super::stream::{Chunk, Subscriber, Subscription};
use super::{Bus, Listener, Published, Wish, frame};
use crate::seams::View;

/// Events asked about at a time.
const BATCH: usize = 256;
/// A component that fails for a moment is asked again after these pauses.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(20),
    Duration::from_millis(200),
    Duration::from_secs(1),
];
/// No component is waited for longer, whatever its own limits are.
const PATIENCE: Duration = Duration::from_secs(30);

/// One group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) wish: Wish,
    view: Arc<dyn View>,
    subscribers: Mutex<Vec<Subscriber>>,
    /// Cancelled when the last subscriber has left.
    pub(super) stop: CancellationToken,
}

impl Group {
    pub(super) fn new(wish: Wish, view: Arc<dyn View>) -> Self {
        Self {
            wish,
            view,
            subscribers: Mutex::new(Vec::new()),
            stop: CancellationToken::new(),
        }
    }

    /// Adds a subscriber, who is told events from the number `from` on.
    pub(super) fn add(&self, id: u64, from: u64, bus: Bus, listener: Listener) -> Subscription {
        let (subscriber, subscription) = super::stream::open(id, from, bus, self.wish.clone(), listener);
        self.subscribers().push(subscriber);
        subscription
    }

    /// Removes a subscriber; whether the group is empty now.
    pub(super) fn remove(&self, id: u64) -> bool {
        let mut subscribers = self.subscribers();
        subscribers.retain(|subscriber| subscriber.id != id);
        subscribers.is_empty()
    }

    /// Ends every stream of the group with a reason; how many there were.
    pub(super) fn close_all(&self, reason: &str) -> usize {
        self.stop.cancel();
        let subscribers = std::mem::take(&mut *self.subscribers());
        for subscriber in &subscribers {
            subscriber.close(reason);
        }
        subscribers.len()
    }

    /// Hands a batch, decided upon, to everybody. Returns how many frames were queued and how many subscribers were closed.
    fn deliver(&self, batch: &[Arc<Published>], decisions: &[Decision], term: u64) -> (u64, u64) {
        let mut subscribers = self.subscribers();
        let Some(first) = batch.first() else { return (0, 0) };
        let whole = self.chunk(batch, decisions, term, first.sequence);
        let (mut frames, before) = (0, subscribers.len());
        subscribers.retain(|subscriber| {
            // Who joined within this batch gets only what came after.
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
                            "the events component's replacement is no JSON object; the event is dropped"
                        );
                        continue;
                    }
                    replaced
                }
            };
            let id = self.wish.ids.then_some((term, event.sequence));
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
            Some(light) if self.wish.light => light,
            _ => &event.body,
        }
    }

    /// Asks the view about a batch, again for a while when it fails for the moment.
    async fn decide(&self, batch: &[Arc<Published>]) -> Result<Vec<Decision>, String> {
        let events: Vec<Event> = batch
            .iter()
            .map(|event| Event {
                sequence: event.sequence,
                kind: event.kind.to_owned(),
                subject: event.subject.clone(),
                body: self.body(event).to_owned(),
            })
            .collect();
        let mut pauses = PAUSES.into_iter();
        loop {
            let answer = tokio::time::timeout(PATIENCE, self.view.decide(&events)).await;
            let error = match answer {
                Ok(Ok(decisions)) if decisions.len() == events.len() => return Ok(decisions),
                Ok(Ok(decisions)) => {
                    return Err(format!(
                        "the events component decided {} of {} events",
                        decisions.len(),
                        events.len()
                    ));
                }
                Ok(Err(OpenError::Refused(text))) => return Err(format!("the query is refused now: {text}")),
                Ok(Err(OpenError::Call(error @ (CallError::Missing { .. } | CallError::Stopped)))) => {
                    return Err(error.to_string());
                }
                Ok(Err(OpenError::Call(error))) => error.to_string(),
                Err(_) => return Err(format!("the events component gave no answer within {PATIENCE:?}")),
            };
            let Some(pause) = pauses.next() else {
                return Err(error);
            };
            tokio::time::sleep(pause).await;
        }
    }

    fn subscribers(&self) -> MutexGuard<'_, Vec<Subscriber>> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves a group until its last subscriber has left, or the bus ends.
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
            // A plugin came, went or changed: an empty question tells whether this view still stands.
            _ = changes.recv() => {}
        }
        while batch.len() < BATCH && behind.is_none() {
            match events.try_recv() {
                Ok(event) => batch.push(event),
                Err(broadcast::error::TryRecvError::Lagged(missed)) => behind = Some(missed),
                Err(_) => break,
            }
        }
        let decided = match behind {
            Some(missed) => Err(format!(
                "{missed} events were lost, because the events component does not keep up"
            )),
            None => group.decide(&batch).await,
        };
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
