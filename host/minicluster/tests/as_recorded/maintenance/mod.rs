//! Maintenance: schedules, inverse offers, and machines that go down and come up.

mod inverse_offers;
mod requests;

use serde_json::{Value, json};
use std::time::Duration;
use transom_minicluster::Registry;
use transom_replay::client::{self, Request};

use crate::support::{
    Cluster, EVENT_TIMEOUT, Framework, framework_info, immediate_restart, is_group_alive, journal, scalar,
    task,
};
use crate::{fixture, legacy_framework_info, reconcile, with_task};

/// Time to wait for events that must not occur.
const QUIET_PERIOD: Duration = Duration::from_millis(300);

/// The machine of an agent.
fn machine(agent: &str) -> Value {
    json!({"hostname": agent, "ip": "127.0.0.1"})
}

/// The recorded unavailability, with another start.
fn unavailability(start: u64) -> Value {
    json!({"start": {"nanoseconds": start}, "duration": {"nanoseconds": 600_000_000_000_u64}})
}

fn schedule_of(machines: &[Value], start: u64) -> Value {
    json!({"windows": [{"machine_ids": machines, "unavailability": unavailability(start)}]})
}

async fn post(cluster: &Cluster, path: &str, body: &Value) -> (u16, String) {
    let response = client::exchange(cluster.master(), &Request::post(path, body))
        .await
        .unwrap();
    (response.head.code(), response.text())
}

/// Schedules the maintenance of exactly these machines.
async fn set_schedule(cluster: &Cluster, machines: &[Value], start: u64) {
    let (code, text) = post(cluster, "/maintenance/schedule", &schedule_of(machines, start)).await;
    assert_eq!((code, text.as_str()), (200, ""));
}

/// Empties the schedule.
async fn clear_schedule(cluster: &Cluster) {
    let (code, _) = post(cluster, "/maintenance/schedule", &json!({})).await;
    assert_eq!(code, 200);
}

/// `START_MAINTENANCE` or `STOP_MAINTENANCE`.
fn maintenance_call(kind: &str, machines: &[Value]) -> Value {
    let mut call = json!({ "type": kind });
    call[kind.to_ascii_lowercase()] = json!({ "machines": machines });
    call
}

async fn start_maintenance(cluster: &Cluster, machines: &[Value]) {
    let response = cluster
        .operator_call(maintenance_call("START_MAINTENANCE", machines))
        .await;
    assert_eq!((response.head.code(), response.text().as_str()), (200, ""));
}

async fn stop_maintenance(cluster: &Cluster, machines: &[Value]) {
    let response = cluster
        .operator_call(maintenance_call("STOP_MAINTENANCE", machines))
        .await;
    assert_eq!((response.head.code(), response.text().as_str()), (200, ""));
}

/// The next inverse offers, in the order of their agents.
async fn inverse_offers(framework: &mut Framework) -> Vec<Value> {
    let event = framework
        .wait_until(|event| event["type"] == "INVERSE_OFFERS")
        .await;
    event["inverse_offers"]["inverse_offers"]
        .as_array()
        .unwrap()
        .clone()
}

async fn answer_inverse_offer(framework: &Framework, kind: &str, offer: &Value, reject: Option<f64>) {
    let mut part = json!({"inverse_offer_ids": [offer["id"]]});
    if let Some(seconds) = reject {
        part["filters"] = json!({"refuse_seconds": seconds});
    }
    let mut call = json!({ "type": kind });
    call[kind.to_ascii_lowercase()] = part;
    framework.expect_accepted(call).await;
}

/// The answers of frameworks for the only draining machine.
async fn inverse_offer_answers(cluster: &Cluster) -> Vec<(String, String)> {
    let status = cluster.get("/maintenance/status").await;
    let draining = status["draining_machines"].as_array().unwrap();
    assert_eq!(draining.len(), 1, "{status}");
    let statuses = draining[0]["statuses"].as_array().cloned().unwrap_or_default();
    let framework_and_answer = |status: &Value| {
        assert!(status["timestamp"]["nanoseconds"].as_u64().unwrap() > 0);
        let part = |value: &Value| value.as_str().unwrap().to_owned();
        (part(&status["framework_id"]["value"]), part(&status["status"]))
    };
    statuses.iter().map(framework_and_answer).collect()
}

