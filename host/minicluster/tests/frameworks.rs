//! Frameworks: offers, heartbeats, failover, removal, reconciliation, agents that disconnect and
//! return.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod support;

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::{
    Cluster, EVENT_TIMEOUT, Framework, first_port, framework_info, is_group_alive, journal, ports, task,
};
use transom_replay::client::{self, Request};

#[tokio::test]
async fn every_agent_is_offered_immediately_and_again_when_the_decline_filter_expires() {
    let cluster = Cluster::start(3, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offers = framework.offers().await;
    assert_eq!(offers.len(), 3);
    assert_eq!(
        offers[1]["attributes"][0],
        json!({"name": "rack", "type": "TEXT", "text": {"value": "r1"}})
    );
    let ids: Vec<&Value> = offers.iter().map(|offer| &offer["id"]).collect();
    let decline = json!({"offer_ids": ids, "filters": {"refuse_seconds": 0.5}});
    let started_at = Instant::now();
    framework
        .expect_accepted(json!({"type": "DECLINE", "decline": decline}))
        .await;
    framework.offers().await;
    assert!(
        started_at.elapsed() >= Duration::from_millis(500),
        "{:?}",
        started_at.elapsed()
    );
    cluster.stop().await;
}

#[tokio::test]
async fn an_update_of_a_framework_without_its_id_is_rejected() {
    let cluster = Cluster::start(0, |_| ()).await;
    let framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let update =
        |info: &Value| json!({"type": "UPDATE_FRAMEWORK", "update_framework": {"framework_info": info}});
    let response = framework.call(update(&framework_info())).await;
    assert_eq!(response.head.code(), 400);
    assert_eq!(
        response.text(),
        "Failed to validate scheduler::Call: 'framework_id' differs from 'update_framework.framework_info.id'"
    );
    let mut info = framework_info();
    info["id"] = json!({"value": framework.id});
    assert_eq!(framework.call(update(&info)).await.head.code(), 200);
    cluster.stop().await;
}

#[tokio::test]
async fn suppressed_framework_gets_no_offers_until_revived() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    framework.expect_accepted(json!({"type": "SUPPRESS"})).await;
    let decline = json!({"offer_ids": [offer["id"]], "filters": {"refuse_seconds": 0}});
    framework
        .expect_accepted(json!({"type": "DECLINE", "decline": decline}))
        .await;
    let no_event = framework.stream.record(Duration::from_millis(500)).await;
    // HEARTBEAT follows SUBSCRIBED and was received before the offer.
    assert!(no_event.is_err(), "{no_event:?}");
    framework.expect_accepted(json!({"type": "REVIVE"})).await;
    framework.offers().await;
    cluster.stop().await;
}

