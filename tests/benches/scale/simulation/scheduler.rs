//! A scheduler with the attribute matcher: records are loaded and reconciled, status updates
//! arrive, and pending tasks are matched with an offer of each agent.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::StreamExt;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use transom_cluster::{TaskId, v1};
use transom_common::trace::TraceContext;
use transom_plugin_host::Plugins;
use transom_plugin_host::matcher::Constraint;
use transom_scheduler::{
    BuildTask, Config, ExecutorResources, Metrics, Placement, PortRequest, RunSpec, Scheduler, SchedulerApi,
    TaskRequest,
};
use transom_store::{Batch, Entry, Store};
use transom_testkit::usage;

use super::master::Master;
use super::recorded::{Names, RecordedTemplates, task_id};
use super::{Sizes, Span, memory, peak_mib, quantiles, ratio, settled_kib};

/// How often the placement of a batch and of a single task is measured.
const PLACED_TOGETHER: u32 = 5;
const PLACED_ALONE: u32 = 20;

pub(crate) async fn measure(sizes: Sizes) -> Value {
    let (dir, token) = (
        tempfile::tempdir().expect("a directory"),
        CancellationToken::new(),
    );
    let plugins = plugins(&dir.path().join("plugins"), &token).await;
    let master = Master::start(sizes.agents, sizes.tasks).await;
    let store = Arc::new(RecordStore::new(sizes));
    let before = usage::resident_kib(std::process::id());
    let span = Span::begin();
    let framework = v1::FrameworkInfo {
        user: "root".into(),
        name: "scale".into(),
        ..v1::FrameworkInfo::default()
    };
    let config = Config::new(
        master.client(),
        framework,
        store.clone(),
        "scale",
        plugins.clone(),
    );
    let metrics = Metrics::register(&mut Registry::default(), "scale");
    let started = config.start(metrics, token.clone()).await;
    let (scheduler, mut events) = started.expect("a scheduler");
    let loaded = span.end();
    eprintln!("scheduler: {} records in {loaded}", sizes.tasks);
    // A service's processing of the events is not measured.
    tokio::spawn(async move { while events.next().await.is_some() {} });

    let span = Span::begin();
    let (tasks, agents) = (u64::from(sizes.tasks), u64::from(sizes.agents));
    master
        .wait_until("RECONCILE of all tasks", |counts| counts.reconciled >= tasks)
        .await;
    wait_until_acknowledged(&master, 1, || master.update(0)).await;
    let mut reconciled = span.end();
    reconciled["tasks_requested"] = master.counts().reconciled.into();
    master
        .wait_until("DECLINE of all offers", |counts| counts.declined >= agents)
        .await;
    eprintln!("scheduler: reconciled in {reconciled}");
    assert_eq!(scheduler.tasks().len(), sizes.tasks as usize);
    let (peak, after) = (peak_mib(), settled_kib(&sizes).await);

    let updates = measure_updates(&master, &store, sizes).await;
    let quiet = measure_reads(&scheduler, sizes).await;
    let while_updated = tokio::select! {
        () = update_forever(&master) => unreachable!("it never ends"),
        measured = measure_reads(&scheduler, sizes) => measured,
    };
    eprintln!("scheduler: matching with {} offers", sizes.agents);
    let matching = measure_matching(&master, &scheduler, sizes).await;
    let offers = master.sizes().1;
    token.cancel();
    scheduler.stopped().await;
    plugins.stopped().await;
    json!({
        "load": loaded,
        "record_bytes": store.record,
        "memory": memory(before, after, sizes.tasks),
        "peak_mib": peak,
        "reconciliation": reconciled,
        "status_updates": updates,
        "read_ms": quiet,
        "read_while_updates_are_applied_ms": while_updated,
        "ratio_p50": ratio(&while_updated, &quiet, "p50"),
        "offers_bytes": offers,
        "matching": matching,
        "peak_with_matching_mib": peak_mib(),
    })
}