/// Asserts that no event of this type arrives for a while.
async fn assert_no_event(framework: &mut Framework, kind: &str) {
    while let Ok(event) = framework.stream.record(QUIET_PERIOD).await {
        let event = event.expect("the stream is open");
        assert_ne!(event["type"], kind, "{event}");
    }
}

#[tokio::test]
async fn offers_are_rescinded_and_contain_the_unavailability_when_the_schedule_changes() {
    let cluster = Cluster::start(2, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let before = framework.offers().await;
    assert!(before.iter().all(|offer| offer.get("unavailability").is_none()));
    set_schedule(&cluster, &[machine("A0")], 5).await;
    let mut rescinded = Vec::new();
    while rescinded.len() < 2 {
        let event = framework.wait_until(|event| event["type"] == "RESCIND").await;
        rescinded.push(event["rescind"]["offer_id"].clone());
    }
    // A real master also rescinds the offers of machines that are not in the schedule.
    assert!(before.iter().all(|offer| rescinded.contains(&offer["id"])));
    let offers = framework.offers().await;
    let planned: Vec<&Value> = offers
        .iter()
        .filter(|offer| offer["unavailability"] == unavailability(5))
        .collect();
    assert_eq!(planned.len(), 1, "{offers:?}");
    assert_eq!(planned[0]["hostname"], "a0");
    let recorded_document: Value =
        serde_json::from_str(&fixture("5-misc/offer-unavailability.json")).unwrap();
    assert!(
        planned[0]["unavailability"]
            .as_object()
            .unwrap()
            .keys()
            .eq(recorded_document["unavailability"].as_object().unwrap().keys())
    );
    clear_schedule(&cluster).await;
    let offers = framework.offers().await;
    assert_eq!(offers.len(), 2);
    assert!(offers.iter().all(|offer| offer.get("unavailability").is_none()));
    cluster.stop().await;
}

#[tokio::test]
async fn agents_of_a_machine_that_goes_down_are_removed_with_their_tasks() {
    let cluster = crate::start_cluster(|_| ()).await;
    let (mut aware, agent) = with_task(&cluster, &framework_info(), "aware").await;
    let (mut old, _) = with_task(&cluster, &legacy_framework_info(true), "old").await;
    let subscribe = Request::post("/api/v1", &json!({"type": "SUBSCRIBE"}));
    let (_, mut operator) = client::open(cluster.master(), &subscribe).await.unwrap();
    let pids: Vec<u64> = journal(&cluster.dir)
        .iter()
        .map(|line| line["pid"].as_u64().unwrap())
        .collect();
    set_schedule(&cluster, &[machine("localhost")], 5).await;
    let inverse_offer = inverse_offers(&mut aware).await.remove(0);
    start_maintenance(&cluster, &[machine("localhost")]).await;
    for (framework, task) in [(&mut aware, "aware"), (&mut old, "old")] {
        let lost = framework.wait_for_state(task, "TASK_LOST").await;
        assert_eq!(lost["reason"], "REASON_AGENT_REMOVED");
        assert_eq!(
            lost["message"],
            "Agent localhost removed: Operator initiated 'Machine DOWN'"
        );
        assert_eq!(lost["source"], "SOURCE_MASTER");
        assert!(lost.get("uuid").is_none());
    }
    let event = aware
        .wait_until(|event| event["type"] == "RESCIND_INVERSE_OFFER")
        .await;
    assert_eq!(
        event["rescind_inverse_offer"]["inverse_offer_id"],
        inverse_offer["id"]
    );
    for framework in [&mut aware, &mut old] {
        let event = framework.wait_until(|event| event["type"] == "FAILURE").await;
        assert_eq!(event["failure"], json!({"agent_id": agent}));
    }
    loop {
        let event = operator.record(EVENT_TIMEOUT).await.unwrap().unwrap();
        if event["type"] == "AGENT_REMOVED" {
            assert_eq!(event["agent_removed"]["agent_id"], agent);
            break;
        }
    }
    transom_testkit::wait_for("the tasks' processes to end", async || {
        !pids.iter().any(|pid| is_group_alive(*pid))
    })
    .await;
    assert_eq!(cluster.get("/slaves").await["slaves"], json!([]));
    let port = cluster.minicluster.agents()[0];
    assert!(client::exchange(port, &Request::get("/state")).await.is_err());
    assert_eq!(
        cluster.get("/maintenance/status").await,
        json!({"down_machines": [machine("localhost")]})
    );
    aware.expect_accepted(json!({"type": "REVIVE"})).await;
    assert_no_event(&mut aware, "OFFERS").await;
    cluster.stop().await;
}

#[tokio::test]
async fn an_agent_starts_again_with_a_new_id_when_its_machine_comes_up() {
    let cluster = crate::start_cluster(|_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let mut reserved = scalar("disk", 64.0);
    reserved["reservations"] = json!([{"type": "DYNAMIC", "role": "test"}]);
    let reserve = json!({"type": "RESERVE", "reserve": {"resources": [reserved]}});
    let launch = json!({"type": "LAUNCH", "launch": {"task_infos": [task("t", &offer, "exec sleep 600")]}});
    framework.accept(&offer, json!([reserve, launch])).await;
    framework.wait_for_state("t", "TASK_RUNNING").await;
    set_schedule(&cluster, &[machine("localhost")], 5).await;
    start_maintenance(&cluster, &[machine("localhost")]).await;
    framework.wait_for_state("t", "TASK_LOST").await;
    framework.wait_until(|event| event["type"] == "FAILURE").await;
    stop_maintenance(&cluster, &[machine("localhost")]).await;
    assert_eq!(cluster.get("/maintenance/schedule").await, json!({}));
    assert_eq!(cluster.get("/maintenance/status").await, json!({}));
    let next = framework.offer().await;
    assert_ne!(next["agent_id"], offer["agent_id"]);
    assert_eq!(next["url"], offer["url"]);
    assert!(next.get("unavailability").is_none());
    assert_eq!(
        cluster.minicluster.agent_ids(),
        [next["agent_id"]["value"].as_str().unwrap()]
    );
    let reserved_resources = next["resources"].as_array().unwrap().iter();
    let reserved_resources: Vec<&Value> = reserved_resources
        .filter(|resource| resource.get("reservations").is_some())
        .collect();
    assert_eq!(reserved_resources.len(), 1, "{next}");
    let port = cluster.minicluster.agents()[0];
    let state = client::exchange(port, &Request::get("/state"))
        .await
        .unwrap()
        .json();
    assert_eq!(state["id"], next["agent_id"]["value"]);
    framework
        .launch(&next, json!([task("u", &next, "exec sleep 600")]))
        .await;
    framework.wait_for_state("u", "TASK_RUNNING").await;
    let dir = cluster.stop_keeping_dir().await;
    let lines = journal(&dir);
    let launched: Vec<&Value> = lines
        .iter()
        .filter(|line| line["event"] == "launch")
        .map(|line| &line["task"])
        .collect();
    assert_eq!(launched, ["t", "u"]);
}

#[tokio::test]
async fn an_agent_in_the_schedule_cannot_be_drained() {
    let cluster = Cluster::start(1, |_| ()).await;
    set_schedule(&cluster, &[machine("a0")], 5).await;
    let id = cluster.minicluster.agent_ids().remove(0);
    let drain = json!({"type": "DRAIN_AGENT", "drain_agent": {"agent_id": {"value": id}}});
    let response = cluster.operator_call(drain.clone()).await;
    assert_eq!(response.head.code(), 400);
    assert_eq!(
        response.text(),
        format!("Agent {id} is part of a maintenance schedule under Machine a0 (127.0.0.1)")
    );
    clear_schedule(&cluster).await;
    assert_eq!(cluster.operator_call(drain).await.head.code(), 200);
    cluster.stop().await;
}

#[tokio::test]
async fn an_unreachable_agent_cannot_return_to_a_machine_that_is_down() {
    let cluster = crate::start_cluster(|_| ()).await;
    let (mut framework, agent) = with_task(&cluster, &framework_info(), "t").await;
    let pid = journal(&cluster.dir)[0]["pid"].as_u64().unwrap();
    cluster
        .fault(json!({"fault": "partition-agent", "agent": "S0"}))
        .await;
    framework.wait_for_state("t", "TASK_UNREACHABLE").await;
    set_schedule(&cluster, &[machine("localhost")], 5).await;
    start_maintenance(&cluster, &[machine("localhost")]).await;
    assert!(
        is_group_alive(pid),
        "the agent is unreachable, so its task runs on"
    );
    cluster.fault(json!({"fault": "heal-agent", "agent": "S0"})).await;
    transom_testkit::wait_for("the task's process to end", async || !is_group_alive(pid)).await;
    reconcile(
        &framework,
        json!([{"task_id": {"value": "t"}, "agent_id": agent}]),
    )
    .await;
    framework.wait_for_state("t", "TASK_UNREACHABLE").await;
    stop_maintenance(&cluster, &[machine("localhost")]).await;
    framework.expect_accepted(json!({"type": "REVIVE"})).await;
    assert_ne!(framework.offer().await["agent_id"], agent);
    cluster.stop().await;
}

#[tokio::test]
async fn master_with_a_registry_keeps_the_schedule_across_a_restart() {
    let cluster = Cluster::start(2, |config| config.registry = Registry::ReplicatedLog).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let mut offers = framework.offers().await;
    offers.sort_by_key(|offer| offer["hostname"].to_string());
    for (offer, id) in offers.iter().zip(["t0", "t1"]) {
        framework
            .launch(offer, json!([task(id, offer, "exec sleep 600")]))
            .await;
        framework.wait_for_state(id, "TASK_RUNNING").await;
    }
    set_schedule(&cluster, &[machine("a0"), machine("a1")], 5).await;
    for offer in inverse_offers(&mut framework).await {
        answer_inverse_offer(&framework, "ACCEPT_INVERSE_OFFERS", &offer, None).await;
    }
    start_maintenance(&cluster, &[machine("a1")]).await;
    let status = cluster.get("/maintenance/status").await;
    assert_eq!(status["draining_machines"][0]["statuses"][0]["status"], "ACCEPT");
    cluster.fault(immediate_restart()).await;
    assert_eq!(
        cluster.get("/maintenance/schedule").await,
        schedule_of(&[machine("a0"), machine("a1")], 5)
    );
    assert_eq!(
        cluster.get("/maintenance/status").await,
        json!({"draining_machines": [{"id": machine("a0")}], "down_machines": [machine("a1")]}),
        "the answers are dropped"
    );
    let mut info = framework_info();
    info["id"] = json!({"value": framework.id});
    let mut framework = Framework::subscribe(cluster.master(), &info).await;
    let sent_offers = inverse_offers(&mut framework).await;
    assert_eq!(sent_offers.len(), 1);
    assert_eq!(sent_offers[0]["agent_id"], offers[0]["agent_id"]);
    assert_eq!(
        cluster.get("/slaves").await["slaves"].as_array().unwrap().len(),
        1
    );
    stop_maintenance(&cluster, &[machine("a1")]).await;
    let offer = framework
        .wait_until(|event| event["type"] == "OFFERS" && event["offers"]["offers"][0]["hostname"] == "a1");
    offer.await;
    cluster.stop().await;
}

#[tokio::test]
async fn agent_that_reregisters_after_its_machine_went_down_is_rejected() {
    let cluster = Cluster::start(1, |config| {
        config.registry = Registry::ReplicatedLog;
        config.reregister = Duration::from_millis(500);
    })
    .await;
    let (framework, agent) = with_task(&cluster, &framework_info(), "t").await;
    let pid = journal(&cluster.dir)[0]["pid"].as_u64().unwrap();
    set_schedule(&cluster, &[machine("a0")], 5).await;
    cluster.fault(immediate_restart()).await;
    start_maintenance(&cluster, &[machine("a0")]).await;
    transom_testkit::wait_for("the task's process to end", async || !is_group_alive(pid)).await;
    assert_eq!(cluster.get("/slaves").await["slaves"], json!([]));
    let mut info = framework_info();
    info["id"] = json!({"value": framework.id});
    let mut framework = Framework::subscribe(cluster.master(), &info).await;
    stop_maintenance(&cluster, &[machine("a0")]).await;
    assert_ne!(framework.offer().await["agent_id"], agent);
    cluster.stop().await;
}

#[tokio::test]
async fn master_without_a_registry_forgets_the_schedule_when_it_restarts() {
    let cluster = Cluster::start(1, |_| ()).await;
    set_schedule(&cluster, &[machine("a0")], 5).await;
    start_maintenance(&cluster, &[machine("a0")]).await;
    cluster.fault(immediate_restart()).await;
    assert_eq!(cluster.get("/maintenance/schedule").await, json!({}));
    // This master does not know that the machine was down, so the agent may register.
    cluster
        .wait_until("/slaves", |page| page["slaves"][0]["hostname"] == "a0")
        .await;
    cluster.stop().await;
}
