//! Rows of the apps service.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use transom_testkit::redis::RedisServer;
use transom_tests::load::cluster::Cluster;
use transom_tests::load::daemon::Daemon;

use crate::meter::{Cost, Meter};

/// Host ports of the tasks, which nothing listens on.
pub(crate) const PORTS: (u16, u16) = (10_000, 60_000);
/// Number of lone status updates, and of those in a burst.
const LONE_UPDATES: u32 = 100;
const UPDATES: u32 = 2_000;
/// Number of equal reads of small and of large answers.
const READS: u32 = 20;
const LARGE_READS: u32 = 5;
/// Number of apps that are launched one after the other.
const LAUNCHES: u32 = 50;
/// The measured time in which nothing changes, and the time before it for the end of earlier work.
const IDLE: Duration = Duration::from_secs(20);
const SETTLING: Duration = Duration::from_secs(10);
/// Apps that instances which fit nowhere belong to.
const PENDING_APPS: usize = 100;
/// Status updates of a long time: number in a burst, and the time between two of them.
const SUSTAINED_BURST: u64 = 100;
const SUSTAINED_INTERVAL: Duration = Duration::from_millis(100);
/// Tasks that fit an offer, where their number matters.
const TASKS_OF_OFFER: usize = 32;
/// CPUs of a task.
const CPUS: f64 = 0.01;
/// Tasks whose status is updated for a long time.
const SUSTAINED_TASKS: usize = 1_000;

#[derive(Clone, Copy)]
pub(crate) enum Ports {
    None,
    Default,
}

pub(crate) fn app(id: &str, instances: usize, ports: Ports) -> Value {
    let mut app = json!({
        "id": id, "cmd": "sleep 1000", "cpus": CPUS, "mem": 32, "instances": instances,
        "labels": {"team": "shop"}, "env": {"STAGE": "test"},
    });
    if let Ports::None = ports {
        app["portDefinitions"] = json!([]);
    }
    app
}

pub(crate) fn apps(count: usize, instances: usize, ports: Ports) -> Vec<Value> {
    let ids = (0..count).map(|number| format!("app{number}"));
    ids.map(|id| app(&id, instances, ports)).collect()
}

/// An app whose instances no agent accepts.
fn fits_nowhere(id: &str, instances: usize) -> Value {
    let mut app = app(id, instances, Ports::None);
    app["constraints"] = json!([["rack", "CLUSTER", "nowhere"]]);
    app
}

pub(crate) async fn start() -> (Cluster, Daemon) {
    let cluster = Cluster::start(PORTS).await;
    let daemon = Daemon::start(cluster.address).await;
    (cluster, daemon)
}

/// Waits until the tasks run and no deployment does.
pub(crate) async fn settle(cluster: &Cluster, daemon: &Daemon, tasks: usize) {
    cluster.wait_until_running(tasks).await;
    wait_until_deployed(daemon).await;
}

/// Waits until no deployment runs. The pauses grow with the answers, which contain the whole plan,
/// so that the requests are a small part of the cost.
async fn wait_until_deployed(daemon: &Daemon) {
    loop {
        let begun = Instant::now();
        if daemon.get("/v2/deployments").await == json!([]) {
            return;
        }
        tokio::time::sleep((begun.elapsed() * 20).max(Duration::from_millis(10))).await;
    }
}

/// The cost of a change until it is deployed and this number of tasks runs.
pub(crate) async fn deploy(
    (cluster, daemon): (&Cluster, &Daemon),
    method: Method,
    path: &str,
    body: &Value,
    tasks: usize,
) -> Cost {
    let meter = Meter::start(daemon.pid());
    daemon.change(method, path, body).await;
    settle(cluster, daemon, tasks).await;
    meter.stop(1)
}

/// The cost of equal requests to a URL.
async fn read(daemon: &Daemon, url: &str, count: u32) -> Cost {
    let meter = Meter::start(daemon.pid());
    for _ in 0..count {
        let answer = daemon.http.get(url).send().await.expect("an answer");
        assert!(answer.status().is_success(), "{url}: {}", answer.status());
        answer.bytes().await.expect("a body");
    }
    meter.stop(count)
}

