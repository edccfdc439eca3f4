//! Subscribers with the same query: one view, one call per batch, one chunk for all of them.
//!
//! The group reads the ring at its own pace. A subscriber that resumes at an event before the
//! group's position receives past events in separate batches, together with other subscribers that
//! need the same events, until it has reached that position.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;
use transom_plugin_host::events::Decision;

use super::filter::Filter;
use super::resume::{EventId, Gap};
use super::ring::Evicted;
use super::shard::Shards;
use super::signals::Signals;
use super::stream::{Chunk, Subscriber};
use super::{Bus, Published, StreamKey, frame, shapes};
use crate::policies::View;

/// Events per call of the component.
pub(super) const MAX_BATCH_EVENTS: usize = 256;
/// A batch of this size or more takes no further event. A batch fits into the memory of a small
/// component.
pub(super) const MAX_BATCH_BYTES: usize = 1 << 20;
/// The reason with which streams are closed when the bus stops.
const STOPPING: &str = "this daemon is stopping, or is no longer the leader";

/// One group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) filter: Filter,
    /// Subscribers that the group's task has not seen yet.
    joining: Mutex<Vec<Subscriber>>,
    pub(super) signals: Arc<Signals>,
}

impl Group {
    pub(super) fn new(key: StreamKey, view: Arc<dyn View>) -> Self {
        Self {
            filter: Filter::new(key, view),
            joining: Mutex::default(),
            signals: Arc::default(),
        }
    }

    /// Adds a subscriber.
    pub(super) fn join(&self, subscriber: Subscriber) {
        self.joining
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(subscriber);
        self.signals.wake.notify_one();
    }

