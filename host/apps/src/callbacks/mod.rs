//! Callback subscribers: every event is posted to their URLs (`/v2/eventSubscriptions`).
//!
//! The leader reads its own event stream as any client would, with the default query, and resumes
//! it after an interruption. Each subscriber has a bounded queue and a task that posts one event
//! after the other, with retries. A subscriber that does not keep up or does not answer loses
//! events, which are counted, and does not delay other subscribers. Subscribers are kept in the
//! store.
//!
//! A URL must be within the destinations that the settings allow. Names are resolved for each
//! connection, and only addresses that are allowed are connected to; redirects are not followed.

mod delivery;
mod destination;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use futures::StreamExt;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_common::{Backoff, error_chain};
use transom_store::Expect;
use transom_store::typed::{Changes, TypedStore};

use crate::Error;
use crate::bus::{Bus, Draft, StreamKey, frames, shapes};
use crate::settings::Callbacks as Settings;
use delivery::{Delivery, Queued};
use destination::CheckedUrl;
pub(crate) use destination::DestinationError;
pub(crate) use destination::Policy;

/// The folder of the records, each under the digest of its URL.
const KEY_PREFIX: &str = "callbacks/";
/// The most subscribers.
pub(crate) const MAX_SUBSCRIBERS: usize = 100;
/// The backoff before the event stream is opened again.
const REOPEN_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));

/// A subscriber in the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    callback_url: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

transom_common::metrics! {
    /// Counters, kept across terms. Cheap to clone.
    pub(crate) struct Metrics {
        events: Family<OutcomeLabel, Counter>
            => "transom_apps_callback_events",
            "Events for callback subscribers, by outcome: delivered, failed (after all attempts), dropped (the \
             subscriber's queue was full)";
        subscribers: Gauge
            => "transom_apps_callback_subscribers", "Callback subscribers";
    }
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self::registered(registry)
    }

    fn set_subscribers(&self, count: usize) {
        self.subscribers.set(count.try_into().unwrap_or(i64::MAX));
    }

    fn record_outcome(&self, outcome: &'static str) {
        self.events.get_or_create(&OutcomeLabel { outcome }).inc();
    }
}

/// Why a subscriber is not added or removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SubscriberError {
    /// The settings allow no destination.
    #[error("Callback subscribers are off: the setting apps.callbacks.allow names no destination")]
    Off,
    #[error(transparent)]
    Destination(#[from] DestinationError),
    #[error("The maximum of {MAX_SUBSCRIBERS} callback subscribers is reached")]
    TooMany,
    #[error("No subscriber has the callbackUrl {0}")]
    Unknown(String),
    #[error("the store failed: {}", error_chain(.0))]
    Store(#[from] transom_store::typed::Error),
}

/// The subscribers of a term. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Callbacks {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    policy: Arc<Policy>,
    store: TypedStore,
    bus: Bus,
    subscribers: Mutex<BTreeMap<String, Subscriber>>,
    metrics: Metrics,
    attempts: u32,
    timeout: Duration,
    tracker: TaskTracker,
    token: CancellationToken,
}

/// A running subscriber. Dropping it ends its task after the attempt that is under way.
#[derive(Debug)]
struct Subscriber {
    queue: mpsc::Sender<Queued>,
    /// The bytes of the events in the queue.
    waiting: Arc<AtomicUsize>,
    /// Whether the last event was dropped because the queue was full.
    is_full: bool,
    _running: tokio_util::sync::DropGuard,
}

impl Callbacks {
    /// Reads the subscribers and starts to post events to them.
    ///
    /// # Errors
    /// [`Error::State`].
    pub(crate) async fn start(
        settings: &Settings,
        policy: Policy,
        store: TypedStore,
        bus: Bus,
        metrics: Metrics,
        tracker: TaskTracker,
        token: CancellationToken,
    ) -> Result<Self, Error> {
        let stored = store.load_all::<Record>(KEY_PREFIX).await;
        let stored = stored.map_err(|error| Error::of_store("reading callback subscribers", error))?;
        let callbacks = Self {
            shared: Arc::new(Shared {
                policy: Arc::new(policy),
                store,
                bus,
                subscribers: Mutex::default(),
                metrics,
                attempts: settings.attempts.get(),
                timeout: Duration::from_secs(settings.timeout_seconds.get()),
                tracker,
                token,
            }),
        };
        for record in stored.into_iter().take(MAX_SUBSCRIBERS) {
            let url = record.value.callback_url;
            // Names are resolved for each connection. A failure of the name service now would end the
            // delivery for the whole term.
            match callbacks.shared.policy.check_unresolved(&url) {
                Ok(checked) => {
                    let subscriber = callbacks.start_delivery(checked);
                    callbacks.shared.subscribers.lock().await.insert(url, subscriber);
                }
                Err(denied) => tracing::warn!(url, "no events are posted to callback subscriber: {denied}"),
            }
        }
        let count = callbacks.shared.subscribers.lock().await.len();
        callbacks.shared.metrics.set_subscribers(count);
        if !callbacks.shared.policy.is_empty() {
            callbacks.shared.tracker.spawn(callbacks.clone().queue_events());
        }
        Ok(callbacks)
    }