/// Status updates, of which each waits for the acknowledgement of the one before. They are repeated if
/// the daemon meanwhile asked for the states of all tasks, which has a row of its own.
async fn lone_updates(cluster: &Cluster, pid: u32) -> Cost {
    loop {
        // Follows the answers to an earlier reconciliation.
        cluster.send_updates(1).await;
        let (reconciliations, meter) = (cluster.reconciliations(), Meter::start(pid));
        for _ in 0..LONE_UPDATES {
            cluster.send_updates(1).await;
        }
        let cost = meter.stop(LONE_UPDATES);
        if cluster.reconciliations() == reconciliations {
            return cost;
        }
    }
}

/// Status updates that arrive together.
async fn burst(cluster: &Cluster, pid: u32) -> Cost {
    let meter = Meter::start(pid);
    cluster.send_updates(UPDATES.into()).await;
    meter.stop(UPDATES)
}

/// Apps of one instance, each deployed before the next.
pub(crate) async fn launches(cluster: &Cluster, daemon: &Daemon, before: usize) -> Cost {
    let meter = Meter::start(daemon.pid());
    for number in 0..LAUNCHES {
        let body = app(&format!("/launched{number}"), 1, Ports::None);
        daemon.change(Method::POST, "/v2/apps", &body).await;
        cluster.wait_until_running(before + number as usize + 1).await;
    }
    meter.stop(LAUNCHES)
}

/// A group with many apps, and its end.
pub(crate) async fn group(size: usize, ports: Ports, instances: usize) -> Vec<Cost> {
    let (cluster, daemon) = start().await;
    let target = (&cluster, &daemon);
    let body = json!({"id": "/load", "apps": apps(size, instances, ports)});
    let put = deploy(target, Method::PUT, "/v2/groups", &body, size * instances).await;
    let delete = deploy(
        target,
        Method::DELETE,
        "/v2/groups/load?force=true",
        &Value::Null,
        0,
    )
    .await;
    daemon.stop();
    vec![put, delete]
}

/// How long others wait while a group with many apps is changed: the longest of many times until a status
/// update is acknowledged, until its event arrives, and until an app is shown. An offer has room for few
/// tasks: the master reports at once that all tasks of an ACCEPT run, and no agent starts thousands.
pub(crate) async fn meanwhile(size: usize) -> Vec<Cost> {
    let cpus = CPUS * TASKS_OF_OFFER as f64;
    let cluster = Cluster::start_with_offers(PORTS, size.div_ceil(TASKS_OF_OFFER), cpus).await;
    let daemon = Daemon::start(cluster.address).await;
    let target = (&cluster, &daemon);
    deploy(
        target,
        Method::POST,
        "/v2/apps",
        &app("/other", 1, Ports::None),
        1,
    )
    .await;
    let task = cluster.tasks().pop_first().expect("a task");
    let stream =
        daemon.apps("/v2/events?event_type=status_update_event&filter=event.appId%20==%20%22/other%22");
    let stream = daemon.http.get(stream).header("Accept", "text/event-stream");
    let mut stream = stream.send().await.expect("an answer");
    let body = json!({"id": "/load", "apps": apps(size, 1, Ports::None)}).to_string();
    let change = daemon.http.put(daemon.apps("/v2/groups")).body(body);
    let change = change.header("Content-Type", "application/json");
    let waiting = async {
        let mut longest = [Duration::ZERO; 3];
        let mut number = 0;
        loop {
            number += 1;
            let message = format!("update {number} meanwhile");
            let begun = Instant::now();
            let acknowledged = async {
                cluster.send_update(&task, &message).await;
                begun.elapsed()
            };
            let event = async {
                let mut received = Vec::new();
                while !String::from_utf8_lossy(&received).contains(&message) {
                    received.extend(stream.chunk().await.expect("a stream").expect("an event"));
                }
                begun.elapsed()
            };
            let shown = async {
                read(&daemon, &daemon.apps("/v2/apps/other"), 1).await;
                begun.elapsed()
            };
            let waits = tokio::join!(acknowledged, event, shown);
            for (longest, wait) in longest.iter_mut().zip([waits.0, waits.1, waits.2]) {
                *longest = wait.max(*longest);
            }
            if cluster.tasks().len() > size {
                return longest;
            }
        }
    };
    let (answer, longest) = tokio::join!(change.send(), waiting);
    assert!(answer.expect("an answer").status().is_success());
    daemon.stop();
    longest.map(Cost::waited).to_vec()
}

