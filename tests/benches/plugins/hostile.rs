//! The effect of hostile components on others: when an endless loop is interrupted, and how long
//! others wait until then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use hickory_proto::rr::RecordType;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use transom_plugin_host::{
    Plugins,
    events::Query,
    probe::{Endpoint, Kind, Request},
};
use transom_tests::{dns, plugin::Plugin, site::Site};

use crate::{
    events::batch,
    figures::{CallTimes, millis, ratio},
    site::{Host, limited},
};

const LOOPS: usize = 20;
/// Interval of the measured calls.
const CALL_INTERVAL: Duration = Duration::from_millis(2);
const MEASUREMENT_TIME: Duration = Duration::from_secs(8);
/// Number of concurrent calls of the hostile component.
const HOSTILE_CALLERS: usize = 4;
/// Number of hostile tasks. Each is probed every second, with 50 ms of processor time.
const HOSTILE_TASKS: u32 = 40;

/// A probe that misbehaves and is neither quarantined nor rolled back for it.
pub(crate) fn faulty_probe(limit: &str) -> Plugin {
    let mut plugin = limited(Plugin::test_guest("faulty-probe"), limit);
    plugin.manifest.push_str("\n[probation]\nmax-faults = 1000000\n");
    plugin
}

pub(crate) fn request(settings: &Value, endpoint: Option<Endpoint>) -> Request {
    Request {
        run_spec: "/bench".to_owned(),
        task: "bench.1".to_owned(),
        agent: "127.0.0.1".to_owned(),
        labels: Vec::new(),
        ports: Vec::new(),
        endpoint,
        path: "/".to_owned(),
        command: None,
        settings: settings.to_string(),
        previous: None,
        timeout: Duration::from_secs(10),
        extensions: Vec::new(),
    }
}

/// Measures the delay until an endless loop is interrupted, on an idle machine and on one without a
/// free core.
pub(crate) async fn endless_loop() -> Value {
    eprintln!("an endless loop");
    let limit = Duration::from_millis(50);
    let host = Host::with(&[("faulty", &faulty_probe("cpu = \"50ms\""))]).await;
    let looped = async || {
        let mut late = CallTimes::default();
        for _ in 0..LOOPS {
            let start = Instant::now();
            let ended = host
                .plugins
                .probe(
                    Kind::Named("faulty".into()),
                    request(&json!({"do": "loop"}), None),
                    None,
                )
                .await;
            assert!(ended.is_err(), "{ended:?}");
            late.push(start.elapsed().saturating_sub(limit));
        }
        late
    };
    let quiet = looped().await;
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..2)
        .map(|_| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || while !stop.load(Relaxed) {})
        })
        .collect();
    let crowded = looped().await;
    stop.store(true, Relaxed);
    for thread in busy {
        thread.join().unwrap();
    }
    host.stop().await;
    let late = |times: &CallTimes| json!({"loops": times.len(), "late_p50_ms": millis(times.median()), "late_max_ms": millis(times.quantile(1000))});
    json!({"cpu_limit_ms": 50, "quiet": late(&quiet), "both_cores_busy": late(&crowded)})
}

/// Measures calls of another plugin while a hostile one is called without a pause.
pub(crate) async fn neighbours() -> Value {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint {
        host: "127.0.0.1".to_owned(),
        port: listener.local_addr().unwrap().port(),
    };
    let listening = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let host = Host::with(&[
        ("faulty", &faulty_probe("instances = 2")),
        ("events", &Plugin::first_party("events")),
    ])
    .await;
    let alone = measure_filter_calls(&host.plugins).await;
    let mut next_to_hostile = json!({});
    for (name, settings) in [
        ("endless loop", json!({"do": "loop"})),
        ("endless recursion", json!({"do": "recurse"})),
        ("memory bomb", json!({"do": "allocate"})),
        ("endless steps", json!({"do": "steps"})),
        ("log flood", json!({"do": "log", "lines": 10_000, "bytes": 4096})),
        ("huge output", json!({"do": "output", "bytes": 16 << 20})),
        ("trap", json!({"do": "trap"})),
    ] {
        eprintln!("another plugin beside: {name}");
        let hostile = Hostile::start(&host.plugins, &settings, &endpoint);
        let times = measure_filter_calls(&host.plugins).await;
        let calls = hostile.stop().await;
        assert!(calls > 0, "{name}: no hostile call ended");
        next_to_hostile[name] = json!({
            "hostile_calls": calls,
            "times": times.to_json(),
            "p99_to_alone": ratio(times.quantile(990), alone.quantile(990)),
        });
    }
    listening.abort();
    host.stop().await;
    json!({"pace_ms": millis(CALL_INTERVAL), "alone": alone.to_json(), "beside": next_to_hostile})
}

