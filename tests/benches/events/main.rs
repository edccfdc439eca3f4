//! Figures of the event stream, measured from outside on the real binary: one JSON document. The
//! events are status updates of tasks in a cluster that runs nothing; the subscribers and this
//! cluster share the machine with the daemon, so processor time is measured for both sides.
//!
//! Run by `cargo xtask bench events`.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a benchmark that fails may panic, and prints its figures"
)]

mod subscribers;

use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use reqwest::Method;
use serde_json::{Value, json};
use transom_testkit::usage;
use transom_tests::events::Events;
use transom_tests::load::cluster::Cluster;
use transom_tests::load::daemon::Daemon;
use transom_tests::load::{quantiles, rounded, seconds};

use subscribers::Subscribers;

/// Number of subscribers, and number of events that each of them receives.
const ROUNDS: &[(usize, u64)] = &[(1, 5_000), (100, 5_000), (1_000, 4_000), (10_000, 400)];
/// Filters that every event passes: a name and the query.
const FILTER_KINDS: &[(&str, &str)] = &[
    ("none", ""),
    ("type", "?event_type=status_update_event"),
    ("CEL", "?filter=event.appId.startsWith(%22/load%22)"),
];
/// Maximum of streams that the daemon accepts.
const MAX_STREAMS: usize = 10_000;
/// Number of tasks whose status changes.
const TASKS: usize = 100;
/// Number of events that are sent one after the other, for a latency.
const LATENCY_EVENTS: u64 = 50;
/// Number of events that clients miss before they resume.
const MISSED_EVENTS: u64 = 100;
/// Number of different filters that evaluate each event, and number of events.
const FILTERS: usize = 200;
const FILTERED_EVENTS: u64 = 2_000;
/// Interval in which the daemon must use almost no processor time to count as idle.
const IDLE_TIME: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit of open files");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("the hard limit of open files");
    println!("{:#}", measure().await);
}

async fn measure() -> Value {
    let mut bench = Bench::start().await;
    let bytes = bench.bytes_of_an_event().await;
    let memory = bench.memory().await;
    let mut deliveries = Vec::new();
    for &(subscribers, events) in ROUNDS {
        for &(name, query) in FILTER_KINDS {
            eprintln!("{events} events to {subscribers} subscribers, filter: {name}");
            deliveries.push(bench.deliver(subscribers, events, name, query).await);
        }
    }
    let latency = bench.latency().await;
    let resume = bench.resume().await;
    let filter = bench.filter().await;
    bench.daemon.stop();
    json!({
        "bytes_of_an_event": bytes,
        "deliveries": deliveries,
        "memory": memory,
        "event_to_subscriber_ms": latency,
        "reconnects": resume,
        "filter": filter,
    })
}

struct Bench {
    cluster: Cluster,
    daemon: Daemon,
    /// The last octet of the source address of the next streams.
    host: u8,
}

/// Processor time of the daemon and of this process.
struct CpuTime {
    daemon: Duration,
    generator: Duration,
}

impl Bench {
    async fn start() -> Bench {
        let cluster = Cluster::start((10_000, 60_000)).await;
        let daemon = Daemon::start(cluster.address).await;
        let app = json!({"id": "/load", "cmd": "sleep 1000", "cpus": 0.1, "mem": 32, "instances": TASKS});
        daemon.change(Method::POST, "/v2/apps", &app).await;
        cluster.wait_until_running(TASKS).await;
        daemon.wait_until_deployed().await;
        Bench {
            cluster,
            daemon,
            host: 1,
        }
    }

    /// Opens streams; `query` returns the query for each number.
    async fn subscribe(
        &mut self,
        count: usize,
        query: impl Fn(usize) -> String,
        last: Option<&str>,
    ) -> Subscribers {
        self.host += 1;
        let path = |number| format!("/v2/events{}", query(number));
        Subscribers::open(self.daemon.address(), count, self.host, path, last).await
    }

    /// Waits until the daemon is idle, for example after it has sent the attach events.
    async fn wait_until_idle(&self) {
        let mut before = usage::cpu(self.daemon.pid());
        loop {
            tokio::time::sleep(IDLE_TIME).await;
            let now = usage::cpu(self.daemon.pid());
            if now.saturating_sub(before) <= IDLE_TIME / 20 {
                return;
            }
            before = now;
        }
    }

    fn cpu_time(&self) -> CpuTime {
        CpuTime {
            daemon: usage::cpu(self.daemon.pid()),
            generator: usage::own_cpu(std::process::id()),
        }
    }

    async fn bytes_of_an_event(&self) -> usize {
        let url = self.daemon.apps("/v2/events?event_type=status_update_event");
        let mut events = Events::open(&self.daemon.http, &url).await;
        self.cluster.send_updates(1).await;
        events.next().await.expect("an event").data.to_string().len()
    }