/// Two groups, of which one depends on the other.
pub(crate) async fn dependent_groups(size: usize) -> Vec<Cost> {
    let (cluster, daemon) = start().await;
    let half = size / 2;
    let body = json!({"id": "/load", "groups": [
        {"id": "first", "apps": apps(half, 1, Ports::None)},
        {"id": "second", "apps": apps(half, 1, Ports::None), "dependencies": ["/load/first"]},
    ]});
    let put = deploy((&cluster, &daemon), Method::PUT, "/v2/groups", &body, half * 2).await;
    daemon.stop();
    vec![put]
}

/// Apps that each depend on the one before.
pub(crate) async fn chain(size: usize) -> Vec<Cost> {
    let (cluster, daemon) = start().await;
    let mut apps = apps(size, 1, Ports::None);
    for (number, app) in apps.iter_mut().enumerate().skip(1) {
        app["dependencies"] = json!([format!("/load/app{}", number - 1)]);
    }
    let body = json!({"id": "/load", "apps": apps});
    let put = deploy((&cluster, &daemon), Method::PUT, "/v2/groups", &body, size).await;
    daemon.stop();
    vec![put]
}

pub(crate) async fn groups_of_one(size: usize) -> Vec<Cost> {
    let (cluster, daemon) = start().await;
    let groups: Vec<Value> = (0..size)
        .map(|number| json!({"id": format!("group{number}"), "apps": [app("web", 0, Ports::None)]}))
        .collect();
    let body = json!({"id": "/load", "groups": groups});
    deploy((&cluster, &daemon), Method::PUT, "/v2/groups", &body, 0).await;
    let cost = read(&daemon, &daemon.apps("/v2/groups"), LARGE_READS).await;
    daemon.stop();
    vec![cost]
}

pub(crate) async fn scaling(size: usize) -> Vec<Cost> {
    let (cluster, daemon) = start().await;
    let target = (&cluster, &daemon);
    let body = |instances| json!({"id": "/load", "apps": apps(size, instances, Ports::None)});
    deploy(target, Method::PUT, "/v2/groups", &body(1), size).await;
    let scaled = deploy(target, Method::PUT, "/v2/groups", &body(10), size * 10).await;
    daemon.stop();
    vec![scaled]
}

/// One app with many instances.
pub(crate) async fn instances(size: usize) -> Vec<Cost> {
    let (cluster, mut daemon) = start().await;
    let target = (&cluster, &daemon);
    let posted = deploy(
        target,
        Method::POST,
        "/v2/apps",
        &app("/web", size, Ports::None),
        size,
    )
    .await;
    let lone = lone_updates(&cluster, daemon.pid()).await;
    let burst = burst(&cluster, daemon.pid()).await;
    let shown = read(&daemon, &daemon.apps("/v2/apps/web"), LARGE_READS).await;
    daemon
        .fail_over("/v2/apps/web", "/app/tasksRunning", &json!(size))
        .await;
    let restarted = Meter::since_start(daemon.pid()).stop(1);
    daemon.stop();
    vec![posted, lone, burst, shown, restarted]
}

/// One app with many instances, seen by the standby. Without `redis-server` nothing is measured.
pub(crate) async fn standby(size: usize) -> Vec<Cost> {
    if transom_testkit::redis::program().is_none() {
        eprintln!("no redis-server: no standby");
        return vec![Cost::default(); 2];
    }
    let redis = RedisServer::in_memory().started();
    let cluster = Cluster::start(PORTS).await;
    let store = format!("server = \"{}\"\nlease_seconds = 2\n", redis.address());
    let mut leader = Daemon::start_with(cluster.address, &store).await;
    let mut other = Daemon::start_with(cluster.address, &store).await;
    let body = app("/web", size, Ports::None);
    deploy((&cluster, &leader), Method::POST, "/v2/apps", &body, size).await;
    // A busy machine may delay the renewal of the lease.
    if other.is_leader().await {
        eprintln!("    the leader has changed during the deployment");
        std::mem::swap(&mut leader, &mut other);
    }
    let lone = lone_updates(&cluster, other.pid()).await;
    let meter = Meter::start(other.pid());
    leader.kill();
    other
        .wait_until("the standby to lead", async || other.is_leader().await)
        .await;
    let labels = json!({"labels": {"new": "leader"}});
    other
        .change(Method::PUT, "/v2/apps/web?force=true", &labels)
        .await;
    let leads = meter.stop(1);
    other.stop();
    vec![lone, leads]
}

