//! Records follow the cluster's tasks and agents.

use hickory_proto::rr::RecordType;
use serde_json::{Value, json};
use transom_discovery::Settings;

use crate::common::{Master, MasterScript, query, record, wait_until};
use crate::{agent, every_second, snapshot, started, task, updated};

#[tokio::test]
async fn task_has_records_while_running() {
    let (master, discovery) = started(snapshot(1, &[]), Settings::default()).await;
    assert_eq!(discovery.a("leader.mesos.").await, ["127.0.0.1"]);
    assert_eq!(discovery.a("marathon.mesos.").await, ["10.9.9.9"]);
    assert_eq!(discovery.a("slave.mesos.").await, ["10.0.0.10"]);
    master
        .send(&json!({"type": "TASK_ADDED", "task_added": {"task": task(0, "TASK_STAGING")}}))
        .await;
    master.send(&updated(0, "TASK_STARTING")).await;
    // Another agent is added after the task, so its record shows that the earlier events were applied.
    master
        .send(&json!({"type": "AGENT_ADDED", "agent_added": {"agent": agent(1)}}))
        .await;
    wait_until("the agent", async || discovery.a("slave.mesos.").await.len() == 2).await;
    assert!(
        discovery.a("web.marathon.mesos.").await.is_empty(),
        "a task that is not running has records"
    );

    master.send(&updated(0, "TASK_RUNNING")).await;
    wait_until("the task", async || {
        discovery.a("web.marathon.mesos.").await == ["10.0.0.10"]
    })
    .await;
    let (status, body) = discovery.get("/v1/services/_web._tcp.marathon.mesos.").await;
    assert_eq!(status, 200);
    let row = json!([{
        "service": "_web._tcp.marathon.mesos.", "host": "web-q9rt1-s0.marathon.slave.mesos.", "ip": "10.0.0.10", "port": "31000",
    }]);
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), row);

    master.send(&updated(0, "TASK_FINISHED")).await;
    wait_until("the end of the task", async || {
        discovery.a("web.marathon.mesos.").await.is_empty()
    })
    .await;
    master
        .send(&json!({"type": "AGENT_REMOVED", "agent_removed": {"agent_id": {"value": "c1d2-S1"}}}))
        .await;
    wait_until("the agent's end", async || {
        discovery.a("slave.mesos.").await == ["10.0.0.10"]
    })
    .await;
    discovery.stop().await;
}

#[tokio::test]
async fn full_comparison_finds_changes_missing_from_the_stream() {
    let (master, discovery) = started(snapshot(2, &[]), every_second()).await;
    assert_eq!(discovery.a("slave.mesos.").await.len(), 2);
    // An agent becomes unreachable, for which the stream has no event.
    master.set(|script| script.snapshot = Some(snapshot(1, &[])));
    wait_until("the comparison", async || {
        discovery.a("slave.mesos.").await == ["10.0.0.10"]
    })
    .await;
    // Events of the new subscription are applied now.
    master
        .send(&json!({"type": "TASK_ADDED", "task_added": {"task": task(0, "TASK_RUNNING")}}))
        .await;
    master.set(|script| script.snapshot = Some(snapshot(1, &[task(0, "TASK_RUNNING")])));
    wait_until("the task", async || {
        discovery.a("web.marathon.mesos.").await == ["10.0.0.10"]
    })
    .await;
    assert!(master.subscriptions() >= 2);
    discovery.stop().await;
}

#[tokio::test]
async fn events_during_a_full_comparison_are_newer_than_its_snapshot() {
    let old = [task(0, "TASK_RUNNING")];
    let (master, discovery) = started(snapshot(2, &old), every_second()).await;
    let before = master.document_requests();
    master.set(|script| script.document_waits = true);
    wait_until("a snapshot", async || master.document_requests() > before).await;
    // The second subscription has its snapshot; then one task ends and another one starts.
    master.send(&updated(0, "TASK_FINISHED")).await;
    let mut other = task(1, "TASK_RUNNING");
    other["agent_id"]["value"] = json!("c1d2-S1");
    master
        .send(&json!({"type": "TASK_ADDED", "task_added": {"task": &other}}))
        .await;
    let current = async || discovery.a("web.marathon.mesos.").await == ["10.0.0.11"];
    wait_until("the events", current).await;
    let serial = discovery.discovery.zone().unwrap().serial();
    let before = master.document_requests();
    master.set(|script| (script.document_waits, script.snapshot) = (false, Some(snapshot(2, &[other]))));
    wait_until("the next comparison", async || {
        assert!(current().await, "the older snapshot was published");
        master.document_requests() > before
    })
    .await;
    assert_eq!(discovery.discovery.zone().unwrap().serial(), serial);
    assert_eq!(discovery.metric("transom_discovery_resync_differences_total"), 0);
    discovery.stop().await;
}

