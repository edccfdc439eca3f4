//! Events that frameworks receive when agents die and return, are drained or marked gone, and when
//! the master restarts, compared with recordings of a real cluster. Also authentication.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod maintenance;
mod operators;
#[path = "../support/mod.rs"]
mod support;

use serde_json::{Value, json};
use std::{collections::BTreeMap, path::Path, time::Duration};
use support::{
    Acknowledge, Cluster, EVENT_TIMEOUT, Framework, framework_info, immediate_restart, journal, task,
};
use transom_minicluster::Registry;
use transom_replay::client::{self, Head, Request};

fn fixture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/cluster");
    let file = folder.join(name);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The parts of an event that are compared: task id, state, message, source and reason of a status,
/// and the names of its fields. `None` for heartbeats, and for events that depend on the allocation
/// of offers.
fn compared_fields(event: &Value) -> Option<Value> {
    let kind = event["type"].as_str().unwrap();
    match kind {
        "HEARTBEAT" | "OFFERS" | "RESCIND" | "SUBSCRIBED" => return None,
        "FAILURE" => {
            let keys: Vec<&String> = event["failure"].as_object().unwrap().keys().collect();
            return Some(json!({"type": kind, "keys": keys}));
        }
        _ => {}
    }
    let status = event["update"]["status"].as_object().unwrap();
    let mut keys: Vec<&String> = status.keys().collect();
    keys.sort();
    let status_field = |key: &str| status.get(key).cloned().unwrap_or_default();
    Some(json!({
        "type": kind, "task": status_field("task_id"), "state": status_field("state"), "message": status_field("message"),
        "source": status_field("source"), "reason": status_field("reason"), "keys": keys,
    }))
}

/// The compared parts of the recorded events.
fn recorded(name: &str) -> Vec<Value> {
    let document: Value = serde_json::from_str(&fixture(name)).unwrap();
    let events = match document {
        Value::Array(events) => events,
        one => vec![one],
    };
    let event = |recorded: &Value| recorded.get("event").unwrap_or(recorded).clone();
    events
        .iter()
        .map(event)
        .filter_map(|event| compared_fields(&event))
        .collect()
}

/// The next `count` events that are compared.
async fn next_compared(framework: &mut Framework, count: usize) -> Vec<Value> {
    let mut received = Vec::new();
    while received.len() < count {
        received.extend(compared_fields(&framework.next_event().await));
    }
    received
}

/// Compares the next events with the recording.
async fn assert_recorded_events(framework: &mut Framework, name: &str) {
    let expected = recorded(name);
    assert_eq!(next_compared(framework, expected.len()).await, expected, "{name}");
}

/// One agent with the host name of the recorded agents.
async fn start_cluster(change: impl FnOnce(&mut transom_minicluster::Config)) -> Cluster {
    Cluster::start(1, |config| {
        "localhost".clone_into(&mut config.agents[0].hostname);
        config.agent_timeout = Duration::from_millis(300);
        change(config);
    })
    .await
}

/// Subscribes a framework, starts one task, and suppresses further offers so that other frameworks
/// receive them.
async fn with_task(cluster: &Cluster, info: &Value, id: &str) -> (Framework, Value) {
    let mut framework = Framework::subscribe(cluster.master(), info).await;
    let offer = framework.offer().await;
    framework.expect_accepted(json!({"type": "SUPPRESS"})).await;
    framework
        .launch(&offer, json!([task(id, &offer, "exec sleep 600")]))
        .await;
    framework.wait_for_state(id, "TASK_RUNNING").await;
    (framework, offer["agent_id"].clone())
}

fn legacy_framework_info(checkpoint: bool) -> Value {
    json!({"user": "root", "name": "legacy", "checkpoint": checkpoint, "failover_timeout": 60.0})
}

async fn reconcile(framework: &Framework, tasks: Value) {
    framework
        .expect_accepted(json!({"type": "RECONCILE", "reconcile": {"tasks": tasks}}))
        .await;
}

