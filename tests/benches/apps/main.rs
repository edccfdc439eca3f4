//! Figures of the apps service, measured from outside on the real binary: one JSON document. The
//! cluster answers immediately and runs nothing, so the times are the daemon's.
//!
//! Run by `cargo xtask bench apps`.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a benchmark that fails may panic, and prints its figures"
)]

mod probes;
mod stores;

use std::time::{Duration, Instant};

use futures::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};
use transom_testkit::usage;
use transom_tests::events::Events;
use transom_tests::load::cluster::Cluster;
use transom_tests::load::daemon::Daemon;
use transom_tests::load::{quantiles, rounded, seconds};

/// Number of apps that are deployed together, for a rate.
const RATE_APPS: usize = 1_000;
/// Number of clients that post them.
const CLIENTS: usize = 16;
/// Number of apps that are posted one after the other, for a latency.
const LATENCY_APPS: usize = 100;
/// Number of apps in large lists and groups.
const APPS: usize = 10_000;
/// Number of instances of each app in the largest measurement.
const INSTANCES: usize = 10;
/// Number of requests for each list.
const LIST_REQUESTS: usize = 7;
/// Number of status updates that are measured together.
const UPDATES: u64 = 5_000;
/// Interval in which memory must not fall, to count as settled.
const SETTLING_TIME: Duration = Duration::from_secs(12);
/// Host ports of the tasks, which nothing listens on.
const PORTS: (u16, u16) = (10_000, 60_000);

#[tokio::main]
async fn main() {
    println!("{:#}", measure().await);
}

/// Measures the sections that the arguments name, or all.
async fn measure() -> Value {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let wants = |section: &str| wanted.is_empty() || wanted.iter().any(|one| one == section);
    let mut figures = json!({});
    if wants("small") {
        let (rate, latency) = measure_few_apps().await;
        figures["deployments_per_second"] = rate.into();
        figures["post_to_running_ms"] = latency;
    }
    if wants("large") {
        figures["large"] = measure_many_apps().await;
    }
    if wants("stores") {
        figures["stores"] = stores::measure().await;
    }
    if wants("rolling_restart") {
        figures["rolling_restart"] = measure_rolling_restart().await;
    }
    if wants("checks") {
        figures["checks"] = probes::measure().await;
    }
    figures
}

fn app(id: &str, instances: usize) -> Value {
    json!({
        "id": id, "cmd": "sleep 1000", "cpus": 0.1, "mem": 32, "instances": instances,
        "labels": {"team": "shop", "HAPROXY_GROUP": "external"}, "env": {"STAGE": "test"},
    })
}

/// Measures few apps: deployments per second, and the latency of a single one.
async fn measure_few_apps() -> (f64, Value) {
    let cluster = Cluster::start(PORTS).await;
    let daemon = Daemon::start(cluster.address).await;
    eprintln!("deployments per second");
    let begun = Instant::now();
    futures::stream::iter(0..RATE_APPS)
        .for_each_concurrent(CLIENTS, |number| {
            let daemon = &daemon;
            async move {
                let body = app(&format!("/rate{number}"), 1);
                daemon.change(Method::POST, "/v2/apps", &body).await;
            }
        })
        .await;
    cluster.wait_until_running(RATE_APPS).await;
    daemon.wait_until_deployed().await;
    let rate = RATE_APPS as f64 / begun.elapsed().as_secs_f64();
    let latency = measure_latency(&daemon).await;
    daemon.stop();
    (rounded(rate), latency)
}

/// Measures the time from the request for an app until its task runs, of apps one after the other.
async fn measure_latency(daemon: &Daemon) -> Value {
    eprintln!("from a POST to TASK_RUNNING");
    let url = daemon.apps("/v2/events?event_type=status_update_event");
    let mut events = Events::open(&daemon.http, &url).await;
    let mut elapsed = Vec::new();
    for number in 0..LATENCY_APPS {
        let id = format!("/latency{number}");
        let begun = Instant::now();
        daemon.change(Method::POST, "/v2/apps", &app(&id, 1)).await;
        loop {
            let event = events.next_of("status_update_event").await.data;
            if event["appId"] == id && event["taskStatus"] == "TASK_RUNNING" {
                break;
            }
        }
        elapsed.push(begun.elapsed());
    }
    quantiles(elapsed)
}

