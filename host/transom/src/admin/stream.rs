//! `GET /v1/overview/stream`: the overview as server-sent events, one whenever it has changed, at most
//! one a second.
//!
//! The overview is read and serialized once for all clients together, and only while a client is
//! connected. Changes of the time, of the uptime and of the process's resource usage do not cause an
//! event, because they change all the time; each event contains their current values. An event is sent
//! at least every [`HEARTBEAT`].

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use futures::stream;
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};
use transom_plugin_host::printable_json;

use super::overview::Overviews;

/// The minimum time between two reads of the overview.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two events if nothing changes.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Fields that change all the time, in addition to the age of a service's data.
const VOLATILE_FIELDS: &[&str] = &[
    "/now",
    "/uptime_seconds",
    "/process",
    "/cluster/seen",
    "/store/milliseconds",
];

/// The newest event, for all clients.
struct SharedEvent {
    read: Box<dyn Fn() -> Value + Send + Sync>,
    newest: Mutex<NewestEvent>,
}

#[derive(Default)]
struct NewestEvent {
    read_at: Option<Instant>,
    created_at: Option<Instant>,
    /// The document without the fields that always change.
    comparable: Value,
    /// The number of the event.
    number: u64,
    event: Bytes,
}

pub(super) fn routes(overviews: Overviews) -> Router {
    Router::new()
        .route("/v1/overview/stream", get(follow))
        .with_state(Arc::new(SharedEvent {
            read: Box::new(move || json!(overviews.read())),
            newest: Mutex::default(),
        }))
}

impl SharedEvent {
    /// Returns the newest event and its number. Reads the overview again if a second has passed.
    fn newest_event(&self, now: Instant) -> (u64, Bytes) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let is_older = |at: Option<Instant>, age| at.is_none_or(|at| now.duration_since(at) >= age);
        // A little less than the pause, because the timers of the connections are not exact.
        if is_older(newest.read_at, READ_INTERVAL.mul_f32(0.9)) {
            newest.read_at = Some(now);
            let document = (self.read)();
            let mut comparable = document.clone();
            for &field in VOLATILE_FIELDS {
                comparable.pointer_mut(field).map(Value::take);
            }
            for service in comparable["services"].as_array_mut().into_iter().flatten() {
                service.pointer_mut("/summary/age_seconds").map(Value::take);
            }
            if comparable != newest.comparable || is_older(newest.created_at, HEARTBEAT) {
                let event = format!(
                    "event: overview\ndata: {}\n\n",
                    printable_json(&document.to_string())
                );
                *newest = NewestEvent {
                    read_at: newest.read_at,
                    created_at: Some(now),
                    comparable,
                    number: newest.number + 1,
                    event: event.into(),
                };
            }
        }
        (newest.number, newest.event.clone())
    }
}

/// The stream of one client, with the number of the last event that it received.
struct Follower {
    shared: Arc<SharedEvent>,
    ticks: Interval,
    last_number: u64,
}

impl Follower {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        loop {
            self.ticks.tick().await;
            let (number, event) = self.shared.newest_event(Instant::now());
            if number != self.last_number {
                self.last_number = number;
                return Some((Ok(event), self));
            }
        }
    }
}

async fn follow(State(shared): State<Arc<SharedEvent>>) -> Response {
    let mut ticks = interval(READ_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let follower = Follower {
        shared,
        ticks,
        last_number: 0,
    };
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    let events = stream::unfold(follower, Follower::next);
    (headers, Body::from_stream(events)).into_response()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn event_is_serialized_once_for_all_clients_and_only_after_a_change() {
        let reads = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&reads);
        let shared = SharedEvent {
            read: Box::new(move || {
                let reading = counted.fetch_add(1, Ordering::Relaxed);
                json!({
                    "now": reading,
                    "ready": reading >= 3,
                    "services": [{"name": "discovery", "summary": {"age_seconds": reading}}],
                })
            }),
            newest: Mutex::default(),
        };
        let start = Instant::now();
        // Milliseconds, the expected number of events, and the expected number of reads.
        for (millis, number, count) in [
            (0, 1, 1),
            (10, 1, 1),
            (1000, 1, 2),
            (1010, 1, 2),
            (2000, 1, 3),
            (3000, 2, 4),
            (4000, 2, 5),
            (17_000, 2, 6),
            (18_000, 3, 7),
        ] {
            let (actual_number, event) = shared.newest_event(start + Duration::from_millis(millis));
            assert_eq!(
                (actual_number, reads.load(Ordering::Relaxed)),
                (number, count),
                "{millis} ms"
            );
            assert!(event.starts_with(b"event: overview\ndata: {"));
            assert!(event.ends_with(b"}\n\n"));
        }
    }
}
