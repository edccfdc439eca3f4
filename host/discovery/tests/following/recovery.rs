//! Lookups while a new leader has not recovered its agents, and with a principal that may not view the
//! tasks.

use std::time::Duration;

use serde_json::{Value, json};
use transom_discovery::source::StreamTimeouts;
use transom_discovery::{Config, Problem, Settings, Source};

use crate::common::{Master, MasterScript, wait_until};
use crate::{agent, document, every_second, snapshot, started, task};

/// A snapshot with agents that the leader knows only from its registry.
fn recovering(ids: &[&str], agents: u32, tasks: &[Value]) -> Value {
    let mut state = snapshot(agents, tasks);
    let of = |id: &&str| json!({"hostname": "a", "id": {"value": id}});
    state["get_agents"]["recovered_agents"] = ids.iter().map(of).collect();
    state
}

async fn master(script: MasterScript) -> Master {
    let document = script.document.or_else(|| Some(document()));
    Master::start(MasterScript { document, ..script }).await
}

fn added(n: u32) -> [Value; 2] {
    let mut task = task(n, "TASK_RUNNING");
    task["agent_id"]["value"] = json!(format!("c1d2-S{n}"));
    [
        json!({"type": "AGENT_ADDED", "agent_added": {"agent": agent(n)}}),
        json!({"type": "TASK_ADDED", "task_added": {"task": task}}),
    ]
}

#[tokio::test]
async fn first_zone_waits_for_the_agents_of_a_new_leader() {
    let snapshot_of_start = recovering(&["c1d2-S0", "c1d2-S1"], 0, &[]);
    let master = master(MasterScript {
        snapshot: Some(snapshot_of_start),
        ..MasterScript::default()
    })
    .await;
    let discovery = master.followed(Settings::default()).await;
    let waits_for = async |agents: usize| {
        wait_until("the reason", async || {
            assert!(!discovery.discovery.is_ready(), "an incomplete zone is served");
            discovery.discovery.problem() == Some(Problem::AwaitedAgents(agents))
        })
        .await;
    };
    waits_for(2).await;
    assert_eq!(discovery.discovery.source(), Source::Stream);
    for event in added(0) {
        master.send(&event).await;
    }
    waits_for(1).await;
    assert!(discovery.a("web.marathon.mesos.").await.is_empty());
    // Tasks that ended without an event are found by a comparison soon after the last agent's return.
    let mut last = task(1, "TASK_RUNNING");
    last["agent_id"]["value"] = json!("c1d2-S1");
    master.set(|script| script.snapshot = Some(snapshot(2, &[last])));
    for event in added(1) {
        master.send(&event).await;
    }
    discovery.ready().await;
    assert_eq!(discovery.discovery.problem(), None);
    wait_until("the comparison", async || {
        discovery.a("web.marathon.mesos.").await == ["10.0.0.11"]
    })
    .await;
    discovery.stop().await;
}

#[tokio::test]
async fn first_zone_waits_for_a_bounded_time() {
    let snapshot_of_start = recovering(&["c1d2-S1"], 1, &[task(0, "TASK_RUNNING")]);
    let master = master(MasterScript {
        snapshot: Some(snapshot_of_start),
        ..MasterScript::default()
    })
    .await;
    let stream_timeouts = StreamTimeouts {
        agents: Duration::from_millis(300),
        ..StreamTimeouts::default()
    };
    let config = Config {
        stream_timeouts,
        ..Config::default()
    };
    let discovery = master.followed(config).await;
    discovery.ready().await;
    assert_eq!(discovery.a("web.marathon.mesos.").await, ["10.0.0.10"]);
    discovery.stop().await;
}

/// A master without a stream that has been elected and has not read its registry.
fn empty_document(elected: f64) -> Value {
    let mut empty = document();
    empty["elected_time"] = json!(elected);
    empty
}

#[tokio::test]
async fn empty_document_of_a_new_leader_is_not_published() {
    let master = master(MasterScript {
        document: Some(empty_document(1.0)),
        rejection: 404,
        ..MasterScript::default()
    })
    .await;
    let discovery = master.followed(every_second()).await;
    wait_until("polls", async || master.document_requests() >= 2).await;
    assert!(!discovery.discovery.is_ready());
    let mut full = empty_document(1.0);
    full["slaves"] = json!([{"id": "c1d2-S0", "pid": "slave(1)@10.0.0.10:5051", "hostname": "a"}]);
    master.set(|script| script.document = Some(full));
    discovery.ready().await;
    // Another master leads.
    master.set(|script| script.document = Some(empty_document(2.0)));
    let before = master.document_requests();
    wait_until("polls", async || {
        assert_eq!(discovery.a("slave.mesos.").await, ["10.0.0.10"]);
        master.document_requests() >= before + 2
    })
    .await;
    discovery.stop().await;
}

