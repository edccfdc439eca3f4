//! The event bus (specification, part C, "Events").
//!
//! An event is serialised once. Subscribers with the same query form a group. The group has one
//! view of the `events` component, calls it with whole batches and joins the events that pass into
//! one chunk for all its subscribers. Events that a query drops are never queued. A subscriber
//! whose queue is full is closed with a reason; so are all subscribers of a group whose component
//! is missing or rejects the query. An event is never sent without a decision.
//!
//! A bad event affects no other event. One of more than [`MAX_EVENT`] bytes is replaced by a small
//! `event_too_large_event`; one on which the component fails even alone is dropped for that group.
//! Both are logged and counted. Queues are bounded by count and by bytes, for a group and for a
//! subscriber.
//!
//! Publishing never waits. Past events are not replayed.

mod frame;
mod group;
pub(crate) mod shapes;
mod stream;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_plugin_host::events::{OpenError, Query};

use crate::seams::{Policies, View};
use group::Group;
pub(crate) use shapes::Draft;
pub(crate) use stream::Subscription;

/// Events that a group may be behind before its subscribers are closed.
const BACKLOG: usize = 8192;
/// The same in bytes.
const BACKLOG_BYTES: usize = 32 << 20;
/// Distinct queries of open streams.
pub(crate) const MAX_QUERIES: usize = 256;
/// The most bytes that an event's document may have.
pub(crate) const MAX_EVENT: usize = 1 << 20;

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
}

/// One event, serialised.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) sequence: u64,
    pub(crate) kind: &'static str,
    pub(crate) subject: Option<String>,
    pub(crate) body: String,
    /// The body with light plans, where it differs.
    pub(crate) light: Option<String>,
}

impl Published {
    /// The memory that it takes, in bytes.
    fn bytes(&self) -> usize {
        self.body.len() + self.light.as_ref().map_or(0, String::len)
    }
}

/// Why an event is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// The event, or the component's replacement, has more than [`MAX_EVENT`] bytes.
    TooLarge,
    /// The component fails on it.
    Undecided,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LostLabel {
    reason: &'static str,
}

/// An event's bodies as text.
#[derive(Debug, Default)]
struct Texts {
    body: String,
    light: Option<String>,
}

impl Texts {
    /// The longer of the two, in bytes.
    fn bytes(&self) -> usize {
        self.body.len().max(self.light.as_ref().map_or(0, String::len))
    }

    fn of(draft: &Draft) -> Self {
        Self {
            body: to_text(&draft.body),
            light: draft.light.as_ref().map(to_text),
        }
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
    events: broadcast::Sender<Arc<Published>>,
    state: Mutex<State>,
    subscriber: AtomicU64,
    token: CancellationToken,
    tracker: TaskTracker,
    metrics: Metrics,
}

/// State that changes together: sequence numbers, sending and groups.
#[derive(Debug)]
struct State {
    sequence: u64,
    groups: HashMap<StreamKey, Arc<Group>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    published: Counter,
    delivered: Counter,
    closed: Counter,
    lost: Family<LostLabel, Counter>,
    streams: Gauge,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "transom_apps_events",
            "Events published",
            metrics.published.clone(),
        );
        registry.register(
            "transom_apps_events_delivered",
            "Frames queued for subscribers",
            metrics.delivered.clone(),
        );
        registry.register(
            "transom_apps_event_streams_closed",
            "Streams closed by this side",
            metrics.closed.clone(),
        );
        registry.register(
            "transom_apps_events_dropped",
            "Events not sent, by reason: too-large, undecided (the events component failed; counted once per \
             distinct query)",
            metrics.lost.clone(),
        );
        registry.register(
            "transom_apps_event_streams",
            "Open event streams",
            metrics.streams.clone(),
        );
        metrics
    }

    fn lost(&self, why: Lost) {
        let reason = match why {
            Lost::TooLarge => "too-large",
            Lost::Undecided => "undecided",
        };
        self.lost.get_or_create(&LostLabel { reason }).inc();
    }
}

/// Why a stream is not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttachError {
    /// By the events component.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Each distinct query has a view in the component.
    #[error("event streams with {MAX_QUERIES} distinct queries are open; use the parameters of an open one")]
    TooManyQueries,
}

impl Bus {
    pub(crate) fn new(
        term: u64,
        policies: Arc<dyn Policies>,
        metrics: Metrics,
        tracker: TaskTracker,
        token: CancellationToken,
    ) -> Self {
        let (events, _) = broadcast::channel(BACKLOG);
        let state = Mutex::new(State {
            sequence: 0,
            groups: HashMap::new(),
        });
        let subscriber = AtomicU64::new(0);
        Self {
            shared: Arc::new(Shared {
                term,
                policies,
                events,
                state,
                subscriber,
                token,
                tracker,
                metrics,
            }),
        }
    }

    /// Sends an event to all subscribers whose query passes it.
    pub(crate) fn publish(&self, draft: Draft) {
        // Serialised before the lock is taken, if there are subscribers.
        let texts = self.is_heard().then(|| Texts::of(&draft));
        self.number_and_send(draft, texts);
    }

    fn is_heard(&self) -> bool {
        self.shared.events.receiver_count() > 0
    }