/// Many apps with ten instances each: what a further launch and each read cost.
pub(crate) async fn tasks(size: usize) -> Vec<Cost> {
    let (cluster, daemon) = start().await;
    let count = size.div_ceil(10);
    let body = json!({"id": "/load", "apps": apps(count, 10, Ports::None)});
    deploy((&cluster, &daemon), Method::PUT, "/v2/groups", &body, count * 10).await;
    let launch = launches(&cluster, &daemon, count * 10).await;
    let lone = lone_updates(&cluster, daemon.pid()).await;
    let burst = burst(&cluster, daemon.pid()).await;
    let overview = read(&daemon, &daemon.admin("/v1/overview"), READS).await;
    let metrics = read(&daemon, &daemon.admin("/metrics"), READS).await;
    let tasks = read(&daemon, &daemon.apps("/v2/tasks"), LARGE_READS).await;
    let embedded = "/v2/groups?embed=group.groups&embed=group.apps&embed=group.apps.tasks";
    let groups = read(&daemon, &daemon.apps(embedded), LARGE_READS).await;
    daemon.stop();
    vec![launch, lone, burst, overview, metrics, tasks, groups]
}

/// Instances that fit nowhere: what they cost while nothing changes, and others.
pub(crate) async fn pending(size: usize) -> Vec<Cost> {
    let (cluster, daemon) = start().await;
    let each = size.div_ceil(PENDING_APPS);
    let apps: Vec<Value> = (0..PENDING_APPS)
        .map(|number| fits_nowhere(&format!("app{number}"), each))
        .collect();
    daemon
        .change(Method::PUT, "/v2/groups", &json!({"id": "/load", "apps": apps}))
        .await;
    let launch = launches(&cluster, &daemon, 0).await;
    let queue = read(&daemon, &daemon.apps("/v2/queue"), LARGE_READS).await;
    let unused = daemon.apps("/v2/queue?embed=lastUnusedOffers");
    let with_offers = read(&daemon, &unused, LARGE_READS).await;
    let idle = idle_cost(&cluster, &daemon).await;
    daemon.stop();
    vec![launch, queue, with_offers, idle]
}

/// The cost of a time in which nothing changes: there is nothing to wait for.
async fn idle_cost(cluster: &Cluster, daemon: &Daemon) -> Cost {
    tokio::time::sleep(SETTLING).await;
    let (revives, meter) = (cluster.revives(), Meter::start(daemon.pid()));
    tokio::time::sleep(IDLE).await;
    let cost = meter.stop(1);
    eprintln!("    {} REVIVEs in {IDLE:?}", cluster.revives() - revives);
    cost
}

/// Apps that fit nowhere, while nothing changes.
pub(crate) async fn idle(agents: usize, size: usize) -> Vec<Cost> {
    let cluster = Cluster::start_with(PORTS, agents).await;
    let daemon = Daemon::start(cluster.address).await;
    let apps: Vec<Value> = (0..size)
        .map(|number| fits_nowhere(&format!("app{number}"), 1))
        .collect();
    daemon
        .change(Method::PUT, "/v2/groups", &json!({"id": "/load", "apps": apps}))
        .await;
    let cost = idle_cost(&cluster, &daemon).await;
    let deployments = read(&daemon, &daemon.apps("/v2/deployments"), LARGE_READS).await;
    daemon.stop();
    vec![cost, deployments]
}

