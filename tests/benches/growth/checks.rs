//! Rows of health checks.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use reqwest::Method;
use serde_json::{Value, json};
use transom_tests::load::cluster::Cluster;
use transom_tests::load::daemon::Daemon;

use crate::apps::{Ports, apps, deploy, start};
use crate::meter::{Cost, Meter};

/// Interval of each check, and the number of intervals that are measured.
const INTERVAL: Duration = Duration::from_secs(10);
const INTERVALS: u32 = 3;
/// Maximum of the results that are reported in a burst, each of another task.
const RESULTS: usize = 2_000;

/// Tasks of apps with ten instances and this check.
async fn tasks_with(check: &Value, size: usize) -> (Cluster, Daemon) {
    let (cluster, daemon) = start().await;
    let mut apps = apps(size.div_ceil(10), 10, Ports::None);
    for app in &mut apps {
        app["healthChecks"] = json!([check]);
    }
    let body = json!({"id": "/load", "apps": apps});
    let tasks = apps.len() * 10;
    if check["command"].is_null() {
        // The deployment ends when every task is healthy.
        deploy((&cluster, &daemon), Method::PUT, "/v2/groups", &body, tasks).await;
    } else {
        daemon.change(Method::PUT, "/v2/groups", &body).await;
        cluster.wait_until_running(tasks).await;
    }
    (cluster, daemon)
}

/// Checks by the daemon, of one server in the place of all tasks.
pub(crate) async fn by_the_daemon(size: usize, protocol: &str) -> Vec<Cost> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let server = axum::serve(listener, Router::new().route("/", get(async || "healthy")));
    let server = tokio::spawn(server.into_future());
    let check = json!({
        "protocol": protocol, "port": port, "gracePeriodSeconds": 600, "maxConsecutiveFailures": 0,
        "intervalSeconds": INTERVAL.as_secs(), "timeoutSeconds": 5,
    });
    let (_cluster, daemon) = tasks_with(&check, size).await;
    let meter = Meter::start(daemon.pid());
    // The time is what is measured: there is nothing to wait for.
    tokio::time::sleep(INTERVAL * INTERVALS).await;
    let cost = meter.stop(INTERVALS);
    server.abort();
    daemon.stop();
    vec![cost]
}

/// Checks by agents, which report each result in a status update.
pub(crate) async fn by_agents(size: usize) -> Vec<Cost> {
    let check = json!({"protocol": "COMMAND", "command": {"value": "true"}});
    let (cluster, daemon) = tasks_with(&check, size).await;
    let results = size.min(RESULTS) as u32;
    let meter = Meter::start(daemon.pid());
    cluster.send_check_results(results.into()).await;
    let cost = meter.stop(results);
    daemon.stop();
    vec![cost]
}
