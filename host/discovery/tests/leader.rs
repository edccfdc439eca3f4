//! Discovery follows the leader that a real ZooKeeper names. Needs the Debian packages `zookeeper` and
//! `default-jre-headless`, and fails without them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Tests fail by panicking.

mod common;

use std::time::{Duration, Instant};

use common::{Followed, Master, MasterScript, WAIT_TIMEOUT, wait_until};
use serde_json::{Value, json};
use transom_discovery::Settings;
use transom_testkit::zookeeper::{Acls, Client, ZooKeeper, create, create_path, register};

/// A leading master whose cluster has one agent, at `10.0.0.<n>`.
async fn leading(n: u32) -> Master {
    let agent = json!({"agent_info": {"hostname": "a", "id": {"value": format!("m-S{n}")}}, "active": true,
        "pid": format!("slave(1)@10.0.0.{n}:5051")});
    let leader = format!("master@127.0.0.{n}:5050");
    Master::start(MasterScript {
        document: Some(json!({"leader": leader, "pid": leader, "slaves": [], "frameworks": []})),
        snapshot: Some(json!({"get_agents": {"agents": [agent]}})),
        ..MasterScript::default()
    })
    .await
}

/// Starts ZooKeeper, a session that registers masters, the first master with its registration, and
/// discovery that follows them.
async fn site() -> (ZooKeeper, Client, Master, String, Followed) {
    let server = ZooKeeper::start().await;
    let masters = server.client().await;
    create_path(&masters, "/mesos", Acls::anyone_all()).await;
    let first = leading(1).await;
    let node = register(&masters, "/mesos", first.addr.port()).await;
    let zookeeper = format!("zk://{}/mesos", server.address());
    let discovery = common::followed(zookeeper, Settings::default()).await;
    discovery.ready().await;
    (server, masters, first, node, discovery)
}

async fn removed(masters: &Client, node: &str) {
    masters.delete(&format!("/mesos/{node}"), None).await.unwrap();
}

#[tokio::test]
async fn zone_follows_a_new_leader_without_delay() {
    let (_server, masters, first, mut node, discovery) = site().await;
    assert_eq!(discovery.a("leader.mesos.").await, ["127.0.0.1"]);
    let second = leading(2).await;
    let mut fastest = WAIT_TIMEOUT;
    for round in 0..6 {
        let (next, n) = if round % 2 == 0 { (&second, 2) } else { (&first, 1) };
        let subscribed = next.subscriptions();
        let after = register(&masters, "/mesos", next.addr.port()).await;
        let began = Instant::now();
        removed(&masters, &node).await;
        while next.subscriptions() == subscribed {
            assert!(
                began.elapsed() < WAIT_TIMEOUT,
                "no subscription with the new leader"
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        println!("subscribed with the new leader after {:?}", began.elapsed());
        fastest = fastest.min(began.elapsed());
        wait_until("the new leader's zone", async || {
            discovery.a("leader.mesos.").await == [format!("127.0.0.{n}")]
                && discovery.a("slave.mesos.").await == [format!("10.0.0.{n}")]
        })
        .await;
        node = after;
    }
    // Each retry delay would be at least this long.
    assert!(fastest < Duration::from_millis(100), "{fastest:?}");
    let metrics = discovery.metrics();
    assert!(
        metrics.contains("transom_discovery_reconnects_total 6"),
        "{metrics}"
    );
    discovery.stop().await;
}

#[tokio::test]
async fn new_leader_ends_the_retry_delay() {
    let (_server, masters, first, node, discovery) = site().await;
    let second = leading(2).await;
    register(&masters, "/mesos", second.addr.port()).await;
    let reject_all =
        |script: &mut MasterScript| (script.snapshot, script.rejection, script.document) = (None, 503, None);
    let accepted_snapshot: Value = second.script.lock().unwrap().snapshot.clone().unwrap();
    // Both masters reject until the retry delay is longer than the time that this test allows.
    second.set(reject_all);
    first.set(reject_all);
    first.hang_up();
    // Each attempt requests the stream from the leader first and then from the other master.
    wait_until("many attempts", async || second.subscribe_requests() >= 4).await;
    second.set(|script| script.snapshot = Some(accepted_snapshot));
    let began = Instant::now();
    removed(&masters, &node).await;
    wait_until("a subscription", async || second.subscriptions() > 0).await;
    println!("subscribed with the new leader after {:?}", began.elapsed());
    // The retry delay that had just begun is at least 1.6 s.
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    discovery.stop().await;
}

/// Full comparisons are an hour apart, so that only ZooKeeper can report these changes.
#[tokio::test]
async fn changes_of_masters_are_published_immediately() {
    for streams in [true, false] {
        let server = ZooKeeper::start().await;
        let masters = server.client().await;
        create_path(&masters, "/mesos", Acls::anyone_all()).await;
        let first = leading(1).await;
        if !streams {
            first.set(|script| (script.snapshot, script.rejection) = (None, 403));
        }
        register(&masters, "/mesos", first.addr.port()).await;
        let config = Settings {
            refresh_seconds: 3600,
            ..Settings::default()
        };
        let discovery = common::followed(format!("zk://{}/mesos", server.address()), config).await;
        discovery.ready().await;
        assert_eq!(discovery.a("master.mesos.").await, ["127.0.0.1"]);
        let data = json!({"id": "m-9", "pid": "master@127.0.0.9:5050", "hostname": "localhost", "port": 5050,
            "address": {"hostname": "localhost", "ip": "127.0.0.9", "port": 5050}});
        let data = data.to_string();
        let second = create(&masters, "/mesos/json.info_", data.as_bytes(), Acls::anyone_all()).await;
        wait_until("the second master", async || {
            discovery.a("master.mesos.").await == ["127.0.0.1", "127.0.0.9"]
        })
        .await;
        assert_eq!(discovery.a("leader.mesos.").await, ["127.0.0.1"]);
        removed(&masters, &second).await;
        wait_until("the removal of the second master", async || {
            discovery.a("master.mesos.").await == ["127.0.0.1"]
        })
        .await;
        discovery.stop().await;
    }
}
