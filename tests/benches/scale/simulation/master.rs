//! A master of any size that stores nothing per task: it derives responses from the numbers in ids.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::recorded::{Names, RecordedTemplates, Template, task_id, task_number};

/// Number of entries that are written together.
const ENTRIES_PER_CHUNK: u32 = 1000;
/// Interval of heartbeats in seconds: longer than any measurement.
const HEARTBEAT_SECONDS: f64 = 3600.0;

/// Counts of the framework's calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) acknowledged: u64,
    pub(crate) launched: u64,
    pub(crate) declined: u64,
    /// Number of tasks whose state the framework has requested.
    pub(crate) reconciled: u64,
}

/// The next part of a stream.
enum Part {
    Event(String),
    /// The current state of each of these tasks.
    States(Vec<u32>),
    /// One offer of each agent.
    Offers,
}

pub(crate) struct Master {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    recorded: RecordedTemplates,
    agents: u32,
    tasks: u32,
    counts: watch::Sender<Counts>,
    inner: Mutex<MasterState>,
}

#[derive(Default)]
struct MasterState {
    /// Open streams of the operator API.
    operator: Vec<mpsc::UnboundedSender<Part>>,
    framework: Option<mpsc::UnboundedSender<Part>>,
    /// Sizes in bytes of the last snapshot and of the last offers.
    snapshot: u64,
    offers: u64,
    /// The number of the last update.
    update: u32,
}

impl Master {
    pub(crate) async fn start(agents: u32, tasks: u32) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            recorded: RecordedTemplates::load(),
            agents,
            tasks,
            counts: watch::Sender::new(Counts::default()),
            inner: Mutex::default(),
        });
        let router = Router::new()
            .route("/version", get(async || axum::Json(json!({"version": "1.11.0"}))))
            .route("/api/v1", post(watch_cluster))
            .route("/api/v1/scheduler", post(call))
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, shared }
    }

    pub(crate) fn recorded(&self) -> &RecordedTemplates {
        &self.shared.recorded
    }

    pub(crate) fn client(&self) -> transom_cluster::Client {
        let config = transom_cluster::Config {
            masters: vec![self.address.to_string()],
            ..transom_cluster::Config::default()
        };
        transom_cluster::Client::new(config).expect("a client")
    }

    /// The sizes in bytes of the last snapshot and of the last offers.
    pub(crate) fn sizes(&self) -> (u64, u64) {
        let inner = self.shared.lock_state();
        (inner.snapshot, inner.offers)
    }

    /// Sends an event on every operator stream.
    pub(crate) fn send_operator_event(&self, event: &Template, n: u32) {
        let text = event.text(&Names::of_task(n, self.shared.agents));
        let mut inner = self.shared.lock_state();
        inner
            .operator
            .retain(|stream| stream.send(Part::Event(text.clone())).is_ok());
    }

    /// Ends the operator streams.
    pub(crate) fn close_operator_streams(&self) {
        self.shared.lock_state().operator.clear();
    }

    /// Sends the framework a status update of a running task.
    pub(crate) fn update(&self, n: u32) {
        self.shared.update(n);
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.shared.counts.borrow()
    }

    /// Waits until `wanted` accepts the counts.
    pub(crate) async fn wait_until(&self, what: &str, wanted: impl FnMut(&Counts) -> bool) {
        let mut counts = self.shared.counts.subscribe();
        let outcome = tokio::time::timeout(super::WAIT_TIMEOUT, counts.wait_for(wanted)).await;
        let reached = outcome.is_ok_and(|reached| reached.is_ok());
        assert!(
            reached,
            "timed out waiting for {what}; last seen: {:?}",
            self.counts()
        );
    }
}

