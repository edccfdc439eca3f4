//! The operator stream: its first event as a whole and entry by entry.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod support;

use serde_json::json;
use std::time::Duration;
use support::{Server, Step, chunk, document, record_chunk, recorded, stream_head};
use transom_cluster::{AgentId, Client, Config, Error, TaskId, operator};

fn client(masters: &[&str]) -> Client {
    Client::new(Config {
        masters: masters.iter().map(|&master| master.to_owned()).collect(),
        ..Config::default()
    })
    .unwrap()
}

#[tokio::test]
async fn operator_stream_needs_no_stream_id_and_times_out_by_its_interval() {
    let server = Server::master(|request| {
        assert_eq!(
            (request.line.as_str(), request.json()),
            ("POST /api/v1", json!({"type": "SUBSCRIBE"}))
        );
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n";
        let event = json!({"type": "SUBSCRIBED", "subscribed": {
            "get_state": {"get_agents": {}}, "heartbeat_interval_seconds": 0.1,
        }});
        vec![
            Step::Send([head.to_vec(), record_chunk(&event)].concat()),
            Step::Silence,
        ]
    })
    .await;
    let mut events = client(&[&server.name()]).watch().await.unwrap();
    let Some(operator::Event::Subscribed(state)) = events.next().await.unwrap() else {
        panic!("not subscribed")
    };
    assert!(state.get_agents.is_some() && state.get_tasks.is_none());
    let error = events.next().await.unwrap_err();
    assert!(
        matches!(error, Error::Silent { for_, .. } if for_ == Duration::from_millis(250)),
        "{error:?}"
    );
}

#[tokio::test]
async fn the_recorded_operator_stream_is_read() {
    let server = Server::master(|_| {
        vec![
            Step::Trickle(recorded("1-main/15-operator-subscribe.http.bin"), 11),
            Step::Close,
        ]
    })
    .await;
    let mut events = client(&[&server.name()]).watch().await.unwrap();
    let mut count = 0;
    while let Ok(Some(_)) = events.next().await {
        count += 1;
    }
    let path = support::recordings().join("1-main/15-operator-subscribe.events.json");
    assert_eq!(count, document(&path).as_array().unwrap().len());
}

/// The entries of a snapshot.
#[derive(Default)]
struct Snapshot {
    agents: Vec<Option<AgentId>>,
    frameworks: Vec<String>,
    tasks: Vec<(TaskId, String)>,
    recovered: Vec<Option<AgentId>>,
    unreadable: u32,
}

impl operator::Snapshot for Snapshot {
    fn agent(&mut self, agent: &operator::Agent) {
        self.agents.push(agent.agent_info.id.clone());
    }

    fn framework(&mut self, framework: &operator::Framework) {
        self.frameworks.push(framework.framework_info.name.clone());
    }

    fn task(&mut self, task: &transom_cluster::v1::Task) {
        self.tasks.push((task.task_id.clone(), task.name.clone()));
    }

    fn recovered_agent(&mut self, agent: &transom_cluster::v1::AgentInfo) {
        self.recovered.push(agent.id.clone());
    }

    fn unreadable(&mut self) {
        self.unreadable += 1;
    }
}

/// A master whose stream begins with this record and then sends nothing, not even heartbeats.
async fn beginning_with(record: Vec<u8>) -> Server {
    Server::master(move |_| {
        let record = transom_cluster::recordio::encode(&record);
        vec![
            Step::Send([stream_head(), chunk(&record)].concat()),
            Step::Silence,
        ]
    })
    .await
}

#[tokio::test]
async fn snapshot_is_read_by_entry_and_unreadable_entries_are_counted() {
    let task = |id: &str, name: &str| {
        json!({
            "name": name, "task_id": {"value": id}, "framework_id": {"value": "f"}, "agent_id": {"value": "a"},
            "state": "TASK_RUNNING",
        })
    };
    let snapshot = json!({"type": "SUBSCRIBED", "subscribed": {
        "get_state": {
            "get_tasks": {"tasks": [task("t-1", "one"), {"name": 7}, task("t-2", "NAME")], "completed_tasks": [task("t-0", "old")]},
            "get_frameworks": {"frameworks": [{"framework_info": {"user": "u", "name": "fw"}}, null]},
            "get_agents": {
                "agents": [{"agent_info": {"hostname": "h", "id": {"value": "a"}}}],
                "recovered_agents": [{"hostname": "late", "id": {"value": "b"}}],
            },
        },
        "heartbeat_interval_seconds": 0.1,
    }});
    // One name is invalid UTF-8.
    let record = snapshot.to_string().replace("NAME", "\u{1}").into_bytes();
    let record: Vec<u8> = record
        .iter()
        .map(|byte| if *byte == 1 { 0xff } else { *byte })
        .collect();
    let server = beginning_with(record).await;
    let mut events = client(&[&server.name()]).watch().await.unwrap();
    let snapshot = events.snapshot(Snapshot::default()).await.unwrap().unwrap();
    assert_eq!(snapshot.agents, [Some(AgentId::from("a"))]);
    assert_eq!(snapshot.frameworks, ["fw"]);
    assert_eq!(
        snapshot.tasks,
        [
            (TaskId::from("t-1"), "one".to_owned()),
            (TaskId::from("t-2"), "\u{fffd}".to_owned())
        ]
    );
    assert_eq!(snapshot.recovered, [Some(AgentId::from("b"))]);
    assert_eq!(snapshot.unreadable, 2);
    // The heartbeat interval in the snapshot applies.
    let error = events.next().await.unwrap_err();
    assert!(
        matches!(error, Error::Silent { for_, .. } if for_ == Duration::from_millis(250)),
        "{error:?}"
    );
}

#[tokio::test]
async fn malformed_snapshot_is_an_error() {
    let server = beginning_with(b"{\"type\": \"SUBSCRIBED\", \"subscribed\": [".to_vec()).await;
    let mut events = client(&[&server.name()]).watch().await.unwrap();
    let error = events
        .snapshot(Snapshot::default())
        .await
        .map(|_| ())
        .unwrap_err();
    assert!(matches!(error, Error::Decode { .. }), "{error:?}");
}

#[tokio::test]
async fn snapshot_equals_the_first_event_of_a_recorded_stream() {
    let server = Server::master(|_| {
        let recording = recorded("8-http/failover-operator.http.bin");
        vec![Step::Trickle(recording, 1000), Step::Close]
    })
    .await;
    let client = client(&[&server.name()]);
    let Some(operator::Event::Subscribed(state)) = client.watch().await.unwrap().next().await.unwrap() else {
        panic!("not subscribed")
    };
    let snapshot = client
        .watch()
        .await
        .unwrap()
        .snapshot(Snapshot::default())
        .await
        .unwrap()
        .unwrap();
    let agents: Vec<_> = state
        .get_agents
        .iter()
        .flat_map(|it| &it.agents)
        .map(|it| it.agent_info.id.clone())
        .collect();
    let frameworks = state.get_frameworks.iter().flat_map(|it| &it.frameworks);
    let frameworks: Vec<_> = frameworks.map(|it| it.framework_info.name.clone()).collect();
    let tasks = state.get_tasks.iter().flat_map(|it| &it.tasks);
    let tasks: Vec<_> = tasks.map(|it| (it.task_id.clone(), it.name.clone())).collect();
    assert_eq!((agents.len(), frameworks.len(), tasks.len()), (1, 1, 1));
    assert_eq!(
        (
            snapshot.agents,
            snapshot.frameworks,
            snapshot.tasks,
            snapshot.unreadable
        ),
        (agents, frameworks, tasks, 0)
    );
}