/// Events that arrive during a full comparison are kept, so their number is limited.
#[tokio::test]
async fn full_comparison_is_abandoned_after_too_many_events() {
    let (master, discovery) = started(snapshot(1, &[task(0, "TASK_RUNNING")]), every_second()).await;
    let before = master.document_requests();
    master.set(|script| (script.document_waits, script.snapshot) = (true, Some(snapshot(1, &[]))));
    wait_until("a snapshot", async || master.document_requests() > before).await;
    let streams = master.script.lock().unwrap().streams.clone();
    let [first, second] = &streams[..] else {
        panic!("{} subscriptions", streams.len())
    };
    for _ in 0..10_000 {
        first.send(record(&updated(0, "TASK_RUNNING"))).await.unwrap();
    }
    let added = json!({"type": "AGENT_ADDED", "agent_added": {"agent": agent(1)}});
    first.send(record(&added)).await.unwrap();
    wait_until("the end of the comparison", async || second.is_closed()).await;
    wait_until("the last event", async || {
        discovery.a("slave.mesos.").await.len() == 2
    })
    .await;
    assert_eq!(discovery.a("web.marathon.mesos.").await, ["10.0.0.10"]);
    master.set(|script| script.document_waits = false);
    discovery.stop().await;
}

#[tokio::test]
async fn invalid_event_is_skipped_and_counted() {
    let (master, discovery) = started(snapshot(1, &[]), Settings::default()).await;
    for event in [
        json!({"type": "TASK_ADDED", "task_added": {"task": {"name": 5}}}),
        json!({"type": "AGENT_ADDED"}),
        json!({"type": "AGENT_ADDED", "agent_added": {"agent": {"agent_info": {"hostname": ""}}}}),
        json!({"type": "NEWER_THAN_THIS"}),
        json!({"type": "TASK_ADDED", "task_added": {"task": task(0, "TASK_RUNNING")}}),
    ] {
        master.send(&event).await;
    }
    wait_until("the task after the invalid events", async || {
        discovery.a("web.marathon.mesos.").await == ["10.0.0.10"]
    })
    .await;
    assert_eq!(master.subscriptions(), 1, "the stream was reopened");
    wait_until("the count", async || {
        discovery
            .metrics()
            .contains("transom_discovery_zone_invalid_entries 3")
    })
    .await;
    discovery.stop().await;
}

#[tokio::test]
async fn invalid_entries_do_not_hide_others() {
    let mut invalid = snapshot(1, &[json!({"name": 5}), task(0, "TASK_RUNNING"), json!(null)]);
    let agents = invalid["get_agents"]["agents"].as_array_mut().unwrap();
    agents.insert(0, json!({"agent_info": "S1"}));
    let (_master, discovery) = started(invalid, Settings::default()).await;
    assert_eq!(discovery.a("web.marathon.mesos.").await, ["10.0.0.10"]);
    let metrics = discovery.metrics();
    assert!(
        metrics.contains("transom_discovery_zone_invalid_entries 3"),
        "{metrics}"
    );
    discovery.stop().await;

    // The same for a state document, if the master has no stream.
    let mut invalid: Value = serde_json::from_str(include_str!("../fixtures/state-fixture.json")).unwrap();
    let before = invalid["frameworks"].as_array().unwrap().len();
    invalid["frameworks"]
        .as_array_mut()
        .unwrap()
        .push(json!({"id": "no name", "name": 5}));
    invalid["frameworks"][0]["tasks"]
        .as_array_mut()
        .unwrap()
        .push(json!({"id": 5}));
    invalid["slaves"].as_array_mut().unwrap().push(json!([]));
    let master = Master::start(MasterScript {
        document: Some(invalid),
        rejection: 403,
        ..MasterScript::default()
    })
    .await;
    let discovery = master.followed(Settings::default()).await;
    discovery.ready().await;
    let zone = discovery.discovery.zone().unwrap();
    assert_eq!(transom_discovery::enumerate::frameworks(&zone).count(), before);
    assert_eq!(zone.invalid_entries(), 3);
    discovery.stop().await;
}

/// The task update that a master sends when it removes the task's agent.
fn agent_lost(n: u32, state: &str, reason: &str) -> Value {
    let mut update = updated(n, state);
    let status = &mut update["task_updated"]["status"];
    status["reason"] = json!(reason);
    status["source"] = json!("SOURCE_MASTER");
    status["agent_id"] = json!({"value": "c1d2-S0"});
    update
}

