//! The event bus (specification, part C, "Events").
//!
//! An event is numbered, serialised once and kept in a ring, from which all groups read.
//! Subscribers with the same query form a group. The group has one view of the `events` component,
//! calls it with whole batches and joins the events that pass into one chunk for all its
//! subscribers. Events that a query drops are never queued. A subscriber whose queue is full is
//! closed with a reason; so are all subscribers of a group whose component is missing or rejects
//! the query. An event is never sent without a decision.
//!
//! A subscriber that sends the id of the last event that it has received gets the events after it
//! from the ring. If the ring no longer contains some of them, the subscriber receives one
//! `event_stream_gap` first.
//!
//! A bad event affects no other event. One of more than [`MAX_EVENT_BYTES`] bytes is replaced by a small
//! `event_too_large_event`; one on which the component fails even alone is dropped for that group.
//! Both are logged and counted. The ring and the queues of subscribers are bounded by count and by
//! bytes.
//!
//! Publishing never waits.

mod announcements;
mod draft;
mod filter;
mod frame;
mod group;
mod history;
mod metrics;
mod resume;
mod ring;
pub(crate) mod shapes;
mod shard;
mod signals;
mod stream;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_common::ambient;
use transom_plugin_host::events::{Event, MAX_EVENT_BYTES, OpenError, Query};
use transom_web::{Disconnect, Owner, Share, Shares};

use crate::policies::{Policies, View};
use crate::settings::Events;
use announcements::Announcements;
pub(crate) use draft::Draft;
use draft::EventBodies;
pub(crate) use frame::frames;
use group::Group;
pub(crate) use history::History;
use metrics::LossReason;
pub(crate) use metrics::Metrics;
pub(crate) use resume::{EventId, Gap};
use ring::{Bounds, Evicted, Ring};
use signals::Signals;
use stream::Membership;
pub(crate) use stream::Subscription;

/// Distinct queries of open streams. Each user of the port may add its [`Shares`] of them.
pub(crate) const MAX_QUERIES: usize = 256;

/// The options of a stream that affect its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamKey {
    pub(crate) query: Query,
    /// Upstream's plan form, which `plan-format=light` selects.
    pub(crate) light: bool,
    /// Whether each frame has an `id:` line.
    pub(crate) ids: bool,
}

/// The client of a stream, as attach and detach events show it.
#[derive(Clone, Debug)]
pub(crate) struct Listener {
    pub(crate) client: String,
    /// The request's path and query.
    pub(crate) url: String,
    /// Closes the connection of a client that does not keep up.
    pub(crate) disconnect: Disconnect,
    /// Whose share of the queries the stream uses.
    pub(crate) owner: Owner,
}

/// One event, serialised.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) sequence: u64,
    /// When it was published.
    pub(crate) at: Timestamp,
    pub(crate) kind: &'static str,
    pub(crate) subject: Option<String>,
    pub(crate) body: String,
    /// The body with light plans, where it differs.
    pub(crate) light: Option<String>,
}

impl Published {
    /// Its document, with light plans or in the configured form.
    fn body(&self, light: bool) -> &str {
        match &self.light {
            Some(text) if light => text,
            _ => &self.body,
        }
    }

    /// The event in the form that the events component receives.
    fn event(&self, light: bool) -> Event {
        Event {
            sequence: self.sequence,
            kind: self.kind.to_owned(),
            subject: self.subject.clone(),
            body: self.body(light).to_owned(),
        }
    }

    /// The size of its text in memory, in bytes.
    fn bytes(&self) -> usize {
        self.body.len() + self.light.as_ref().map_or(0, String::len)
    }
}

/// The bus. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Bus {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Incremented at every start, so that ids of different runs differ.
    term: u64,
    policies: Arc<dyn Policies>,
    state: Mutex<State>,
    /// The places for distinct queries.
    queries: Shares,
    /// The number of the latest event.
    latest: watch::Sender<u64>,
    token: CancellationToken,
    tracker: TaskTracker,
    metrics: Metrics,
}

/// The events and their subscribers, which one lock protects.
#[derive(Debug)]
struct State {
    ring: Ring,
    groups: HashMap<StreamKey, GroupEntry>,
    announcements: Announcements,
}

/// A group and the number of its subscribers.
#[derive(Debug)]
struct GroupEntry {
    group: Arc<Group>,
    count: usize,
    /// Of the user that opened its first stream.
    _share: Share,
}

