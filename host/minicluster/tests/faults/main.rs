//! Faults, and their effects on events.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod master;
#[path = "../support/mod.rs"]
mod support;

use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};
use support::{Cluster, EVENT_TIMEOUT, Framework, framework_info, is_group_alive, journal, task};
use transom_replay::client::{self, Request};

/// Time to wait for events that must not occur.
const QUIET_PERIOD: Duration = Duration::from_millis(300);

async fn post(addr: SocketAddr, fault: &Value) -> (u16, String) {
    let response = client::exchange(addr, &Request::post("/minicluster/faults", fault))
        .await
        .unwrap();
    (response.head.code(), response.text())
}

/// A framework with one running task, and the task's process group.
async fn framework_with_task(cluster: &Cluster) -> (Framework, u64) {
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([task("t", &offer, "exec sleep 600")]))
        .await;
    framework.wait_for_state("t", "TASK_RUNNING").await;
    let pid = journal(&cluster.dir).last().unwrap()["pid"].as_u64().unwrap();
    (framework, pid)
}

async fn wait_for_exit(pid: u64) {
    let end = Instant::now() + EVENT_TIMEOUT;
    while is_group_alive(pid) {
        assert!(Instant::now() < end, "process group {pid} is still running");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Subscribes the framework again under the same id.
async fn resubscribe(addr: SocketAddr, framework: &Framework) -> Framework {
    let mut info = framework_info();
    info["id"] = json!({"value": framework.id});
    Framework::subscribe(addr, &info).await
}

/// Reads until the stream ends, and asserts that it was cut.
async fn wait_for_cut(framework: &mut Framework) {
    while framework.stream.record(EVENT_TIMEOUT).await.unwrap().is_some() {}
    assert!(
        framework.stream.was_cut(),
        "the stream ended with the terminating chunk"
    );
}

async fn reconcile(framework: &Framework, task: &str) {
    let named_tasks = json!([{"task_id": {"value": task}}]);
    framework
        .expect_accepted(json!({"type": "RECONCILE", "reconcile": {"tasks": named_tasks}}))
        .await;
}

#[tokio::test]
async fn faults_page_lists_faults_and_rejects_invalid_requests() {
    let cluster = Cluster::start(1, |_| ()).await;
    let page = cluster.get("/minicluster/faults").await;
    assert_eq!(page["in_force"], json!([]));
    for fault in page["faults"].as_array().unwrap() {
        assert!(fault["description"].as_str().unwrap().len() > 20, "{fault}");
    }
    let rejected = [
        (json!({"fault": "burn"}), "Unknown fault 'burn'"),
        (json!({}), "Expecting 'fault'"),
        (json!({"fault": "delay"}), "Expecting 'ms' to be a number"),
        (
            json!({"fault": "delay", "ms": 5, "seconds": 5}),
            "takes no 'seconds'",
        ),
        (json!({"fault": "kill-agent", "agent": "S7"}), "no agent 'S7'"),
        (json!({"fault": "start-agent", "agent": "S0"}), "is not killed"),
        (
            json!({"fault": "cut-stream", "framework": "x"}),
            "no framework 'x'",
        ),
        (
            json!({"fault": "restart-master", "registry": "paper"}),
            "'registry' is 'paper'",
        ),
        (json!({"fault": "fail-over"}), "no standby"),
        (
            json!({"fault": "restart-master", "starting_ms": "short"}),
            "Expecting 'starting_ms' to be a number",
        ),
        (
            json!({"fault": "fail-over", "starting_ms": 5}),
            "takes no 'starting_ms'",
        ),
        (
            json!({"fault": "unregister-agent", "agent": "S7"}),
            "no agent 'S7'",
        ),
    ];
    for (fault, why) in rejected {
        let (code, text) = post(cluster.master(), &fault).await;
        assert_eq!(code, 400, "{fault}");
        assert!(text.contains(why), "{fault}: {text}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn killed_agent_ends_its_tasks_and_reports_them_when_it_returns() {
    let cluster = Cluster::start(1, |config| config.agent_timeout = Duration::from_millis(300)).await;
    let (mut framework, pid) = framework_with_task(&cluster).await;
    let second_offer = framework.offer().await;
    let in_force = cluster.fault(json!({"fault": "kill-agent", "agent": "S0"})).await;
    assert_eq!(in_force[0]["is"], "killed");
    let rescind = framework.wait_until(|event| event["type"] == "RESCIND").await;
    assert_eq!(rescind["rescind"]["offer_id"], second_offer["id"]);
    wait_for_exit(pid).await;
    let agent = cluster.minicluster.agents()[0];
    assert!(client::exchange(agent, &Request::get("/state")).await.is_err());
    let unreachable = framework.wait_for_state("t", "TASK_UNREACHABLE").await;
    assert_eq!(unreachable["message"], "health check timed out");
    framework.wait_until(|event| event["type"] == "FAILURE").await;
    assert_eq!(
        cluster
            .fault(json!({"fault": "start-agent", "agent": "S0"}))
            .await,
        json!([])
    );
    let failed = framework.wait_for_state("t", "TASK_FAILED").await;
    assert_eq!(failed["reason"], "REASON_EXECUTOR_TERMINATED");
    assert_eq!(failed["source"], "SOURCE_AGENT");
    framework.offers().await;
    assert!(client::exchange(agent, &Request::get("/state")).await.is_ok());
    let dir = cluster.stop_keeping_dir().await;
    let lines = journal(&dir);
    let events: Vec<&Value> = lines.iter().map(|line| &line["event"]).collect();
    assert_eq!(events, ["launch", "kill", "exit"]);
    assert_eq!(lines[1]["how"], "SIGKILL");
    assert!(lines[0]["start"].as_u64().unwrap() > 0);
    assert!(lines.iter().all(|line| line["start"] == lines[0]["start"]));
}

#[tokio::test]
async fn killed_agent_that_returns_before_its_timeout_keeps_its_tasks() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (mut framework, pid) = framework_with_task(&cluster).await;
    framework.offers().await;
    cluster
        .fault(json!({"fault": "kill-agent", "agent": "a0", "keep_tasks": true}))
        .await;
    framework.wait_until(|event| event["type"] == "RESCIND").await;
    assert_eq!(cluster.get("/slaves").await["slaves"][0]["active"], false);
    cluster
        .fault(json!({"fault": "start-agent", "agent": "a0"}))
        .await;
    // No update comes in between, because the master never considered the task lost.
    let next = framework.next_event().await;
    assert_eq!(next["type"], "OFFERS", "{next}");
    assert!(is_group_alive(pid));
    framework.kill("t").await;
    framework.wait_for_state("t", "TASK_KILLED").await;
    cluster.stop().await;
}

#[tokio::test]
async fn paused_agent_handles_no_requests_until_it_is_resumed() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (mut framework, pid) = framework_with_task(&cluster).await;
    let second_offer = framework.offer().await;
    cluster
        .fault(json!({"fault": "pause-agent", "agent": "S0"}))
        .await;
    framework.kill("t").await;
    // The master has not noticed the fault: its offer is still valid and can be accepted.
    framework
        .launch(&second_offer, json!([task("u", &second_offer, "exec sleep 600")]))
        .await;
    let asking = Request::get("/health");
    let response = client::exchange(cluster.minicluster.agents()[0], &asking);
    assert!(
        tokio::time::timeout(QUIET_PERIOD, response).await.is_err(),
        "a paused agent does not respond"
    );
    while let Ok(event) = framework.stream.record(QUIET_PERIOD).await {
        let event = event.expect("the stream is open");
        assert_eq!(event["type"], "OFFERS", "{event}");
    }
    assert!(is_group_alive(pid));
    cluster
        .fault(json!({"fault": "resume-agent", "agent": "S0"}))
        .await;
    framework
        .wait_until(|event| event["update"]["status"]["state"] == "TASK_KILLED")
        .await;
    reconcile(&framework, "u").await;
    framework.wait_for_state("u", "TASK_RUNNING").await;
    cluster.stop().await;
}

#[tokio::test]
async fn partitioned_agent_is_unreachable_after_its_timeout_and_returns() {
    let cluster = Cluster::start(1, |config| config.agent_timeout = Duration::from_millis(500)).await;
    let (mut framework, pid) = framework_with_task(&cluster).await;
    let second_offer = framework.offer().await;
    let started_at = Instant::now();
    cluster
        .fault(json!({"fault": "partition-agent", "agent": "S0"}))
        .await;
    let rescind = framework.wait_until(|event| event["type"] == "RESCIND").await;
    assert_eq!(rescind["rescind"]["offer_id"], second_offer["id"]);
    assert!(
        started_at.elapsed() >= Duration::from_millis(500),
        "{:?}",
        started_at.elapsed()
    );
    framework.wait_for_state("t", "TASK_UNREACHABLE").await;
    let agent = cluster.minicluster.agents()[0];
    assert!(client::exchange(agent, &Request::get("/state")).await.is_ok());
    cluster.fault(json!({"fault": "heal-agent", "agent": "S0"})).await;
    let resent_status = framework.wait_for_state("t", "TASK_RUNNING").await;
    assert_eq!(resent_status["reason"], "REASON_AGENT_REREGISTERED");
    assert_eq!(resent_status["message"], "Unreachable agent re-reregistered");
    assert_eq!(resent_status["container_status"]["executor_pid"], pid);
    reconcile(&framework, "t").await;
    let resent = framework
        .wait_until(|event| event["update"]["status"]["reason"] == "REASON_RECONCILIATION")
        .await;
    assert_eq!(resent["update"]["status"]["state"], "TASK_RUNNING");
    cluster.stop().await;
}

#[tokio::test]
async fn task_launched_on_a_partitioned_agent_is_dropped() {
    let cluster = Cluster::start(1, |config| config.agent_timeout = Duration::from_millis(300)).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    cluster
        .fault(json!({"fault": "partition-agent", "agent": "S0"}))
        .await;
    framework
        .launch(&offer, json!([task("t", &offer, "exec sleep 600")]))
        .await;
    framework.wait_for_state("t", "TASK_UNREACHABLE").await;
    cluster.fault(json!({"fault": "heal-agent", "agent": "S0"})).await;
    let dropped = framework.wait_for_state("t", "TASK_DROPPED").await;
    assert_eq!(dropped["reason"], "REASON_RECONCILIATION");
    let whole = framework.offer().await;
    assert_eq!(
        whole["resources"], offer["resources"],
        "no resources stay allocated to it"
    );
    let dir = cluster.stop_keeping_dir().await;
    assert!(journal(&dir).is_empty());
}

#[tokio::test]
async fn lost_updates_are_delivered_by_retries() {
    let cluster = Cluster::start(1, |config| config.update_retry = Duration::from_millis(200)).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    cluster.fault(json!({"fault": "lose-updates", "count": 2})).await;
    let started_at = Instant::now();
    framework
        .launch(&offer, json!([task("t", &offer, "exec sleep 600")]))
        .await;
    framework.wait_for_state("t", "TASK_STARTING").await;
    // The update is lost immediately and after 200 ms. The next retry, 400 ms later, is delivered.
    assert!(
        started_at.elapsed() >= Duration::from_millis(600),
        "{:?}",
        started_at.elapsed()
    );
    framework.wait_for_state("t", "TASK_RUNNING").await;
    assert_eq!(cluster.get("/minicluster/faults").await["in_force"], json!([]));
    cluster.stop().await;
}

#[tokio::test]
async fn cut_stream_ends_within_a_record_and_the_framework_can_resubscribe() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (mut framework, _) = framework_with_task(&cluster).await;
    cluster
        .fault(json!({"fault": "cut-stream", "framework": "test"}))
        .await;
    wait_for_cut(&mut framework).await;
    assert_eq!(framework.stream.fragment(), b"20\n{\"type\":");
    cluster
        .wait_until("/frameworks", |page| page["frameworks"][0]["connected"] == false)
        .await;
    let mut framework = resubscribe(cluster.master(), &framework).await;
    framework.offers().await;
    framework.kill("t").await;
    framework.wait_for_state("t", "TASK_KILLED").await;
    cluster.stop().await;
}

#[tokio::test]
async fn framework_is_removed_with_its_tasks() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (mut framework, pid) = framework_with_task(&cluster).await;
    cluster
        .fault(json!({"fault": "remove-framework", "framework": framework.id}))
        .await;
    while framework.stream.record(EVENT_TIMEOUT).await.unwrap().is_some() {}
    assert!(
        !framework.stream.was_cut(),
        "the stream ends with the terminating chunk"
    );
    wait_for_exit(pid).await;
    cluster.stop().await;
}

