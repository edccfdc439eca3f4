//! The executor API of agents. The test makes the calls of an executor whose own process makes none.

use super::{encode, executor_task, framework_with_executor, script_executor, send_message, silent_executor};
use crate::support::{Acknowledge, Cluster, EVENT_TIMEOUT, Framework, framework_info};
use serde_json::{Value, json};
use std::{net::SocketAddr, time::Duration};
use transom_replay::client::{self, Request, Response, Stream};

/// Makes the calls of one executor.
struct Caller {
    agent: SocketAddr,
    framework: String,
}

impl Caller {
    fn new(cluster: &Cluster, framework: &Framework) -> Self {
        Self {
            agent: cluster.minicluster.agents()[0],
            framework: framework.id.clone(),
        }
    }

    fn request(&self, mut call: Value) -> Request {
        if call.get("framework_id").is_none() {
            call["framework_id"] = json!({"value": self.framework});
        }
        if call.get("executor_id").is_none() {
            call["executor_id"] = json!({"value": "e"});
        }
        Request::post("/api/v1/executor", &call)
    }

    async fn call(&self, call: Value) -> Response {
        client::exchange(self.agent, &self.request(call)).await.unwrap()
    }

    /// Subscribes and returns the stream with its first event.
    async fn subscribe(&self, subscribe: Value) -> (Stream, Value) {
        let request = self.request(json!({"type": "SUBSCRIBE", "subscribe": subscribe}));
        let (head, mut stream) = client::open(self.agent, &request).await.unwrap();
        assert_eq!(head.code(), 200);
        assert_eq!(head.header("Content-Type"), Some("application/json"));
        assert_eq!(head.header("Mesos-Stream-Id"), None);
        let first = next(&mut stream).await;
        (stream, first)
    }

    async fn update(&self, status: &Value) {
        let response = self
            .call(json!({"type": "UPDATE", "update": {"status": status}}))
            .await;
        assert_eq!(response.head.code(), 202, "{}", response.text());
    }
}

async fn next(stream: &mut Stream) -> Value {
    stream
        .record(EVENT_TIMEOUT)
        .await
        .unwrap()
        .expect("the stream is open")
}

/// A status whose uuid encodes `id`.
fn status(task: &str, state: &str, id: &str) -> Value {
    json!({"task_id": {"value": task}, "state": state, "source": "SOURCE_EXECUTOR", "uuid": encode(id)})
}

/// A framework with a task `t` of an executor `e`, whose process makes no calls. The returned
/// caller makes them.
async fn launched(cluster: &Cluster) -> (Framework, Caller, Value) {
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([executor_task(&silent_executor("e"), "t", &offer)]))
        .await;
    let caller = Caller::new(cluster, &framework);
    (framework, caller, offer)
}

#[tokio::test]
async fn executor_receives_its_events_in_order() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (mut framework, executor, offer) = launched(&cluster).await;
    let (mut stream, first) = executor.subscribe(json!({})).await;
    assert_eq!(first["type"], "SUBSCRIBED");
    let subscribed = &first["subscribed"];
    assert_eq!(subscribed["executor_info"]["executor_id"]["value"], "e");
    assert_eq!(subscribed["executor_info"]["framework_id"]["value"], framework.id);
    assert_eq!(subscribed["framework_info"]["id"]["value"], framework.id);
    assert_eq!(subscribed["agent_info"]["id"], offer["agent_id"]);
    assert_eq!(subscribed["agent_info"]["hostname"], "a0");
    assert!(subscribed["container_id"]["value"].is_string());
    let launch = next(&mut stream).await;
    assert_eq!(launch["type"], "LAUNCH");
    assert_eq!(launch["launch"]["task"]["task_id"]["value"], "t");
    assert_eq!(
        launch["launch"]["task"]["executor"],
        first["subscribed"]["executor_info"]
    );

    let mut running = status("t", "TASK_RUNNING", "0123456789abcdef");
    running["data"] = json!(encode("data"));
    running["labels"] = json!({"labels": [{"key": "k", "value": "v"}]});
    running["healthy"] = json!(true);
    let network = json!([{"ip_addresses": [{"ip_address": "10.0.0.1"}]}]);
    running["container_status"] = json!({"network_infos": network});
    executor.update(&running).await;
    let acknowledged = next(&mut stream).await;
    let expected = json!({"type": "ACKNOWLEDGED",
        "acknowledged": {"task_id": {"value": "t"}, "uuid": running["uuid"]}});
    assert_eq!(acknowledged, expected);
    let forwarded = framework.wait_for_state("t", "TASK_RUNNING").await;
    for field in ["uuid", "data", "labels", "healthy"] {
        assert_eq!(forwarded[field], running[field], "{field}");
    }
    assert_eq!(forwarded["agent_id"], offer["agent_id"]);
    assert_eq!(
        forwarded["executor_id"],
        Value::Null,
        "the status is forwarded unchanged"
    );
    assert_eq!(forwarded["container_status"]["network_infos"], network);
    assert_eq!(
        forwarded["container_status"]["container_id"],
        subscribed["container_id"]
    );

    send_message(&framework, &offer["agent_id"], "hello").await;
    let message = next(&mut stream).await;
    assert_eq!(
        message,
        json!({"type": "MESSAGE", "message": {"data": encode("hello")}})
    );
    let policy = json!({"grace_period": {"nanoseconds": 5_000_000_000_u64}});
    let kill = json!({"task_id": {"value": "t"}, "kill_policy": policy});
    framework
        .expect_accepted(json!({"type": "KILL", "kill": kill}))
        .await;
    assert_eq!(next(&mut stream).await, json!({"type": "KILL", "kill": kill}));

    let data = encode("from the executor");
    let response = executor
        .call(json!({"type": "MESSAGE", "message": {"data": data}}))
        .await;
    assert_eq!(response.head.code(), 202);
    let message = framework.wait_until(|event| event["type"] == "MESSAGE").await;
    assert_eq!(message["message"]["data"], data);
    cluster.stop().await;
}

