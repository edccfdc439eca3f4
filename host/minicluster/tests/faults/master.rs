//! The leading master restarts, or the standby master takes over.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use transom_minicluster::Registry;
use transom_replay::client::{self, Request};
use transom_testkit::wait_for;

use crate::support::{
    Acknowledge, Cluster, EVENT_TIMEOUT, Framework, framework_info, immediate_restart, is_group_alive,
    journal, task,
};
use crate::{framework_with_task, reconcile, resubscribe, wait_for_cut, wait_for_exit};

/// The status codes of a master's responses to a request that is repeated until the code is 200,
/// without consecutive duplicates.
async fn statuses(master: SocketAddr, request: &Request) -> Vec<u16> {
    let (mut statuses_seen, end) = (Vec::new(), Instant::now() + EVENT_TIMEOUT);
    while statuses_seen.last() != Some(&200) {
        let response = client::exchange(master, request).await.unwrap();
        let code = response.head.code();
        if code == 404 {
            assert_eq!(response.text(), "404 Not Found.");
        }
        if statuses_seen.last() != Some(&code) {
            statuses_seen.push(code);
        }
        assert!(
            Instant::now() < end,
            "{} has answered {statuses_seen:?}",
            request.target
        );
    }
    statuses_seen
}

#[tokio::test]
async fn a_restarted_master_answers_404_then_503_before_it_serves() {
    let cluster = Cluster::start(1, |_| ()).await;
    let health = Request::post("/api/v1", &json!({"type": "GET_HEALTH"}));
    // Long enough that each phase is seen, even on a slow machine.
    let restart = json!({"fault": "restart-master", "down_ms": 0, "starting_ms": 500, "recovery_ms": 500});
    let in_force = cluster.fault(restart).await;
    assert_eq!(in_force[0]["is"], "starting", "{in_force}");
    let state = Request::get("/state");
    let (calls, documents) = tokio::join!(
        statuses(cluster.master(), &health),
        statuses(cluster.master(), &state)
    );
    assert_eq!(calls, [404, 503, 200]);
    // As recorded from a real master, the state document is available while the master recovers.
    assert_eq!(documents, [404, 200]);
    // With the default durations, the phases are the same.
    cluster
        .fault(json!({"fault": "restart-master", "down_ms": 0}))
        .await;
    assert_eq!(statuses(cluster.master(), &state).await, [404, 200]);
    cluster.stop().await;
}

#[tokio::test]
async fn master_without_a_registry_has_no_tasks_until_agents_reregister() {
    let cluster = Cluster::start(1, |config| config.reregister = Duration::from_millis(600)).await;
    let (mut framework, pid) = framework_with_task(&cluster).await;
    let master = cluster.get("/state").await["id"].clone();
    cluster.fault(immediate_restart()).await;
    wait_for_cut(&mut framework).await;
    let mut framework = resubscribe(cluster.master(), &framework).await;
    let state = cluster.get("/state").await;
    assert_ne!(state["id"], master);
    assert_eq!(state["activated_slaves"], 0.0);
    assert_eq!(state["recovered_slaves"], json!([]));
    assert_eq!(state["frameworks"][0]["tasks"], json!([]));
    reconcile(&framework, "t").await;
    let unknown = framework.wait_for_state("t", "TASK_UNKNOWN").await;
    assert_eq!(unknown["message"], "Reconciliation: Task is unknown");
    framework.offers().await;
    reconcile(&framework, "t").await;
    let known = framework.wait_for_state("t", "TASK_RUNNING").await;
    assert_eq!(known["message"], "Reconciliation: Latest task state");
    assert_eq!(known["container_status"]["executor_pid"], pid);
    framework.kill("t").await;
    framework.wait_for_state("t", "TASK_KILLED").await;
    cluster.stop().await;
}

#[tokio::test]
async fn master_with_a_registry_ignores_reconciliation_until_agents_return() {
    let cluster = Cluster::start(1, |config| {
        config.registry = Registry::ReplicatedLog;
        config.reregister = Duration::from_millis(800);
    })
    .await;
    let (mut framework, _) = framework_with_task(&cluster).await;
    cluster
        .fault(json!({"fault": "restart-master", "down_ms": 100, "starting_ms": 0, "recovery_ms": 0}))
        .await;
    assert!(
        client::exchange(cluster.master(), &Request::get("/state"))
            .await
            .is_err(),
        "the master is down"
    );
    wait_for_cut(&mut framework).await;
    wait_for("the master to be up again", async || {
        client::exchange(cluster.master(), &Request::get("/state"))
            .await
            .is_ok()
    })
    .await;
    let mut framework = resubscribe(cluster.master(), &framework).await;
    let recovered = cluster.get("/slaves").await;
    assert_eq!(recovered["slaves"], json!([]));
    assert_eq!(recovered["recovered_slaves"][0]["hostname"], "a0");
    let named_tasks = json!([{"task_id": {"value": "t"}}, {"task_id": {"value": "never"}}]);
    let reconcile_call = json!({"type": "RECONCILE", "reconcile": {"tasks": named_tasks}});
    framework.expect_accepted(reconcile_call.clone()).await;
    let events = framework.wait_until(|event| event["type"] != "HEARTBEAT").await;
    assert_eq!(
        events["type"], "OFFERS",
        "no answer before the agent returns: {events}"
    );
    framework.expect_accepted(reconcile_call).await;
    framework.wait_for_state("t", "TASK_RUNNING").await;
    framework.wait_for_state("never", "TASK_UNKNOWN").await;
    cluster.stop().await;
}

