//! The loop of a load balancer: it follows the event stream and reads all apps again after each
//! change. Over thousands of random changes and broken connections it never keeps a stale backend.
//! A real one also reads periodically; this one does not, because that would hide a lost event. In
//! addition it derives the running tasks from the events alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use transom_testkit::eventually;
use transom_tests::breaking_proxy::BreakingProxy;
use transom_tests::events::{Events, Frame};
use transom_tests::load::cluster::Cluster;
use transom_tests::load::daemon::Daemon;

const CHANGES: usize = 10_000;
/// Number of changes after which the load balancer's state is compared with the cluster's.
const CHANGES_PER_ROUND: usize = 500;
/// Number of clients that send changes concurrently.
const CLIENTS: usize = 8;
const APPS: usize = 20;
/// Minimum of bytes before the proxy breaks a connection of the load balancer.
const MIN_CONNECTION_BYTES: usize = 150_000;
/// Longer than the test.
const STREAM_LIFETIME: Duration = Duration::from_hours(1);
const SEED: u64 = 16;

/// The tasks that receive requests, with their app, host and ports.
type Backends = BTreeMap<String, (String, String, Value)>;

fn backends(document: &Value) -> Backends {
    let apps = document["apps"].as_array().expect("apps");
    let tasks = apps
        .iter()
        .flat_map(|app| app["tasks"].as_array().expect("embedded tasks"));
    tasks
        .filter(|task| task["state"] == "TASK_RUNNING")
        .map(|task| {
            let text = |key: &str| task[key].as_str().expect("a text").to_owned();
            (text("id"), (text("appId"), text("host"), task["ports"].clone()))
        })
        .collect()
}

async fn read(http: &reqwest::Client, url: &str) -> Backends {
    let answer = http.get(url).send().await.expect("an answer");
    backends(&answer.json().await.expect("JSON"))
}

/// The state of the load balancer.
#[derive(Default)]
struct BalancerState {
    backends: Backends,
    /// The running tasks according to the events.
    running: BTreeSet<String>,
    reads: usize,
    connections: usize,
}

/// Follows the stream and forwards each event; reconnects whenever a connection breaks.
async fn follow(
    http: reqwest::Client,
    url: String,
    balancer: Arc<Mutex<BalancerState>>,
    to: mpsc::UnboundedSender<Frame>,
) {
    let mut last: Option<String> = None;
    loop {
        let mut events = match &last {
            None => Events::open(&http, &url).await,
            Some(last) => Events::resume(&http, &url, last).await,
        };
        balancer.lock().expect("a lock").connections += 1;
        while let Some(event) = events.next_within(STREAM_LIFETIME).await {
            last.clone_from(&event.id);
            if to.send(event).is_err() {
                return;
            }
        }
    }
}

/// Reads all apps after each batch of events. A read that begins after the end of a task was
/// reported must not contain that task.
async fn balance(
    http: reqwest::Client,
    apps: String,
    balancer: Arc<Mutex<BalancerState>>,
    mut events: mpsc::UnboundedReceiver<Frame>,
) {
    let (mut running, mut gone) = (BTreeSet::new(), BTreeSet::new());
    let mut waiting = Vec::new();
    let mut last = 0;
    while events.recv_many(&mut waiting, usize::MAX).await > 0 {
        for event in waiting.drain(..) {
            assert_ne!(event.event, "event_stream_gap", "no event is missed: {event:?}");
            assert!(event.sequence() > last, "each event once and in order: {event:?}");
            last = event.sequence();
            let Some(task) = event.data["taskId"].as_str().map(str::to_owned) else {
                continue;
            };
            if event.data["taskStatus"] == "TASK_RUNNING" {
                running.insert(task);
            } else {
                running.remove(&task);
                gone.insert(task);
            }
        }
        let found = read(&http, &apps).await;
        let stale: Vec<&String> = found.keys().filter(|task| gone.contains(*task)).collect();
        assert!(stale.is_empty(), "reported as ended, but listed: {stale:?}");
        let mut balancer = balancer.lock().expect("a lock");
        balancer.backends = found;
        balancer.running.clone_from(&running);
        balancer.reads += 1;
    }
}

