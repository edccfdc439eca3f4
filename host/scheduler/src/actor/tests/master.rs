//! A scripted master. It records every call together with the content of the store at that moment,
//! and sends the events of the test.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use transom_cluster::v1;
use transom_store::Store;

/// One recorded call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) kind: String,
    pub(super) body: Value,
    /// The content of the store when the call arrived, from key (without prefix) to value.
    pub(super) stored: BTreeMap<String, Value>,
}

#[derive(Clone)]
pub(super) struct Master {
    shared: Arc<Shared>,
    pub(super) address: SocketAddr,
}

struct Shared {
    store: Arc<dyn Store>,
    calls: watch::Sender<Vec<Call>>,
    stream: Mutex<Option<mpsc::UnboundedSender<Bytes>>>,
    behavior: Mutex<MasterBehavior>,
    token: CancellationToken,
}

/// The behaviour of the scripted master.
#[derive(Default)]
pub(super) struct MasterBehavior {
    /// Types of calls that are answered with 400.
    pub(super) rejected_calls: BTreeSet<&'static str>,
    /// Framework ids that have been removed.
    pub(super) removed: BTreeSet<String>,
    pub(super) heartbeat: Option<f64>,
    /// An event that the master sends when the next ACCEPT arrives.
    pub(super) event_at_accept: Option<Value>,
    frameworks: u32,
}

impl Drop for Master {
    fn drop(&mut self) {
        // Only this handle and that of the server are left.
        if Arc::strong_count(&self.shared) <= 2 {
            self.shared.token.cancel();
        }
    }
}

impl Master {
    pub(super) async fn start(store: Arc<dyn Store>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let token = CancellationToken::new();
        let shared = Arc::new(Shared {
            store,
            calls: watch::Sender::new(Vec::new()),
            stream: Mutex::new(None),
            behavior: Mutex::default(),
            token: token.clone(),
        });
        let router = Router::new()
            .route("/version", get(async || axum::Json(json!({"version": "1.11.0"}))))
            .route("/api/v1/scheduler", post(scheduler))
            .with_state(Arc::clone(&shared));
        tokio::spawn(async move {
            tokio::select! {
                () = token.cancelled() => {}
                served = axum::serve(listener, router) => served.unwrap(),
            }
        });
        Self { shared, address }
    }

    pub(super) fn configure(&self, change: impl FnOnce(&mut MasterBehavior)) {
        change(&mut self.shared.behavior.lock().unwrap());
    }

    /// The calls of this type so far.
    pub(super) fn calls(&self, kind: &str) -> Vec<Call> {
        self.shared
            .calls
            .borrow()
            .iter()
            .filter(|call| call.kind == kind)
            .cloned()
            .collect()
    }

    /// The types of all calls so far, in order.
    pub(super) fn kinds(&self) -> Vec<String> {
        self.shared
            .calls
            .borrow()
            .iter()
            .map(|call| call.kind.clone())
            .collect()
    }

    /// Waits for the `n`th call (from 1) of this type that satisfies the condition.
    pub(super) async fn call_where(&self, kind: &str, n: usize, condition: impl Fn(&Call) -> bool) -> Call {
        let mut calls = self.shared.calls.subscribe();
        let nth_call = |calls: &Vec<Call>| {
            calls
                .iter()
                .filter(|call| call.kind == kind && condition(call))
                .nth(n - 1)
                .cloned()
        };
        let wait = calls.wait_for(|calls| nth_call(calls).is_some());
        let Ok(calls) = tokio::time::timeout(Duration::from_secs(20), wait).await else {
            panic!("no {kind} number {n}; calls so far: {:?}", self.kinds());
        };
        nth_call(&calls.unwrap()).unwrap()
    }

    /// Waits for the `n`th call (from 1) of this type.
    pub(super) async fn call(&self, kind: &str, n: usize) -> Call {
        self.call_where(kind, n, |_| true).await
    }