/// The plugin host with the matcher alone.
async fn plugins(dir: &Path, token: &CancellationToken) -> Plugins {
    let components = std::env::var_os("TRANSOM_COMPONENTS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/components"),
        PathBuf::from,
    );
    std::fs::create_dir(dir).expect("a directory");
    for file in ["attributes.wasm", "attributes.toml"] {
        std::fs::copy(components.join(file), dir.join(file))
            .unwrap_or_else(|error| panic!("{file}: {error}; run `cargo xtask plugins` first"));
    }
    let config = transom_plugin_host::Config::new(dir);
    let started = config.start(&mut Registry::default(), token.clone()).await;
    started.expect("the plugin host starts")
}

/// Calls `send`, and waits until `count` further updates are acknowledged.
async fn wait_until_acknowledged(master: &Master, count: u64, send: impl FnOnce()) {
    let goal = master.counts().acknowledged + count;
    send();
    master
        .wait_until("ACKNOWLEDGE", |counts| counts.acknowledged >= goal)
        .await;
}

/// Measures single status updates and batches of them, from the master's update to the
/// acknowledgement.
async fn measure_updates(master: &Master, store: &RecordStore, sizes: Sizes) -> Value {
    let (mut single, mut batches) = (Vec::new(), Vec::new());
    let mut numbers = (0..sizes.tasks).step_by(97).cycle();
    for n in numbers.by_ref().take(sizes.updates as usize) {
        let begun = Instant::now();
        wait_until_acknowledged(master, 1, || master.update(n)).await;
        single.push(begun.elapsed());
    }
    let (span, written) = (Span::begin(), store.written.load(Ordering::Relaxed));
    for _ in 0..sizes.batches {
        let begun = Instant::now();
        let batch: Vec<u32> = numbers.by_ref().take(sizes.batch as usize).collect();
        wait_until_acknowledged(master, batch.len() as u64, || {
            for n in &batch {
                master.update(*n);
            }
        })
        .await;
        batches.push(begun.elapsed());
    }
    let count = f64::from(sizes.batches * sizes.batch);
    let used = span.end()["cpu_s"].as_f64().unwrap_or_default();
    let written = store.written.load(Ordering::Relaxed) - written;
    json!({
        "single_ms": quantiles(single),
        "batch": sizes.batch,
        "batch_ms": quantiles(batches),
        "cpu_us": used * 1e6 / count,
        "stored_bytes": written as f64 / count,
    })
}

async fn update_forever(master: &Master) {
    loop {
        wait_until_acknowledged(master, 10, || (0..10).for_each(|n| master.update(n))).await;
    }
}

/// Measures reading records from the newest snapshot.
async fn measure_reads(scheduler: &Scheduler, sizes: Sizes) -> Value {
    let mut times = Vec::new();
    for number in 0..sizes.updates * 100 {
        let n = u64::from(number) * 7919 % u64::from(sizes.tasks);
        let id = TaskId::from(task_id(u32::try_from(n).expect("a task")));
        let begun = Instant::now();
        let found = scheduler.tasks().get(&id).is_some();
        times.push(begun.elapsed());
        assert!(found, "{id}");
        tokio::task::yield_now().await;
    }
    quantiles(times)
}

/// Measures the time from a request to its launch, through REVIVE and an offer of each agent.
async fn measure_matching(master: &Master, scheduler: &Scheduler, sizes: Sizes) -> Value {
    let mut new = sizes.tasks..;
    let mut cases = Vec::new();
    for (name, constraints) in [
        ("none", Vec::new()),
        ("every second rack, each host once", every_second_rack()),
    ] {
        let (mut together, mut alone) = (Vec::new(), Vec::new());
        let span = Span::begin();
        for _ in 0..PLACED_TOGETHER {
            let numbers: Vec<u32> = new.by_ref().take(sizes.batch as usize).collect();
            together.push(measure_launch(master, scheduler, &numbers, &constraints).await);
        }
        let used = span.end()["cpu_s"].as_f64().unwrap_or_default();
        for n in new.by_ref().take(PLACED_ALONE as usize) {
            alone.push(measure_launch(master, scheduler, &[n], &constraints).await);
        }
        cases.push(json!({
            "constraints": name,
            "tasks": sizes.batch,
            "together_ms": quantiles(together),
            "together_cpu_s": used / f64::from(PLACED_TOGETHER),
            "one_ms": quantiles(alone),
        }));
    }
    cases.into()
}

