//! A master whose agents always have resources left, and whose tasks run nothing. It answers every
//! call immediately, so that measured times are the daemon's.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// Agents of the cluster, unless it is started with another number of them.
const AGENTS: usize = 10;
/// CPUs of each offer, unless it is started with another number of them: more than anybody needs.
const CPUS: f64 = 1e6;
/// Racks over which the agents are distributed, in their attribute `rack`.
const RACKS: usize = 40;
/// Time between heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);

/// The cluster; it stops when it is dropped.
pub struct Cluster {
    shared: Arc<Shared>,
    pub address: SocketAddr,
}

struct Shared {
    cluster_state: Mutex<ClusterState>,
    /// Acknowledged status updates.
    acknowledged: watch::Sender<u64>,
    shape: Shape,
    token: CancellationToken,
}

/// What the master offers.
#[derive(Clone, Copy)]
struct Shape {
    agents: usize,
    /// First and last port of every offer.
    ports: (u16, u16),
    /// CPUs of every offer.
    cpus: f64,
}

impl Shape {
    /// The tasks of a small cluster have ports on this machine; the agents of a larger one have a
    /// host name each.
    fn hostname(self, agent: usize) -> String {
        if self.agents > AGENTS {
            format!("agent{agent}.test")
        } else {
            "127.0.0.1".to_owned()
        }
    }
}

#[derive(Default)]
struct ClusterState {
    stream: Option<mpsc::UnboundedSender<Bytes>>,
    /// Running tasks, and the number of their agent.
    tasks: BTreeMap<String, usize>,
    /// Agents whose offer has been declined.
    declined: BTreeSet<usize>,
    revives: u64,
    reconciliations: u64,
    next: u64,
    /// Senders for the acknowledgements that callers await, by the UUID of the status update.
    awaited: BTreeMap<String, oneshot::Sender<()>>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shared.token.cancel();
    }
}

impl Cluster {
    pub async fn start(ports: (u16, u16)) -> Cluster {
        Cluster::start_with(ports, AGENTS).await
    }

    /// Starts a cluster with this number of agents.
    pub async fn start_with(ports: (u16, u16), agents: usize) -> Cluster {
        Cluster::start_with_offers(ports, agents, CPUS).await
    }

    /// Starts a cluster with this number of agents, each of whose offers has so many CPUs.
    pub async fn start_with_offers(ports: (u16, u16), agents: usize, cpus: f64) -> Cluster {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        let token = CancellationToken::new();
        let shared = Arc::new(Shared {
            cluster_state: Mutex::default(),
            acknowledged: watch::Sender::new(0),
            shape: Shape { agents, ports, cpus },
            token: token.clone(),
        });
        let router = Router::new()
            .route("/version", get(async || axum::Json(json!({"version": "1.11.0"}))))
            .route("/api/v1/scheduler", post(call))
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&shared));
        let heartbeats = Arc::clone(&shared);
        tokio::spawn(async move {
            let served = axum::serve(listener, router);
            let beating = async {
                loop {
                    tokio::time::sleep(HEARTBEAT_INTERVAL).await;
                    heartbeats.cluster_state().send(&json!({"type": "HEARTBEAT"}));
                }
            };
            tokio::select! {
                () = token.cancelled() => {}
                () = beating => {}
                served = served => served.expect("a server"),
            }
        });
        Cluster { shared, address }
    }

    /// Waits until this number of tasks runs.
    pub async fn wait_until_running(&self, tasks: usize) {
        let mut changes = self.shared.acknowledged.subscribe();
        while self.shared.cluster_state().tasks.len() != tasks {
            changes.changed().await.expect("a cluster");
        }
    }

    /// How often the framework has asked for every offer again.
    pub fn revives(&self) -> u64 {
        self.shared.cluster_state().revives
    }

    /// How often the framework has asked for the states of tasks.
    pub fn reconciliations(&self) -> u64 {
        self.shared.cluster_state().reconciliations
    }

    /// The running tasks.
    pub fn tasks(&self) -> BTreeSet<String> {
        self.shared.cluster_state().tasks.keys().cloned().collect()
    }

    /// Ends the task with `TASK_FAILED` if it is running.
    pub fn fail(&self, task: &str) {
        let mut cluster_state = self.shared.cluster_state();
        if cluster_state.tasks.contains_key(task) {
            cluster_state.update(task, "TASK_FAILED");
            cluster_state.tasks.remove(task);
        }
    }

    /// Sends `count` status updates of running tasks, each with another message, and waits until
    /// all of them are acknowledged.
    pub async fn send_updates(&self, count: u64) {
        let message = |number| json!({"message": format!("update {number}")});
        self.send_each(count, message).await;
    }

    /// Sends one status update of a running task, and waits until it is acknowledged. Others may be
    /// sent meanwhile.
    pub async fn send_update(&self, task: &str, message: &str) {
        let (sender, acknowledged) = oneshot::channel();
        {
            let mut cluster_state = self.shared.cluster_state();
            let uuid = cluster_state.report(task, "TASK_RUNNING", &json!({"message": message}));
            cluster_state.awaited.insert(uuid, sender);
        }
        acknowledged.await.expect("a cluster");
    }

    /// Sends results of the agents' checks for `count` running tasks, every second one unhealthy, and
    /// waits until all of them are acknowledged.
    pub async fn send_check_results(&self, count: u64) {
        self.send_each(
            count,
            |number| json!({"healthy": number % 2 == 0, "reason": "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED"}),
        )
        .await;
    }

    async fn send_each(&self, count: u64, more: impl Fn(u64) -> Value) {
        let mut acknowledged = self.shared.acknowledged.subscribe();
        let goal = *acknowledged.borrow() + count;
        {
            let mut cluster_state = self.shared.cluster_state();
            let tasks: Vec<String> = cluster_state.tasks.keys().cloned().collect();
            let step = (tasks.len() / count as usize).max(1);
            for (number, task) in (0..count).zip(tasks.iter().step_by(step).cycle()) {
                cluster_state.report(task, "TASK_RUNNING", &more(number));
            }
        }
        let all = acknowledged.wait_for(|count| *count >= goal);
        all.await.expect("a cluster");
    }
}

