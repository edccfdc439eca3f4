//! Discovery with its listeners: from a snapshot to lookups, and changes while it serves.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::net::UdpSocket;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use transom_discovery::{Config, Settings};
use transom_testkit::usage;

use super::master::Master;
use super::recorded::{INSTANCES, app};
use super::{Sizes, Span, WAIT_TIMEOUT, memory, peak_mib, quantiles, ratio, settled_kib};

/// Number of tasks that start per second while lookups are measured, and number of steps per
/// second.
const STARTS_PER_SECOND: u32 = 1000;
const STEPS_PER_SECOND: u32 = 100;

pub(crate) async fn measure(sizes: Sizes) -> Value {
    let master = Master::start(sizes.agents, sizes.tasks).await;
    let before = usage::resident_kib(std::process::id());
    let span = Span::begin();
    let (token, mut registry) = (CancellationToken::new(), Registry::default());
    let settings = Settings {
        listener: Ipv4Addr::LOCALHOST.into(),
        http_listener: Ipv4Addr::LOCALHOST.into(),
        port: 0,
        http_port: 0,
        external_on: false,
        // Longer than the measurement.
        refresh_seconds: 36_000,
        ..Settings::default()
    };
    let started = Config::from(settings)
        .start(master.client(), &mut registry, token.clone())
        .await;
    let discovery = started.expect("discovery starts");
    wait_until("a zone", async || discovery.is_ready()).await;
    let built = span.end();
    let peak = peak_mib();
    let after = settled_kib(&sizes).await;
    eprintln!("discovery: {} tasks in {built}", sizes.tasks);

    let lookups = Lookups::new(discovery.dns_addr().expect("a listener")).await;
    // The first tasks of apps that the snapshot does not contain.
    let mut new = (sizes.tasks.div_ceil(INSTANCES)..).map(|app| app * INSTANCES);
    let first = new.next().expect("a number");
    let quiet = lookups.measure(&sizes).await;
    send_task_start(&master, first);
    wait_until("a new task", async || lookups.found(&name(first)).await).await;

    let mut single = Vec::new();
    for n in new.by_ref().take(sizes.updates as usize) {
        let begun = Instant::now();
        send_task_start(&master, n);
        wait_until("a new task", async || lookups.found(&name(n)).await).await;
        single.push(begun.elapsed());
    }
    let (mut batches, span) = (Vec::new(), Span::begin());
    for _ in 0..sizes.batches {
        let begun = Instant::now();
        let mut last = first;
        for n in new.by_ref().take(sizes.batch as usize) {
            send_task_start(&master, n);
            last = n;
        }
        wait_until("the last new task", async || lookups.found(&name(last)).await).await;
        batches.push(begun.elapsed());
    }
    let used = span.end()["cpu_s"].as_f64().unwrap_or_default();
    let (mut changes, span) = (0, Span::begin());
    let starting = start_and_kill_tasks(&master, &mut new, &mut changes);
    // It never ends before.
    let _ = tokio::time::timeout(sizes.sustained, starting).await;
    let last = new.next().expect("a number");
    send_task_start(&master, last);
    wait_until("the last new task", async || lookups.found(&name(last)).await).await;
    let sustained = span.end()["cpu_s"].as_f64().unwrap_or_default();
    let sustained = json!({"changes": changes, "cpu_us_per_change": sustained * 1e6 / f64::from(changes)});
    let while_tasks_change = tokio::select! {
        () = start_and_kill_tasks(&master, &mut new, &mut changes) => unreachable!("there are always more"),
        measured = lookups.measure(&sizes) => measured,
    };
    let in_service = settled_kib(&sizes).await;

    eprintln!("discovery: the stream ends, and begins again with the first snapshot");
    let span = Span::begin();
    master.close_operator_streams();
    wait_until("the first snapshot", async || !lookups.found(&name(first)).await).await;
    let compared = span.end();
    token.cancel();
    discovery.stopped().await;
    json!({
        "snapshot_bytes": master.sizes().0,
        "from_nothing": built,
        "memory": memory(before, after, sizes.tasks),
        "peak_mib": peak,
        "in_service_mib": in_service / 1024,
        "event_to_answer_ms": quantiles(single),
        "batch": {
            "tasks": sizes.batch, "to_last_answer_ms": quantiles(batches),
            "cpu_us_per_task": used * 1e6 / f64::from(sizes.batches * sizes.batch),
        },
        "a_thousand_tasks_begin_per_second": sustained,
        "lookup_ms": quiet,
        "lookup_while_a_thousand_tasks_begin_per_second_ms": while_tasks_change,
        "ratio_p50": ratio(&while_tasks_change, &quiet, "p50"),
        "ratio_p99": ratio(&while_tasks_change, &quiet, "p99"),
        "reconnect_with_full_comparison": compared,
        "peak_with_full_comparison_mib": peak_mib(),
    })
}

/// Sends the events of a task that starts: it is added, and then runs.
fn send_task_start(master: &Master, n: u32) {
    master.send_operator_event(&master.recorded().task_added, n);
    master.send_operator_event(&master.recorded().task_running, n);
}

/// Starts tasks at a fixed interval, kills each a second later, and counts both.
async fn start_and_kill_tasks(master: &Master, new: &mut impl Iterator<Item = u32>, changes: &mut u32) {
    let mut pace = interval(Duration::from_secs(1) / STEPS_PER_SECOND);
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut running = VecDeque::new();
    loop {
        pace.tick().await;
        for n in new.by_ref().take((STARTS_PER_SECOND / STEPS_PER_SECOND) as usize) {
            send_task_start(master, n);
            running.push_back(n);
            *changes += 1;
        }
        while running.len() > STARTS_PER_SECOND as usize {
            if let Some(n) = running.pop_front() {
                master.send_operator_event(&master.recorded().task_killed, n);
                *changes += 1;
            }
        }
    }
}

fn name(n: u32) -> String {
    format!("{}.beta.mesos.", app(n / INSTANCES))
}

/// A DNS client with one socket and one query at a time.
struct Lookups(UdpSocket);

impl Lookups {
    async fn new(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a socket");
        socket.connect(server).await.expect("a server");
        Self(socket)
    }

    /// Whether the name has an address.
    async fn found(&self, name: &str) -> bool {
        let mut query = Message::new(7, MessageType::Query, OpCode::Query);
        let name = Name::from_ascii(name).expect("a name");
        query.add_query(Query::query(name, RecordType::A));
        self.ask(&query.to_vec().expect("a query")).await
    }

    async fn ask(&self, query: &[u8]) -> bool {
        let mut answer = [0; 4096];
        let exchange = async {
            self.0.send(query).await.expect("sent");
            self.0.recv(&mut answer).await.expect("received")
        };
        let length = tokio::time::timeout(WAIT_TIMEOUT, exchange)
            .await
            .expect("an answer");
        // The number of answers in the header.
        answer[..length][6..8] != [0, 0]
    }

    /// Measures lookups of names that are spread over the snapshot.
    async fn measure(&self, sizes: &Sizes) -> Value {
        let (count, mut times) = (sizes.updates * 100, Vec::new());
        for number in 0..count {
            let n = u64::from(number) * 7919 % u64::from(sizes.tasks);
            let name = name(u32::try_from(n).expect("a task"));
            let begun = Instant::now();
            let found = self.found(&name).await;
            times.push(begun.elapsed());
            assert!(found, "{name}");
        }
        quantiles(times)
    }
}

async fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < WAIT_TIMEOUT, "timed out waiting for {what}");
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}
