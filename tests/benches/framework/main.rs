//! Figures of the Kubernetes framework, measured from outside on the real binary and the embedded
//! cluster: one JSON document. The server serves an API that contains only nodes and takes almost
//! no time; the figure that names a real control plane uses one.
//!
//! Run by `cargo xtask bench framework`.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a benchmark that fails may panic, and prints its figures"
)]

mod instances;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::StreamExt;
use serde_json::{Value, json};
use transom_tests::kubernetes::{Api, Tasks, task_ids};
use transom_tests::load::{quantiles, rounded, seconds};
use transom_tests::site::Site;

/// Number of agents of the large cluster.
const AGENTS: usize = 50;
/// Number of times that the cluster grows agent by agent.
const ROUNDS: usize = 2;
/// Number of agents with the real control plane.
const REAL_AGENTS: u32 = 2;
/// Number of clients that request the status concurrently.
const CLIENTS: usize = 4;
/// Duration of these requests.
const REQUESTING_TIME: Duration = Duration::from_secs(3);
/// Downtime of the master in milliseconds: longer than these requests take.
const DOWN_MS: u32 = 20_000;
/// Timeout of every condition.
const WAIT_TIMEOUT: Duration = Duration::from_mins(5);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[tokio::main]
async fn main() {
    println!("{:#}", measure().await);
}

async fn measure() -> Value {
    let tasks = Tasks::with_nodes_only();
    let site = Site::start_with(&tasks.section(1)).await;
    let api = Api::new(site.kubernetes(""));
    wait_until_ready(&api, 1).await;
    let resident = resident_mib(&site);
    eprintln!("from a request to a launch");
    let launched = measure_launch_delay(&api, &site).await;
    eprintln!("1 to {AGENTS} agents and back");
    let scaling = measure_scaling(&api).await;
    eprintln!("status requests");
    let up = measure_status_requests(&api).await;
    let fault = json!({"fault": "restart-master", "down_ms": DOWN_MS, "recovery_ms": 0});
    site.fault(&fault).await;
    wait_until("the connection to be lost", async || {
        let seen = api.get("/explain").await.expect("an answer");
        seen["waiting"].to_string().contains("is not subscribed")
    })
    .await;
    let down = measure_status_requests(&api).await;
    let seen = api.get("/explain").await.expect("an answer");
    assert!(
        seen["waiting"].to_string().contains("is not subscribed"),
        "the master was back too early"
    );
    site.cluster.stop_after(site.daemon);
    json!({
        "scale_request_to_launch_ms": launched,
        "scaling": scaling,
        "nothing_to_kubectl_get_nodes": measure_real_start().await,
        "status_requests_per_second": up,
        "status_requests_per_second_without_master": down,
        "memory": {"resident_mib_with_1_instance": resident, "instances": instances::memory().await},
    })
}

/// Measures the time from `PUT agent/scale/n` to the launch in the journal of the cluster's agent.
/// Each request adds one agent, while the earlier ones register their nodes.
async fn measure_launch_delay(api: &Api, site: &Site) -> Value {
    let (mut answered, mut requested) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut launched_before = site.cluster.launches();
        for count in 2..=AGENTS {
            let (at, begun) = (unix_seconds(), Instant::now());
            api.put(&format!("/agent/scale/{count}")).await;
            answered.push(begun.elapsed());
            let mut started = None;
            wait_until("a launch", async || {
                started = site
                    .cluster
                    .launches()
                    .into_keys()
                    .find(|task| !launched_before.contains_key(task));
                started.is_some()
            })
            .await;
            let task = started.expect("a task");
            launched_before.insert(task.clone(), 1);
            requested.push((task, at));
        }
        wait_until_ready(api, AGENTS).await;
        api.put("/agent/scale/1").await;
        wait_until_ready(api, 1).await;
    }
    let launches = launches(site);
    let elapsed = requested.iter().map(|(task, at)| {
        let elapsed = launches.get(task).expect("a launch") - at;
        Duration::try_from_secs_f64(elapsed.max(0.0)).expect("a duration")
    });
    json!({
        "measured": "from sending PUT agent/scale/n to the launch in the journal of the cluster's agent",
        "launched": quantiles(elapsed.collect()),
        "answered": quantiles(answered),
    })
}

