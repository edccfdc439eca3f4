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
use transom_plugin_host::shown_json;

use super::overview::Overviews;

/// The minimum time between two reads of the overview.
const PAUSE: Duration = Duration::from_secs(1);
/// The time between two events if nothing changes.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Fields that change all the time, in addition to the age of a service's data.
const RESTLESS: [&str; 5] = [
    "/now",
    "/uptime_seconds",
    "/process",
    "/cluster/seen",
    "/store/milliseconds",
];

/// The newest event, for all clients.
struct Shared {
    read: Box<dyn Fn() -> Value + Send + Sync>,
    newest: Mutex<Newest>,
}

#[derive(Default)]
struct Newest {
    read: Option<Instant>,
    written: Option<Instant>,
    /// The document without the fields that always change.
    compared: Value,
    /// The number of the event.
    number: u64,
    event: Bytes,
}

pub(super) fn routes(overviews: Overviews) -> Router {
    Router::new()
        .route("/v1/overview/stream", get(follow))
        .with_state(Arc::new(Shared {
            read: Box::new(move || json!(overviews.read())),
            newest: Mutex::default(),
        }))
}

impl Shared {
    /// Returns the newest event and its number. Reads the overview again if a second has passed.
    fn current(&self, now: Instant) -> (u64, Bytes) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let is_older = |at: Option<Instant>, age| at.is_none_or(|at| now.duration_since(at) >= age);
        // A little less than the pause, because the timers of the connections are not exact.
        if is_older(newest.read, PAUSE.mul_f32(0.9)) {
            newest.read = Some(now);
            let document = (self.read)();
            let mut compared = document.clone();
            for field in RESTLESS {
                compared.pointer_mut(field).map(Value::take);
            }
            for service in compared["services"].as_array_mut().into_iter().flatten() {
                service.pointer_mut("/summary/age_seconds").map(Value::take);
            }
            if compared != newest.compared || is_older(newest.written, HEARTBEAT) {
                let event = format!("event: overview\ndata: {}\n\n", shown_json(&document.to_string()));
                *newest = Newest {
                    read: newest.read,
                    written: Some(now),
                    compared,
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
    shared: Arc<Shared>,
    turns: Interval,
    seen: u64,
}

impl Follower {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        loop {
            self.turns.tick().await;
            let (number, event) = self.shared.current(Instant::now());
            if number != self.seen {
                self.seen = number;
                return Some((Ok(event), self));
            }
        }
    }
}

async fn follow(State(shared): State<Arc<Shared>>) -> Response {
    let mut turns = interval(PAUSE);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let follower = Follower {
        shared,
        turns,
        seen: 0,
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
        let readings = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&readings);
        let shared = Shared {
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
        let begin = Instant::now();
        // Milliseconds, the expected number of events, and the expected number of reads.
        for (at, number, count) in [
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
            let (found, event) = shared.current(begin + Duration::from_millis(at));
            assert_eq!(
                (found, readings.load(Ordering::Relaxed)),
                (number, count),
                "{at} ms"
            );
            assert!(event.starts_with(b"event: overview\ndata: {"));
            assert!(event.ends_with(b"}\n\n"));
        }
    }
}