#[tokio::test]
async fn agent_failure_and_return_are_reported_as_recorded() {
    let cluster = start_cluster(|_| ()).await;
    let mut aware = framework_info();
    aware["checkpoint"] = json!(false);
    let kinds = [
        ("pa-ckpt", framework_info()),
        ("pa-nockpt", aware),
        ("legacy-ckpt", legacy_framework_info(true)),
        ("legacy-nockpt", legacy_framework_info(false)),
    ];
    let mut frameworks = Vec::new();
    for (kind, info) in &kinds {
        let id = format!("{kind}-dead");
        frameworks.push((*kind, with_task(&cluster, info, &id).await));
    }
    cluster
        .fault(json!({"fault": "kill-agent", "agent": "S0", "keep_tasks": true}))
        .await;
    for (kind, (framework, _)) in &mut frameworks {
        assert_recorded_events(framework, &format!("2-agent-death/fast-events-{kind}.json")).await;
    }
    for (kind, (framework, agent)) in &mut frameworks {
        let task = format!("{kind}-dead");
        reconcile(
            framework,
            json!([{"task_id": {"value": task}, "agent_id": agent}]),
        )
        .await;
        assert_recorded_events(
            framework,
            &format!("2-agent-death/fast-reconcile-unreachable-{kind}.json"),
        )
        .await;
    }
    cluster
        .fault(json!({"fault": "start-agent", "agent": "S0"}))
        .await;
    for (kind, (framework, agent)) in &mut frameworks {
        assert_recorded_events(
            framework,
            &format!("2-agent-death/fast-return-events-{kind}.json"),
        )
        .await;
        // No other event follows: the next event is the answer to a reconciliation.
        let task = format!("{kind}-asked");
        reconcile(
            framework,
            json!([{"task_id": {"value": task}, "agent_id": agent}]),
        )
        .await;
        assert_eq!(next_compared(framework, 1).await[0]["task"]["value"], task);
    }
    cluster.stop().await;
}

/// The fields of `container_status` in the first recorded update with this state of the group's
/// task `grp-check-tcp`.
fn recorded_container(state: &str) -> Vec<String> {
    let events: Vec<Value> = serde_json::from_str(&fixture("4-checks/group-stream.events.json")).unwrap();
    let status = events.iter().map(|one| &one["event"]["update"]["status"]);
    let mut found =
        status.filter(|status| status["task_id"]["value"] == "grp-check-tcp" && status["state"] == state);
    let container = found.next().unwrap()["container_status"].as_object().unwrap();
    container.keys().cloned().collect()
}