    /// Sends an event on the current stream.
    pub(super) fn send(&self, event: &Value) {
        let stream = self.shared.stream.lock().unwrap();
        stream
            .as_ref()
            .expect("a framework is subscribed")
            .send(record(event))
            .unwrap();
    }

    pub(super) fn offer(&self, offers: &[v1::Offer]) {
        self.send(&json!({"type": "OFFERS", "offers": {"offers": offers}}));
    }

    /// Sends a status of a task. It has no uuid if `uuid` is empty.
    pub(super) fn update(&self, task: &str, state: &str, uuid: &str) {
        let mut status = json!({"task_id": {"value": task}, "state": state, "agent_id": {"value": "a1"}});
        if !uuid.is_empty() {
            status["uuid"] = json!(uuid);
        }
        self.send(&json!({"type": "UPDATE", "update": {"status": status}}));
    }

    /// Waits for a subscription and ends its stream.
    pub(super) async fn hang_up_when_subscribed(&self) {
        self.call("SUBSCRIBE", 1).await;
        self.hang_up();
    }

    /// Ends the current stream.
    pub(super) fn hang_up(&self) {
        self.shared.stream.lock().unwrap().take();
    }
}

fn record(event: &Value) -> Bytes {
    let text = event.to_string();
    format!("{}\n{text}", text.len()).into()
}

async fn scheduler(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap();
    let kind = body["type"].as_str().unwrap().to_owned();
    let mut stored = BTreeMap::new();
    for entry in shared.store.scan("fw/").await.unwrap() {
        let text = String::from_utf8(entry.value.to_vec()).unwrap();
        let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        stored.insert(entry.key.trim_start_matches("fw/").to_owned(), value);
    }
    let response = if kind == "SUBSCRIBE" {
        subscribe(&shared, &body)
    } else {
        respond(&shared, &kind)
    };
    shared
        .calls
        .send_modify(|calls| calls.push(Call { kind, body, stored }));
    response
}

fn respond(shared: &Shared, kind: &str) -> Response {
    let mut behavior = shared.behavior.lock().unwrap();
    if kind == "ACCEPT"
        && let Some(event) = behavior.event_at_accept.take()
        && let Some(stream) = &*shared.stream.lock().unwrap()
    {
        stream.send(record(&event)).unwrap();
    }
    if behavior.rejected_calls.contains(kind) {
        return (StatusCode::BAD_REQUEST, "no").into_response();
    }
    StatusCode::ACCEPTED.into_response()
}

fn subscribe(shared: &Shared, body: &Value) -> Response {
    let (events, mut stream) = mpsc::unbounded_channel();
    let mut behavior = shared.behavior.lock().unwrap();
    if behavior.rejected_calls.contains("SUBSCRIBE") {
        return (StatusCode::BAD_REQUEST, "no").into_response();
    }
    let requested_id = body["subscribe"]["framework_info"]["id"]["value"]
        .as_str()
        .map(str::to_owned);
    if requested_id
        .as_ref()
        .is_some_and(|id| behavior.removed.contains(id))
    {
        let error = json!({"type": "ERROR", "error": {"message": "Framework has been removed"}});
        events.send(record(&error)).unwrap();
    } else {
        let id = requested_id.unwrap_or_else(|| {
            behavior.frameworks += 1;
            format!("F-{}", behavior.frameworks)
        });
        let subscribed = json!({"type": "SUBSCRIBED", "subscribed": {
            "framework_id": {"value": id},
            "heartbeat_interval_seconds": behavior.heartbeat.unwrap_or(15.0),
            "master_info": {"id": "m", "hostname": "master", "port": 5050},
        }});
        events.send(record(&subscribed)).unwrap();
        *shared.stream.lock().unwrap() = Some(events);
    }
    let chunks = futures::stream::poll_fn(move |context| {
        stream
            .poll_recv(context)
            .map(|chunk| chunk.map(Ok::<_, Infallible>))
    });
    let headers = [
        (header::CONTENT_TYPE.as_str(), "application/json"),
        ("Mesos-Stream-Id", "stream"),
    ];
    (headers, Body::from_stream(chunks)).into_response()
}