#[tokio::test]
async fn responses_and_events_are_delayed() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    assert_eq!(
        cluster.fault(json!({"fault": "delay", "ms": 250})).await,
        json!([{"delay_ms": 250}])
    );
    for port in [cluster.master(), cluster.minicluster.agents()[0]] {
        let started_at = Instant::now();
        let response = client::exchange(port, &Request::get("/version")).await.unwrap();
        assert_eq!(response.head.code(), 200);
        assert!(
            started_at.elapsed() >= Duration::from_millis(250),
            "{:?}",
            started_at.elapsed()
        );
    }
    let started_at = Instant::now();
    framework
        .launch(&offer, json!([task("t", &offer, "exec sleep 600")]))
        .await;
    framework.wait_for_state("t", "TASK_STARTING").await;
    // The call and the event are delayed once each. Consecutive events share one delay.
    assert!(
        started_at.elapsed() >= Duration::from_millis(500),
        "{:?}",
        started_at.elapsed()
    );
    cluster.fault(json!({"fault": "delay", "ms": 0})).await;
    let started_at = Instant::now();
    cluster.get("/version").await;
    assert!(
        started_at.elapsed() < Duration::from_millis(250),
        "{:?}",
        started_at.elapsed()
    );
    cluster.stop().await;
}

#[tokio::test]
async fn rescinded_offers_become_invalid_and_their_resources_are_offered_again() {
    let cluster = Cluster::start(2, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offers = framework.offers().await;
    cluster
        .fault(json!({"fault": "rescind-offers", "agent": "S1"}))
        .await;
    let rescind = framework.wait_until(|event| event["type"] == "RESCIND").await;
    assert_eq!(rescind["rescind"]["offer_id"], offers[1]["id"]);
    let renewed = framework.offer().await;
    assert_eq!(renewed["agent_id"], offers[1]["agent_id"]);
    let stale = task("t", &offers[1], "true");
    framework.launch(&offers[1], json!([stale])).await;
    let dropped = framework.wait_for_state("t", "TASK_DROPPED").await;
    assert_eq!(dropped["reason"], "REASON_INVALID_OFFERS");
    cluster.stop().await;
}
