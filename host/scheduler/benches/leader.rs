//! Measures how long after a change of the leader in ZooKeeper the framework's subscription and the
//! operator stream are connected to the new leader. Prints one JSON document. Run by `cargo xtask
//! bench leader`; needs the Debian packages `zookeeper` and `default-jre-headless`.
//!
//! Two masters lead alternately. A measurement starts before the request to ZooKeeper to delete the
//! leader's registration, and ends when the new leader's SUBSCRIBED has been processed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark that fails may panic"
)]

use std::time::{Duration, Instant};

use futures::StreamExt;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use transom_cluster::{Client, Error, operator, v1};
use transom_scheduler::{Event, Events, Metrics};
use transom_testkit::zookeeper::{Acls, ZooKeeper, create_path, register};

const LEADER_CHANGES: usize = 20;
/// Timeout for an event. A correct scheduler never reaches it.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() {
    let server = ZooKeeper::start().await;
    let registrations = server.client().await;
    create_path(&registrations, "/mesos", Acls::anyone_all()).await;
    let (dir, token, mut registry) = (
        tempfile::tempdir().unwrap(),
        CancellationToken::new(),
        Registry::default(),
    );
    let mut masters = Vec::new();
    for name in ["one", "two"] {
        let config = transom_minicluster::Config::new(dir.path().join(name));
        masters.push(config.start(token.clone()).await.unwrap());
    }
    let cluster = Client::new(transom_cluster::Config {
        masters: vec![format!("zk://{}/mesos", server.address())],
        ..transom_cluster::Config::default()
    })
    .unwrap();
    let plugins = transom_plugin_host::Config::new(dir.path())
        .start(&mut registry, token.clone())
        .await
        .unwrap();
    let store = transom_store::open(&format!("file:{}", dir.path().join("store").display())).await;
    let framework = v1::FrameworkInfo {
        user: "root".into(),
        name: "bench".into(),
        ..v1::FrameworkInfo::default()
    };
    let mut node = register(&registrations, "/mesos", masters[0].master().port()).await;
    let (scheduler, mut events) = transom_scheduler::Config::new(
        cluster.clone(),
        framework,
        store.unwrap(),
        "bench",
        plugins.clone(),
    )
    .start(Metrics::register(&mut registry, "bench"), token.clone())
    .await
    .unwrap();
    let (subscription_sender, mut subscription_times) = mpsc::channel(LEADER_CHANGES);
    let watching = tokio::spawn(
        token
            .clone()
            .run_until_cancelled_owned(watch(cluster.clone(), subscription_sender)),
    );
    subscribed(&mut events).await;
    next(&mut subscription_times).await;

    let (mut framework, mut operator) = (Vec::new(), Vec::new());
    for turn in 1..=LEADER_CHANGES {
        let after = register(&registrations, "/mesos", masters[turn % 2].master().port()).await;
        let deleted_at = Instant::now();
        registrations
            .delete(&format!("/mesos/{node}"), None)
            .await
            .unwrap();
        framework.push(subscribed(&mut events).await - deleted_at);
        operator.push(next(&mut subscription_times).await - deleted_at);
        node = after;
    }
    token.cancel();
    scheduler.stopped().await;
    plugins.stopped().await;
    cluster.close().await;
    watching.await.unwrap();
    for master in masters {
        master.stopped().await;
    }
    println!(
        "{}",
        json!({"moves": LEADER_CHANGES, "aim_ms": 1000.0, "framework": summary(framework), "operator": summary(operator)})
    );
}

/// Waits for the scheduler's next subscription and returns its time.
async fn subscribed(events: &mut Events) -> Instant {
    loop {
        let event = tokio::time::timeout(EVENT_TIMEOUT, events.next())
            .await
            .expect("a subscription");
        if let Event::Registered { .. } | Event::Reregistered { .. } = event.expect("the scheduler runs") {
            return Instant::now();
        }
    }
}

async fn next(subscription_times: &mut mpsc::Receiver<Instant>) -> Instant {
    let next = tokio::time::timeout(EVENT_TIMEOUT, subscription_times.recv()).await;
    next.expect("an operator stream")
        .expect("the operator stream is followed")
}

/// Follows the operator stream from leader to leader, and sends the time of each subscription.
async fn watch(cluster: Client, subscription_sender: mpsc::Sender<Instant>) {
    loop {
        let mut stream = cluster.watch().await.expect("a leader");
        loop {
            match stream.next().await {
                Ok(Some(operator::Event::Subscribed(_))) => {
                    subscription_sender.send(Instant::now()).await.expect("room");
                }
                Ok(Some(_)) => {}
                Err(Error::LeaderMoved { .. }) => break,
                other => panic!("the stream ended with {other:?}"),
            }
        }
    }
}

fn summary(mut times: Vec<Duration>) -> Value {
    times.sort();
    let ms = |time: Duration| (time.as_secs_f64() * 100_000.0).round() / 100.0;
    json!({"median_ms": ms(times[times.len() / 2]), "longest_ms": ms(times[times.len() - 1])})
}
