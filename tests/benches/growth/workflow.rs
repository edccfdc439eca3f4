//! Rows of the workflow service.

use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use transom_tests::load::cluster::Cluster;
use transom_tests::load::daemon::Daemon;

use crate::apps::PORTS;
use crate::meter::{Cost, Meter};

const SECTION: &str = "[workflow]\nport = 0\ncontainers = false\nmax_jobs = 200000\n";
/// Maximum of concurrent requests.
const MAX_CONCURRENT: usize = 16;
/// Number of equal requests that are measured together.
const REQUESTS: u32 = 50;
/// Number of jobs that run while others wait.
const RUNNING: usize = 50;

fn job(id: &str, fits: bool) -> Value {
    let attributes: &[&str] = if fits { &[] } else { &["rack:nowhere"] };
    json!({"workflow_task_id": id, "command": ["true"], "cpus": 0.05, "mem_limit": 8, "disk": 1,
        "attributes": attributes})
}

async fn queue(daemon: &Daemon, jobs: impl Iterator<Item = Value>) {
    let url = daemon.url("workflow", "/v0/queue_command");
    futures::stream::iter(jobs)
        .for_each_concurrent(MAX_CONCURRENT, |job| {
            let request = daemon.http.post(&url).json(&job);
            async move {
                let answer = request.send().await.expect("an answer");
                let status = answer.status();
                let text = answer.text().await.unwrap_or_default();
                assert!(status.is_success(), "{status}: {text}");
            }
        })
        .await;
}

async fn read(daemon: &Daemon, path: &str, count: u32) -> Cost {
    let meter = Meter::start(daemon.pid());
    for _ in 0..count {
        let answer = daemon.http.get(daemon.url("workflow", path)).send().await;
        let answer = answer.expect("an answer");
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        answer.bytes().await.expect("a body");
    }
    meter.stop(count)
}

/// Jobs that wait, and what they cost others.
pub(crate) async fn waiting_jobs(size: usize) -> Vec<Cost> {
    let cluster = Cluster::start(PORTS).await;
    let daemon = Daemon::start_service(cluster.address, SECTION).await;
    let meter = Meter::start(daemon.pid());
    queue(
        &daemon,
        (0..size).map(|number| job(&format!("waits{number}"), false)),
    )
    .await;
    let queued = meter.stop(1);
    let one = read(&daemon, "/v0/queue?task_id=waits7", REQUESTS).await;
    let all = read(&daemon, "/v0/queue?limit=100000", 5).await;
    let meter = Meter::start(daemon.pid());
    for number in 0..RUNNING {
        queue(&daemon, std::iter::once(job(&format!("runs{number}"), true))).await;
        cluster.wait_until_running(number + 1).await;
    }
    let another = meter.stop(RUNNING as u32);
    daemon.stop();
    vec![queued, one, all, another]
}

/// Jobs that are queued, launched and ended.
pub(crate) async fn jobs_that_end(size: usize) -> Vec<Cost> {
    let cluster = Cluster::start(PORTS).await;
    let daemon = Daemon::start_service(cluster.address, SECTION).await;
    let meter = Meter::start(daemon.pid());
    queue(
        &daemon,
        (0..size).map(|number| job(&format!("runs{number}"), true)),
    )
    .await;
    cluster.wait_until_running(size).await;
    for task in cluster.tasks() {
        cluster.fail(&task);
    }
    wait_until_all_ended(&daemon, size).await;
    let cost = meter.stop(1);
    daemon.stop();
    vec![cost]
}

async fn wait_until_all_ended(daemon: &Daemon, size: usize) {
    // The gauge is refreshed once a second; more requests would only add to the cost.
    let pause = Duration::from_millis(250);
    loop {
        let answer = daemon.http.get(daemon.admin("/metrics")).send().await;
        let text = answer.expect("an answer").text().await.expect("text");
        let ended: f64 = text
            .lines()
            .filter(|line| line.starts_with("transom_workflow_jobs_completed_total"))
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .sum();
        if ended >= size as f64 {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}