/// Sends one random change. Some are rejected, because their app exists already or does not exist
/// (422 for a `PUT` that does not define it).
async fn change(daemon: &Daemon, cluster: &Cluster, number: usize) {
    let mut random = StdRng::seed_from_u64(SEED + number as u64);
    let app = format!("/app{}", random.random_range(0..APPS));
    let instances = random.random_range(0..4);
    let definition = |command: usize| {
        json!({
            "id": app, "cmd": format!("sleep {command}"), "cpus": 0.1, "mem": 16, "instances": instances,
            "backoffSeconds": 0, "portDefinitions": [{"port": 0}],
        })
    };
    let path = format!("/v2/apps{app}");
    let (method, path, body) = match random.random_range(0..10) {
        0..4 => (
            Method::PUT,
            format!("{path}?force=true"),
            json!({"instances": instances}),
        ),
        4 => (Method::DELETE, format!("{path}?force=true"), Value::Null),
        5..7 => (Method::POST, "/v2/apps?force=true".to_owned(), definition(1000)),
        7 => (
            Method::PUT,
            format!("{path}?force=true"),
            definition(random.random_range(1001..9999)),
        ),
        8 => (Method::DELETE, format!("{path}/tasks"), Value::Null),
        _ => {
            let tasks: Vec<String> = cluster.tasks().into_iter().collect();
            if let Some(task) = tasks.get(random.random_range(0..APPS * 4)) {
                cluster.fail(task);
            }
            return;
        }
    };
    let mut request = daemon.http.request(method, daemon.apps(&path));
    if !body.is_null() {
        request = request.json(&body);
    }
    let answer = request.send().await.expect("an answer");
    let status = answer.status().as_u16();
    let text = answer.text().await.expect("a body");
    assert!(
        matches!(status, 200 | 201 | 404 | 409 | 422),
        "{path}: {status} {text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_balancer_keeps_no_stale_backend_over_ten_thousand_changes() {
    let cluster = Cluster::start((10_000, 60_000)).await;
    let daemon = Daemon::start(cluster.address).await;
    let proxy = BreakingProxy::breaking_after(MIN_CONNECTION_BYTES, daemon.address()).await;
    let balancer = Arc::new(Mutex::new(BalancerState::default()));
    let (to, events) = mpsc::unbounded_channel();
    let apps = daemon.apps("/v2/apps?embed=apps.tasks");
    let url = format!(
        "http://{}/v2/events?ids=true&event_type=status_update_event&event_type=app_terminated_event\
         &event_type=deployment_success",
        proxy.address
    );
    let following = tokio::spawn(follow(daemon.http.clone(), url, Arc::clone(&balancer), to));
    let balancing = tokio::spawn(balance(
        daemon.http.clone(),
        apps.clone(),
        Arc::clone(&balancer),
        events,
    ));
    eventually("an open stream", || async {
        match balancer.lock().expect("a lock").connections {
            0 => Err("none".to_owned()),
            _ => Ok(()),
        }
    })
    .await;

    for first in (0..CHANGES).step_by(CHANGES_PER_ROUND) {
        futures::stream::iter(first..first + CHANGES_PER_ROUND)
            .for_each_concurrent(CLIENTS, |number| change(&daemon, &cluster, number))
            .await;
        daemon.wait_until_deployed().await;
        eventually(
            &format!(
                "a load balancer that is right after {} changes",
                first + CHANGES_PER_ROUND
            ),
            || async {
                assert!(
                    !balancing.is_finished() && !following.is_finished(),
                    "the load balancer failed"
                );
                let (running, there) = (cluster.tasks(), read(&daemon.http, &apps).await);
                let BalancerState {
                    backends,
                    running: reported,
                    ..
                } = &*balancer.lock().expect("a lock");
                if running.iter().eq(there.keys()) && *backends == there && running == *reported {
                    Ok(())
                } else {
                    Err(format!(
                        "running {running:?}, reported {reported:?}, listed {there:?}, known {backends:?}"
                    ))
                }
            },
        )
        .await;
    }
    let (reads, connections) = {
        let balancer = balancer.lock().expect("a lock");
        (balancer.reads, balancer.connections)
    };
    assert!(reads > CHANGES / 100, "{reads} reads");
    assert!(connections > 10, "{connections} connections");
    assert!(
        proxy.broken_connections() > 10,
        "{} broken connections",
        proxy.broken_connections()
    );
    following.abort();
    balancing.abort();
    daemon.stop();
}