#[tokio::test]
async fn agent_records_are_removed_when_its_tasks_become_unreachable() {
    let settings = Settings {
        refresh_seconds: 3600,
        ..Settings::default()
    };
    let (master, discovery) = started(snapshot(2, &[task(0, "TASK_RUNNING")]), settings).await;
    for (state, reason) in [
        ("TASK_UNREACHABLE", "REASON_AGENT_REMOVED"),
        ("TASK_LOST", "REASON_AGENT_REMOVED"),
        ("TASK_GONE_BY_OPERATOR", "REASON_AGENT_REMOVED_BY_OPERATOR"),
    ] {
        assert_eq!(discovery.a("slave.mesos.").await, ["10.0.0.10", "10.0.0.11"]);
        assert_eq!(discovery.a("web.marathon.mesos.").await, ["10.0.0.10"]);
        // An agent that is only disconnected keeps its records, as it may soon reconnect.
        master
            .send(&json!({"type": "TASK_ADDED", "task_added": {"task": task(1, "TASK_RUNNING")}}))
            .await;
        master
            .send(&agent_lost(1, "TASK_LOST", "REASON_AGENT_DISCONNECTED"))
            .await;
        master
            .send(&json!({"type": "TASK_ADDED", "task_added": {"task": task(2, "TASK_RUNNING")}}))
            .await;
        let services = query("_web._tcp.marathon.mesos.", RecordType::SRV);
        wait_until("the third task", async || {
            discovery.udp(&services).await.answers.len() == 2
        })
        .await;
        assert_eq!(discovery.a("slave.mesos.").await.len(), 2, "{state}");
        master.send(&agent_lost(2, state, reason)).await;
        master.send(&agent_lost(0, state, reason)).await;
        wait_until("the agent's end", async || {
            discovery.a("slave.mesos.").await == ["10.0.0.11"]
                && discovery.a("web.marathon.mesos.").await.is_empty()
        })
        .await;
        // The agent returns, with the events in the recorded order.
        master
            .send(&json!({"type": "TASK_ADDED", "task_added": {"task": task(0, "TASK_RUNNING")}}))
            .await;
        master
            .send(&json!({"type": "AGENT_ADDED", "agent_added": {"agent": agent(0)}}))
            .await;
        wait_until("the agent's return", async || {
            discovery.a("slave.mesos.").await.len() == 2
                && discovery.a("web.marathon.mesos.").await == ["10.0.0.10"]
        })
        .await;
    }
    discovery.stop().await;
}

#[tokio::test]
async fn resync_differences_count_missed_events_but_not_lost_agents() {
    let settings = Settings {
        // Long enough for the steps between two comparisons.
        refresh_seconds: 3,
        ..Settings::default()
    };
    let tasks = [task(0, "TASK_RUNNING")];
    let (master, discovery) = started(snapshot(3, &tasks), settings).await;
    let drift = || discovery.metric("transom_discovery_resync_differences_total");
    // Continue right after a comparison, so that none is in progress.
    let read = master.document_requests();
    wait_until("a comparison", async || master.document_requests() > read).await;
    assert_eq!(discovery.a("slave.mesos.").await.len(), 3);
    // S0 is lost with an update of its task; S2, which has no task, without any event.
    master
        .send(&agent_lost(0, "TASK_UNREACHABLE", "REASON_AGENT_REMOVED"))
        .await;
    let mut remaining = snapshot(2, &[]);
    remaining["get_agents"]["agents"] = json!([agent(1)]);
    master.set(|script| script.snapshot = Some(remaining));
    wait_until("the comparison", async || {
        discovery.a("slave.mesos.").await == ["10.0.0.11"]
    })
    .await;
    assert_eq!(drift(), 0);
    // An agent and a task are added without an event.
    master.set(|script| script.snapshot = Some(snapshot(2, &tasks)));
    wait_until("the next comparison", async || {
        discovery.a("web.marathon.mesos.").await == ["10.0.0.10"]
    })
    .await;
    assert_eq!(drift(), 2);
    discovery.stop().await;
}

/// Replays the operator stream of a real master: an agent dies and returns, and another one
/// unregisters.
#[tokio::test]
async fn recorded_loss_of_an_agent_is_followed() {
    let recorded =
        include_str!("../../../../tests/fixtures/cluster/2-agent-death/fast-operator-stream.events.json");
    let recorded: Vec<Value> = serde_json::from_str(recorded).unwrap();
    let mut events = recorded.into_iter().map(|entry| entry["event"].clone());
    let first = events.next().unwrap();
    assert_eq!(first["type"], "SUBSCRIBED");
    let settings = Settings {
        refresh_seconds: 3600,
        ..Settings::default()
    };
    let (master, discovery) = started(first["subscribed"]["get_state"].clone(), settings).await;
    // Both agents have the same address, but different ports.
    let agents = query("_slave._tcp.mesos.", RecordType::SRV);
    let mut seen = Vec::new();
    for event in events {
        let status = &event["task_updated"]["status"];
        let count = match (event["type"].as_str().unwrap(), status["state"].as_str()) {
            ("TASK_UPDATED", Some("TASK_UNREACHABLE")) | ("AGENT_REMOVED", _) => 1,
            ("AGENT_ADDED", _) => 2,
            _ => 0,
        };
        master.send(&event).await;
        if count > 0 {
            // The second agent has unregistered: one is left.
            wait_until("the agents", async || {
                discovery.udp(&agents).await.answers.len() == count
            })
            .await;
            seen.push(count);
        }
    }
    assert_eq!(seen, [1, 2, 1]);
    assert!(
        discovery
            .metrics()
            .contains("transom_discovery_zone_invalid_entries 0.0\n")
    );
    discovery.stop().await;
}
