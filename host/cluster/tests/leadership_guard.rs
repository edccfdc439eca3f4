//! Calls for a framework end when its leadership ends.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use support::{ReceivedRequest, Server, Step, json_answer, record_chunk, stream_head, text_answer};
use tokio::time::Instant;
use transom_cluster::scheduler::Subscription;
use transom_cluster::v1::FrameworkInfo;
use transom_cluster::{Client, Config, Error, LeadershipGuard, TaskId};

/// Much longer than any guard here, so that a call which ends earlier was ended by its guard.
const CALL_TIMEOUT: Duration = Duration::from_mins(5);

/// A guard that lasts until a time that the test sets.
#[derive(Debug)]
struct ScriptedGuard(Mutex<Instant>);

impl ScriptedGuard {
    fn after(time: Duration) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Instant::now() + time)))
    }

    fn set(&self, time: Duration) {
        *self.0.lock().unwrap() = Instant::now() + time;
    }
}

impl LeadershipGuard for ScriptedGuard {
    fn remaining(&self) -> Duration {
        self.0.lock().unwrap().saturating_duration_since(Instant::now())
    }
}

/// A master that accepts subscriptions, and never answers a KILL call.
async fn master() -> Server {
    let subscribed = json!({"type": "SUBSCRIBED", "subscribed": {
        "framework_id": {"value": "f-1"}, "heartbeat_interval_seconds": 15.0, "master_info": {"id": "m"},
    }});
    Server::master(
        move |request: &ReceivedRequest| match request.json()["type"].as_str().unwrap() {
            "SUBSCRIBE" => vec![
                Step::Send([stream_head(), record_chunk(&subscribed)].concat()),
                Step::Silence,
            ],
            "KILL" => vec![Step::Silence],
            "GET_AGENTS" => json_answer(&json!({"type": "GET_AGENTS", "get_agents": {"agents": []}})),
            _ => text_answer("202 Accepted", ""),
        },
    )
    .await
}

async fn subscribe(client: &Client) -> Result<Subscription, Error> {
    let info = FrameworkInfo {
        user: "root".into(),
        name: "alpha".into(),
        ..FrameworkInfo::default()
    };
    client.subscribe(&info).await
}

fn client(server: &Server) -> Client {
    Client::new(Config {
        masters: vec![server.name()],
        call_timeout: CALL_TIMEOUT,
        ..Config::default()
    })
    .unwrap()
}

#[tokio::test]
async fn calls_are_rejected_without_leadership_but_queries_are_sent() {
    let server = master().await;
    let guard = ScriptedGuard::after(Duration::from_mins(1));
    let client = client(&server).with_guard(guard.clone());
    let caller = {
        let mut subscription = subscribe(&client).await.unwrap();
        subscription.events.next().await.unwrap();
        subscription.caller
    };
    let before = server.requests().len();
    guard.set(Duration::ZERO);
    for error in [
        subscribe(&client).await.unwrap_err(),
        caller.revive().await.unwrap_err(),
        caller.kill(TaskId::from("t"), None, None).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::NotFrameworkLeader { .. }), "{error:?}");
    }
    assert_eq!(server.requests().len(), before, "a request reached the master");
    assert!(client.get_agents().await.unwrap().agents.is_empty());
    // With leadership again, calls are sent again.
    guard.set(Duration::from_mins(1));
    caller.revive().await.unwrap();
}

#[tokio::test]
async fn call_in_flight_is_cancelled_when_leadership_expires() {
    let server = master().await;
    let guard = ScriptedGuard::after(Duration::from_mins(1));
    let client = client(&server).with_guard(guard.clone());
    let mut subscription = subscribe(&client).await.unwrap();
    subscription.events.next().await.unwrap();
    guard.set(Duration::from_millis(300));
    let call = subscription.caller.kill(TaskId::from("t"), None, None);
    let error = tokio::time::timeout(CALL_TIMEOUT / 2, call)
        .await
        .expect("the call did not end with the guard")
        .unwrap_err();
    assert!(matches!(error, Error::NotFrameworkLeader { .. }), "{error:?}");
    assert!(error.to_string().contains("KILL"), "{error}");
    assert_eq!(
        server.requests().last().unwrap().json()["type"],
        "KILL",
        "the master has not received the call"
    );
}