#[tokio::test]
async fn an_update_that_was_not_acknowledged_survives_the_masters_restart() {
    let cluster = Cluster::start(1, |config| config.update_retry = Duration::from_hours(1)).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    framework.acknowledge = Acknowledge::None;
    framework
        .launch(&offer, json!([task("t", &offer, "exit 3")]))
        .await;
    let first = framework.wait_for_state("t", "TASK_STARTING").await;
    cluster.fault(immediate_restart()).await;
    let mut framework = resubscribe(cluster.master(), &framework).await;
    let same = framework.wait_for_state("t", "TASK_STARTING").await;
    assert_eq!(same["uuid"], first["uuid"]);
    framework.wait_for_state("t", "TASK_FAILED").await;
    cluster.stop().await;
}

#[tokio::test]
async fn frameworks_that_do_not_resubscribe_are_listed_as_recovered_and_later_removed() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut info = framework_info();
    info["failover_timeout"] = json!(0.5);
    let mut framework = Framework::subscribe(cluster.master(), &info).await;
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([task("t", &offer, "exec sleep 600")]))
        .await;
    framework.wait_for_state("t", "TASK_RUNNING").await;
    let pid = journal(&cluster.dir)[0]["pid"].as_u64().unwrap();
    cluster.fault(immediate_restart()).await;
    let page = cluster
        .wait_until("/frameworks", |page| page["frameworks"][0]["recovered"] == true)
        .await;
    assert_eq!(page["frameworks"][0]["connected"], false);
    assert_eq!(page["frameworks"][0]["tasks"][0]["state"], "TASK_RUNNING");
    wait_for_exit(pid).await;
    cluster
        .wait_until("/frameworks", |page| {
            page["completed_frameworks"][0]["id"] == framework.id
        })
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn tasks_of_a_removed_framework_end_when_agents_reregister() {
    let cluster = Cluster::start(1, |config| config.reregister = Duration::from_millis(400)).await;
    let (framework, pid) = framework_with_task(&cluster).await;
    cluster.fault(immediate_restart()).await;
    let framework = resubscribe(cluster.master(), &framework).await;
    framework.expect_accepted(json!({"type": "TEARDOWN"})).await;
    assert!(is_group_alive(pid));
    wait_for_exit(pid).await;
    assert_eq!(cluster.get("/frameworks").await["frameworks"], json!([]));
    cluster.stop().await;
}

#[tokio::test]
async fn the_standby_redirects_until_it_leads() {
    let cluster = Cluster::start(1, |config| {
        config.standby = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    })
    .await;
    let (first, second) = (cluster.master(), cluster.minicluster.standby().unwrap());
    let (mut framework, pid) = framework_with_task(&cluster).await;
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
            let response = client::exchange(from, &request).await.unwrap();
            assert_eq!(response.head.code(), 307, "{}", request.target);
            let location = format!("//localhost:{}{path}", to.port());
            assert_eq!(response.head.header("Location").unwrap(), location);
            assert_eq!(response.text(), "");
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
        .fault(json!({"fault": "fail-over", "down_ms": 2000, "election_ms": 1500, "recovery_ms": 1500}))
        .await;
    wait_for_cut(&mut framework).await;
    redirected(second, first).await;
    assert!(
        client::exchange(first, &Request::get("/state")).await.is_err(),
        "the leader is dead"
    );
    let mut answers = Vec::new();
    let end = Instant::now() + EVENT_TIMEOUT;
    while answers.last().is_none_or(|(code, _)| *code != 200) {
        let health = Request::post("/api/v1", &json!({"type": "GET_HEALTH"}));
        let response = client::exchange(second, &health).await.unwrap();
        let answer = (response.head.code(), response.text());
        if answer == (503, "Master has not finished recovery".to_owned()) {
            // As recorded: the documents are there, but empty.
            let slaves = client::exchange(second, &Request::get("/slaves")).await.unwrap();
            let recovered = &slaves.json()["recovered_slaves"];
            assert!(
                *recovered == json!([]) || recovered[0]["hostname"] == "a0",
                "{recovered}"
            );
        }
        if answers.last() != Some(&answer) {
            answers.push(answer);
        }
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let seen: Vec<(u16, &str)> = answers
        .iter()
        .map(|(code, text)| (*code, text.as_str()))
        .collect();
    let unavailable = [
        (307, ""),
        (503, "No leader elected"),
        (503, "Master has not finished recovery"),
    ];
    assert_eq!(seen[..3], unavailable);
    redirected(first, second).await;
    let mut framework = resubscribe(second, &framework).await;
    framework.offers().await;
    reconcile(&framework, "t").await;
    framework.wait_for_state("t", "TASK_RUNNING").await;
    assert!(is_group_alive(pid));
    cluster.stop().await;
}

/// A new leader's documents are empty first; then they have the agents of its registry.
#[tokio::test]
async fn agents_register_one_by_one_after_a_fail_over() {
    let cluster = Cluster::start(3, |config| {
        config.standby = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        // On a busy machine every step must last long enough to be seen.
        config.reregister = Duration::from_millis(4500);
    })
    .await;
    let second = cluster.minicluster.standby().unwrap();
    cluster
        .fault(json!({"fault": "fail-over", "recovery_ms": 1500}))
        .await;
    let end = Instant::now() + EVENT_TIMEOUT;
    let mut seen = Vec::new();
    while seen.last() != Some(&(3, 0)) {
        assert!(Instant::now() < end, "{seen:?}");
        let response = client::exchange(second, &Request::get("/state")).await.unwrap();
        if response.head.code() == 200 {
            let state = response.json();
            let count = |list: &str| state[list].as_array().unwrap().len();
            let counts = (count("slaves"), count("recovered_slaves"));
            if seen.last() != Some(&counts) {
                seen.push(counts);
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(seen, [(0, 0), (0, 3), (1, 2), (2, 1), (3, 0)]);
    cluster.stop().await;
}