/// The launch times of all tasks, in seconds since 1970.
fn launches(site: &Site) -> BTreeMap<String, f64> {
    let journals = site.cluster.journals().into_iter().flat_map(fs::read_to_string);
    let mut launches = BTreeMap::new();
    for journal in journals {
        let entries = journal
            .lines()
            .map_while(|line| serde_json::from_str::<Value>(line).ok());
        for entry in entries.filter(|entry| entry["event"] == "launch") {
            if let (Some(task), Some(at)) = (entry["task"].as_str(), entry["at"].as_f64()) {
                launches.insert(task.to_owned(), at);
            }
        }
    }
    launches
}

/// Measures the time until every node is ready after scaling up, and until the surplus nodes and
/// tasks have ended after scaling down.
async fn measure_scaling(api: &Api) -> Value {
    let begun = Instant::now();
    api.put(&format!("/agent/scale/{AGENTS}")).await;
    wait_until_ready(api, AGENTS).await;
    let grown = begun.elapsed();
    let begun = Instant::now();
    api.put("/agent/scale/1").await;
    wait_until_ready(api, 1).await;
    json!({"agents": AGENTS, "from_1_s": seconds(grown), "back_to_1_s": seconds(begun.elapsed())})
}

/// Waits until this number of agents exists and every node is ready.
async fn wait_until_ready(api: &Api, agents: usize) {
    wait_until("every node to be ready", async || {
        let ready = api
            .send(reqwest::Method::GET, "/status/orch")
            .await
            .expect("an answer");
        let seen = api.get("/explain").await.expect("an answer");
        ready.1 == "ok" && task_ids(&seen, "agent").len() == agents
    })
    .await;
}

/// Measures the rate of status requests by concurrent clients.
async fn measure_status_requests(api: &Api) -> f64 {
    let begun = Instant::now();
    let clients = (0..CLIENTS).map(|_| async {
        let mut count = 0_u64;
        while begun.elapsed() < REQUESTING_TIME {
            api.get("/status/fw").await.expect("an answer");
            count += 1;
        }
        count
    });
    let counts: Vec<u64> = futures::stream::iter(clients)
        .buffer_unordered(CLIENTS)
        .collect()
        .await;
    rounded(counts.iter().sum::<u64>() as f64 / begun.elapsed().as_secs_f64())
}

/// Measures the start with a real control plane and etcd: from the start of cluster and daemon
/// until `kubectl` with the served configuration shows every node as ready.
async fn measure_real_start() -> Value {
    let Ok(programs) = std::env::var("TRANSOM_KUBERNETES") else {
        return json!({"s": null, "reason": "TRANSOM_KUBERNETES is not set: the control plane is not built"});
    };
    eprintln!("from nothing to kubectl get nodes");
    let tasks = Tasks::with_control_plane(&programs);
    let begun = Instant::now();
    let site = Site::start_with(&tasks.section(REAL_AGENTS)).await;
    let (api, file) = (Api::new(site.kubernetes("")), tasks.folder().join("kubeconfig"));
    let nodes = 1 + REAL_AGENTS as usize;
    wait_until("kubectl to show every node", async || {
        match api.send(reqwest::Method::GET, "/server/config").await {
            Ok((200, config)) => {
                fs::write(&file, config).expect("written");
                ready_nodes(&file) == nodes
            }
            _ => false,
        }
    })
    .await;
    let elapsed = begun.elapsed();
    site.cluster.stop_after(site.daemon);
    json!({"s": seconds(elapsed), "servers": 1, "agents": REAL_AGENTS})
}

/// The number of nodes that `kubectl` shows as ready.
fn ready_nodes(config: &Path) -> usize {
    let mut kubectl = Command::new("kubectl");
    kubectl.arg("--kubeconfig").arg(config);
    let stdout = kubectl
        .args(["--request-timeout=5s", "get", "nodes", "--no-headers"])
        .output();
    let stdout = stdout.expect("kubectl").stdout;
    let rows = String::from_utf8_lossy(&stdout);
    let ready = rows
        .lines()
        .filter(|row| row.split_whitespace().nth(1) == Some("Ready"));
    ready.count()
}

/// The resident memory of the daemon in MiB.
fn resident_mib(site: &Site) -> f64 {
    let pid = site.daemon.as_ref().expect("a daemon").pid();
    rounded(transom_testkit::usage::resident_kib(pid) as f64 / 1024.0)
}

fn unix_seconds() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a time").as_secs_f64()
}

async fn wait_until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !done().await {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "timed out waiting for {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
