//! DNS answers of a daemon, and probes of a first-party component, next to eight hostile guests.
//!
//! Each guest misbehaves in another way, without a pause. Latency is measured from the time at
//! which a request was due.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hickory_proto::rr::RecordType;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};
use transom_plugin_host::{
    Plugins,
    probe::{Endpoint, Kind},
};
use transom_tests::{dns, plugin::Plugin, site::Site};

use crate::{
    figures::{CallTimes, millis, ratio},
    hostile::{Hostile, faulty_probe, request},
    site::Host,
};

/// Interval of the measured calls and queries.
const CALL_INTERVAL: Duration = Duration::from_millis(2);
const MEASUREMENT_TIME: Duration = Duration::from_secs(16);
/// Number of instances of each guest's task; each is probed every two seconds.
const TASKS: usize = 4;

/// Names and attempts of the guests, in TOML.
const GUESTS: [(&str, &str); 8] = [
    ("hostile-loop", "{ do = \"loop\" }"),
    ("hostile-recursion", "{ do = \"recurse\" }"),
    ("hostile-stack", "{ do = \"deep\" }"),
    ("hostile-memory", "{ do = \"allocate\" }"),
    ("hostile-steps", "{ do = \"steps\" }"),
    ("hostile-log", "{ do = \"log\", lines = 10000, bytes = 4096 }"),
    ("hostile-output", "{ do = \"output\", bytes = 16777216 }"),
    ("hostile-trap", "{ do = \"trap\" }"),
];

fn guests() -> Vec<(&'static str, Plugin)> {
    // 64 steps are the host's default.
    let guest =
        |attempt: &str| faulty_probe("cpu = \"50ms\"\nsteps = 64").config(&format!("attempt = {attempt}"));
    GUESTS
        .iter()
        .map(|(name, attempt)| (*name, guest(attempt)))
        .collect()
}

pub(crate) async fn measure() -> Value {
    json!({
        "guests": GUESTS.map(|(name, _)| name),
        "pace_ms": millis(CALL_INTERVAL),
        "first_party_probe": probes().await,
        "dns": dns_answers().await,
    })
}

fn compare_to_json(quiet: &CallTimes, next_to_guests: &CallTimes, hostile_calls: u64) -> Value {
    json!({
        "hostile_calls": hostile_calls,
        "quiet": quiet.to_json(),
        "beside": next_to_guests.to_json(),
        "p99_to_quiet": ratio(next_to_guests.quantile(990), quiet.quantile(990)),
    })
}

/// Measures probes of `check-tcp`, each with a real connection.
async fn probes() -> Value {
    eprintln!("first-party probes beside eight hostile guests");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint {
        host: "127.0.0.1".to_owned(),
        port: listener.local_addr().unwrap().port(),
    };
    let listening = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let (guests, own) = (guests(), Plugin::first_party("check-tcp"));
    let mut installed: Vec<(&str, &Plugin)> = guests.iter().map(|(name, guest)| (*name, guest)).collect();
    installed.push(("check-tcp", &own));
    let host = Host::with(&installed).await;
    let quiet = measure_probe(&host.plugins, &endpoint).await;
    let hostile = GUESTS.map(|(name, _)| Hostile::one(&host.plugins, name, &endpoint));
    let next_to_guests = measure_probe(&host.plugins, &endpoint).await;
    let mut calls = 0;
    for one in hostile {
        let ended = one.stop().await;
        assert!(ended > 0, "a guest was never called");
        calls += ended;
    }
    listening.abort();
    host.stop().await;
    compare_to_json(&quiet, &next_to_guests, calls)
}

async fn measure_probe(plugins: &Plugins, endpoint: &Endpoint) -> CallTimes {
    let request = request(&json!({}), Some(endpoint.clone()));
    call_at_interval(async || {
        plugins.probe(Kind::Tcp, request.clone(), None).await.unwrap();
    })
    .await
}

/// Measures queries to a daemon that probes the tasks of every guest.
async fn dns_answers() -> Value {
    eprintln!("DNS answers beside eight hostile guests");
    let site = Site::start().await;
    site.post_app(&json!({
        "id": "/looked-at", "cmd": "sleep 3600", "cpus": 0.01, "mem": 8, "instances": 1,
        "portDefinitions": [{"port": 0, "name": "p"}],
    }))
    .await;
    site.wait_until_running("/looked-at", 1).await;
    let server = site.addresses["dns"];
    site.wait_until_resolves("looked-at.marathon.mesos.", RecordType::A, |answer| {
        !answer.addresses.is_empty()
    })
    .await;
    for (name, guest) in guests() {
        guest.install(&site.plugins(), name);
    }
    site.rescan().await;
    let quiet = measure_queries(server).await;
    for (name, _) in GUESTS {
        site.post_app(&json!({
            "id": format!("/{name}"), "cmd": "sleep 3600", "cpus": 0.01, "mem": 8, "instances": TASKS,
            "portDefinitions": [{"port": 0, "name": "p"}],
            "check": {"plugin": {"name": name}, "intervalSeconds": 2, "timeoutSeconds": 1, "delaySeconds": 0},
        }))
        .await;
    }
    for (name, _) in GUESTS {
        site.wait_until_running(&format!("/{name}"), TASKS).await;
    }
    let before = calls(&site).await;
    let next_to_guests = measure_queries(server).await;
    let calls = calls(&site).await - before;
    assert!(calls > 0, "no guest was called");
    site.cluster.stop_after(site.daemon);
    compare_to_json(&quiet, &next_to_guests, calls)
}

/// The calls and faults of all guests so far.
async fn calls(site: &Site) -> u64 {
    let mut sum = 0;
    for (name, _) in GUESTS {
        let status = site
            .get(&site.admin(&format!("/v1/plugins/{name}")))
            .await
            .unwrap();
        sum += ["traps", "timeouts", "calls"]
            .iter()
            .filter_map(|key| status[*key].as_u64())
            .sum::<u64>();
    }
    sum
}

async fn measure_queries(server: SocketAddr) -> CallTimes {
    call_at_interval(async || {
        let answer = dns::ask(server, "looked-at.marathon.mesos.", RecordType::A).await;
        assert!(!answer.unwrap().addresses.is_empty());
    })
    .await
}

/// Makes calls at a fixed interval.
async fn call_at_interval(call: impl AsyncFn()) -> CallTimes {
    let (mut times, mut pace) = (CallTimes::default(), interval(CALL_INTERVAL));
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let end = Instant::now() + MEASUREMENT_TIME;
    while Instant::now() < end {
        let due = pace.tick().await;
        call().await;
        times.push(due.elapsed());
    }
    times
}
