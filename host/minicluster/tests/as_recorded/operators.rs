//! Events that operators receive.

use serde_json::{Value, json};
use transom_replay::client::{self, Request, Stream};

use crate::support::{Cluster, Framework, PATIENCE, modern};
use crate::{cluster, fixture, hears, legacy, with_task};

/// An operator's stream, after its SUBSCRIBED event.
async fn operator(cluster: &Cluster) -> Stream {
    let subscribe = Request::post("/api/v1", &json!({"type": "SUBSCRIBE"}));
    let (_, mut stream) = client::open(cluster.master(), &subscribe).await.unwrap();
    let first = stream.record(PATIENCE).await.unwrap().unwrap();
    assert_eq!(first["type"], "SUBSCRIBED");
    stream
}

/// The parts of an operator event that are compared: its type and, for an update of a task, the
/// state and the reason. `None` for heartbeats.
fn told(event: &Value) -> Option<String> {
    let kind = event["type"].as_str().unwrap();
    let status = &event["task_updated"]["status"];
    match kind {
        "HEARTBEAT" => None,
        "TASK_UPDATED" => Some(format!("{kind} {} {}", status["state"], status["reason"])),
        _ => Some(kind.to_owned()),
    }
}

/// Compares the stream's events with the recording, in any order.
async fn operators_are_told(stream: &mut Stream, name: &str) {
    let document: Vec<Value> = serde_json::from_str(&fixture(name)).unwrap();
    let mut expected: Vec<String> = document.iter().filter_map(|one| told(&one["event"])).collect();
    let mut heard = Vec::new();
    while heard.len() < expected.len() {
        heard.extend(told(&stream.record(PATIENCE).await.unwrap().unwrap()));
    }
    // The order of the frameworks' tasks is random, but the agent is removed after its tasks.
    let removed = "AGENT_REMOVED".to_owned();
    assert_eq!(
        heard.last() == Some(&removed),
        expected.last() == Some(&removed),
        "{name}"
    );
    heard.sort();
    expected.sort();
    assert_eq!(heard, expected, "{name}");
}

/// Starts one task of each kind of framework on the only agent.
async fn tasks_of_all_kinds(cluster: &Cluster, of: &str) -> Vec<(&'static str, Framework)> {
    let mut aware = modern();
    aware["checkpoint"] = json!(false);
    let kinds = [
        ("legacy-nockpt", legacy(false)),
        ("pa-nockpt", aware),
        ("legacy-ckpt", legacy(true)),
        ("pa-ckpt", modern()),
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
    let cluster = cluster(|_| ()).await;
    let _frameworks = tasks_of_all_kinds(&cluster, "dead").await;
    let mut stream = operator(&cluster).await;
    cluster
        .fault(json!({"fault": "kill-agent", "agent": "S0", "keep_tasks": true}))
        .await;
    operators_are_told(&mut stream, "2-agent-death/fast-operator-events.json").await;
    cluster
        .fault(json!({"fault": "start-agent", "agent": "S0"}))
        .await;
    // The next event is the agent's return, so there was none about the agent before. The two tasks
    // that survived return with it.
    let mut next = Vec::new();
    while next.len() < 3 {
        next.extend(told(&stream.record(PATIENCE).await.unwrap().unwrap()));
    }
    next.sort();
    assert_eq!(next, ["AGENT_ADDED", "TASK_ADDED", "TASK_ADDED"]);
    cluster.stop().await;
}

#[tokio::test]
async fn agent_that_unregisters_is_reported_to_operators() {
    let cluster = cluster(|_| ()).await;
    let mut frameworks = tasks_of_all_kinds(&cluster, "live").await;
    let mut stream = operator(&cluster).await;
    cluster
        .fault(json!({"fault": "unregister-agent", "agent": "S0"}))
        .await;
    for (kind, framework) in &mut frameworks {
        hears(
            framework,
            &format!("2-agent-death/fast-sigusr1-events-{kind}.json"),
        )
        .await;
    }
    operators_are_told(&mut stream, "2-agent-death/fast-sigusr1-operator-events.json").await;
    assert_eq!(cluster.get("/slaves").await["slaves"], json!([]));
    cluster.stop().await;
}