#[tokio::test]
async fn empty_document_is_published_after_a_bounded_time() {
    let master = master(MasterScript {
        document: Some(empty_document(1.0)),
        rejection: 404,
        ..MasterScript::default()
    })
    .await;
    let config = Config {
        settings: every_second(),
        stream_timeouts: StreamTimeouts {
            not_found: Duration::from_millis(300),
            ..StreamTimeouts::default()
        },
        ..Config::default()
    };
    let discovery = master.followed(config).await;
    discovery.ready().await;
    discovery.stop().await;
}

#[tokio::test]
async fn hidden_tasks_are_reported() {
    let mut hidden = document();
    hidden["slaves"] = json!([{"id": "c1d2-S0", "pid": "slave(1)@10.0.0.10:5051", "hostname": "a",
        "used_resources": {"cpus": 0.5, "mem": 32.0, "disk": 0.0, "gpus": 0.0}}]);
    let mut snapshot_without = snapshot(1, &[]);
    snapshot_without["get_frameworks"] = json!({});
    // From the stream and from polls.
    for snapshot in [Some(snapshot_without), None] {
        let polled = snapshot.is_none();
        let master = master(MasterScript {
            document: Some(hidden.clone()),
            snapshot,
            rejection: 403,
            ..MasterScript::default()
        })
        .await;
        let discovery = master.followed(Settings::default()).await;
        wait_until("the reason", async || {
            discovery.discovery.problem() == Some(Problem::HiddenTasks)
        })
        .await;
        wait_until("the agent", async || {
            discovery.a("slave.mesos.").await == ["10.0.0.10"]
        })
        .await;
        assert!(!discovery.discovery.is_ready(), "polled: {polled}");
        if !polled {
            for event in added(0) {
                master.send(&event).await;
            }
            discovery.ready().await;
        }
        discovery.stop().await;
    }
}

/// The order of a real failover: ZooKeeper names the leader before that master knows; it redirects to
/// the dead one, then its lists are empty, then agents register one by one.
#[tokio::test]
async fn failover_keeps_records_until_agents_return_or_are_removed() {
    let mut second = task(1, "TASK_RUNNING");
    second["agent_id"]["value"] = json!("c1d2-S1");
    let (master, discovery) = started(snapshot(2, &[task(0, "TASK_RUNNING"), second]), every_second()).await;
    let both = ["10.0.0.10", "10.0.0.11"];
    assert_eq!(discovery.a("web.marathon.mesos.").await, both);
    // Nothing listens at the dead leader's address.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = format!("//{}/api/v1", closed.local_addr().unwrap());
    drop(closed);
    master.set(|script| script.redirect = Some(dead));
    master.hang_up();
    let before = master.subscribe_requests();
    wait_until("redirects to the dead master", async || {
        assert_eq!(discovery.a("web.marathon.mesos.").await, both);
        master.subscribe_requests() >= before + 4
    })
    .await;
    // The master leads and knows its agents only from the registry.
    let mut empty = recovering(&["c1d2-S0", "c1d2-S1"], 0, &[]);
    empty["get_frameworks"] = json!({});
    master.set(|script| (script.redirect, script.snapshot) = (None, Some(empty)));
    let before = master.subscriptions();
    wait_until("the stream and full comparisons", async || {
        assert_eq!(discovery.a("web.marathon.mesos.").await, both);
        assert_eq!(discovery.a("slave.mesos.").await, both);
        master.subscriptions() >= before + 3
    })
    .await;
    // One agent returns, the other one is removed from the registry.
    let tasks = [task(0, "TASK_RUNNING")];
    master.set(|script| script.snapshot = Some(recovering(&["c1d2-S1"], 1, &tasks)));
    let before = master.subscriptions();
    wait_until("full comparisons", async || {
        assert_eq!(discovery.a("web.marathon.mesos.").await, both);
        master.subscriptions() >= before + 2
    })
    .await;
    master.set(|script| script.snapshot = Some(snapshot(1, &tasks)));
    wait_until("the end of the other agent", async || {
        discovery.a("web.marathon.mesos.").await == ["10.0.0.10"]
            && discovery.a("slave.mesos.").await == ["10.0.0.10"]
    })
    .await;
    discovery.stop().await;
}