#[tokio::test]
async fn heartbeats_are_sent_repeatedly() {
    let cluster = Cluster::start(0, |config| config.heartbeat = Duration::from_millis(200)).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    for _ in 0..4 {
        assert_eq!(framework.next_event().await["type"], "HEARTBEAT");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn framework_that_does_not_resubscribe_is_removed_with_its_tasks() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut info = framework_info();
    info["failover_timeout"] = json!(0.3);
    let mut framework = Framework::subscribe(cluster.master(), &info).await;
    let offer = framework.offer().await;
    let port = first_port(&offer);
    let mut sleeper = task("sleeper", &offer, "sleep 600");
    sleeper["resources"]
        .as_array_mut()
        .unwrap()
        .push(ports(port, port));
    framework.launch(&offer, json!([sleeper])).await;
    framework.wait_for_state("sleeper", "TASK_RUNNING").await;
    let id = framework.id.clone();
    drop(framework);
    let end = Instant::now() + EVENT_TIMEOUT;
    while cluster.get("/frameworks").await["completed_frameworks"]
        .as_array()
        .unwrap()
        .is_empty()
    {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let completed = &cluster.get("/frameworks").await["completed_frameworks"][0];
    assert_eq!(completed["completed_tasks"][0]["state"], "TASK_KILLED");
    let pid = journal(&cluster.dir)[0]["pid"].as_u64().unwrap();
    // Another framework gets the port only when the process has ended.
    let mut other = Framework::subscribe(cluster.master(), &framework_info()).await;
    other
        .wait_until(|event| event["type"] == "OFFERS" && first_port(&event["offers"]["offers"][0]) == port)
        .await;
    assert!(!is_group_alive(pid));
    info["id"] = json!({"value": id});
    let call =
        json!({"type": "SUBSCRIBE", "framework_id": {"value": id}, "subscribe": {"framework_info": info}});
    let (_, mut stream) = client::open(cluster.master(), &Request::post("/api/v1/scheduler", &call))
        .await
        .unwrap();
    let error = stream.record(EVENT_TIMEOUT).await.unwrap().unwrap();
    assert_eq!(
        error,
        json!({"type": "ERROR", "error": {"message": "Framework has been removed"}})
    );
    assert!(stream.record(EVENT_TIMEOUT).await.unwrap().is_none());
    cluster.stop().await;
}

#[tokio::test]
async fn second_subscription_takes_over_and_receives_unacknowledged_updates() {
    let cluster = Cluster::start(1, |config| config.update_retry = Duration::from_hours(1)).await;
    let mut first = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = first.offer().await;
    first.acknowledge = support::Acknowledge::None;
    first
        .launch(&offer, json!([task("t", &offer, "sleep 600")]))
        .await;
    first.wait_for_state("t", "TASK_STARTING").await;
    let mut info = framework_info();
    info["id"] = json!({"value": first.id});
    let mut second = Framework::subscribe(cluster.master(), &info).await;
    assert_eq!(second.id, first.id);
    second.wait_for_state("t", "TASK_STARTING").await;
    second.wait_for_state("t", "TASK_RUNNING").await;
    let error = first.wait_until(|event| event["type"] == "ERROR").await;
    assert_eq!(error["error"]["message"], "Framework failed over");
    assert!(
        first.stream.record(EVENT_TIMEOUT).await.unwrap().is_none(),
        "the old stream ends"
    );
    assert_eq!(first.call(json!({"type": "REVIVE"})).await.head.code(), 400);
    cluster.stop().await;
}

#[tokio::test]
async fn reconciliation_answers_for_known_and_unknown_tasks() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([task("known", &offer, "sleep 600")]))
        .await;
    framework.wait_for_state("known", "TASK_RUNNING").await;
    framework
        .expect_accepted(json!({"type": "RECONCILE", "reconcile": {"tasks": []}}))
        .await;
    let known = framework.wait_for_state("known", "TASK_RUNNING").await;
    assert_eq!(known["reason"], "REASON_RECONCILIATION");
    assert!(known.get("uuid").is_none());
    let named_tasks = json!([
        {"task_id": {"value": "a"}, "agent_id": offer["agent_id"]},
        {"task_id": {"value": "b"}},
    ]);
    framework
        .expect_accepted(json!({"type": "RECONCILE", "reconcile": {"tasks": named_tasks}}))
        .await;
    framework.wait_for_state("a", "TASK_GONE").await;
    framework.wait_for_state("b", "TASK_UNKNOWN").await;
    cluster.stop().await;
}

#[tokio::test]
async fn offers_of_a_lost_agent_are_rescinded_and_its_tasks_return_with_it() {
    let cluster = Cluster::start(1, |config| config.agent_timeout = Duration::from_millis(300)).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([task("t", &offer, "sleep 600")]))
        .await;
    framework.wait_for_state("t", "TASK_RUNNING").await;
    let rest = framework.offer().await;
    cluster.minicluster.disconnect_agent(0);
    let rescind = framework.wait_until(|event| event["type"] == "RESCIND").await;
    assert_eq!(rescind["rescind"]["offer_id"], rest["id"]);
    let unreachable = framework.wait_for_state("t", "TASK_UNREACHABLE").await;
    assert_eq!(unreachable["reason"], "REASON_AGENT_REMOVED");
    assert!(unreachable["unreachable_time"]["nanoseconds"].is_i64());
    framework.wait_until(|event| event["type"] == "FAILURE").await;
    assert_eq!(cluster.get("/state").await["unreachable_slaves"], 1.0);
    assert_eq!(cluster.get("/slaves").await["slaves"], json!([]));
    let named_tasks = json!([{"task_id": {"value": "t"}}]);
    framework
        .expect_accepted(json!({"type": "RECONCILE", "reconcile": {"tasks": named_tasks}}))
        .await;
    assert_eq!(
        framework.wait_for_state("t", "TASK_UNREACHABLE").await["reason"],
        "REASON_RECONCILIATION"
    );
    cluster.minicluster.reconnect_agent(0);
    let resent_status = framework.wait_for_state("t", "TASK_RUNNING").await;
    assert_eq!(resent_status["reason"], "REASON_AGENT_REREGISTERED");
    framework.offers().await;
    framework.kill("t").await;
    framework.wait_for_state("t", "TASK_KILLED").await;
    cluster.stop().await;
}

#[tokio::test]
async fn tasks_without_checkpointing_are_lost_with_their_agent() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework =
        Framework::subscribe(cluster.master(), &json!({"user": "root", "name": "legacy"})).await;
    let offer = framework.offer().await;
    assert!(offer.get("allocation_info").is_none());
    assert_eq!(offer["resources"][0]["role"], "*");
    framework
        .launch(&offer, json!([task("t", &offer, "sleep 600")]))
        .await;
    framework.wait_for_state("t", "TASK_RUNNING").await;
    let pid = journal(&cluster.dir)[0]["pid"].as_u64().unwrap();
    cluster.minicluster.disconnect_agent(0);
    let lost = framework.wait_for_state("t", "TASK_LOST").await;
    assert_eq!(lost["reason"], "REASON_AGENT_DISCONNECTED");
    let end = Instant::now() + EVENT_TIMEOUT;
    while is_group_alive(pid) {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    cluster.stop().await;
}