#[tokio::test]
async fn statuses_of_a_group_carry_process_and_network() {
    let cluster = start_cluster(|_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let resources = [support::scalar("cpus", 0.1), support::scalar("mem", 32.0)];
    let executor = json!({"type": "DEFAULT", "executor_id": {"value": "e"}, "resources": resources});
    let group = json!({"executor": executor, "task_group": {"tasks": [task("g", &offer, "exec sleep 600")]}});
    framework
        .accept(&offer, json!([{"type": "LAUNCH_GROUP", "launch_group": group}]))
        .await;
    for state in ["TASK_STARTING", "TASK_RUNNING"] {
        let status = framework.wait_for_state("g", state).await;
        let container = status["container_status"].as_object().unwrap();
        let keys: Vec<String> = container.keys().cloned().collect();
        assert_eq!(keys, recorded_container(state), "{state}");
        assert!(container["container_id"]["parent"]["value"].is_string());
    }
    cluster.stop().await;
}

#[tokio::test]
async fn an_agent_is_marked_gone() {
    let cluster = start_cluster(|_| ()).await;
    let (mut aware, agent) = with_task(&cluster, &framework_info(), "d2").await;
    let (mut old, _) = with_task(&cluster, &legacy_framework_info(true), "lg2").await;
    let mark_gone = json!({"type": "MARK_AGENT_GONE", "mark_agent_gone": {"agent_id": agent}});
    assert_eq!(cluster.operator_call(mark_gone).await.head.code(), 200);
    assert_recorded_events(&mut aware, "6-operator/gone-events-pa.json").await;
    assert_recorded_events(&mut old, "6-operator/gone-events-legacy.json").await;
    reconcile(&aware, json!([{"task_id": {"value": "d2"}, "agent_id": agent}])).await;
    assert_recorded_events(&mut aware, "6-operator/reconcile-gone.json").await;
    cluster.stop().await;
}

#[tokio::test]
async fn drained_agent_is_marked_gone_only_on_request() {
    for mark_gone in [false, true] {
        let cluster = start_cluster(|_| ()).await;
        let (mut framework, agent) = with_task(&cluster, &framework_info(), "d1").await;
        framework.expect_accepted(json!({"type": "REVIVE"})).await;
        framework.offers().await;
        let drain = json!({"agent_id": agent, "max_grace_period": {"seconds": 5}, "mark_gone": mark_gone});
        let drain = json!({"type": "DRAIN_AGENT", "drain_agent": drain});
        assert_eq!(cluster.operator_call(drain).await.head.code(), 200);
        framework.wait_until(|event| event["type"] == "RESCIND").await;
        assert_recorded_events(&mut framework, "6-operator/drain-events.json").await;
        if mark_gone {
            framework.wait_until(|event| event["type"] == "FAILURE").await;
            assert_eq!(cluster.get("/slaves").await["slaves"], json!([]));
        } else {
            let recorded_document: Value =
                serde_json::from_str(&fixture("6-operator/drained_slaves.json")).unwrap();
            let page = cluster
                .wait_until("/slaves", |page| {
                    page["slaves"][0]["drain_info"]["state"] == "DRAINED"
                })
                .await;
            let mut agents = recorded_document["slaves"].as_array().unwrap().iter();
            let recorded_document = agents.find(|agent| agent.get("drain_info").is_some()).unwrap();
            for part in ["deactivated", "active", "drain_info"] {
                assert_eq!(page["slaves"][0][part], recorded_document[part], "{part}");
            }
        }
        cluster.stop().await;
    }
}

#[tokio::test]
async fn a_deactivated_agent_offers_nothing_until_it_is_reactivated() {
    let cluster = start_cluster(|_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let agent_call = |kind: &str, part: &str| json!({"type": kind, part: {"agent_id": offer["agent_id"]}});
    let response = cluster
        .operator_call(agent_call("DEACTIVATE_AGENT", "deactivate_agent"))
        .await;
    assert_eq!(response.head.code(), 200);
    let rescind = framework.wait_until(|event| event["type"] == "RESCIND").await;
    assert_eq!(rescind["rescind"]["offer_id"], offer["id"]);
    framework.expect_accepted(json!({"type": "REVIVE"})).await;
    let no_event = framework.stream.record(Duration::from_millis(400)).await;
    assert!(no_event.is_err(), "{no_event:?}");
    let response = cluster
        .operator_call(agent_call("REACTIVATE_AGENT", "reactivate_agent"))
        .await;
    assert_eq!(response.head.code(), 200);
    framework.offers().await;
    cluster.stop().await;
}

#[tokio::test]
async fn reconciliation_after_a_master_restart_is_answered_once_agents_return() {
    let cluster = start_cluster(|config| {
        config.registry = Registry::ReplicatedLog;
        config.reregister = Duration::from_millis(600);
        config.update_retry = Duration::from_hours(1);
    })
    .await;
    let (mut framework, agent) = with_task(&cluster, &framework_info(), "keep").await;
    framework.expect_accepted(json!({"type": "REVIVE"})).await;
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([task("dies", &offer, "exec sleep 600")]))
        .await;
    framework.wait_for_state("dies", "TASK_STARTING").await;
    framework.acknowledge = Acknowledge::None;
    framework.wait_for_state("dies", "TASK_RUNNING").await;
    cluster.fault(immediate_restart()).await;
    let mut info = framework_info();
    info["id"] = json!({"value": framework.id});
    let mut framework = Framework::subscribe(cluster.master(), &info).await;
    framework.acknowledge = Acknowledge::None;
    let reconcile_all = async |framework: &Framework| {
        reconcile(framework, json!([])).await;
        let known = json!([
            {"task_id": {"value": "keep"}, "agent_id": agent},
            {"task_id": {"value": "never"}},
            {"task_id": {"value": "never2"}, "agent_id": agent},
        ]);
        reconcile(framework, known).await;
    };
    reconcile_all(&framework).await;
    assert!(recorded("7-master-restart/reconcile-before-agent.json").is_empty());
    // The reconciliation was not answered: the first event is the unacknowledged update, which
    // arrives with the agent.
    let first = next_compared(&mut framework, 1).await;
    let all = recorded("7-master-restart/events.json");
    assert_eq!(first[0], all[0]);
    reconcile_all(&framework).await;
    let expected = recorded("7-master-restart/reconcile-after-agent.json");
    assert_eq!(next_compared(&mut framework, expected.len()).await, expected);
    cluster.stop().await;
}

#[tokio::test]
async fn roles_are_offered_suppressed_and_revived_one_by_one() {
    let cluster = start_cluster(|_| ()).await;
    let info = json!({"user": "root", "name": "two", "roles": ["r1", "r2"], "failover_timeout": 60.0,
        "capabilities": [{"type": "MULTI_ROLE"}]});
    let mut framework = Framework::subscribe(cluster.master(), &info).await;
    let offer = framework.offer().await;
    let recorded_document: Vec<Value> =
        serde_json::from_str(&fixture("6-operator/multirole-events.json")).unwrap();
    let recorded_document = &recorded_document[1]["event"]["offers"]["offers"][0];
    let keys = |resource: &Value| resource.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let sorted = |resources: &Value| {
        let mut all: Vec<_> = resources.as_array().unwrap().iter().map(keys).collect();
        all.sort();
        all
    };
    assert_eq!(
        sorted(&offer["resources"]),
        sorted(&recorded_document["resources"])
    );
    let role = |offer: &Value| offer["allocation_info"]["role"].as_str().unwrap().to_owned();
    let first = role(&offer);
    assert!(offer["resources"].as_array().unwrap().iter().all(|resource| {
        resource["role"] == "*" && resource["allocation_info"]["role"] == first.as_str()
    }));
    let other = if first == "r1" { "r2" } else { "r1" };
    let decline = |offer: &Value| json!({"type": "DECLINE", "decline": {"offer_ids": [offer["id"]], "filters": {"refuse_seconds": 600}}});
    // When a role declines the resources, they are offered to the other role. When that role is
    // suppressed too, they are offered to none.
    framework.expect_accepted(decline(&offer)).await;
    let second = framework.offer().await;
    assert_eq!(role(&second), other);
    framework
        .expect_accepted(json!({"type": "SUPPRESS", "suppress": {"roles": [other]}}))
        .await;
    framework
        .expect_accepted(json!({"type": "DECLINE", "decline": {"offer_ids": [second["id"]], "filters": {"refuse_seconds": 0}}}))
        .await;
    let no_event = framework.stream.record(Duration::from_millis(400)).await;
    assert!(no_event.is_err(), "{no_event:?}");
    for revived in [first.as_str(), other] {
        framework
            .expect_accepted(json!({"type": "REVIVE", "revive": {"roles": [revived]}}))
            .await;
        let offer = framework.offer().await;
        assert_eq!(role(&offer), revived);
        framework.expect_accepted(decline(&offer)).await;
    }
    cluster.stop().await;
}

#[tokio::test]
async fn requests_need_credentials_of_the_right_principal() {
    let cluster = start_cluster(|config| {
        let pair = |name: &str| (name.to_owned(), "secret".to_owned());
        config.credentials = vec![pair("marathon"), pair("ops")];
    })
    .await;
    // marathon:secret, ops:secret, marathon:wrong
    let (right, ops, wrong) = (
        "Basic bWFyYXRob246c2VjcmV0",
        "Basic b3BzOnNlY3JldA==",
        "Basic bWFyYXRob246d3Jvbmc=",
    );
    let subscribe = |principal: &str| {
        let info = json!({"user": "root", "name": "x", "principal": principal});
        let call = json!({"type": "SUBSCRIBE", "subscribe": {"framework_info": info}});
        Request::post("/api/v1/scheduler", &call)
    };
    let as_recorded = async |request: Request, name: &str| {
        let response = client::exchange(cluster.master(), &request).await.unwrap();
        let raw = fixture(name);
        let (head, body) = raw.split_once("\r\n\r\n").unwrap();
        let head = Head::parse(head);
        assert_eq!(response.head.status, head.status, "{name}");
        let challenge = "WWW-Authenticate";
        assert_eq!(response.head.header(challenge), head.header(challenge), "{name}");
        assert_eq!(response.text(), body, "{name}");
    };
    for (authorization, name) in [
        ("", "sub-noauth"),
        (wrong, "sub-badpw"),
        ("Basic !!!", "sub-malformed"),
        ("Bearer x", "sub-bearer"),
    ] {
        let request = subscribe("marathon").with("Authorization", authorization);
        as_recorded(request, &format!("3-auth/{name}.raw")).await;
    }
    let request = subscribe("other").with("Authorization", right);
    as_recorded(request, "3-auth/sub-wrong-principal.raw").await;

    let request = subscribe("marathon").with("Authorization", right);
    let (head, mut stream) = client::open(cluster.master(), &request).await.unwrap();
    let first = stream.record(EVENT_TIMEOUT).await.unwrap().unwrap();
    let revive = json!({"type": "REVIVE", "framework_id": first["subscribed"]["framework_id"]});
    let revive = Request::post("/api/v1/scheduler", &revive)
        .with("Mesos-Stream-Id", head.header("Mesos-Stream-Id").unwrap());
    as_recorded(revive.clone(), "3-auth/call-noauth.raw").await;
    as_recorded(
        revive.clone().with("Authorization", ops),
        "3-auth/call-other-principal.raw",
    )
    .await;
    let response = client::exchange(cluster.master(), &revive.with("Authorization", right)).await;
    assert_eq!(response.unwrap().head.code(), 202);

    // The faults page requires credentials too.
    let fault = Request::post("/minicluster/faults", &json!({"fault": "delay", "ms": 0}));
    for (authorization, status) in [("", 401), (wrong, 401), (ops, 200)] {
        let request = fault.clone().with("Authorization", authorization);
        let response = client::exchange(cluster.master(), &request).await.unwrap();
        assert_eq!(response.head.code(), status, "{authorization:?}");
    }
    cluster.stop().await;
}

/// A message to an agent whose connection is broken is lost; a message to a paused agent is
/// delivered later.
#[tokio::test]
async fn messages_to_a_paused_agent_arrive_and_to_a_lost_agent_are_lost() {
    let cluster = start_cluster(|config| config.agent_timeout = Duration::from_hours(1)).await;
    let (framework, agent) = with_task(&cluster, &framework_info(), "t").await;
    let send = async |data: &str| {
        let message = json!({"agent_id": agent, "executor_id": {"value": "t"}, "data": data});
        framework
            .expect_accepted(json!({"type": "MESSAGE", "message": message}))
            .await;
    };
    cluster
        .fault(json!({"fault": "kill-agent", "agent": "S0", "keep_tasks": true}))
        .await;
    send("bG9zdA==").await;
    cluster
        .fault(json!({"fault": "start-agent", "agent": "S0"}))
        .await;
    send("b25l").await;
    cluster
        .fault(json!({"fault": "pause-agent", "agent": "S0"}))
        .await;
    send("dHdv").await;
    cluster
        .fault(json!({"fault": "resume-agent", "agent": "S0"}))
        .await;
    let delivered: Vec<Value> = journal(&cluster.dir)
        .into_iter()
        .filter(|line| line["event"] == "message")
        .map(|line| line["data"].clone())
        .collect();
    assert_eq!(delivered, ["b25l", "dHdv"]);
    cluster.stop().await;
}

/// When the first task of a group fails, the others are killed; SHUTDOWN kills all of them.
#[tokio::test]
async fn failed_task_or_shutdown_ends_the_whole_group() {
    let cluster = start_cluster(|_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    for (name, second, shutdown) in [
        ("fails", "sleep 0.2; exit 3", false),
        ("shut", "exec sleep 600", true),
    ] {
        let offer = framework.offer().await;
        let resources = [support::scalar("cpus", 0.1), support::scalar("mem", 32.0)];
        let executor = json!({"type": "DEFAULT", "executor_id": {"value": name}, "resources": resources});
        let (one, two) = (format!("{name}-1"), format!("{name}-2"));
        let tasks = json!([task(&one, &offer, "exec sleep 600"), task(&two, &offer, second)]);
        let group = json!({"executor": executor, "task_group": {"tasks": tasks}});
        framework
            .accept(&offer, json!([{"type": "LAUNCH_GROUP", "launch_group": group}]))
            .await;
        framework.wait_for_state(&one, "TASK_RUNNING").await;
        if shutdown {
            let part = json!({"agent_id": offer["agent_id"], "executor_id": {"value": name}});
            framework
                .expect_accepted(json!({"type": "SHUTDOWN", "shutdown": part}))
                .await;
        }
        let ends = ends(&mut framework).await;
        let second = if shutdown { "TASK_KILLED" } else { "TASK_FAILED" };
        assert_eq!(ends[&one], "TASK_KILLED");
        assert_eq!(ends[&two], second);
    }
    cluster.stop().await;
}

/// The last state of each of two tasks, which precede the end of their executor.
async fn ends(framework: &mut Framework) -> BTreeMap<String, String> {
    let mut ends = BTreeMap::new();
    loop {
        let event = framework.next_event().await;
        let status = &event["update"]["status"];
        if let Some(state @ ("TASK_KILLED" | "TASK_FAILED")) = status["state"].as_str() {
            let task = status["task_id"]["value"].as_str().unwrap().to_owned();
            ends.insert(task, state.to_owned());
        }
        if event["type"] == "FAILURE" {
            assert_eq!(ends.len(), 2, "the executor ends after its tasks");
            return ends;
        }
    }
}
