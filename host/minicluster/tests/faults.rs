//! Faults, and their effects on events.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod support;

use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};
use support::{Cluster, Framework, PATIENCE, group_lives, journal, modern, restart_at_once, task};
use transom_minicluster::Registry;
use transom_replay::client::{self, Request};
use transom_testkit::wait_for;

/// Time to wait for events that must not occur.
const QUIET: Duration = Duration::from_millis(300);

async fn post(addr: SocketAddr, fault: &Value) -> (u16, String) {
    let answer = client::exchange(addr, &Request::post("/minicluster/faults", fault))
        .await
        .unwrap();
    (answer.head.code(), answer.text())
}

/// A framework with one running task, and the task's process group.
async fn with_task(cluster: &Cluster) -> (Framework, u64) {
    let mut framework = Framework::subscribe(cluster.master(), &modern()).await;
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([task("t", &offer, "exec sleep 600")]))
        .await;
    framework.state("t", "TASK_RUNNING").await;
    let pid = journal(&cluster.dir).last().unwrap()["pid"].as_u64().unwrap();
    (framework, pid)
}

async fn until_gone(pid: u64) {
    let end = Instant::now() + PATIENCE;
    while group_lives(pid) {
        assert!(Instant::now() < end, "process group {pid} goes on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Subscribes the framework again, with its id.
async fn again(addr: SocketAddr, framework: &Framework) -> Framework {
    let mut info = modern();
    info["id"] = json!({"value": framework.id});
    Framework::subscribe(addr, &info).await
}

/// Reads until the stream ends, and asserts that it was cut.
async fn until_cut(framework: &mut Framework) {
    while framework.stream.record(PATIENCE).await.unwrap().is_some() {}
    assert!(framework.stream.was_cut(), "the stream ended with a farewell");
}

async fn reconcile(framework: &Framework, task: &str) {
    let asked = json!([{"task_id": {"value": task}}]);
    framework
        .accepted(json!({"type": "RECONCILE", "reconcile": {"tasks": asked}}))
        .await;
}

#[tokio::test]
async fn faults_page_lists_faults_and_refuses_invalid_requests() {
    let cluster = Cluster::start(1, |_| ()).await;
    let page = cluster.get("/minicluster/faults").await;
    assert_eq!(page["in_force"], json!([]));
    for fault in page["faults"].as_array().unwrap() {
        assert!(fault["description"].as_str().unwrap().len() > 20, "{fault}");
    }
    let refused = [
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
    for (fault, why) in refused {
        let (code, text) = post(cluster.master(), &fault).await;
        assert_eq!(code, 400, "{fault}");
        assert!(text.contains(why), "{fault}: {text}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn killed_agent_ends_its_tasks_and_reports_them_when_it_returns() {
    let cluster = Cluster::start(1, |config| config.agent_timeout = Duration::from_millis(300)).await;
    let (mut framework, pid) = with_task(&cluster).await;
    let rest = framework.offer().await;
    let in_force = cluster.fault(json!({"fault": "kill-agent", "agent": "S0"})).await;
    assert_eq!(in_force[0]["is"], "killed");
    let rescind = framework.until(|event| event["type"] == "RESCIND").await;
    assert_eq!(rescind["rescind"]["offer_id"], rest["id"]);
    until_gone(pid).await;
    let agent = cluster.running.agents()[0];
    assert!(client::exchange(agent, &Request::get("/state")).await.is_err());
    let unreachable = framework.state("t", "TASK_UNREACHABLE").await;
    assert_eq!(unreachable["message"], "health check timed out");
    framework.until(|event| event["type"] == "FAILURE").await;
    assert_eq!(
        cluster
            .fault(json!({"fault": "start-agent", "agent": "S0"}))
            .await,
        json!([])
    );
    let failed = framework.state("t", "TASK_FAILED").await;
    assert_eq!(failed["reason"], "REASON_EXECUTOR_TERMINATED");
    assert_eq!(failed["source"], "SOURCE_AGENT");
    framework.offers().await;
    assert!(client::exchange(agent, &Request::get("/state")).await.is_ok());
    let dir = cluster.stop_and_keep().await;
    let lines = journal(&dir);
    let events: Vec<&Value> = lines.iter().map(|line| &line["event"]).collect();
    assert_eq!(events, ["launch", "kill", "exit"]);
    assert_eq!(lines[1]["how"], "SIGKILL");
    assert!(lines[0]["start"].as_u64().unwrap() > 0);
    assert!(lines.iter().all(|line| line["start"] == lines[0]["start"]));
}

#[tokio::test]
async fn a_killed_agent_that_is_back_in_time_has_kept_its_tasks() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (mut framework, pid) = with_task(&cluster).await;
    framework.offers().await;
    cluster
        .fault(json!({"fault": "kill-agent", "agent": "a0", "keep_tasks": true}))
        .await;
    framework.until(|event| event["type"] == "RESCIND").await;
    assert_eq!(cluster.get("/slaves").await["slaves"][0]["active"], false);
    cluster
        .fault(json!({"fault": "start-agent", "agent": "a0"}))
        .await;
    // There is no update between: the master never gave the task up.
    let next = framework.event().await;
    assert_eq!(next["type"], "OFFERS", "{next}");
    assert!(group_lives(pid));
    framework.kill("t").await;
    framework.state("t", "TASK_KILLED").await;
    cluster.stop().await;
}

#[tokio::test]
async fn paused_agent_handles_no_requests_until_it_is_resumed() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (mut framework, pid) = with_task(&cluster).await;
    let rest = framework.offer().await;
    cluster
        .fault(json!({"fault": "pause-agent", "agent": "S0"}))
        .await;
    framework.kill("t").await;
    // The master has not noticed: its offer is still valid, and is accepted.
    framework
        .launch(&rest, json!([task("u", &rest, "exec sleep 600")]))
        .await;
    let asking = Request::get("/health");
    let answer = client::exchange(cluster.running.agents()[0], &asking);
    assert!(
        tokio::time::timeout(QUIET, answer).await.is_err(),
        "it does not answer"
    );
    while let Ok(event) = framework.stream.record(QUIET).await {
        let event = event.expect("the stream goes on");
        assert_eq!(event["type"], "OFFERS", "{event}");
    }
    assert!(group_lives(pid));
    cluster
        .fault(json!({"fault": "resume-agent", "agent": "S0"}))
        .await;
    framework
        .until(|event| event["update"]["status"]["state"] == "TASK_KILLED")
        .await;
    reconcile(&framework, "u").await;
    framework.state("u", "TASK_RUNNING").await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_partitioned_agent_is_unreachable_after_the_timeout_and_comes_back() {
    let cluster = Cluster::start(1, |config| config.agent_timeout = Duration::from_millis(500)).await;
    let (mut framework, pid) = with_task(&cluster).await;
    let rest = framework.offer().await;
    let began = Instant::now();
    cluster
        .fault(json!({"fault": "partition-agent", "agent": "S0"}))
        .await;
    let rescind = framework.until(|event| event["type"] == "RESCIND").await;
    assert_eq!(rescind["rescind"]["offer_id"], rest["id"]);
    assert!(
        began.elapsed() >= Duration::from_millis(500),
        "{:?}",
        began.elapsed()
    );
    framework.state("t", "TASK_UNREACHABLE").await;
    let agent = cluster.running.agents()[0];
    assert!(client::exchange(agent, &Request::get("/state")).await.is_ok());
    cluster.fault(json!({"fault": "heal-agent", "agent": "S0"})).await;
    let back = framework.state("t", "TASK_RUNNING").await;
    assert_eq!(back["reason"], "REASON_AGENT_REREGISTERED");
    assert_eq!(back["message"], "Unreachable agent re-reregistered");
    assert_eq!(back["container_status"]["executor_pid"], pid);
    reconcile(&framework, "t").await;
    let told = framework
        .until(|event| event["update"]["status"]["reason"] == "REASON_RECONCILIATION")
        .await;
    assert_eq!(told["update"]["status"]["state"], "TASK_RUNNING");
    cluster.stop().await;
}

#[tokio::test]
async fn task_launched_on_a_partitioned_agent_is_dropped() {
    let cluster = Cluster::start(1, |config| config.agent_timeout = Duration::from_millis(300)).await;
    let mut framework = Framework::subscribe(cluster.master(), &modern()).await;
    let offer = framework.offer().await;
    cluster
        .fault(json!({"fault": "partition-agent", "agent": "S0"}))
        .await;
    framework
        .launch(&offer, json!([task("t", &offer, "exec sleep 600")]))
        .await;
    framework.state("t", "TASK_UNREACHABLE").await;
    cluster.fault(json!({"fault": "heal-agent", "agent": "S0"})).await;
    let dropped = framework.state("t", "TASK_DROPPED").await;
    assert_eq!(dropped["reason"], "REASON_RECONCILIATION");
    let whole = framework.offer().await;
    assert_eq!(whole["resources"], offer["resources"], "nothing is kept for it");
    let dir = cluster.stop_and_keep().await;
    assert!(journal(&dir).is_empty());
}

#[tokio::test]
async fn lost_updates_come_when_they_are_retried() {
    let cluster = Cluster::start(1, |config| config.update_retry = Duration::from_millis(200)).await;
    let mut framework = Framework::subscribe(cluster.master(), &modern()).await;
    let offer = framework.offer().await;
    cluster.fault(json!({"fault": "lose-updates", "count": 2})).await;
    let began = Instant::now();
    framework
        .launch(&offer, json!([task("t", &offer, "exec sleep 600")]))
        .await;
    framework.state("t", "TASK_STARTING").await;
    // Lost immediately and after 200 ms, reported 400 ms later.
    assert!(
        began.elapsed() >= Duration::from_millis(600),
        "{:?}",
        began.elapsed()
    );
    framework.state("t", "TASK_RUNNING").await;
    assert_eq!(cluster.get("/minicluster/faults").await["in_force"], json!([]));
    cluster.stop().await;
}

#[tokio::test]
async fn a_cut_stream_ends_within_a_record_and_the_framework_may_come_back() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (mut framework, _) = with_task(&cluster).await;
    cluster
        .fault(json!({"fault": "cut-stream", "framework": "test"}))
        .await;
    until_cut(&mut framework).await;
    assert_eq!(framework.stream.fragment(), b"20\n{\"type\":");
    cluster
        .until("/frameworks", |page| page["frameworks"][0]["connected"] == false)
        .await;
    let mut framework = again(cluster.master(), &framework).await;
    framework.offers().await;
    framework.kill("t").await;
    framework.state("t", "TASK_KILLED").await;
    cluster.stop().await;
}

/// The statuses of a master's responses to a request, each once and in order, until it answers 200.
async fn statuses(master: SocketAddr, request: &Request) -> Vec<u16> {
    let (mut seen, end) = (Vec::new(), Instant::now() + PATIENCE);
    while seen.last() != Some(&200) {
        let answer = client::exchange(master, request).await.unwrap();
        let code = answer.head.code();
        if code == 404 {
            assert_eq!(answer.text(), "404 Not Found.");
        }
        if seen.last() != Some(&code) {
            seen.push(code);
        }
        assert!(Instant::now() < end, "{} has answered {seen:?}", request.target);
    }
    seen
}

#[tokio::test]
async fn a_restarted_master_answers_404_then_503_before_it_serves() {
    let cluster = Cluster::start(1, |_| ()).await;
    let health = Request::post("/api/v1", &json!({"type": "GET_HEALTH"}));
    // Long enough that each phase is seen, even on a slow machine.
    let restart = json!({"fault": "restart-master", "starting_ms": 500, "recovery_ms": 500});
    let in_force = cluster.fault(restart).await;
    assert_eq!(in_force[0]["is"], "starting", "{in_force}");
    let state = Request::get("/state");
    let (calls, documents) = tokio::join!(
        statuses(cluster.master(), &health),
        statuses(cluster.master(), &state)
    );
    assert_eq!(calls, [404, 503, 200]);
    // As recorded: the state document is available while the master recovers.
    assert_eq!(documents, [404, 200]);
    // The default durations have the same phases.
    cluster.fault(json!({"fault": "restart-master"})).await;
    assert_eq!(statuses(cluster.master(), &state).await, [404, 200]);
    cluster.stop().await;
}

#[tokio::test]
async fn master_without_a_registry_has_no_tasks_until_agents_reregister() {
    let cluster = Cluster::start(1, |config| config.reregister = Duration::from_millis(600)).await;
    let (mut framework, pid) = with_task(&cluster).await;
    let master = cluster.get("/state").await["id"].clone();
    cluster.fault(restart_at_once()).await;
    until_cut(&mut framework).await;
    let mut framework = again(cluster.master(), &framework).await;
    let state = cluster.get("/state").await;
    assert_ne!(state["id"], master);
    assert_eq!(state["activated_slaves"], 0.0);
    assert_eq!(state["recovered_slaves"], json!([]));
    assert_eq!(state["frameworks"][0]["tasks"], json!([]));
    reconcile(&framework, "t").await;
    let unknown = framework.state("t", "TASK_UNKNOWN").await;
    assert_eq!(unknown["message"], "Reconciliation: Task is unknown");
    framework.offers().await;
    reconcile(&framework, "t").await;
    let known = framework.state("t", "TASK_RUNNING").await;
    assert_eq!(known["message"], "Reconciliation: Latest task state");
    assert_eq!(known["container_status"]["executor_pid"], pid);
    framework.kill("t").await;
    framework.state("t", "TASK_KILLED").await;
    cluster.stop().await;
}

#[tokio::test]
async fn master_with_a_registry_ignores_reconciliation_until_agents_return() {
    let cluster = Cluster::start(1, |config| {
        config.registry = Registry::ReplicatedLog;
        config.reregister = Duration::from_millis(800);
    })
    .await;
    let (mut framework, _) = with_task(&cluster).await;
    cluster
        .fault(json!({"fault": "restart-master", "down_ms": 100, "starting_ms": 0, "recovery_ms": 0}))
        .await;
    assert!(
        client::exchange(cluster.master(), &Request::get("/state"))
            .await
            .is_err(),
        "it is down"
    );
    until_cut(&mut framework).await;
    wait_for("the master to be up again", async || {
        client::exchange(cluster.master(), &Request::get("/state"))
            .await
            .is_ok()
    })
    .await;
    let mut framework = again(cluster.master(), &framework).await;
    let recovered = cluster.get("/slaves").await;
    assert_eq!(recovered["slaves"], json!([]));
    assert_eq!(recovered["recovered_slaves"][0]["hostname"], "a0");
    let asked = json!([{"task_id": {"value": "t"}}, {"task_id": {"value": "never"}}]);
    let ask = json!({"type": "RECONCILE", "reconcile": {"tasks": asked}});
    framework.accepted(ask.clone()).await;
    let events = framework.until(|event| event["type"] != "HEARTBEAT").await;
    assert_eq!(events["type"], "OFFERS", "no answer before the agent: {events}");
    framework.accepted(ask).await;
    framework.state("t", "TASK_RUNNING").await;
    framework.state("never", "TASK_UNKNOWN").await;
    cluster.stop().await;
}

#[tokio::test]
async fn an_update_that_was_not_acknowledged_survives_the_masters_restart() {
    let cluster = Cluster::start(1, |config| config.update_retry = Duration::from_hours(1)).await;
    let mut framework = Framework::subscribe(cluster.master(), &modern()).await;
    let offer = framework.offer().await;
    framework.acknowledge = support::Acknowledge::None;
    framework
        .launch(&offer, json!([task("t", &offer, "exit 3")]))
        .await;
    let first = framework.state("t", "TASK_STARTING").await;
    cluster.fault(restart_at_once()).await;
    let mut framework = again(cluster.master(), &framework).await;
    let same = framework.state("t", "TASK_STARTING").await;
    assert_eq!(same["uuid"], first["uuid"]);
    framework.state("t", "TASK_FAILED").await;
    cluster.stop().await;
}

#[tokio::test]
async fn frameworks_that_do_not_come_back_are_recovered_and_removed_later() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut info = modern();
    info["failover_timeout"] = json!(0.5);
    let mut framework = Framework::subscribe(cluster.master(), &info).await;
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([task("t", &offer, "exec sleep 600")]))
        .await;
    framework.state("t", "TASK_RUNNING").await;
    let pid = journal(&cluster.dir)[0]["pid"].as_u64().unwrap();
    cluster.fault(restart_at_once()).await;
    let page = cluster
        .until("/frameworks", |page| page["frameworks"][0]["recovered"] == true)
        .await;
    assert_eq!(page["frameworks"][0]["connected"], false);
    assert_eq!(page["frameworks"][0]["tasks"][0]["state"], "TASK_RUNNING");
    until_gone(pid).await;
    cluster
        .until("/frameworks", |page| {
            page["completed_frameworks"][0]["id"] == framework.id
        })
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn tasks_of_a_removed_framework_end_when_agents_reregister() {
    let cluster = Cluster::start(1, |config| config.reregister = Duration::from_millis(400)).await;
    let (framework, pid) = with_task(&cluster).await;
    cluster.fault(restart_at_once()).await;
    let framework = again(cluster.master(), &framework).await;
    framework.accepted(json!({"type": "TEARDOWN"})).await;
    assert!(group_lives(pid));
    until_gone(pid).await;
    assert_eq!(cluster.get("/frameworks").await["frameworks"], json!([]));
    cluster.stop().await;
}

#[tokio::test]
async fn the_standby_redirects_until_it_leads() {
    let cluster = Cluster::start(1, |config| {
        config.standby = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    })
    .await;
    let (first, second) = (cluster.master(), cluster.running.standby().unwrap());
    let (mut framework, pid) = with_task(&cluster).await;
    let redirected = |from: SocketAddr, to: SocketAddr| async move {
        let subscribe =
            json!({"type": "SUBSCRIBE", "subscribe": {"framework_info": {"user": "root", "name": "x"}}});
        let cases = [
            (Request::get("/state"), "/master/state"),
            (Request::get("/master/tasks?limit=5"), "/master/tasks?limit=5"),
            (
                Request::post("/api/v1/scheduler", &subscribe),
                "/master/api/v1/scheduler",
            ),
            (Request::get("/redirect"), ""),
        ];
        for (request, path) in cases {
            let answer = client::exchange(from, &request).await.unwrap();
            assert_eq!(answer.head.code(), 307, "{}", request.target);
            let place = format!("//localhost:{}{path}", to.port());
            assert_eq!(answer.head.header("Location").unwrap(), place);
            assert_eq!(answer.text(), "");
        }
        let metrics = client::exchange(from, &Request::get("/metrics/snapshot"))
            .await
            .unwrap();
        assert_eq!(metrics.json()["master/elected"], 0.0);
        let health = client::exchange(from, &Request::get("/health")).await.unwrap();
        assert_eq!(health.head.code(), 200);
    };
    redirected(second, first).await;
    cluster
        .fault(json!({"fault": "fail-over", "down_ms": 200, "recovery_ms": 300}))
        .await;
    until_cut(&mut framework).await;
    redirected(second, first).await;
    let (mut refused, end) = (false, Instant::now() + PATIENCE);
    loop {
        let answer = client::exchange(second, &Request::post("/api/v1", &json!({"type": "GET_HEALTH"})))
            .await
            .unwrap();
        match answer.head.code() {
            200 => break,
            503 => {
                assert_eq!(answer.text(), "Master has not finished recovery");
                refused = true;
            }
            code => assert_eq!(code, 307),
        }
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(refused, "it recovers before it answers");
    redirected(first, second).await;
    let mut framework = again(second, &framework).await;
    framework.offers().await;
    reconcile(&framework, "t").await;
    framework.state("t", "TASK_RUNNING").await;
    assert!(group_lives(pid));
    cluster.stop().await;
}

#[tokio::test]
async fn a_framework_is_removed_with_its_tasks() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (mut framework, pid) = with_task(&cluster).await;
    cluster
        .fault(json!({"fault": "remove-framework", "framework": framework.id}))
        .await;
    while framework.stream.record(PATIENCE).await.unwrap().is_some() {}
    assert!(!framework.stream.was_cut(), "the master says farewell");
    until_gone(pid).await;
    cluster.stop().await;
}

#[tokio::test]
async fn answers_and_events_are_late_by_the_delay() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &modern()).await;
    let offer = framework.offer().await;
    assert_eq!(
        cluster.fault(json!({"fault": "delay", "ms": 250})).await,
        json!([{"delay_ms": 250}])
    );
    for port in [cluster.master(), cluster.running.agents()[0]] {
        let began = Instant::now();
        let answer = client::exchange(port, &Request::get("/version")).await.unwrap();
        assert_eq!(answer.head.code(), 200);
        assert!(
            began.elapsed() >= Duration::from_millis(250),
            "{:?}",
            began.elapsed()
        );
    }
    let began = Instant::now();
    framework
        .launch(&offer, json!([task("t", &offer, "exec sleep 600")]))
        .await;
    framework.state("t", "TASK_STARTING").await;
    // The call and the event. Many consecutive events are delayed once.
    assert!(
        began.elapsed() >= Duration::from_millis(500),
        "{:?}",
        began.elapsed()
    );
    cluster.fault(json!({"fault": "delay", "ms": 0})).await;
    let began = Instant::now();
    cluster.get("/version").await;
    assert!(
        began.elapsed() < Duration::from_millis(250),
        "{:?}",
        began.elapsed()
    );
    cluster.stop().await;
}

#[tokio::test]
async fn rescinded_offers_become_invalid_and_are_made_again() {
    let cluster = Cluster::start(2, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &modern()).await;
    let offers = framework.offers().await;
    cluster
        .fault(json!({"fault": "rescind-offers", "agent": "S1"}))
        .await;
    let rescind = framework.until(|event| event["type"] == "RESCIND").await;
    assert_eq!(rescind["rescind"]["offer_id"], offers[1]["id"]);
    let renewed = framework.offer().await;
    assert_eq!(renewed["agent_id"], offers[1]["agent_id"]);
    let stale = task("t", &offers[1], "true");
    framework.launch(&offers[1], json!([stale])).await;
    let dropped = framework.state("t", "TASK_DROPPED").await;
    assert_eq!(dropped["reason"], "REASON_INVALID_OFFERS");
    cluster.stop().await;
}
