//! The life of an app.

use std::sync::Arc;

use serde_json::{Value, json};
use transom_cluster::v1::{Attribute, Resource, TaskState};
use transom_plugin_host::matcher::ConstraintError;
use transom_scheduler::{Reason, Reasons, UnusedOffer};
use transom_testkit::wait_for;

use super::sleeper;
use super::tasks::ids;
use crate::testing::{World, agent};

#[tokio::test]
async fn posted_app_is_deployed_and_deleted_app_is_removed_with_its_task() {
    let world = World::start().await;
    let created = world.send("POST", "/v2/apps", sleeper("shop/web")).await;
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(created.headers["location"], "/shop/web");
    assert_eq!(
        created.headers["cache-control"],
        "no-cache, no-store, must-revalidate"
    );
    assert!(created.headers["x-marathon-leader"].starts_with("http://localhost:"));
    let deployment = created.headers["marathon-deployment-id"].clone();
    assert_eq!(created.body["deployments"], json!([{"id": deployment}]));
    assert_eq!(
        (&created.body["tasksRunning"], created.body.get("versionInfo")),
        (&json!(0), None)
    );

    let app = world.settled("/shop/web", 1).await;
    assert_eq!(
        app["portDefinitions"][0]["port"], 10_000,
        "a service port was assigned"
    );
    assert_eq!(app["versionInfo"]["lastConfigChangeAt"], app["version"]);
    let task = &app["tasks"][0];
    for (key, value) in [
        ("appId", json!("/shop/web")),
        ("host", json!("127.0.0.1")),
        ("ports", json!([31000])),
        ("servicePorts", json!([10000])),
        ("slaveId", json!("a-S0")),
        ("state", json!("TASK_RUNNING")),
        ("version", app["version"].clone()),
        ("role", json!("*")),
        ("healthCheckResults", json!([])),
        ("ipAddresses", json!([])),
        ("localVolumes", json!([])),
        ("region", json!("r1")),
    ] {
        assert_eq!(task[key], value, "{key}");
    }
    assert!(task["id"].as_str().unwrap().starts_with("shop_web.instance-") && task["startedAt"].is_string());
    assert_eq!(task.get("checkResult"), None);
    assert_eq!(
        world.get("/v2/apps//shop/web/tasks/").await["tasks"][0]["id"],
        task["id"],
        "empty segments of a path are ignored"
    );
    assert_eq!(
        world.get("/v2/tasks?status=running").await["tasks"][0]["id"],
        task["id"]
    );
    assert_eq!(world.get("/v2/tasks?status=staging").await["tasks"], json!([]));
    assert_eq!(world.get("/v2/deployments").await, json!([]));

    let deleted = world.call("DELETE", "/v2/apps/shop/web", None).await;
    assert_eq!(deleted.status, 200);
    assert_eq!(
        deleted.body["deploymentId"].as_str().unwrap(),
        deleted.headers["marathon-deployment-id"]
    );
    assert_eq!(world.call("GET", "/v2/apps/shop/web", None).await.status, 404);
    wait_for("its task is killed", async || {
        world.scheduler.running().is_empty()
    })
    .await;
    wait_for("its deployment is over", async || {
        world.get("/v2/deployments").await == json!([])
    })
    .await;
    world.stop().await;
}