/// Measures calls of the event filter at a fixed interval. A late call is measured from the time at
/// which it was due.
async fn measure_filter_calls(plugins: &Plugins) -> CallTimes {
    let view = plugins.open_view(Query::default()).await.unwrap();
    let events = batch(0);
    let (mut times, mut pace) = (CallTimes::default(), interval(CALL_INTERVAL));
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let end = Instant::now() + MEASUREMENT_TIME;
    while Instant::now() < end {
        let due = pace.tick().await;
        view.decide(&events).await.unwrap();
        times.push(due.elapsed());
    }
    times
}

/// Calls a hostile component without a pause.
pub(crate) struct Hostile {
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Hostile {
    fn start(plugins: &Plugins, settings: &Value, endpoint: &Endpoint) -> Hostile {
        Hostile::call_repeatedly(
            plugins,
            "faulty",
            &request(settings, Some(endpoint.clone())),
            HOSTILE_CALLERS,
        )
    }

    /// One caller of a component whose configuration determines its behaviour.
    pub(crate) fn one(plugins: &Plugins, name: &str, endpoint: &Endpoint) -> Hostile {
        Hostile::call_repeatedly(plugins, name, &request(&json!({}), Some(endpoint.clone())), 1)
    }

    fn call_repeatedly(plugins: &Plugins, name: &str, request: &Request, callers: usize) -> Hostile {
        let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let tasks = (0..callers)
            .map(|_| {
                let (stop, calls, plugins) = (Arc::clone(&stop), Arc::clone(&calls), plugins.clone());
                let (request, name) = (request.clone(), name.to_owned());
                tokio::spawn(async move {
                    while !stop.load(Relaxed) {
                        let kind = Kind::Named(name.clone());
                        let _ = plugins.probe(kind, request.clone(), None).await;
                        calls.fetch_add(1, Relaxed);
                    }
                })
            })
            .collect();
        Hostile { stop, calls, tasks }
    }

    pub(crate) async fn stop(self) -> u64 {
        self.stop.store(true, Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        self.calls.load(Relaxed)
    }
}

/// Measures the response times of a daemon's ports while the checks of forty tasks loop endlessly.
pub(crate) async fn ports() -> Value {
    eprintln!("a daemon's ports");
    let site = Site::start().await;
    site.post_app(&json!({
        "id": "/looked-at", "cmd": "sleep 3600", "cpus": 0.1, "mem": 32, "instances": HOSTILE_TASKS,
        "portDefinitions": [{"port": 0, "name": "p"}],
        "check": {"tcp": {"portIndex": 0}, "intervalSeconds": 2, "timeoutSeconds": 1, "delaySeconds": 0}
    }))
    .await;
    site.wait_until_running("/looked-at", HOSTILE_TASKS as usize)
        .await;
    let alone = measure_ports(&site).await;
    faulty_probe("cpu = \"50ms\"")
        .config("attempt = { do = \"loop\" }")
        .install(&site.plugins(), "check-tcp");
    site.rescan().await;
    let next_to_hostile = measure_ports(&site).await;
    let status = site.get(&site.admin("/v1/plugins/check-tcp")).await.unwrap();
    let stopped = status["timeouts"].as_u64().unwrap_or_default();
    assert!(stopped > 0, "nothing hostile happened: {status}");
    site.cluster.stop_after(site.daemon);
    let mut document = json!({"tasks_with_a_hostile_check": HOSTILE_TASKS, "loops_stopped": stopped});
    for ((port, alone), (_, next_to_hostile)) in alone.iter().zip(&next_to_hostile) {
        document[*port] = json!({
            "alone": alone.to_json(),
            "beside": next_to_hostile.to_json(),
            "p99_to_alone": ratio(next_to_hostile.quantile(990), alone.quantile(990)),
        });
    }
    document
}

/// Requests each port in turn, at a fixed interval.
async fn measure_ports(site: &Site) -> [(&'static str, CallTimes); 3] {
    let (app, admin) = (site.apps("/v2/apps/looked-at"), site.admin("/v1/plugins"));
    let mut answers = [
        ("apps", CallTimes::default()),
        ("admin", CallTimes::default()),
        ("dns", CallTimes::default()),
    ];
    let mut pace = interval(CALL_INTERVAL * 2);
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let end = Instant::now() + MEASUREMENT_TIME * 2;
    while Instant::now() < end {
        for (port, times) in &mut answers {
            let due = pace.tick().await;
            match *port {
                "apps" => drop(site.get(&app).await.unwrap()),
                "admin" => drop(site.get(&admin).await.unwrap()),
                _ => drop(
                    dns::ask(site.addresses["dns"], "looked-at.app.mesos.", RecordType::A)
                        .await
                        .unwrap(),
                ),
            }
            times.push(due.elapsed());
        }
    }
    answers
}