#[tokio::test]
async fn invalid_executor_calls_are_rejected() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (_framework, executor, _) = launched(&cluster).await;
    let running =
        json!({"type": "UPDATE", "update": {"status": status("t", "TASK_RUNNING", "0123456789abcdef")}});
    let mut no_uuid = running.clone();
    no_uuid["update"]["status"]
        .as_object_mut()
        .unwrap()
        .remove("uuid");
    let mut unknown_state = running.clone();
    unknown_state["update"]["status"]["state"] = json!("TASK_ODD");
    let cases = [
        (running, 403, "Executor is not subscribed"),
        (
            json!({"type": "MESSAGE", "message": {"data": ""}}),
            403,
            "Executor is not subscribed",
        ),
        (
            json!({"type": "MESSAGE", "message": {"data": ""}, "executor_id": {"value": "x"}}),
            400,
            "Executor cannot be found",
        ),
        (
            json!({"type": "SUBSCRIBE", "subscribe": {}, "framework_id": {"value": "x"}}),
            400,
            "Framework cannot be found",
        ),
        (
            json!({"type": "SUBSCRIBE"}),
            400,
            "Failed to validate Executor::Call: Expecting 'subscribe' to be present",
        ),
        (
            no_uuid,
            400,
            "Failed to validate Executor::Call: Expecting 'uuid' to be present",
        ),
        (
            unknown_state,
            400,
            "Failed to convert JSON into Call protobuf: Missing required fields: update.status.state",
        ),
        (json!({"type": "HEARTBEAT"}), 202, ""),
    ];
    for (call, code, text) in cases {
        let response = executor.call(call.clone()).await;
        assert_eq!(
            (response.head.code(), response.text().as_str()),
            (code, text),
            "{call}"
        );
    }
    let missing = Request::post("/api/v1/executor", &json!({"type": "HEARTBEAT"}));
    let response = client::exchange(executor.agent, &missing).await.unwrap();
    assert_eq!(response.head.code(), 400);
    assert_eq!(
        response.text(),
        "Failed to convert JSON into Call protobuf: Missing required fields: executor_id, framework_id"
    );
    let protobuf = executor
        .request(json!({"type": "SUBSCRIBE", "subscribe": {}}))
        .with("Accept", "text/html");
    let response = client::exchange(executor.agent, &protobuf).await.unwrap();
    assert_eq!(response.head.code(), 406);
    let get = client::exchange(executor.agent, &Request::get("/api/v1/executor"))
        .await
        .unwrap();
    assert_eq!(get.head.code(), 405);
    cluster.stop().await;
}