#[tokio::test]
async fn unreachable_tasks_end_with_their_framework_and_with_their_agent() {
    let cluster = Cluster::start(1, |config| config.agent_timeout = Duration::from_millis(100)).await;
    for by_operator in [false, true] {
        let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
        let offer = framework.offer().await;
        framework
            .launch(&offer, json!([task("t", &offer, "sleep 600")]))
            .await;
        framework.wait_for_state("t", "TASK_RUNNING").await;
        let pid = journal(&cluster.dir).last().unwrap()["pid"].as_u64().unwrap();
        cluster.minicluster.disconnect_agent(0);
        framework.wait_for_state("t", "TASK_UNREACHABLE").await;
        assert!(
            is_group_alive(pid),
            "the task keeps running while its agent is disconnected"
        );
        if by_operator {
            let mark_gone =
                json!({"type": "MARK_AGENT_GONE", "mark_agent_gone": {"agent_id": offer["agent_id"]}});
            assert_eq!(cluster.operator_call(mark_gone).await.head.code(), 200);
            assert_eq!(cluster.get("/state").await["unreachable_slaves"], 0.0);
        } else {
            framework.expect_accepted(json!({"type": "TEARDOWN"})).await;
        }
        // A disconnected agent receives the kill when it returns.
        cluster.minicluster.reconnect_agent(0);
        let end = Instant::now() + EVENT_TIMEOUT;
        while is_group_alive(pid) {
            assert!(Instant::now() < end);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    cluster.stop().await;
}

#[tokio::test]
async fn operators_drain_reactivate_and_remove_agents() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([task("t", &offer, "exec sleep 600")]))
        .await;
    framework.wait_for_state("t", "TASK_RUNNING").await;
    framework.offers().await;
    let agent = offer["agent_id"].clone();
    let drain = json!({"type": "DRAIN_AGENT", "drain_agent": {"agent_id": agent, "max_grace_period": {"seconds": 5}}});
    assert_eq!(cluster.operator_call(drain).await.head.code(), 200);
    framework.wait_until(|event| event["type"] == "RESCIND").await;
    let killed = framework.wait_for_state("t", "TASK_KILLED").await;
    assert_eq!(killed["reason"], "REASON_AGENT_DRAINING");
    let end = Instant::now() + EVENT_TIMEOUT;
    while cluster.get("/slaves").await["slaves"][0]["drain_info"]["state"] != "DRAINED" {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let reactivate = json!({"type": "REACTIVATE_AGENT", "reactivate_agent": {"agent_id": agent}});
    assert_eq!(cluster.operator_call(reactivate).await.head.code(), 200);
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([task("u", &offer, "sleep 600")]))
        .await;
    framework.wait_for_state("u", "TASK_RUNNING").await;
    let mark_gone = json!({"type": "MARK_AGENT_GONE", "mark_agent_gone": {"agent_id": agent}});
    assert_eq!(cluster.operator_call(mark_gone).await.head.code(), 200);
    framework.wait_for_state("u", "TASK_GONE_BY_OPERATOR").await;
    framework.wait_until(|event| event["type"] == "FAILURE").await;
    cluster.stop().await;
}

#[tokio::test]
async fn credentials_are_required_when_configured() {
    let cluster = Cluster::start(0, |config| {
        config.credentials = vec![("marathon".to_owned(), "secret".to_owned())];
    })
    .await;
    let cases = [
        ("/state", "mesos-master-readonly"),
        ("/flags", "mesos-master-readonly"),
        ("/api/v1", "mesos-master-readwrite"),
        ("/api/v1/scheduler", "mesos-master-scheduler"),
    ];
    for (path, realm) in cases {
        for authorization in ["", "Basic d3Jvbmc6d3Jvbmc=", "Bearer x", "Basic !!!"] {
            let request = Request::get(path).with("Authorization", authorization);
            let response = client::exchange(cluster.master(), &request).await.unwrap();
            assert_eq!(response.head.code(), 401, "{path} with {authorization:?}");
            assert_eq!(
                response.head.header("WWW-Authenticate").unwrap(),
                format!("Basic realm=\"{realm}\"")
            );
            assert_eq!(response.text(), "401 Unauthorized.");
        }
    }
    for path in ["/health", "/version", "/redirect"] {
        let response = client::exchange(cluster.master(), &Request::get(path))
            .await
            .unwrap();
        assert!(response.head.code() < 400, "{path} needs no credentials");
    }
    let request = Request::get("/state").with("Authorization", "Basic bWFyYXRob246c2VjcmV0");
    assert_eq!(
        client::exchange(cluster.master(), &request)
            .await
            .unwrap()
            .head
            .code(),
        200
    );
    cluster.stop().await;
}