    /// The URLs of the subscribers.
    pub(crate) async fn list(&self) -> Vec<String> {
        self.shared.subscribers.lock().await.keys().cloned().collect()
    }

    /// Adds and stores a subscriber; returns the event for the other subscribers. Adding it again
    /// changes nothing.
    pub(crate) async fn add(&self, url: &str, client: &str) -> Result<Draft, SubscriberError> {
        if self.shared.policy.is_empty() {
            return Err(SubscriberError::Off);
        }
        let checked = self.shared.policy.check(url).await?;
        let mut subscribers = self.shared.subscribers.lock().await;
        if !subscribers.contains_key(url) {
            if subscribers.len() >= MAX_SUBSCRIBERS {
                return Err(SubscriberError::TooMany);
            }
            let mut changes = Changes::default();
            let record = Record {
                callback_url: url.to_owned(),
            };
            changes.put(key(url), &record, Expect::Any)?;
            self.shared.store.commit(changes).await?;
            subscribers.insert(url.to_owned(), self.start_delivery(checked));
            self.shared.metrics.set_subscribers(subscribers.len());
        }
        drop(subscribers);
        Ok(self.publish(shapes::subscribed(client, url)))
    }

    /// Removes a subscriber; returns the event for the other subscribers.
    pub(crate) async fn remove(&self, url: &str, client: &str) -> Result<Draft, SubscriberError> {
        if self.shared.policy.is_empty() {
            return Err(SubscriberError::Off);
        }
        let mut subscribers = self.shared.subscribers.lock().await;
        // One that the settings no longer allow is only stored.
        let is_known =
            subscribers.contains_key(url) || self.shared.store.get::<Record>(&key(url)).await?.is_some();
        if !is_known {
            return Err(SubscriberError::Unknown(url.to_owned()));
        }
        let mut changes = Changes::default();
        changes.delete(key(url), Expect::Any);
        self.shared.store.commit(changes).await?;
        subscribers.remove(url);
        self.shared.metrics.set_subscribers(subscribers.len());
        drop(subscribers);
        Ok(self.publish(shapes::unsubscribed(client, url)))
    }

    fn publish(&self, event: Draft) -> Draft {
        self.shared.bus.publish(event.clone());
        event
    }

    fn start_delivery(&self, checked: CheckedUrl) -> Subscriber {
        let shared = &self.shared;
        let (queue, events) = mpsc::channel(delivery::MAX_QUEUED);
        let token = shared.token.child_token();
        let delivery = Delivery {
            checked,
            policy: Arc::clone(&shared.policy),
            attempts: shared.attempts,
            timeout: shared.timeout,
            metrics: shared.metrics.clone(),
        };
        shared.tracker.spawn(delivery.run(events, token.clone()));
        Subscriber {
            queue,
            waiting: Arc::default(),
            is_full: false,
            _running: token.drop_guard(),
        }
    }

    /// Reads the event stream and queues each event for each subscriber, until the term ends.
    async fn queue_events(self) {
        let key = StreamKey {
            query: transom_plugin_host::events::Query::default(),
            light: false,
            ids: true,
        };
        let mut last = self.shared.bus.start_of_term();
        let mut failures = 0;
        loop {
            match self
                .shared
                .bus
                .attach_internal(key.clone(), &last.to_string())
                .await
            {
                Ok(mut stream) => {
                    while let Some(Ok(bytes)) = stream.next().await {
                        for (id, body) in frames(&bytes) {
                            failures = 0;
                            last = id.unwrap_or(last);
                            self.queue_event(body).await;
                        }
                    }
                }
                Err(error) => {
                    tracing::debug!(
                        "event stream for callback subscribers cannot be opened; retrying: {error}"
                    );
                }
            }
            let pause = tokio::time::sleep(REOPEN_BACKOFF.after(failures));
            if self.shared.token.run_until_cancelled(pause).await.is_none() {
                self.shared.metrics.set_subscribers(0);
                return;
            }
            failures += 1;
        }
    }

    async fn queue_event(&self, body: &str) {
        let mut subscribers = self.shared.subscribers.lock().await;
        if subscribers.is_empty() {
            return;
        }
        let body: Arc<str> = body.into();
        for (url, subscriber) in &mut *subscribers {
            let event = Queued::new(&body, &subscriber.waiting);
            let queued = event.is_some_and(|event| subscriber.queue.try_send(event).is_ok());
            if !queued {
                self.shared.metrics.record_outcome("dropped");
                if !subscriber.is_full {
                    tracing::warn!(
                        url,
                        "callback subscriber is too slow: its queue of {} events or {} bytes is full; events are dropped",
                        delivery::MAX_QUEUED,
                        delivery::MAX_QUEUED_BYTES
                    );
                }
            }
            subscriber.is_full = !queued;
        }
    }
}

fn key(url: &str) -> String {
    format!("{KEY_PREFIX}{:x}", Sha256::digest(url))
}

#[cfg(test)]
mod tests;