    /// Measures resident memory without streams and with many idle ones.
    async fn memory(&mut self) -> Value {
        eprintln!("memory of {MAX_STREAMS} subscribers");
        self.wait_until_idle().await;
        let before = usage::resident_kib(self.daemon.pid());
        let subscribers = self.subscribe(MAX_STREAMS, |_| String::new(), None).await;
        self.wait_until_idle().await;
        let with = usage::resident_kib(self.daemon.pid());
        drop(subscribers);
        json!({
            "subscribers": MAX_STREAMS, "before_mib": before / 1024, "with_mib": with / 1024,
            "kib_each": rounded(with.saturating_sub(before) as f64 / MAX_STREAMS as f64),
        })
    }

    /// Measures the throughput of events to all subscribers.
    async fn deliver(&mut self, subscribers: usize, events: u64, name: &str, query: &str) -> Value {
        let streams = self.subscribe(subscribers, |_| query.to_owned(), None).await;
        self.wait_until_idle().await;
        let (before, begun) = (self.cpu_time(), Instant::now());
        self.cluster.send_updates(events).await;
        let (_, last) = streams.wait_for_events(events).await;
        let after = self.cpu_time();
        assert_eq!(streams.max_events(), events, "no event is sent twice");
        let used = after.daemon.saturating_sub(before.daemon);
        let generator = after.generator.saturating_sub(before.generator);
        let deliveries = (subscribers as u64 * events) as f64;
        let took = last.saturating_duration_since(begun);
        json!({
            "subscribers": subscribers, "filter": name, "events": events,
            "per_second": (deliveries / took.as_secs_f64()).round(),
            "daemon_cpu_s": seconds(used), "generator_cpu_s": seconds(generator), "elapsed_s": seconds(took),
            "per_daemon_core_second": (deliveries / used.as_secs_f64()).round(),
        })
    }

    /// Measures the latency from the cluster's status update to the first and to the last
    /// subscriber.
    async fn latency(&mut self) -> Value {
        eprintln!("one event to {MAX_STREAMS} subscribers");
        let streams = self.subscribe(MAX_STREAMS, |_| String::new(), None).await;
        self.wait_until_idle().await;
        let (mut to_first, mut to_last) = (Vec::new(), Vec::new());
        for number in 1..=LATENCY_EVENTS {
            let begun = Instant::now();
            self.cluster.send_updates(1).await;
            let (first, last) = streams.wait_for_events(number).await;
            to_first.push(first.saturating_duration_since(begun));
            to_last.push(last.saturating_duration_since(begun));
        }
        json!({"subscribers": MAX_STREAMS, "first": quantiles(to_first), "last": quantiles(to_last)})
    }

    /// Measures many clients that reconnect at the same time and receive the events that they
    /// missed.
    async fn resume(&mut self) -> Value {
        eprintln!("{MAX_STREAMS} subscribers resume");
        let query = "?event_type=status_update_event";
        let url = self.daemon.apps(&format!("/v2/events{query}&ids=true"));
        let mut events = Events::open(&self.daemon.http, &url).await;
        self.cluster.send_updates(1).await;
        let last = events.next().await.expect("an event").id.expect("an id");
        drop(events);
        self.cluster.send_updates(MISSED_EVENTS).await;
        self.wait_until_idle().await;
        let (before, begun) = (self.cpu_time(), Instant::now());
        let streams = self
            .subscribe(MAX_STREAMS, |_| query.to_owned(), Some(&last))
            .await;
        let connected = begun.elapsed();
        let (_, all) = streams.wait_for_events(MISSED_EVENTS).await;
        let used = self.cpu_time().daemon.saturating_sub(before.daemon);
        assert_eq!(streams.max_events(), MISSED_EVENTS, "no event is sent twice");
        json!({
            "subscribers": MAX_STREAMS, "missed_events": MISSED_EVENTS, "connected_s": seconds(connected),
            "all_have_all_s": seconds(all.saturating_duration_since(begun)), "daemon_cpu_s": seconds(used),
        })
    }

    /// Measures the cost of evaluating an expression: many different expressions for each event,
    /// compared with the same number of subscribers that share one expression.
    async fn filter(&mut self) -> Value {
        eprintln!("{FILTERS} filters");
        let mut used = Vec::new();
        for distinct in [false, true] {
            let query = |number: usize| {
                let other = if distinct { number } else { 0 };
                format!("?filter=event.appId%20!=%20%22/other{other}%22")
            };
            let streams = self.subscribe(FILTERS, query, None).await;
            self.wait_until_idle().await;
            let before = self.cpu_time().daemon;
            self.cluster.send_updates(FILTERED_EVENTS).await;
            streams.wait_for_events(FILTERED_EVENTS).await;
            used.push(self.cpu_time().daemon.saturating_sub(before));
        }
        let more = used[1].saturating_sub(used[0]).as_secs_f64();
        json!({
            "filters": FILTERS, "events": FILTERED_EVENTS, "shared_cpu_s": seconds(used[0]),
            "distinct_cpu_s": seconds(used[1]),
            "us_per_event": rounded(more * 1e6 / ((FILTERS - 1) as f64 * FILTERED_EVENTS as f64)),
        })
    }
}