#[tokio::test]
async fn repeated_updates_are_acknowledged_again_and_forwarded_once() {
    let cluster = Cluster::start(1, |config| config.update_retry = Duration::from_hours(1)).await;
    let (mut framework, executor, _) = launched(&cluster).await;
    let (mut stream, _) = executor.subscribe(json!({})).await;
    next(&mut stream).await;
    framework.acknowledge = Acknowledge::None;
    let running = status("t", "TASK_RUNNING", "0123456789abcdef");
    let finished = status("t", "TASK_FINISHED", "finished--------");
    let late = status("t", "TASK_FAILED", "late------------");
    for update in [&running, &running, &finished, &finished, &late] {
        executor.update(update).await;
        assert_eq!(next(&mut stream).await["acknowledged"]["uuid"], update["uuid"]);
    }
    framework.acknowledge = Acknowledge::All;
    let is_update = |event: &Value| event["type"] == "UPDATE";
    let first = framework.wait_until(is_update).await;
    assert_eq!(first["update"]["status"]["uuid"], running["uuid"]);
    let second = framework.wait_until(is_update).await;
    assert_eq!(second["update"]["status"]["uuid"], finished["uuid"]);
    let after = framework.wait_until(|event| event["type"] != "HEARTBEAT").await;
    assert_eq!(after["type"], "OFFERS", "{after}");
    cluster.stop().await;
}

#[tokio::test]
async fn executor_that_resubscribes_replaces_its_stream_and_resends_its_updates() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let executor_info = silent_executor("e");
    let tasks = ["t", "kept", "lost"].map(|id| executor_task(&executor_info, id, &offer));
    framework.launch(&offer, json!(tasks)).await;
    let executor = Caller::new(&cluster, &framework);
    let (mut first, _) = executor.subscribe(json!({})).await;
    let mut received = Vec::new();
    for _ in 0..3 {
        received.push(next(&mut first).await["launch"]["task"].clone());
    }
    let kept = received.iter().find(|task| task["task_id"]["value"] == "kept");
    let update = status("t", "TASK_RUNNING", "0123456789abcdef");
    let subscribe = json!({
        "unacknowledged_tasks": [kept], "unacknowledged_updates": [{"status": update}],
    });
    let (mut second, event) = executor.subscribe(subscribe).await;
    assert_eq!(event["type"], "SUBSCRIBED");
    assert_eq!(next(&mut second).await["acknowledged"]["uuid"], update["uuid"]);
    assert_eq!(
        first.record(EVENT_TIMEOUT).await.unwrap(),
        None,
        "the earlier stream ends"
    );
    framework.wait_for_state("t", "TASK_RUNNING").await;
    let lost = framework.wait_for_state("lost", "TASK_DROPPED").await;
    assert_eq!(lost["reason"], "REASON_AGENT_RESTARTED");
    assert_eq!(lost["message"], "Task launched during agent restart");
    executor
        .update(&status("kept", "TASK_RUNNING", "kept------------"))
        .await;
    framework.wait_for_state("kept", "TASK_RUNNING").await;
    cluster.stop().await;
}

#[tokio::test]
async fn executor_whose_tasks_were_killed_before_it_subscribes_is_shut_down() {
    let cluster = Cluster::start(1, |config| {
        config.executor_shutdown_grace = Duration::from_millis(100);
    })
    .await;
    let (mut framework, executor, _) = launched(&cluster).await;
    framework.kill("t").await;
    let killed = framework.wait_for_state("t", "TASK_KILLED").await;
    assert_eq!(killed["reason"], "REASON_TASK_KILLED_DURING_LAUNCH");
    assert_eq!(killed["message"], "Killed before delivery to the executor");
    assert_eq!(killed["source"], "SOURCE_AGENT");
    let (_stream, first) = executor.subscribe(json!({})).await;
    assert_eq!(first, json!({"type": "SHUTDOWN"}));
    let failure = framework.wait_until(|event| event["type"] == "FAILURE").await;
    assert_eq!(
        failure["failure"]["status"], 9,
        "the executor is killed after its grace period"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn draining_agents_let_executors_kill_their_tasks() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (mut framework, running) = framework_with_executor(&cluster, &script_executor("e", "")).await;
    let drain = json!({"type": "DRAIN_AGENT", "drain_agent": {"agent_id": running["agent_id"]}});
    cluster.operator_call(drain).await;
    let killed = framework.wait_for_state("t", "TASK_KILLED").await;
    assert_eq!(killed["reason"], "REASON_AGENT_DRAINING");
    cluster
        .wait_until("/slaves", |page| {
            page["slaves"][0]["drain_info"]["state"] == "DRAINED"
        })
        .await;
    cluster.stop().await;
}