    fn joined(&self) -> Vec<Subscriber> {
        std::mem::take(&mut *self.joining.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The frames of a decided batch.
    fn frames(&self, batch: &[Arc<Published>], decisions: &[Decision], term: u64) -> Frames {
        let mut text = String::new();
        let mut starts = Vec::new();
        for (event, decision) in batch.iter().zip(decisions) {
            let body = self.filter.body(event);
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
            let sequence = event.sequence;
            starts.push((sequence, text.len()));
            let id = self.filter.key.ids.then_some(EventId { term, sequence });
            frame::append(&mut text, event.kind, replaced.as_deref().unwrap_or(body), id);
        }
        Frames {
            bytes: Bytes::from(text),
            starts,
        }
    }
}

/// The frames of a batch, and where each begins.
struct Frames {
    bytes: Bytes,
    /// The number of an event and the offset of its frame.
    starts: Vec<(u64, usize)>,
}

impl Frames {
    /// The frames of the events from the number `first` on; none if there are none.
    fn from(&self, first: u64) -> Option<Chunk> {
        let skipped = self.starts.partition_point(|(sequence, _)| *sequence < first);
        let (_, offset) = self.starts.get(skipped)?;
        Some(Chunk {
            bytes: self.bytes.slice(offset..),
            events: (self.starts.len() - skipped) as u32,
        })
    }
}

/// The chunk that reports a gap to a stream.
pub(super) fn gap_chunk(gap: &Gap) -> Chunk {
    let mut text = String::new();
    let (kind, body) = shapes::gap(gap);
    frame::append(&mut text, kind, &body, Some(gap.to));
    Chunk {
        bytes: Bytes::from(text),
        events: 1,
    }
}

/// Serves a group until its last subscriber has left or the bus ends. `next` is the number of the
/// first event that the group decides.
pub(super) async fn run(group: Arc<Group>, latest: watch::Receiver<u64>, next: u64, bus: Bus) {
    let shards = Shards::start(&group.signals, &bus.shared.metrics, &bus.shared.tracker);
    let mut reader = Reader {
        group,
        bus,
        shards,
        next,
        joining: Vec::new(),
    };
    let reason = reader.serve(latest).await;
    let Reader {
        group, bus, joining, ..
    } = reader;
    if let Some(reason) = &reason {
        bus.remove_group(&group, reason);
    }
    let reason = reason.as_deref().or(group.signals.reason());
    for subscriber in joining.into_iter().chain(group.joined()) {
        if let Some(reason) = reason {
            subscriber.close(reason);
        }
    }
}

/// A group's position in the ring.
struct Reader {
    group: Arc<Group>,
    bus: Bus,
    shards: Shards,
    /// The number of the next event.
    next: u64,
    /// Subscribers that do not get the group's chunks yet.
    joining: Vec<Subscriber>,
}

impl Reader {
    /// Returns the reason for closing the streams, or none when the group has been stopped.
    async fn serve(&mut self, mut latest: watch::Receiver<u64>) -> Option<String> {
        let mut changes = self.bus.shared.policies.changes();
        let mut replayed = false;
        loop {
            if self.group.signals.stop.is_cancelled() {
                return None;
            }
            self.take_joining().await;
            let new = *latest.borrow_and_update() >= self.next;
            // Batches of new events and of past events alternate.
            let past = self.oldest_wanted().filter(|_| !(new && replayed));
            replayed = past.is_some();
            let done = match (past, new) {
                (Some(first), _) => self.replay(first).await,
                (None, true) => self.deliver().await,
                (None, false) => tokio::select! {
                    biased;
                    () = self.group.signals.stop.cancelled() => return None,
                    () = self.bus.shared.token.cancelled() => Err(STOPPING.to_owned()),
                    // The sender lives as long as the bus.
                    _ = latest.changed() => Ok(()),
                    () = self.group.signals.wake.notified() => Ok(()),
                    // A plugin has changed: an empty batch checks whether the view still works.
                    _ = changes.recv() => self.decide(&[]).await.map(|_| ()),
                },
            };
            if let Err(reason) = done {
                return Some(reason);
            }
        }
    }

    /// Takes the new subscribers; those at the group's position get its chunks from now on.
    async fn take_joining(&mut self) {
        self.joining.append(&mut self.group.joined());
        if self.joining.is_empty() {
            return;
        }
        let joining = std::mem::take(&mut self.joining).into_iter();
        let present = joining.filter(|subscriber| !subscriber.has_left());
        let (here, elsewhere) = present.partition(|subscriber| subscriber.next == self.next);
        self.joining = elsewhere;
        self.shards.add(here).await;
    }

    /// The number of the first past event that a subscriber wants and has room for.
    fn oldest_wanted(&self) -> Option<u64> {
        let behind = self
            .joining
            .iter()
            .filter(|subscriber| subscriber.next < self.next);
        behind
            .filter(|subscriber| subscriber.has_room(MAX_BATCH_EVENTS, MAX_BATCH_BYTES))
            .map(|subscriber| subscriber.next)
            .min()
    }

    /// Sends the next batch to the subscribers that are at the group's position.
    async fn deliver(&mut self) -> Result<(), String> {
        let batch = match self.bus.past_batch(self.next, u64::MAX) {
            Ok(batch) => batch,
            Err(Evicted { oldest }) => {
                return Err(format!(
                    "{} events were dropped, because the events component is too slow",
                    oldest - self.next
                ));
            }
        };
        let frames = self.decided(&batch).await?;
        if let Some(chunk) = frames.from(self.next) {
            self.shards.deliver(&chunk).await;
        }
        self.next += batch.len() as u64;
        Ok(())
    }

    /// Sends a batch of past events to the subscribers that want them.
    async fn replay(&mut self, first: u64) -> Result<(), String> {
        let batch = match self.bus.past_batch(first, self.next) {
            Ok(batch) => batch,
            Err(Evicted { oldest }) => {
                self.skip_to(oldest);
                return Ok(());
            }
        };
        let frames = self.decided(&batch).await?;
        let end = first + batch.len() as u64;
        let mut delivered = 0;
        for subscriber in &mut self.joining {
            let wants = (first..end).contains(&subscriber.next);
            if !wants || !subscriber.has_room(MAX_BATCH_EVENTS, MAX_BATCH_BYTES) {
                continue;
            }
            if let Some(chunk) = frames.from(subscriber.next) {
                delivered += u64::from(chunk.events);
                subscriber.offer(chunk);
            }
            subscriber.next = end;
        }
        self.bus.shared.metrics.delivered.inc_by(delivered);
        Ok(())
    }

    /// Moves the subscribers whose next event has been dropped from the ring meanwhile.
    fn skip_to(&mut self, oldest: u64) {
        let term = self.bus.shared.term;
        let metrics = &self.bus.shared.metrics;
        self.joining.retain_mut(|subscriber| {
            if subscriber.next >= oldest {
                return true;
            }
            let id = |sequence| EventId { term, sequence };
            let reason =
                "the events are no longer in the buffer, because the client reads too slowly".to_owned();
            if !subscriber.resumes {
                subscriber.close(&reason);
                metrics.closed.inc();
                return false;
            }
            metrics.gaps.inc();
            let gap = Gap {
                from: id(subscriber.next - 1).to_string(),
                to: id(oldest - 1),
                reason,
            };
            subscriber.next = oldest;
            subscriber.offer(gap_chunk(&gap))
        });
    }

    async fn decided(&self, batch: &[Arc<Published>]) -> Result<Frames, String> {
        let decisions = self.decide(batch).await?;
        Ok(self.group.frames(batch, &decisions, self.bus.shared.term))
    }

    /// Calls the component. If the group stops, it does not wait for the answer.
    async fn decide(&self, batch: &[Arc<Published>]) -> Result<Vec<Decision>, String> {
        tokio::select! {
            biased;
            () = self.group.signals.stop.cancelled() => Ok(vec![Decision::Drop; batch.len()]),
            () = self.bus.shared.token.cancelled() => Err(STOPPING.to_owned()),
            decided = self.group.filter.decide(batch, &self.bus.shared.metrics) => decided,
        }
    }
}