    fn number_and_send(&self, draft: Draft, texts: Option<Texts>) {
        let sent = {
            let mut state = self.state();
            // A stream may have attached since; none can while the lock is held. Without streams
            // the sequence number is used up as well, so that gaps in ids always mean missing
            // events.
            let texts = texts.or_else(|| self.is_heard().then(|| Texts::of(&draft)));
            let texts = texts.unwrap_or_default();
            match texts.bytes() {
                bytes if bytes > MAX_EVENT => Err((draft.kind, draft.subject, bytes)),
                _ => Ok(self.send(&mut state, draft.kind, draft.subject, texts.body, texts.light)),
            }
        };
        match sent {
            Ok(slow) => self.leave_behind(&slow),
            Err((kind, subject, bytes)) => {
                self.shared.metrics.lost(Lost::TooLarge);
                tracing::warn!(
                    kind,
                    subject,
                    "event of {bytes} bytes exceeds the limit of {MAX_EVENT}; event_too_large_event sent instead"
                );
                self.publish(shapes::too_large(kind, subject, bytes));
            }
        }
    }

    /// Closes the streams of groups that are too far behind.
    fn leave_behind(&self, slow: &[Arc<Group>]) {
        for group in slow {
            self.dissolve(
                group,
                &format!(
                    "more than {BACKLOG_BYTES} bytes of events wait, because the events component does not keep up"
                ),
            );
        }
    }

    /// Publishes changes of plugins until the bus ends.
    pub(crate) async fn tell_of_plugins(self) {
        let mut changes = self.shared.policies.changes();
        loop {
            tokio::select! {
                () = self.shared.token.cancelled() => return,
                change = changes.recv() => match change {
                    Ok(change) => self.publish(shapes::plugin(&change)),
                    Err(RecvError::Lagged(missed)) => {
                        tracing::warn!(missed, "plugin changes lagged; some are missing on the event stream");
                    }
                    Err(RecvError::Closed) => return,
                },
            }
        }
    }

    /// Opens a stream. Its first event is its own `event_stream_attached`, if the query passes it.
    pub(crate) async fn attach(
        &self,
        key: StreamKey,
        listener: Listener,
    ) -> Result<Subscription, AttachError> {
        let (known, queries) = {
            let state = self.state();
            (state.groups.contains_key(&key), state.groups.len())
        };
        let view = if known {
            None
        } else if queries >= MAX_QUERIES {
            return Err(AttachError::TooManyQueries);
        } else {
            Some(self.shared.policies.open_view(key.query.clone()).await?)
        };
        let id = self.shared.subscriber.fetch_add(1, Ordering::Relaxed);
        let mut slow = Vec::new();
        let subscription = {
            let mut state = self.state();
            let queries = state.groups.len();
            let group = match (state.groups.get(&key), view) {
                (Some(group), _) => Some(Arc::clone(group)),
                // Others opened theirs while this view was being opened.
                (None, Some(_)) if queries >= MAX_QUERIES => return Err(AttachError::TooManyQueries),
                (None, Some(view)) => Some(self.gather(&mut state, &key, view)),
                (None, None) => None,
            };
            group.map(|group| {
                let subscription = group.add(id, state.sequence + 1, self.clone(), listener.clone());
                let draft = shapes::attached(&listener);
                slow = self.send(&mut state, draft.kind, draft.subject, to_text(&draft.body), None);
                subscription
            })
        };
        self.leave_behind(&slow);
        match subscription {
            Some(subscription) => {
                self.shared.metrics.streams.inc();
                Ok(subscription)
            }
            // The group's last subscriber left meanwhile: open another view.
            None => Box::pin(self.attach(key, listener)).await,
        }
    }

    /// Creates and starts the group of a new key.
    fn gather(&self, state: &mut State, key: &StreamKey, view: Arc<dyn View>) -> Arc<Group> {
        let group = Arc::new(Group::new(key.clone(), view));
        let events = self.shared.events.subscribe();
        self.shared
            .tracker
            .spawn(group::run(Arc::clone(&group), events, self.clone()));
        state.groups.insert(key.clone(), Arc::clone(&group));
        group
    }

    /// Removes a subscriber and publishes its detach event.
    fn detach(&self, key: &StreamKey, id: u64, listener: &Listener) {
        self.shared.metrics.streams.dec();
        {
            let mut state = self.state();
            if let Some(group) = state.groups.get(key)
                && group.remove(id)
            {
                group.stop.cancel();
                state.groups.remove(key);
            }
        }
        self.publish(shapes::detached(listener));
    }

    /// Removes a group and closes its streams with the reason.
    fn dissolve(&self, group: &Arc<Group>, reason: &str) {
        {
            let mut state = self.state();
            if state
                .groups
                .get(&group.key)
                .is_some_and(|present| Arc::ptr_eq(present, group))
            {
                state.groups.remove(&group.key);
            }
        }
        let closed = group.close_all(reason);
        self.shared.metrics.closed.inc_by(closed as u64);
        if closed > 0 {
            tracing::warn!(streams = closed, reason, "event streams closed");
        }
    }

    /// Returns the groups that are now too far behind.
    fn send(
        &self,
        state: &mut State,
        kind: &'static str,
        subject: Option<String>,
        body: String,
        light: Option<String>,
    ) -> Vec<Arc<Group>> {
        state.sequence += 1;
        let event = Published {
            sequence: state.sequence,
            kind,
            subject,
            body,
            light,
        };
        self.shared.metrics.published.inc();
        let bytes = event.bytes();
        let slow = |group: &&Arc<Group>| group.published(bytes) > BACKLOG_BYTES;
        let slow = state.groups.values().filter(slow).cloned().collect();
        // An error means that there are no receivers.
        let _ = self.shared.events.send(Arc::new(event));
        slow
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Objects of texts and numbers: serialising them cannot fail.
fn to_text(body: &Value) -> String {
    body.to_string()
}

#[cfg(test)]
mod tests;