impl Shared {
    fn cluster_state(&self) -> MutexGuard<'_, ClusterState> {
        self.cluster_state.lock().expect("a world")
    }
}

impl ClusterState {
    fn send(&mut self, event: &Value) {
        let text = event.to_string();
        let record = format!("{}\n{text}", text.len());
        // No stream is open after the daemon was killed.
        if let Some(stream) = &self.stream {
            let _ = stream.send(record.into());
        }
    }

    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn update(&mut self, task: &str, state: &str) {
        self.report(task, state, &json!({}));
    }

    /// Sends a status update with more fields. Returns its UUID.
    fn report(&mut self, task: &str, state: &str, more: &Value) -> String {
        let agent = self.tasks.get(task).copied().unwrap_or_default();
        let uuid = format!("{:022}AA", self.next());
        let mut status = json!({
            "task_id": {"value": task}, "state": state, "message": "", "source": "SOURCE_EXECUTOR",
            "agent_id": {"value": agent_id(agent)}, "executor_id": {"value": task},
            "uuid": uuid,
            "container_status": {"network_infos": [{"ip_addresses": [{"ip_address": "127.0.0.1"}]}]},
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            status[name] = value.clone();
        }
        self.send(&json!({"type": "UPDATE", "update": {"status": status}}));
        uuid
    }

    fn reconcile(&mut self, task: &str) {
        let known = self.tasks.get(task);
        let (state, agent) = known.map_or(("TASK_LOST", 0), |agent| ("TASK_RUNNING", *agent));
        self.send(&json!({"type": "UPDATE", "update": {"status": {
            "task_id": {"value": task}, "state": state, "reason": "REASON_RECONCILIATION",
            "source": "SOURCE_MASTER", "agent_id": {"value": agent_id(agent)},
        }}}));
    }

    fn offer(&mut self, agents: impl Iterator<Item = usize>, shape: Shape) {
        let scalar = |name: &str, value: f64| {
            json!({
                "name": name, "type": "SCALAR", "scalar": {"value": value},
                "role": "*", "allocation_info": {"role": "*"},
            })
        };
        let mut offers = Vec::new();
        for agent in agents {
            let number = self.next();
            offers.push(json!({
                "id": {"value": format!("O-{agent}-{number}")},
                "framework_id": {"value": "F"},
                "agent_id": {"value": agent_id(agent)},
                "hostname": shape.hostname(agent),
                "attributes": [
                    {"name": "rack", "type": "TEXT", "text": {"value": format!("rack{}", agent % RACKS)}},
                ],
                "allocation_info": {"role": "*"},
                "resources": [
                    scalar("cpus", shape.cpus), scalar("mem", 1e8), scalar("disk", 1e9),
                    {"name": "ports", "type": "RANGES", "role": "*", "allocation_info": {"role": "*"},
                     "ranges": {"range": [{"begin": shape.ports.0, "end": shape.ports.1}]}},
                ],
            }));
        }
        if !offers.is_empty() {
            self.send(&json!({"type": "OFFERS", "offers": {"offers": offers}}));
        }
    }
}

fn agent_id(agent: usize) -> String {
    format!("A{agent}")
}

/// The agent of an offer.
fn agent_of_offer(offer: &Value) -> Option<usize> {
    offer["value"].as_str()?.split('-').nth(1)?.parse().ok()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

async fn call(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    let mut cluster_state = shared.cluster_state();
    let id = |value: &Value| value["task_id"]["value"].as_str().expect("an id").to_owned();
    match body["type"].as_str().expect("a type") {
        "SUBSCRIBE" => return subscribe(&shared, &mut cluster_state),
        "ACCEPT" => accept(&mut cluster_state, &body["accept"], shared.shape),
        "DECLINE" => {
            let agents = list(&body["decline"]["offer_ids"]).filter_map(agent_of_offer);
            cluster_state.declined.extend(agents);
        }
        "REVIVE" => {
            cluster_state.revives += 1;
            let declined = std::mem::take(&mut cluster_state.declined);
            cluster_state.offer(declined.into_iter(), shared.shape);
        }
        "KILL" => {
            let task = id(&body["kill"]);
            cluster_state.update(&task, "TASK_KILLED");
            cluster_state.tasks.remove(&task);
        }
        "RECONCILE" => {
            cluster_state.reconciliations += 1;
            let mut tasks: Vec<String> = list(&body["reconcile"]["tasks"]).map(id).collect();
            if tasks.is_empty() {
                tasks = cluster_state.tasks.keys().cloned().collect();
            }
            for task in tasks {
                cluster_state.reconcile(&task);
            }
        }
        "ACKNOWLEDGE" => {
            let uuid = body["acknowledge"]["uuid"].as_str().expect("a UUID");
            if let Some(waiting) = cluster_state.awaited.remove(uuid) {
                let _ = waiting.send(());
            }
            drop(cluster_state);
            shared.acknowledged.send_modify(|count| *count += 1);
        }
        _ => {}
    }
    StatusCode::ACCEPTED.into_response()
}

fn accept(cluster_state: &mut ClusterState, accept: &Value, shape: Shape) {
    let agents: BTreeSet<usize> = list(&accept["offer_ids"]).filter_map(agent_of_offer).collect();
    let agent = agents.first().copied().unwrap_or_default();
    let launched = list(&accept["operations"]).flat_map(|operation| {
        let group = &operation["launch_group"]["task_group"];
        list(&operation["launch"]["task_infos"]).chain(list(&group["tasks"]))
    });
    for task in launched {
        let task = task["task_id"]["value"].as_str().expect("an id");
        cluster_state.tasks.insert(task.to_owned(), agent);
        cluster_state.update(task, "TASK_RUNNING");
    }
    cluster_state.offer(agents.into_iter(), shape);
}

fn subscribe(shared: &Shared, cluster_state: &mut ClusterState) -> Response {
    let (events, mut stream) = mpsc::unbounded_channel::<Bytes>();
    cluster_state.stream = Some(events);
    cluster_state.declined.clear();
    cluster_state.send(&json!({"type": "SUBSCRIBED", "subscribed": {
        "framework_id": {"value": "F"},
        "heartbeat_interval_seconds": HEARTBEAT_INTERVAL.as_secs_f64(),
        "master_info": {"id": "m", "hostname": "127.0.0.1", "port": 5050},
    }}));
    cluster_state.offer(0..shared.shape.agents, shared.shape);
    let chunks = futures::stream::poll_fn(move |context| {
        let next = stream.poll_recv(context);
        next.map(|chunk| chunk.map(Ok::<_, Infallible>))
    });
    let headers = [
        (header::CONTENT_TYPE.as_str(), "application/json"),
        ("Mesos-Stream-Id", "stream"),
    ];
    (headers, Body::from_stream(chunks)).into_response()
}
