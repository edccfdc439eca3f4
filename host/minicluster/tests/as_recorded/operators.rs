//! Events that operators receive.

use serde_json::{Value, json};
use transom_replay::client::{self, Request, Stream};

use crate::support::{Cluster, EVENT_TIMEOUT, Framework, framework_info};
use crate::{assert_recorded_events, fixture, legacy_framework_info, start_cluster, with_task};

/// An operator's stream, after its SUBSCRIBED event.
async fn subscribe_operator(cluster: &Cluster) -> Stream {
    let subscribe = Request::post("/api/v1", &json!({"type": "SUBSCRIBE"}));
    let (_, mut stream) = client::open(cluster.master(), &subscribe).await.unwrap();
    let first = stream.record(EVENT_TIMEOUT).await.unwrap().unwrap();
    assert_eq!(first["type"], "SUBSCRIBED");
    stream
}

/// The parts of an operator event that are compared: its type and, for an update of a task, the
/// state and the reason. `None` for heartbeats.
fn compared_text(event: &Value) -> Option<String> {
    let kind = event["type"].as_str().unwrap();
    let status = &event["task_updated"]["status"];
    match kind {
        "HEARTBEAT" => None,
        "TASK_UPDATED" => Some(format!("{kind} {} {}", status["state"], status["reason"])),
        _ => Some(kind.to_owned()),
    }
}

/// Compares the stream's events with the recording, in any order.
async fn assert_operator_events(stream: &mut Stream, name: &str) {
    let document: Vec<Value> = serde_json::from_str(&fixture(name)).unwrap();
    let mut expected: Vec<String> = document
        .iter()
        .filter_map(|one| compared_text(&one["event"]))
        .collect();
    let mut received = Vec::new();
    while received.len() < expected.len() {
        received.extend(compared_text(
            &stream.record(EVENT_TIMEOUT).await.unwrap().unwrap(),
        ));
    }
    // The order of the frameworks' tasks is random, but the agent is removed after its tasks.
    let removed = "AGENT_REMOVED".to_owned();
    assert_eq!(
        received.last() == Some(&removed),
        expected.last() == Some(&removed),
        "{name}"
    );
    received.sort();
    expected.sort();
    assert_eq!(received, expected, "{name}");
}

/// Starts one task of each kind of framework on the only agent.
async fn tasks_of_all_kinds(cluster: &Cluster, of: &str) -> Vec<(&'static str, Framework)> {
    let mut aware = framework_info();
    aware["checkpoint"] = json!(false);
    let kinds = [
        ("legacy-nockpt", legacy_framework_info(false)),
        ("pa-nockpt", aware),
        ("legacy-ckpt", legacy_framework_info(true)),
        ("pa-ckpt", framework_info()),
    ];
    let mut frameworks = Vec::new();
    for (kind, info) in kinds {
        let (framework, _) = with_task(cluster, &info, &format!("{kind}-{of}")).await;
        frameworks.push((kind, framework));
    }
    frameworks
}

#[tokio::test]
async fn operators_get_only_task_events_for_an_unreachable_agent() {
    let cluster = start_cluster(|_| ()).await;
    let _frameworks = tasks_of_all_kinds(&cluster, "dead").await;
    let mut stream = subscribe_operator(&cluster).await;
    cluster
        .fault(json!({"fault": "kill-agent", "agent": "S0", "keep_tasks": true}))
        .await;
    assert_operator_events(&mut stream, "2-agent-death/fast-operator-events.json").await;
    cluster
        .fault(json!({"fault": "start-agent", "agent": "S0"}))
        .await;
    // The next event is the agent's return, so there was none about the agent before. The two tasks
    // that survived return with it.
    let mut next = Vec::new();
    while next.len() < 3 {
        next.extend(compared_text(
            &stream.record(EVENT_TIMEOUT).await.unwrap().unwrap(),
        ));
    }
    next.sort();
    assert_eq!(next, ["AGENT_ADDED", "TASK_ADDED", "TASK_ADDED"]);
    cluster.stop().await;
}

#[tokio::test]
async fn agent_that_unregisters_is_reported_to_operators() {
    let cluster = start_cluster(|_| ()).await;
    let mut frameworks = tasks_of_all_kinds(&cluster, "live").await;
    let mut stream = subscribe_operator(&cluster).await;
    cluster
        .fault(json!({"fault": "unregister-agent", "agent": "S0"}))
        .await;
    for (kind, framework) in &mut frameworks {
        assert_recorded_events(
            framework,
            &format!("2-agent-death/fast-sigusr1-events-{kind}.json"),
        )
        .await;
    }
    assert_operator_events(&mut stream, "2-agent-death/fast-sigusr1-operator-events.json").await;
    assert_eq!(cluster.get("/slaves").await["slaves"], json!([]));
    cluster.stop().await;
}