#[tokio::test]
async fn app_is_scaled_upgraded_restarted_and_rolled_back() {
    let world = World::start().await;
    let mut definition = sleeper("/web");
    definition["instances"] = json!(3);
    world.send("POST", "/v2/apps", definition).await;
    let first = world.settled("/web", 3).await;

    assert_eq!(
        world
            .send("PUT", "/v2/apps//web?force=False", json!({"instances": 1}))
            .await
            .status,
        200
    );
    let scaled = world.settled("/web", 1).await;
    assert_eq!(
        scaled["versionInfo"]["lastConfigChangeAt"], first["version"],
        "scaling changes no configuration"
    );
    assert!(
        first["tasks"].as_array().unwrap().contains(&scaled["tasks"][0]),
        "the remaining instance keeps its task"
    );

    assert_eq!(
        world
            .send("PUT", "/v2/apps/web", json!({"cmd": "sleep 2000"}))
            .await
            .status,
        200
    );
    let restarted = world.settled("/web", 1).await;
    assert_ne!(restarted["tasks"][0]["id"], scaled["tasks"][0]["id"]);
    assert_eq!(restarted["tasks"][0]["version"], restarted["version"]);

    assert_eq!(world.call("POST", "/v2/apps/web/restart", None).await.status, 200);
    let again = world.settled("/web", 1).await;
    assert_ne!(again["tasks"][0]["id"], restarted["tasks"][0]["id"]);

    assert_eq!(
        world.get("/v2/apps/web/versions").await["versions"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
    let back = world
        .send("PUT", "/v2/apps/web", json!({"version": first["version"]}))
        .await;
    assert_eq!(back.status, 200, "{back:?}");
    assert_eq!(world.settled("/web", 3).await["cmd"], "sleep 1000");
    let past = world
        .get(&format!(
            "/v2/apps/web/versions/{}",
            restarted["version"].as_str().unwrap()
        ))
        .await;
    assert_eq!(past["cmd"], "sleep 2000");
    world.stop().await;
}

#[tokio::test]
async fn failed_task_is_replaced_after_its_backoff() {
    let world = World::start().await;
    world.send("POST", "/v2/apps", sleeper("/web")).await;
    world.settled("/web", 1).await;
    world.scheduler.set_immediate_launches(false);
    let task = world.scheduler.running()[0].clone();
    world.scheduler.update(
        task.as_str(),
        TaskState::Failed,
        Some("Command exited with status 3"),
    );
    wait_for("the next task waits", async || {
        !world.scheduler.submitted().is_empty()
    })
    .await;
    let next = world.scheduler.submitted()[0].clone();
    assert_eq!(
        next.id.as_str(),
        task.as_str().replace("._app.1", "._app.2"),
        "the same instance, the next incarnation"
    );
    assert!(next.not_before.unwrap() > jiff::Timestamp::now() - jiff::SignedDuration::from_secs(5));
    let app = world.get("/v2/apps/web").await;
    let failure = &app["app"]["lastTaskFailure"];
    assert_eq!(
        (&failure["message"], &failure["state"]),
        (&json!("Command exited with status 3"), &json!("TASK_FAILED"))
    );
    let queue = world.get("/v2/queue").await;
    assert_eq!(
        (&queue["queue"][0]["count"], &queue["queue"][0]["app"]["id"]),
        (&json!(1), &json!("/web"))
    );
    world.scheduler.launch_all();
    world.settled("/web", 1).await;
    wait_for("the old record is forgotten", async || {
        world.scheduler.running() == [next.id.clone()]
    })
    .await;
    world.stop().await;
}

#[tokio::test]
async fn task_in_an_unknown_state_is_kept() {
    let world = World::start().await;
    world.send("POST", "/v2/apps", sleeper("/web")).await;
    world.settled("/web", 1).await;
    let task = world.scheduler.running()[0].clone();
    let new = TaskState::Other("TASK_NEW".to_owned());
    world.scheduler.update(task.as_str(), new, None);
    wait_for("the state is shown as the cluster names it", async || {
        world.get("/v2/apps/web/tasks").await["tasks"][0]["state"] == "TASK_NEW"
    })
    .await;
    assert_eq!(world.get("/v2/apps/web").await["app"]["tasksRunning"], 1);
    assert!(world.scheduler.submitted().is_empty(), "it was not replaced");
    world.scheduler.update(task.as_str(), TaskState::Running, None);
    let tasks = world.settled("/web", 1).await["tasks"].clone();
    assert_eq!(ids(&tasks), [task.to_string()]);
    world.stop().await;
}

#[tokio::test]
async fn restarted_daemon_keeps_tasks_and_continues_the_deployment() {
    let world = World::start().await;
    world.send("POST", "/v2/apps", sleeper("/web")).await;
    let before = world.settled("/web", 1).await;
    world.scheduler.set_immediate_launches(false);
    assert_eq!(
        world
            .send("PUT", "/v2/apps/web", json!({"instances": 3}))
            .await
            .status,
        200
    );
    let deployment = world.get("/v2/deployments").await[0].clone();
    assert_eq!(deployment["currentActions"][0]["action"], "ScaleApplication");

    let world = world.restart().await;
    assert_eq!(
        world.get("/v2/deployments").await[0]["id"],
        deployment["id"],
        "the deployment continues after the restart"
    );
    assert_eq!(
        world.get("/v2/apps/web/tasks").await["tasks"],
        before["tasks"],
        "the task is known after the restart"
    );
    world.scheduler.set_immediate_launches(true);
    wait_for("all are launched", async || {
        world.scheduler.launch_all();
        world.scheduler.running().len() == 3
    })
    .await;
    world.settled("/web", 3).await;
    world.stop().await;
}

#[tokio::test]
async fn constraints_are_validated_by_the_matcher_component() {
    let world = World::start().await;
    let suite: Value =
        serde_json::from_str(include_str!("../../../tests/fixtures/constraint-syntax.json")).unwrap();
    for (number, case) in suite["cases"].as_array().unwrap().iter().enumerate() {
        // The real component is tested in its own crate; this one returns what the case expects.
        let text = case["expect"]["details"][0]["error_contains"].as_str();
        let error = text.map(|text| ConstraintError {
            constraint: 0,
            message: text.to_owned(),
        });
        *world.components.conditions.lock().unwrap() = error.into_iter().collect();
        let mut body = case["request"]["body"].clone();
        body["id"] = json!(format!("/app-{number}"));
        let answer = world.send("POST", "/v2/apps", body).await;
        assert_eq!(
            answer.status, case["expect"]["http_status"],
            "{} {answer:?}",
            case["id"]
        );
        if let Some(text) = text {
            assert_eq!(answer.body["details"][0]["path"], "/constraints(0)");
            assert!(
                answer.body["details"][0]["errors"][0]
                    .as_str()
                    .unwrap()
                    .contains(text)
            );
        }
    }
    world.components.remove();
    let body = json!({"id": "/y", "cmd": "sleep 1", "constraints": [["rack", "UNIQUE"]]});
    let answer = world.send("POST", "/v2/apps", body).await;
    assert_eq!(
        (answer.status, &answer.body["reason"]),
        (503, &json!("missing")),
        "a definition is rejected if its constraints cannot be validated"
    );
    world.stop().await;
}

#[tokio::test]
async fn missing_and_invalid_app_ids_are_rejected() {
    let world = World::start().await;
    for (body, text) in [
        (
            json!({"id": "/a/tasks", "cmd": "sleep 1"}),
            "must not end with any of the following reserved keywords",
        ),
        (
            json!({"id": "/", "cmd": "sleep 1"}),
            "Path must contain at least one path element",
        ),
        (json!({"cmd": "sleep 1"}), "is undefined"),
    ] {
        let answer = world.send("POST", "/v2/apps", body).await;
        let detail = &answer.body["details"][0];
        assert_eq!(
            (answer.status, &detail["path"]),
            (422, &json!("/id")),
            "{answer:?}"
        );
        assert!(detail["errors"][0].as_str().unwrap().contains(text), "{answer:?}");
    }
    // The part before a slash is a group.
    assert_eq!(world.send("POST", "/v2/apps", sleeper("/a/b")).await.status, 201);
    for id in ["/a", "/a/b/c"] {
        let answer = world
            .send("PUT", &format!("/v2/apps{id}"), json!({"cmd": "sleep 1"}))
            .await;
        let expected =
            json!([{"path": "/id", "errors": ["Groups and Applications may not have the same identifier."]}]);
        assert_eq!(
            (answer.status, &answer.body["details"]),
            (422, &expected),
            "{answer:?}"
        );
    }
    assert_eq!(world.send("POST", "/v2/apps", sleeper("/a/bc")).await.status, 201);
    world.stop().await;
}

#[tokio::test]
async fn delay_after_failures_is_reset_on_request() {
    let world = World::start().await;
    let mut definition = sleeper("/shop/web");
    definition["backoffSeconds"] = json!(600);
    definition["maxLaunchDelaySeconds"] = json!(3600);
    world.send("POST", "/v2/apps", definition).await;
    world.settled("/shop/web", 1).await;
    let url = "/v2/queue/shop/web/delay";
    let idle = world.call("DELETE", url, None).await;
    assert_eq!(
        (idle.status, &idle.body["message"]),
        (404, &json!("Application /shop/web not found in tasks queue."))
    );
    world.scheduler.set_immediate_launches(false);
    let task = world.scheduler.running()[0].clone();
    world.scheduler.update(task.as_str(), TaskState::Failed, None);
    wait_for("the next task waits", async || {
        world
            .scheduler
            .submitted()
            .iter()
            .any(|next| next.not_before.is_some())
    })
    .await;
    assert_eq!(world.call("DELETE", url, None).await.status, 204);
    let next = world.scheduler.submitted()[0].clone();
    assert_eq!(next.not_before, None);
    world.scheduler.launch_all();
    world.settled("/shop/web", 1).await;
    assert_eq!(
        world.call("DELETE", "/v2/queue/absent/delay", None).await.status,
        404
    );
    world.stop().await;
}

#[tokio::test]
async fn queue_shows_the_last_unused_offers_on_request() {
    let world = World::start().await;
    world.scheduler.set_immediate_launches(false);
    let at = "2026-01-02T03:04:05Z".parse().unwrap();
    let mut reserved = Resource::scalar("cpus", 0.5);
    reserved.role = Some("ops".to_owned());
    let reasons = Reasons {
        unused_offers: vec![Arc::new(UnusedOffer {
            offer: "o1".into(),
            agent: Arc::new(agent()),
            attributes: [Attribute::text("rack", "r1")].into(),
            resources: vec![
                Arc::new(reserved),
                Arc::new(Resource::ranges("ports", &[(31_000, 31_001)])),
            ],
            reasons: vec![Reason::InsufficientCpus, Reason::InsufficientMemory],
            at,
        })],
        last_unused_at: Some(at),
        ..Reasons::default()
    };
    world.scheduler.set_reasons(reasons.clone());
    world.send("POST", "/v2/apps", sleeper("/x")).await;
    world.scheduler.wait_until_submitted(1).await;
    let queue = world.get("/v2/queue?embed=lastUnusedOffers").await;
    let item = &queue["queue"][0];
    assert_eq!(
        item["lastUnusedOffers"],
        json!([{
            "offer": {
                "id": "o1", "hostname": "127.0.0.1", "agentId": "a-S0",
                "resources": [
                    {"name": "cpus", "role": "ops", "scalar": 0.5},
                    {"name": "ports", "role": "*", "ranges": [{"begin": 31_000, "end": 31_001}]},
                ],
                "attributes": [{"name": "rack", "text": "r1"}],
            },
            "timestamp": "2026-01-02T03:04:05.000Z",
            "reason": ["InsufficientCpus", "InsufficientMemory"],
        }])
    );
    let summary = &item["processedOffersSummary"];
    assert_eq!(summary["lastUnusedOfferAt"], "2026-01-02T03:04:05.000Z");
    assert_eq!(summary["lastUsedOfferAt"], Value::Null);
    let steps = summary["rejectSummaryLastOffers"].as_array().unwrap().iter();
    let steps: Vec<&str> = steps.map(|step| step["reason"].as_str().unwrap()).collect();
    assert_eq!(
        steps,
        [
            "UnfulfilledRole",
            "UnfulfilledConstraint",
            "NoCorrespondingReservationFound",
            "AgentMaintenance",
            "InsufficientCpus",
            "InsufficientMemory",
            "InsufficientDisk",
            "InsufficientGpus",
            "InsufficientPorts",
            "DeclinedScarceResources",
        ],
        "Marathon's order"
    );
    let plain = world.get("/v2/queue").await;
    assert_eq!(plain["queue"][0]["lastUnusedOffers"], Value::Null);
    assert_eq!(plain["words"], Value::Null);
    // Which constraint the offer did not satisfy.
    world.scheduler.set_reasons(Reasons {
        last: [(Reason::UnfulfilledConstraint, 1)].into(),
        last_offers: 1,
        last_constraints: [(0, 1)].into(),
        ..reasons
    });
    let mut pinned = sleeper("/pinned");
    pinned["constraints"] = json!([["hostname", "CLUSTER", "x"]]);
    world.send("POST", "/v2/apps", pinned).await;
    world.scheduler.wait_until_submitted(2).await;
    let queue = world.get("/v2/queue?embed=reasons").await;
    assert_eq!(
        queue["words"]["InsufficientCpus"],
        json!({
            "label": "cpus", "sentence": "offers have too few CPUs", "kind": "offer", "resource": "cpus",
            "advice": Reason::InsufficientCpus.words().advice,
        })
    );
    assert_eq!(queue["words"]["Disconnected"]["kind"], "obstacle");
    let item = queue["queue"]
        .as_array()
        .unwrap()
        .iter()
        .find(|item| item["app"]["id"] == "/pinned");
    assert_eq!(
        item.unwrap()["reasons"]["rejections"],
        json!([{
            "reason": "UnfulfilledConstraint",
            "text": "constraint hostname CLUSTER x: no agent is called x: 1 offer came from 127.0.0.1",
        }])
    );
    world.stop().await;
}