impl Shared {
    fn lock_state(&self) -> MutexGuard<'_, MasterState> {
        self.inner.lock().expect("a master")
    }

    fn update(&self, n: u32) {
        let mut inner = self.lock_state();
        inner.update += 1;
        let names = Names::of_update(n, self.agents, inner.update);
        let text = self.recorded.update.text(&names);
        if let Some(stream) = &inner.framework {
            let _ = stream.send(Part::Event(text));
        }
    }

    /// The entries of a list in pieces, separated by commas.
    fn entries<N: Fn(u32) -> Names + Send + 'static>(
        self: &Arc<Self>,
        count: u32,
        template: fn(&RecordedTemplates) -> &Template,
        names: N,
    ) -> impl Stream<Item = String> + Send + use<N> {
        let shared = Arc::clone(self);
        stream::iter((0..count).step_by(ENTRIES_PER_CHUNK as usize)).map(move |first| {
            let mut text = String::new();
            for n in first..count.min(first + ENTRIES_PER_CHUNK) {
                if n > 0 {
                    text.push(',');
                }
                template(&shared.recorded).write(&names(n), &mut text);
            }
            text
        })
    }

    /// The length of such a list in bytes; all entries have the same length.
    fn length(count: u32, template: &Template, names: &Names) -> u64 {
        let each = template.text(names).len() as u64 + 1;
        (each * u64::from(count)).saturating_sub(1)
    }

    /// SUBSCRIBED of the operator stream, as one record.
    fn snapshot(self: &Arc<Self>) -> impl Stream<Item = String> + Send + use<> {
        let (agents, tasks) = (self.agents, self.tasks);
        let begin = r#"{"type":"SUBSCRIBED","subscribed":{"get_state":{"get_agents":{"agents":["#;
        let middle = format!(
            r#"]}},"get_frameworks":{{"frameworks":[{}]}},"get_tasks":{{"tasks":["#,
            self.recorded.framework
        );
        let end = format!(r#"]}}}},"heartbeat_interval_seconds":{HEARTBEAT_SECONDS:?}}}}}"#);
        let length = (begin.len() + middle.len() + end.len()) as u64
            + Self::length(agents, &self.recorded.agent, &Names::of_agent(0))
            + Self::length(tasks, &self.recorded.task, &Names::of_task(0, agents));
        self.lock_state().snapshot = length;
        stream::iter([format!("{length}\n{begin}")])
            .chain(self.entries(agents, |recorded| &recorded.agent, Names::of_agent))
            .chain(stream::iter([middle]))
            .chain(self.entries(
                tasks,
                |recorded| &recorded.task,
                move |n| Names::of_task(n, agents),
            ))
            .chain(stream::iter([end]))
    }

    /// OFFERS of all agents, as one record.
    fn offers(self: &Arc<Self>) -> impl Stream<Item = String> + Send + use<> {
        let (begin, end) = (r#"{"type":"OFFERS","offers":{"offers":["#, "]}}");
        let list = Self::length(self.agents, &self.recorded.offer, &Names::of_agent(0));
        let length = (begin.len() + end.len()) as u64 + list;
        self.lock_state().offers = length;
        stream::iter([format!("{length}\n{begin}")])
            .chain(self.entries(self.agents, |recorded| &recorded.offer, Names::of_agent))
            .chain(stream::iter([end.to_owned()]))
    }

    /// The states of tasks, each in one record.
    fn states(&self, tasks: &[u32]) -> String {
        let mut text = String::new();
        for n in tasks {
            text += &record(
                &json!({"type": "UPDATE", "update": {"status": {
                    "task_id": {"value": task_id(*n)}, "state": "TASK_RUNNING", "source": "SOURCE_MASTER",
                    "message": "Reconciliation: Latest task state", "reason": "REASON_RECONCILIATION",
                    "agent_id": {"value": Names::of_task(*n, self.agents).agent()}, "timestamp": 1_795_164_576.620_803,
                }}})
                .to_string(),
            );
        }
        text
    }

    fn write(self: &Arc<Self>, part: Part) -> stream::BoxStream<'static, String> {
        match part {
            Part::Event(event) => stream::iter([record(&event)]).boxed(),
            Part::States(tasks) => stream::iter([self.states(&tasks)]).boxed(),
            Part::Offers => self.offers().boxed(),
        }
    }

    /// The stream after its first record.
    fn follow(
        self: &Arc<Self>,
        mut parts: mpsc::UnboundedReceiver<Part>,
    ) -> impl Stream<Item = String> + Send + use<> {
        let shared = Arc::clone(self);
        stream::poll_fn(move |context| parts.poll_recv(context)).flat_map(move |part| shared.write(part))
    }
}

fn record(text: &str) -> String {
    format!("{}\n{text}", text.len())
}

fn body(text: impl Stream<Item = String> + Send + 'static) -> Body {
    Body::from_stream(text.map(|text| Ok::<_, Infallible>(Bytes::from(text))))
}

/// SUBSCRIBE of the operator API.
async fn watch_cluster(State(shared): State<Arc<Shared>>) -> Response {
    let (sender, parts) = mpsc::unbounded_channel();
    let text = shared.snapshot().chain(shared.follow(parts));
    shared.lock_state().operator.push(sender);
    ([(header::CONTENT_TYPE, "application/json")], body(text)).into_response()
}

/// The scheduler API.
async fn call(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let call: Value = serde_json::from_slice(&body).expect("JSON");
    let count = |change: &dyn Fn(&mut Counts)| shared.counts.send_modify(|counts| change(counts));
    match call["type"].as_str().expect("a type") {
        "SUBSCRIBE" => return subscribe(&shared),
        "ACKNOWLEDGE" => count(&|counts| counts.acknowledged += 1),
        "DECLINE" => {
            let offers = list(&call["decline"]["offer_ids"]).count() as u64;
            count(&|counts| counts.declined += offers);
        }
        "REVIVE" => shared.send(Part::Offers),
        "RECONCILE" => {
            let tasks: Vec<u32> = list(&call["reconcile"]["tasks"])
                .filter_map(|task| task_number(task["task_id"]["value"].as_str()?))
                .collect();
            let asked = tasks.len() as u64;
            shared.send(Part::States(tasks));
            count(&|counts| counts.reconciled += asked);
        }
        "ACCEPT" => {
            let operations = list(&call["accept"]["operations"]);
            let launched: Vec<u32> = operations
                .flat_map(|operation| list(&operation["launch"]["task_infos"]))
                .filter_map(|task| task_number(task["task_id"]["value"].as_str()?))
                .collect();
            for n in &launched {
                shared.update(*n);
            }
            count(&|counts| counts.launched += launched.len() as u64);
        }
        _ => {}
    }
    StatusCode::ACCEPTED.into_response()
}

impl Shared {
    fn send(&self, part: Part) {
        if let Some(stream) = &self.lock_state().framework {
            let _ = stream.send(part);
        }
    }
}

fn subscribe(shared: &Arc<Shared>) -> Response {
    let (sender, parts) = mpsc::unbounded_channel();
    let subscribed = json!({"type": "SUBSCRIBED", "subscribed": {
        "framework_id": {"value": "F"}, "heartbeat_interval_seconds": HEARTBEAT_SECONDS,
        "master_info": {"id": "m", "hostname": "127.0.0.1", "port": 5050},
    }});
    let text = stream::iter([record(&subscribed.to_string())])
        .chain(shared.offers())
        .chain(shared.follow(parts));
    shared.lock_state().framework = Some(sender);
    let headers = [
        (header::CONTENT_TYPE.as_str(), "application/json"),
        ("Mesos-Stream-Id", "stream"),
    ];
    (headers, body(text)).into_response()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
