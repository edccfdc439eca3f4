//! Measures the kinds of store side by side, on one disk: the embedded one, a Redis with
//! `appendfsync always`, one of three such servers with Sentinels, and a ZooKeeper of three servers. The
//! servers with Sentinels are reached through proxies. Prints one JSON document. Run by `cargo xtask
//! bench store`; needs the Debian packages `redis-server`, `zookeeper` and `default-jre-headless`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a benchmark that fails may panic"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Map, Value, json};
use transom_store::{Batch, Config, Error, Expect, Store};
use transom_testkit::redis::{RedisServer, Sentinels};
use transom_testkit::zookeeper::{Acls, Client, Ensemble, create, create_path};

/// How long writers write.
const WRITING: Duration = Duration::from_secs(5);
const WRITERS: usize = 64;
const BATCHES: [usize; 4] = [1, 100, 1_000, 10_000];
const BATCH_REPETITIONS: usize = 5;
/// Records that a new daemon reads.
const RECORDS: usize = 100_000;
/// The time to live of the lease whose holder vanishes.
const TTL: Duration = Duration::from_secs(5);
const TAKEOVERS: usize = 3;

/// About what a task's record contains.
fn record(number: usize) -> Bytes {
    let document = json!({
        "id": format!("shop_web.instance-{number:032x}._app.1"),
        "state": "TASK_RUNNING",
        "agent": {"id": "5c2c0a3e-a7d5-4d4c-8c47-1f2c0d6ab6a5-S17", "hostname": "agent-17.example"},
        "ports": [31_000 + number % 1_000, 31_001 + number % 1_000],
        "status": {"uuid": format!("{number:032x}"), "timestamp": 1_700_000_000 + number, "healthy": true},
        "version": "2026-11-30T12:00:00.000Z",
    });
    document.to_string().into()
}

#[tokio::main]
async fn main() {
    let dir = tempfile::tempdir().unwrap();
    let redis = RedisServer::durable().started();
    let ensemble = Ensemble::start().await;
    let group = Sentinels::start().await;
    let sentinels = Config {
        password: Some(Sentinels::PASSWORD.into()),
        sentinel_password: Some(Sentinels::SENTINEL_PASSWORD.into()),
        ..Config::new(group.address())
    };
    let ensemble_path = format!("zk://bench:bench@{}/bench", ensemble.direct_address());
    let configs = [
        (
            "file",
            Config::new(format!("file:{}", dir.path().join("store").display())),
        ),
        ("redis", Config::new(redis.address().to_string())),
        ("redis_sentinel", sentinels),
        ("zookeeper", Config::new(ensemble_path)),
    ];
    let mut figures = Map::new();
    for (kind, config) in configs {
        figures.insert(kind.to_owned(), measure(&config).await);
    }
    figures.insert("zookeeper_bare_create".to_owned(), bare_creates(&ensemble).await);
    println!("{}", Value::Object(figures));
}

async fn open(config: &Config) -> Arc<dyn Store> {
    let store = config.clone().open().await.unwrap();
    while let Err(Error::Unavailable { .. }) = store.get("opened").await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    store
}

async fn measure(config: &Config) -> Value {
    let store = open(config).await;
    let one = write(&store, 1).await;
    let many = write(&store, WRITERS).await;
    let mut batches = Map::new();
    for size in BATCHES {
        let mut times = Vec::new();
        for repetition in 0..BATCH_REPETITIONS {
            let batch = (0..size).fold(Batch::new(), |batch, number| {
                batch.put(
                    format!("batch/{size}/{number}"),
                    record(number + repetition),
                    Expect::Any,
                )
            });
            let began = Instant::now();
            store.commit(batch).await.unwrap();
            times.push(began.elapsed());
        }
        batches.insert(size.to_string(), percentiles(times));
    }
    for first in (0..RECORDS).step_by(1_000) {
        let numbers = first..first + 1_000;
        let batch = numbers.fold(Batch::new(), |batch, number| {
            batch.put(format!("records/{number:06}"), record(number), Expect::Any)
        });
        store.commit(batch).await.unwrap();
    }
    let lease = takeover(&store, config).await;
    drop(store);
    let began = Instant::now();
    let store = open(config).await;
    let found = store.scan("records/").await.unwrap().len();
    assert_eq!(found, RECORDS);
    json!({
        "one_writer": one,
        "many_writers": {"writers": WRITERS, "commits": many},
        "batches_ms": batches,
        "open_and_read_100000_records_ms": ms(began.elapsed()),
        "lease_of_5_s_taken_over_after_ms": lease,
    })
}

/// Commits of single records.
async fn write(store: &Arc<dyn Store>, writers: usize) -> Value {
    let began = Instant::now();
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let mut times = Vec::new();
                while began.elapsed() < WRITING {
                    let started = Instant::now();
                    let key = format!("single/{writer}/{}", times.len() % 1_000);
                    store.put(&key, record(times.len()), Expect::Any).await.unwrap();
                    times.push(started.elapsed());
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    let per_second = times.len() as f64 / began.elapsed().as_secs_f64();
    let mut figures = percentiles(times);
    figures["per_second"] = json!(per_second.round());
    figures
}

/// What the ensemble takes for a node of the same size, without a store: creates of one writer.
async fn bare_creates(ensemble: &Ensemble) -> Value {
    let client = Client::connect(&ensemble.direct_address()).await.unwrap();
    create_path(&client, "/bare", Acls::anyone_all()).await;
    let began = Instant::now();
    let mut times = Vec::new();
    while began.elapsed() < WRITING {
        let started = Instant::now();
        let path = format!("/bare/{}", times.len());
        create(&client, &path, &record(times.len()), Acls::anyone_all()).await;
        times.push(started.elapsed());
    }
    percentiles(times)
}

/// The time until another daemon has the lease of one that has vanished. An embedded store has none.
async fn takeover(store: &Arc<dyn Store>, config: &Config) -> Value {
    if store.is_exclusive() {
        return Value::Null;
    }
    let other = open(config).await;
    let mut times = Vec::new();
    for number in 0..TAKEOVERS {
        let name = format!("lease/{number}");
        store.acquire(&name, "one", TTL).await.unwrap();
        let began = Instant::now();
        while let Err(Error::Held { remaining, .. }) = other.acquire(&name, "two", TTL).await {
            tokio::time::sleep(remaining.clamp(Duration::from_millis(1), TTL / 5)).await;
        }
        times.push(began.elapsed());
    }
    percentiles(times)
}

fn percentiles(mut times: Vec<Duration>) -> Value {
    times.sort();
    let at = |share: f64| ms(times[((times.len() - 1) as f64 * share) as usize]);
    json!({"p50_ms": at(0.5), "p90_ms": at(0.9), "p99_ms": at(0.99)})
}

fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 100_000.0).round() / 100.0
}