/// Why a stream is not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttachError {
    /// The events component rejected the query or could not be called.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The limit exists because each distinct query has a view in the component.
    #[error(
        "the maximum of {MAX_QUERIES} distinct queries, or the user's share of them, is reached; use the parameters of an open event stream"
    )]
    TooManyQueries,
}

impl Bus {
    pub(crate) fn new(
        term: u64,
        settings: &Events,
        policies: Arc<dyn Policies>,
        metrics: Metrics,
        tracker: TaskTracker,
        token: CancellationToken,
    ) -> Self {
        let ring = Ring::new(Bounds {
            events: settings.buffer_events.get(),
            bytes: settings.buffer_bytes,
        });
        let state = Mutex::new(State {
            ring,
            groups: HashMap::new(),
            announcements: Announcements::new(),
        });
        Self {
            shared: Arc::new(Shared {
                term,
                policies,
                state,
                queries: Shares::new("apps", "queries", MAX_QUERIES),
                latest: watch::Sender::new(0),
                token,
                tracker,
                metrics,
            }),
        }
    }

    /// Sends an event to all subscribers whose query passes it.
    pub(crate) fn publish(&self, mut draft: Draft) {
        // Serialised before the lock is taken.
        let bodies = draft.bodies.take().unwrap_or_else(|| EventBodies::of(&draft));
        let bytes = match bodies {
            Ok(bodies) => return self.push(&mut self.state(), draft.kind, draft.subject, bodies),
            Err(bytes) => bytes,
        };
        self.shared.metrics.record_loss(LossReason::TooLarge);
        let Draft { kind, subject, .. } = draft;
        tracing::warn!(
            kind,
            subject,
            "event of {bytes} bytes exceeds the limit of {MAX_EVENT_BYTES}; event_too_large_event sent instead"
        );
        self.publish(shapes::too_large(kind, subject, bytes));
    }

    /// Publishes changes of plugins until the bus ends.
    pub(crate) async fn publish_plugin_changes(self) {
        let mut changes = self.shared.policies.changes();
        loop {
            tokio::select! {
                biased;
                () = self.shared.token.cancelled() => return,
                change = changes.recv() => match change {
                    Ok(change) => self.publish(shapes::plugin(&change)),
                    Err(RecvError::Lagged(missed)) => {
                        tracing::warn!(
                            missed,
                            "notices of plugin changes lost; their events are missing on the event stream"
                        );
                    }
                    Err(RecvError::Closed) => return,
                },
            }
        }
    }

    /// The id before the first event of the term.
    pub(crate) fn start_of_term(&self) -> EventId {
        EventId {
            term: self.shared.term,
            sequence: 0,
        }
    }

    /// Opens a stream for a part of this daemon. It begins after the event `last`, and no attach
    /// event is published.
    pub(crate) async fn attach_internal(
        &self,
        key: StreamKey,
        last: &str,
    ) -> Result<Subscription, AttachError> {
        self.open(key, None, Some(last)).await
    }

    /// Opens a stream. With `last`, the id of the last event that the client has received, it
    /// begins with the event after that one, or with a gap. Otherwise it begins with its own
    /// `event_stream_attached`, if the query passes that.
    pub(crate) async fn attach(
        &self,
        key: StreamKey,
        listener: Listener,
        last: Option<&str>,
    ) -> Result<Subscription, AttachError> {
        self.open(key, Some(listener), last).await
    }

    async fn open(
        &self,
        key: StreamKey,
        listener: Option<Listener>,
        last: Option<&str>,
    ) -> Result<Subscription, AttachError> {
        let has_group = self.state().groups.contains_key(&key);
        let view = if has_group {
            None
        } else {
            // Taken first: the component's view of a query has a cost too.
            let owner = listener.as_ref().map_or(Owner::Full, |listener| listener.owner);
            let share = self.shared.queries.take(owner, 1);
            let share = share.ok_or(AttachError::TooManyQueries)?;
            Some((share, self.shared.policies.open_view(key.query.clone()).await?))
        };
        let subscription = {
            let mut state = self.state();
            let group = match (state.groups.get_mut(&key), view) {
                (Some(entry), _) => {
                    entry.count += 1;
                    Some(Arc::clone(&entry.group))
                }
                (None, Some((share, view))) => Some(self.create_group(&mut state, &key, view, share)),
                (None, None) => None,
            };
            group.map(|group| self.join(&mut state, &group, listener.clone(), last))
        };
        match subscription {
            Some(subscription) => Ok(subscription),
            // The group's last subscriber left in the meantime, so another view is needed.
            None => Box::pin(self.open(key, listener, last)).await,
        }
    }