/// The time from the request until all of the tasks are launched.
async fn measure_launch(
    master: &Master,
    scheduler: &Scheduler,
    numbers: &[u32],
    constraints: &[Constraint],
) -> Duration {
    let spec = Arc::new(RunSpec {
        id: format!("/scale/{}", numbers[0]),
        version: "1".to_owned(),
        instances: u32::try_from(numbers.len()).expect("a number"),
        cpus: 0.1,
        mem: 32.0,
        disk: 0.0,
        gpus: 0.0,
        avoid_gpus: false,
        ports: vec![PortRequest::Random],
        constraints: constraints.to_vec(),
        role: None,
        volumes: Vec::new(),
        roles: Vec::new(),
        executor: ExecutorResources::default(),
        build: Arc::new(NoTask).into(),
    });
    let requests = numbers.iter().map(|n| TaskRequest {
        id: task_id(*n).as_str().into(),
        spec: Arc::clone(&spec),
        not_before: None,
        priority: 0,
        reservation: None,
        trace: TraceContext::default(),
    });
    let goal = master.counts().launched + numbers.len() as u64;
    let begun = Instant::now();
    scheduler.submit(requests.collect());
    master
        .wait_until("all launches", |counts| counts.launched >= goal)
        .await;
    begun.elapsed()
}

fn every_second_rack() -> Vec<Constraint> {
    let field = |field: &str, operator: &str, operand: Option<&str>| Constraint::Field {
        field: field.to_owned(),
        operator: operator.to_owned(),
        operand: operand.map(str::to_owned),
    };
    vec![
        field("rack", "LIKE", Some("r[0-9]*[02468]")),
        field("@hostname", "UNIQUE", None),
    ]
}

#[derive(Debug)]
struct NoTask;

impl BuildTask for NoTask {
    fn build(&self, _placement: &Placement) -> Option<v1::TaskInfo> {
        Some(v1::TaskInfo::default())
    }
}

/// A store that returns a record for each task and stores nothing, so that the memory is the
/// scheduler's.
#[derive(Debug)]
struct RecordStore {
    sizes: Sizes,
    /// Size of a record in bytes.
    record: u64,
    /// Number of bytes that were written.
    written: AtomicU64,
}

impl RecordStore {
    fn new(sizes: Sizes) -> Self {
        let record = RecordedTemplates::load()
            .record
            .text(&Names::of_task(0, sizes.agents));
        Self {
            sizes,
            record: record.len() as u64,
            written: AtomicU64::new(0),
        }
    }
}

#[async_trait]
impl Store for RecordStore {
    async fn get(&self, key: &str) -> transom_store::Result<Option<Entry>> {
        Ok(key.ends_with("framework-id").then(|| Entry {
            key: key.to_owned(),
            value: "F".into(),
            version: 1,
        }))
    }

    async fn scan(&self, prefix: &str) -> transom_store::Result<Vec<Entry>> {
        if !prefix.ends_with("tasks/") {
            return Ok(Vec::new());
        }
        let record = RecordedTemplates::load().record;
        let entry = |n| Entry {
            key: format!("{prefix}{}", task_id(n)),
            value: record.text(&Names::of_task(n, self.sizes.agents)).into(),
            version: 1,
        };
        Ok((0..self.sizes.tasks).map(entry).collect())
    }

    async fn commit(&self, batch: Batch) -> transom_store::Result<Vec<u64>> {
        let values = batch.changes().iter().filter_map(|change| change.value.as_ref());
        let bytes: u64 = values.map(|value| value.len() as u64).sum();
        self.written.fetch_add(bytes, Ordering::Relaxed);
        Ok(vec![2; batch.changes().len()])
    }
}
