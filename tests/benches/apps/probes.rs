//! Checks of many tasks, some of which do not respond: probes per minute, and their delay.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use transom_testkit::{free_ports, usage};
use transom_tests::load::cluster::Cluster;
use transom_tests::load::daemon::Daemon;
use transom_tests::load::{rounded, seconds};

/// Number of ports of the tasks, and number of those that do not respond.
const PORTS: u16 = 10;
const SILENT_PORTS: u16 = 3;
/// Tasks with a check every [`PROBE_INTERVAL_SECONDS`] seconds: 20,000 in a minute.
const TASKS: usize = 1_000;
const PROBE_INTERVAL_SECONDS: u64 = 3;
/// Timeout of a probe in seconds.
const PROBE_TIMEOUT_SECONDS: u64 = 2;
/// Duration of the measurement.
const MEASUREMENT_TIME: Duration = Duration::from_mins(1);

pub(crate) async fn measure() -> Value {
    eprintln!("checks of {TASKS} tasks");
    let first = free_ports(PORTS);
    let mut servers = JoinSet::new();
    for port in first..first + PORTS {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .expect("a port");
        servers.spawn(serve(listener, port < first + SILENT_PORTS));
    }
    let cluster = Cluster::start((first, first + PORTS - 1)).await;
    let daemon = Daemon::start(cluster.address).await;
    let body = json!({
        "id": "/checked", "cmd": "serve", "instances": TASKS, "cpus": 0.1, "mem": 32,
        "check": {"http": {"portIndex": 0, "path": "/"}, "delaySeconds": 0, "intervalSeconds": PROBE_INTERVAL_SECONDS,
            "timeoutSeconds": PROBE_TIMEOUT_SECONDS},
    });
    daemon.change(Method::POST, "/v2/apps", &body).await;
    cluster.wait_until_running(TASKS).await;
    daemon.wait_until_deployed().await;
    daemon
        .wait_until("the first attempt of every task", async || {
            attempts(&metrics(&daemon).await) >= TASKS as f64
        })
        .await;
    let (before, begun, used) = (metrics(&daemon).await, Instant::now(), usage::cpu(daemon.pid()));
    tokio::time::sleep(MEASUREMENT_TIME).await;
    let (after, elapsed) = (metrics(&daemon).await, begun.elapsed());
    let used = usage::cpu(daemon.pid()).saturating_sub(used);
    daemon.stop();
    let count = attempts(&after) - attempts(&before);
    json!({
        "tasks": TASKS, "silent": f64::from(SILENT_PORTS) / f64::from(PORTS), "timeout_s": PROBE_TIMEOUT_SECONDS,
        "attempts_per_minute": rounded(count * 60.0 / elapsed.as_secs_f64()),
        "wanted_per_minute": TASKS as u64 * 60 / PROBE_INTERVAL_SECONDS,
        "late_ms": {"p50": delay_quantile(&before, &after, 0.5), "p99": delay_quantile(&before, &after, 0.99)},
        "cpu_s_per_minute": seconds(used.mul_f64(60.0 / elapsed.as_secs_f64())),
    })
}

async fn serve(listener: TcpListener, silent: bool) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(answer(stream, silent));
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(mut stream: TcpStream, silent: bool) {
    let mut buffer = [0; 1024];
    while stream.read(&mut buffer).await.is_ok_and(|length| length > 0) {
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        if !silent && stream.write_all(response).await.is_err() {
            return;
        }
    }
}

async fn metrics(daemon: &Daemon) -> String {
    let answer = daemon.http.get(daemon.admin("/metrics")).send().await;
    answer.expect("an answer").text().await.expect("text")
}

/// The names with labels and the values of all samples whose name begins with `name`.
fn samples<'a>(metrics: &'a str, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
    let of_name = metrics.lines().filter(move |line| line.starts_with(name));
    of_name.filter_map(|line| {
        let (labels, value) = line.rsplit_once(' ')?;
        Some((labels, value.parse().ok()?))
    })
}

/// The number of completed probes.
fn attempts(metrics: &str) -> f64 {
    samples(metrics, "transom_apps_checks_total")
        .map(|(_, count)| count)
        .sum()
}

/// The upper bound of the bucket of this quantile, in milliseconds.
fn delay_quantile(before: &str, after: &str, quantile: f64) -> Value {
    let buckets = |metrics: &str| -> Vec<(f64, f64)> {
        let buckets = samples(metrics, "transom_apps_probe_lateness_seconds_bucket");
        let bound =
            |labels: &str| -> Option<f64> { labels.split("le=\"").nth(1)?.split('"').next()?.parse().ok() };
        buckets
            .filter_map(|(labels, count)| Some((bound(labels)?, count)))
            .collect()
    };
    let (before, after) = (buckets(before), buckets(after));
    let counts: Vec<(f64, f64)> = after
        .iter()
        .enumerate()
        .map(|(index, (bound, count))| {
            let earlier = before.get(index).map_or(0.0, |(_, count)| *count);
            (*bound, count - earlier)
        })
        .collect();
    let total = counts.iter().map(|(_, count)| *count).fold(0.0, f64::max);
    let found = counts.iter().find(|(_, count)| *count >= total * quantile);
    json!(found.map(|(bound, _)| rounded(bound * 1e3)))
}