/// Instances that are spread over the values of an attribute of many agents.
pub(crate) async fn spread(agents: usize, instances: usize, attribute: &str) -> Vec<Cost> {
    let cluster = Cluster::start_with(PORTS, agents).await;
    let daemon = Daemon::start(cluster.address).await;
    let mut body = app("/web", instances, Ports::None);
    body["constraints"] = json!([[attribute, "GROUP_BY"]]);
    let cost = deploy((&cluster, &daemon), Method::POST, "/v2/apps", &body, instances).await;
    daemon.stop();
    vec![cost]
}

pub(crate) async fn rolling_restart(size: usize) -> Vec<Cost> {
    let (cluster, daemon) = start().await;
    let target = (&cluster, &daemon);
    let mut body = app("/web", size, Ports::None);
    deploy(target, Method::POST, "/v2/apps", &body, size).await;
    body["cmd"] = json!("sleep 2000");
    let meter = Meter::start(daemon.pid());
    daemon.change(Method::PUT, "/v2/apps/web", &body).await;
    wait_until_deployed(&daemon).await;
    let cost = meter.stop(1);
    daemon.stop();
    vec![cost]
}

pub(crate) async fn pods(size: usize) -> Vec<Cost> {
    let (cluster, daemon) = start().await;
    let meter = Meter::start(daemon.pid());
    for number in 0..size {
        let pod = json!({
            "id": format!("/pod{number}"),
            "containers": [{
                "name": "main", "exec": {"command": {"shell": "sleep 1000"}},
                "resources": {"cpus": 0.01, "mem": 32},
            }],
            "networks": [{"mode": "host"}],
            "scaling": {"kind": "fixed", "instances": 1},
        });
        daemon.change(Method::POST, "/v2/pods", &pod).await;
    }
    settle(&cluster, &daemon, size).await;
    let posted = meter.stop(1);
    let shown = read(&daemon, &daemon.apps("/v2/pods"), LARGE_READS).await;
    let statuses = read(&daemon, &daemon.apps("/v2/pods/::status"), LARGE_READS).await;
    daemon.stop();
    vec![posted, shown, statuses]
}

/// Streams with filters of which each event passes one.
pub(crate) async fn streams(size: usize, filters: usize) -> Vec<Cost> {
    let (cluster, daemon) = start().await;
    let body = app("/load0", 1, Ports::None);
    deploy((&cluster, &daemon), Method::POST, "/v2/apps", &body, 1).await;
    let _open = open_streams(&daemon, size, |number| {
        format!("filter=event.appId%20==%20%22/load{}%22", number % filters)
    })
    .await;
    let updates = lone_updates(&cluster, daemon.pid()).await;
    daemon.stop();
    vec![Cost {
        operations: 1,
        ..updates
    }]
}

/// Opens event streams and reads them while the result exists.
pub(crate) async fn open_streams(
    daemon: &Daemon,
    count: usize,
    query: impl Fn(usize) -> String,
) -> JoinSet<()> {
    let mut open = JoinSet::new();
    for number in 0..count {
        let path = format!("/v2/events?{}", query(number));
        let request = daemon
            .http
            .get(daemon.apps(&path))
            .header("Accept", "text/event-stream");
        let mut answer = request.send().await.expect("an answer");
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        open.spawn(async move { while let Ok(Some(_)) = answer.chunk().await {} });
    }
    open
}

/// A thousand status updates per second, for a long time: memory and store must not grow with it.
pub(crate) async fn sustained(seconds: usize) -> Vec<Cost> {
    let (cluster, daemon) = start().await;
    let body = json!({"id": "/load", "apps": apps(SUSTAINED_TASKS / 10, 10, Ports::None)});
    let target = (&cluster, &daemon);
    deploy(target, Method::PUT, "/v2/groups", &body, SUSTAINED_TASKS).await;
    let meter = Meter::start(daemon.pid());
    let bursts = seconds * 1_000 / SUSTAINED_BURST as usize;
    let mut pace = tokio::time::interval(SUSTAINED_INTERVAL);
    for _ in 0..bursts {
        pace.tick().await;
        cluster.send_updates(SUSTAINED_BURST).await;
    }
    let updates = meter.stop(bursts as u32 * SUSTAINED_BURST as u32);
    let store_kib = daemon.store_kib();
    let store = Cost {
        peak_kib: store_kib,
        added_kib: store_kib,
        ..Cost::default()
    };
    daemon.stop();
    vec![updates, store]
}