/// Measures many apps and tasks.
async fn measure_many_apps() -> Value {
    let cluster = Cluster::start(PORTS).await;
    let mut daemon = Daemon::start(cluster.address).await;
    let empty = usage::resident_kib(daemon.pid());
    let mut lists = Vec::new();
    let mut put = Value::Null;
    for apps in [100, 1_000, APPS] {
        eprintln!("{apps} apps");
        put = measure_group_deployment(&daemon, apps, 0).await;
        lists.push(measure_list(&daemon, apps, 0).await);
    }
    let mut updates = Vec::new();
    for (apps, instances) in [(100, 1), (1_000, 10), (APPS, 1)] {
        eprintln!("{apps} apps with {instances} tasks each");
        measure_group_deployment(&daemon, apps, instances).await;
        cluster.wait_until_running(apps * instances).await;
        daemon.wait_until_deployed().await;
        lists.push(measure_list(&daemon, apps, instances).await);
        if apps < APPS {
            updates.push(measure_status_updates(&daemon, &cluster, apps * instances).await);
        }
    }
    let tasks = APPS * INSTANCES;
    eprintln!("{tasks} tasks");
    let scaling = measure_group_deployment(&daemon, APPS, INSTANCES).await;
    cluster.wait_until_running(tasks).await;
    daemon.wait_until_deployed().await;
    updates.push(measure_status_updates(&daemon, &cluster, tasks).await);
    let resident = usage::resident_kib(daemon.pid());
    eprintln!("failover");
    let path = format!("/v2/apps/load/app{}", APPS - 1);
    let failover = daemon
        .fail_over(&path, "/app/tasksRunning", &json!(INSTANCES))
        .await;
    let after_failover = usage::resident_kib(daemon.pid());
    let settled = settled_kib(&daemon).await;
    daemon.stop();
    json!({
        "group_put": put,
        "group_scaling": scaling,
        "lists": lists,
        "status_update": updates,
        "memory": {
            "apps": APPS, "tasks": tasks, "empty_mib": mebibytes(empty), "resident_mib": mebibytes(resident),
            "after_failover_mib": mebibytes(after_failover), "after_failover_settled_mib": mebibytes(settled),
        },
        "failover": failover,
    })
}

/// The resident memory once it has stopped falling: the allocator returns freed pages some seconds
/// later.
async fn settled_kib(daemon: &Daemon) -> u64 {
    let mut last = usage::resident_kib(daemon.pid());
    loop {
        tokio::time::sleep(SETTLING_TIME).await;
        let now = usage::resident_kib(daemon.pid());
        if now + 1024 >= last {
            return now;
        }
        last = now;
    }
}

fn mebibytes(kib: u64) -> u64 {
    kib / 1024
}

/// Measures the time until a change of a group with this number of apps is accepted, and until it
/// is deployed.
async fn measure_group_deployment(daemon: &Daemon, apps: usize, instances: usize) -> Value {
    let apps: Vec<Value> = (0..apps)
        .map(|number| app(&format!("app{number}"), instances))
        .collect();
    let body = json!({"id": "/load", "apps": apps});
    let begun = Instant::now();
    daemon.change(Method::PUT, "/v2/groups", &body).await;
    let accepted = begun.elapsed();
    daemon.wait_until_deployed().await;
    json!({
        "apps": apps.len(), "instances": instances, "accepted_s": seconds(accepted),
        "deployed_s": seconds(begun.elapsed()),
    })
}

/// Measures the duration and the size of a list of all apps, plain and compressed.
async fn measure_list(daemon: &Daemon, apps: usize, instances: usize) -> Value {
    let path = match instances {
        0 => "/v2/apps",
        _ => "/v2/apps?embed=apps.tasks",
    };
    let mut figures = json!({"apps": apps, "tasks": apps * instances});
    for encoding in ["identity", "gzip"] {
        let mut elapsed = Vec::new();
        let mut bytes = 0;
        for _ in 0..LIST_REQUESTS {
            let begun = Instant::now();
            let request = daemon
                .http
                .get(daemon.apps(path))
                .header("Accept-Encoding", encoding);
            let answer = request.send().await.expect("an answer");
            let encoded = answer.headers().get("content-encoding").is_some();
            assert_eq!(encoded, encoding == "gzip", "the encoding of {path}");
            bytes = answer.bytes().await.expect("a body").len();
            elapsed.push(begun.elapsed());
        }
        figures[encoding] = json!({"bytes": bytes, "ms": quantiles(elapsed)});
    }
    figures
}

/// Measures the cost of a status update.
async fn measure_status_updates(daemon: &Daemon, cluster: &Cluster, tasks: usize) -> Value {
    let (begun, used) = (Instant::now(), usage::cpu(daemon.pid()));
    cluster.send_updates(UPDATES).await;
    let used = usage::cpu(daemon.pid()).saturating_sub(used);
    let each = |time: Duration| rounded(time.as_secs_f64() * 1e6 / UPDATES as f64);
    json!({"tasks": tasks, "cpu_us": each(used), "elapsed_us": each(begun.elapsed())})
}

/// Measures the replacement of all instances of one app.
async fn measure_rolling_restart() -> Value {
    eprintln!("restart of {APPS} instances");
    let cluster = Cluster::start(PORTS).await;
    let daemon = Daemon::start(cluster.address).await;
    daemon.change(Method::POST, "/v2/apps", &app("/web", APPS)).await;
    cluster.wait_until_running(APPS).await;
    daemon.wait_until_deployed().await;
    let begun = Instant::now();
    daemon
        .change(Method::PUT, "/v2/apps/web", &json!({"cmd": "sleep 2000"}))
        .await;
    daemon.wait_until_deployed().await;
    let elapsed = begun.elapsed();
    cluster.wait_until_running(APPS).await;
    daemon.stop();
    json!({"instances": APPS, "s": seconds(elapsed)})
}