    /// Creates and starts the group of a new key. Its first subscriber joins afterwards.
    fn create_group(
        &self,
        state: &mut State,
        key: &StreamKey,
        view: Arc<dyn View>,
        share: Share,
    ) -> Arc<Group> {
        let group = Arc::new(Group::new(key.clone(), view));
        let latest = self.shared.latest.subscribe();
        let serving = group::run(Arc::clone(&group), latest, state.ring.next(), self.clone());
        self.shared.tracker.spawn(serving);
        let entry = GroupEntry {
            group: Arc::clone(&group),
            count: 1,
            _share: share,
        };
        state.groups.insert(key.clone(), entry);
        group
    }

    /// Adds a subscriber to its group and publishes its attach event.
    fn join(
        &self,
        state: &mut State,
        group: &Arc<Group>,
        listener: Option<Listener>,
        last: Option<&str>,
    ) -> Subscription {
        let now = state.ring.next();
        if let Some(listener) = &listener {
            self.shared.metrics.streams.inc();
            if state.announcements.attach() {
                let attached = shapes::attached(listener);
                // It is far below the limit.
                if let Ok(bodies) = EventBodies::of(&attached) {
                    self.push(state, attached.kind, attached.subject, bodies);
                }
            } else {
                self.shared.metrics.unannounced.inc();
            }
        }
        let (next, gap) = match last {
            Some(last) => resume::resume(last, self.shared.term, &state.ring, now),
            None => (now, None),
        };
        let membership = Membership {
            bus: self.clone(),
            key: group.filter.key.clone(),
            signals: Arc::clone(&group.signals),
            listener,
        };
        let (subscriber, subscription) = stream::open(next, last.is_some(), membership);
        if let Some(gap) = gap {
            self.shared.metrics.gaps.inc();
            subscriber.offer(group::gap_chunk(&gap));
        }
        group.join(subscriber);
        subscription
    }

    /// Removes a subscriber and publishes its detach event.
    fn detach(&self, key: &StreamKey, signals: &Arc<Signals>, listener: Option<&Listener>) {
        let announced = {
            let mut state = self.state();
            if let Some(entry) = state.groups.get_mut(key)
                && Arc::ptr_eq(&entry.group.signals, signals)
            {
                entry.count -= 1;
                if entry.count == 0 {
                    signals.stop.cancel();
                    state.groups.remove(key);
                }
            }
            listener.is_none() || state.announcements.detach()
        };
        let Some(listener) = listener else { return };
        self.shared.metrics.streams.dec();
        if announced {
            self.publish(shapes::detached(listener));
        } else {
            self.shared.metrics.unannounced.inc();
        }
    }

    /// Removes a group and closes its streams with the reason.
    fn remove_group(&self, group: &Arc<Group>, reason: &str) {
        let mut closed = 0;
        {
            let mut state = self.state();
            let key = &group.filter.key;
            if let Some(entry) = state.groups.get(key)
                && Arc::ptr_eq(&entry.group, group)
            {
                closed = entry.count;
                state.groups.remove(key);
            }
        }
        group.signals.close(reason);
        self.shared.metrics.closed.inc_by(closed as u64);
        if closed > 0 {
            tracing::warn!(streams = closed, reason, "event streams closed");
        }
    }

    /// Numbers and keeps an event, and wakes the groups.
    fn push(&self, state: &mut State, kind: &'static str, subject: Option<String>, bodies: EventBodies) {
        let sequence = state.ring.next();
        let EventBodies { body, light } = bodies;
        state.ring.push(Published {
            sequence,
            at: ambient::now(),
            kind,
            subject,
            body,
            light,
        });
        self.shared.metrics.record_published(kind);
        self.shared.latest.send_replace(sequence);
    }

    /// A batch of events from the number `from` on, before `until`.
    fn past_batch(&self, from: u64, until: u64) -> Result<Vec<Arc<Published>>, Evicted> {
        self.state()
            .ring
            .read(from, until, group::MAX_BATCH_EVENTS, group::MAX_BATCH_BYTES)
    }

    /// The kept events that were published at `since` or later.
    pub(crate) fn history(&self, since: Timestamp, light: bool) -> History {
        let state = self.state();
        History {
            bus: self.clone(),
            light,
            next: state.ring.first_since(since),
            until: state.ring.next(),
            oldest: state.ring.oldest_at(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
