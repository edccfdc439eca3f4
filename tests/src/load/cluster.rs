//! A master whose agents have unlimited resources and whose tasks run nothing. It answers every
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
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Agents of the cluster.
const AGENTS: usize = 10;
/// Time between heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The cluster; it stops when it is dropped.
pub struct Cluster {
    shared: Arc<Shared>,
    pub address: SocketAddr,
}

struct Shared {
    world: Mutex<World>,
    /// Acknowledged status updates.
    acknowledged: watch::Sender<u64>,
    /// First and last port of every offer.
    ports: (u16, u16),
    token: CancellationToken,
}

#[derive(Default)]
struct World {
    stream: Option<mpsc::UnboundedSender<Bytes>>,
    /// Running tasks, and the number of their agent.
    tasks: BTreeMap<String, usize>,
    /// Agents whose offer has been declined.
    declined: BTreeSet<usize>,
    next: u64,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shared.token.cancel();
    }
}

impl Cluster {
    pub async fn start(ports: (u16, u16)) -> Cluster {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        let token = CancellationToken::new();
        let shared = Arc::new(Shared {
            world: Mutex::default(),
            acknowledged: watch::Sender::new(0),
            ports,
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
                    tokio::time::sleep(HEARTBEAT).await;
                    heartbeats.world().send(&json!({"type": "HEARTBEAT"}));
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
    pub async fn running(&self, tasks: usize) {
        let mut changes = self.shared.acknowledged.subscribe();
        while self.shared.world().tasks.len() != tasks {
            changes.changed().await.expect("a cluster");
        }
    }

    /// The running tasks.
    pub fn tasks(&self) -> BTreeSet<String> {
        self.shared.world().tasks.keys().cloned().collect()
    }

    /// Ends the task with `TASK_FAILED` if it is running.
    pub fn fail(&self, task: &str) {
        let mut world = self.shared.world();
        if world.tasks.contains_key(task) {
            world.update(task, "TASK_FAILED", "");
            world.tasks.remove(task);
        }
    }

    /// Sends `count` status updates of running tasks, each with another message, and waits until
    /// all of them are acknowledged.
    pub async fn updates(&self, count: u64) {
        let mut acknowledged = self.shared.acknowledged.subscribe();
        let goal = *acknowledged.borrow() + count;
        {
            let mut world = self.shared.world();
            let tasks: Vec<String> = world.tasks.keys().cloned().collect();
            let step = (tasks.len() / count as usize).max(1);
            for (number, task) in (0..count).zip(tasks.iter().step_by(step).cycle()) {
                world.update(task, "TASK_RUNNING", &format!("update {number}"));
            }
        }
        let all = acknowledged.wait_for(|count| *count >= goal);
        all.await.expect("a cluster");
    }
}

impl Shared {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("a world")
    }
}

impl World {
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

    fn update(&mut self, task: &str, state: &str, message: &str) {
        let agent = self.tasks.get(task).copied().unwrap_or_default();
        let number = self.next();
        self.send(&json!({"type": "UPDATE", "update": {"status": {
            "task_id": {"value": task}, "state": state, "message": message, "source": "SOURCE_EXECUTOR",
            "agent_id": {"value": agent_id(agent)}, "executor_id": {"value": task},
            "uuid": format!("{number:022}AA"),
            "container_status": {"network_infos": [{"ip_addresses": [{"ip_address": "127.0.0.1"}]}]},
        }}}));
    }

    fn reconcile(&mut self, task: &str) {
        let known = self.tasks.get(task);
        let (state, agent) = known.map_or(("TASK_LOST", 0), |agent| ("TASK_RUNNING", *agent));
        self.send(&json!({"type": "UPDATE", "update": {"status": {
            "task_id": {"value": task}, "state": state, "reason": "REASON_RECONCILIATION",
            "source": "SOURCE_MASTER", "agent_id": {"value": agent_id(agent)},
        }}}));
    }

    fn offer(&mut self, agents: impl Iterator<Item = usize>, ports: (u16, u16)) {
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
                "hostname": "127.0.0.1",
                "allocation_info": {"role": "*"},
                "resources": [
                    scalar("cpus", 1e6), scalar("mem", 1e8), scalar("disk", 1e9),
                    {"name": "ports", "type": "RANGES", "role": "*", "allocation_info": {"role": "*"},
                     "ranges": {"range": [{"begin": ports.0, "end": ports.1}]}},
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
fn offering(offer: &Value) -> Option<usize> {
    offer["value"].as_str()?.split('-').nth(1)?.parse().ok()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

async fn call(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    let mut world = shared.world();
    let id = |value: &Value| value["task_id"]["value"].as_str().expect("an id").to_owned();
    match body["type"].as_str().expect("a type") {
        "SUBSCRIBE" => return subscribe(&shared, &mut world),
        "ACCEPT" => accept(&mut world, &body["accept"], shared.ports),
        "DECLINE" => {
            let agents = list(&body["decline"]["offer_ids"]).filter_map(offering);
            world.declined.extend(agents);
        }
        "REVIVE" => {
            let declined = std::mem::take(&mut world.declined);
            world.offer(declined.into_iter(), shared.ports);
        }
        "KILL" => {
            let task = id(&body["kill"]);
            world.update(&task, "TASK_KILLED", "");
            world.tasks.remove(&task);
        }
        "RECONCILE" => {
            let mut tasks: Vec<String> = list(&body["reconcile"]["tasks"]).map(id).collect();
            if tasks.is_empty() {
                tasks = world.tasks.keys().cloned().collect();
            }
            for task in tasks {
                world.reconcile(&task);
            }
        }
        "ACKNOWLEDGE" => {
            drop(world);
            shared.acknowledged.send_modify(|count| *count += 1);
        }
        _ => {}
    }
    StatusCode::ACCEPTED.into_response()
}

fn accept(world: &mut World, accept: &Value, ports: (u16, u16)) {
    let agents: BTreeSet<usize> = list(&accept["offer_ids"]).filter_map(offering).collect();
    let agent = agents.first().copied().unwrap_or_default();
    for task in list(&accept["operations"]).flat_map(|operation| list(&operation["launch"]["task_infos"])) {
        let task = task["task_id"]["value"].as_str().expect("an id");
        world.tasks.insert(task.to_owned(), agent);
        world.update(task, "TASK_RUNNING", "");
    }
    world.offer(agents.into_iter(), ports);
}

fn subscribe(shared: &Shared, world: &mut World) -> Response {
    let (events, mut stream) = mpsc::unbounded_channel::<Bytes>();
    world.stream = Some(events);
    world.declined.clear();
    world.send(&json!({"type": "SUBSCRIBED", "subscribed": {
        "framework_id": {"value": "F"},
        "heartbeat_interval_seconds": HEARTBEAT.as_secs_f64(),
        "master_info": {"id": "m", "hostname": "127.0.0.1", "port": 5050},
    }}));
    world.offer(0..AGENTS, shared.ports);
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
