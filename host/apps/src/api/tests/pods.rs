//! Pods: their definitions, instances of several tasks, and their status.

use serde_json::{Value, json};
use transom_cluster::v1::TaskState;
use transom_testkit::wait_for;

use super::sleeper;
use crate::testing::World;

/// A pod of two containers, the first of which has an endpoint and a health check.
fn pod(id: &str) -> Value {
    json!({
        "id": id,
        "containers": [
            {
                "name": "web", "exec": {"command": {"shell": "serve"}}, "resources": {"cpus": 0.1, "mem": 16},
                "endpoints": [{"name": "http", "hostPort": 0}],
                "healthCheck": {"http": {"endpoint": "http", "path": "/"}},
            },
            {"name": "log", "exec": {"command": {"argv": ["log", "-f"]}}, "resources": {"cpus": 0.1, "mem": 16}},
        ],
    })
}

/// The same pod without a health check: it is healthy as soon as it runs.
fn unchecked_pod(id: &str) -> Value {
    let mut pod = pod(id);
    pod["containers"][0]
        .as_object_mut()
        .unwrap()
        .remove("healthCheck");
    pod
}

impl World {
    /// Waits until the status of a pod is this one and no deployment runs. Returns it.
    async fn pod_status(&self, id: &str, status: &str) -> Value {
        let path = format!("/v2/pods{id}::status");
        wait_for(&format!("{id} is {status}"), async || {
            self.get(&path).await["status"] == status && self.get("/v2/deployments").await == json!([])
        })
        .await;
        self.get(&path).await
    }

    /// Waits until the only instance of a pod has this state. Returns it.
    async fn pod_instance(&self, id: &str, state: &str) -> Value {
        let path = format!("/v2/pods{id}::status");
        wait_for(&format!("the instance of {id} is {state}"), async || {
            self.get(&path).await["instances"][0]["status"] == state
        })
        .await;
        self.get(&path).await["instances"][0].clone()
    }
}

/// The task of a container of an instance.
fn task(instance: &Value, container: &str) -> String {
    let containers = instance["containers"].as_array().unwrap();
    let found = containers.iter().find(|one| one["name"] == container).unwrap();
    found["containerId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn pod_is_created_updated_and_deleted_with_its_events() {
    let world = World::start().await;
    let kinds = "?event_type=pod_created_event&event_type=pod_updated_event&event_type=pod_deleted_event&event_type=deployment_success&plan-format=light";
    let mut events = world.listen(kinds).await;
    let created = world.send("POST", "/v2/pods", unchecked_pod("/shop/p")).await;
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(created.headers["location"], "/shop/p");
    assert!(created.headers.contains_key("marathon-deployment-id"));
    assert_eq!(created.body["scaling"], json!({"kind": "fixed", "instances": 1}));
    assert_eq!(created.body["versionInfo"], Value::Null);
    let first = created.body["version"].as_str().unwrap().to_owned();
    let told = events.next_of("pod_created_event").await;
    assert_eq!(
        (&told["uri"], &told["clientIp"]),
        (&json!("/v2/pods"), &json!("127.0.0.1"))
    );
    let done = events.next_of("deployment_success").await;
    assert_eq!(
        done["plan"]["steps"],
        json!([
            {"actions": [{"action": "StartPod", "pod": "/shop/p"}]},
            {"actions": [{"action": "ScalePod", "pod": "/shop/p"}]},
        ])
    );
    assert_eq!(world.get("/v2/pods").await[0]["id"], "/shop/p");
    assert_eq!(
        world.get("/v2/apps").await["apps"],
        json!([]),
        "pods are not listed as apps"
    );
    assert_eq!(world.get("/v2/tasks").await["tasks"], json!([]));
    assert_eq!(
        world.get("/v2/groups").await["groups"][0]["pods"][0]["id"],
        "/shop/p"
    );

    let mut scaled = unchecked_pod("/shop/p");
    scaled["scaling"] = json!({"kind": "fixed", "instances": 2});
    let updated = world.send("PUT", "/v2/pods/shop/p", scaled).await;
    assert_eq!(updated.status, 200, "{updated:?}");
    assert_eq!(
        events.next_of("pod_updated_event").await["uri"],
        "/v2/pods/shop/p"
    );
    let done = events.next_of("deployment_success").await;
    let scale = json!([{"actions": [{"action": "ScalePod", "pod": "/shop/p"}]}]);
    assert_eq!(done["plan"]["steps"], scale, "nothing is restarted");
    let versions = world.get("/v2/pods/shop/p::versions").await;
    assert_eq!(versions.as_array().unwrap().len(), 2);
    let past = world.get(&format!("/v2/pods/shop/p::versions/{first}")).await;
    assert_eq!(past["scaling"]["instances"], 1);

    let deleted = world.call("DELETE", "/v2/pods/shop/p", None).await;
    assert_eq!((deleted.status, &deleted.body), (202, &json!("")), "{deleted:?}");
    assert_eq!(
        deleted.headers["location"],
        deleted.headers["marathon-deployment-id"]
    );
    assert_eq!(
        events.next_of("pod_deleted_event").await["uri"],
        "/v2/pods/shop/p"
    );
    events.next_of("deployment_success").await;
    let missing = world.call("GET", "/v2/pods/shop/p", None).await;
    let text = r#"{"message":"pod with /shop/p does not exist"}"#;
    assert_eq!((missing.status, &missing.body), (404, &json!({"message": text})));
    world.stop().await;
}

#[tokio::test]
async fn pod_status_shows_instances_containers_and_endpoints() {
    let world = World::start().await;
    world.scheduler.set_immediate_launches(false);
    world.send("POST", "/v2/pods", pod("/p")).await;
    let waiting = world.pod_instance("/p", "PENDING").await;
    assert_eq!(waiting["containers"], json!([]));
    let queued = &world.get("/v2/queue").await["queue"][0];
    assert_eq!(
        (&queued["pod"]["id"], &queued["app"]),
        (&json!("/p"), &Value::Null)
    );
    let group = world.scheduler.wait_until_submitted(1).await.remove(0);
    world.scheduler.launch(group.as_str()).await;
    let staged = world.pod_instance("/p", "PENDING").await;
    assert_eq!(staged["containers"].as_array().unwrap().len(), 2);
    let id = staged["id"].as_str().unwrap();
    assert_eq!(task(&staged, "web"), format!("{id}.web.1"));
    world
        .scheduler
        .update(&task(&staged, "web"), TaskState::Running, None);
    world
        .scheduler
        .update(&task(&staged, "log"), TaskState::Staging, None);
    world.pod_instance("/p", "STAGING").await;
    world
        .scheduler
        .update(&task(&staged, "log"), TaskState::Running, None);
    let unhealthy = world.pod_instance("/p", "DEGRADED").await;
    let condition = &unhealthy["containers"][0]["conditions"][0];
    assert_eq!(
        (&condition["name"], &condition["value"], &condition["reason"]),
        (
            &json!("healthy"),
            &json!("false"),
            &json!("health-unreported-by-mesos")
        )
    );
    assert_ne!(
        world.get("/v2/deployments").await,
        json!([]),
        "the deployment waits for the first health result"
    );
    let mut events = world.listen("?event_type=instance_health_changed_event").await;
    world.scheduler.report_health(&task(&staged, "web"), true);
    let status = world.pod_status("/p", "STABLE").await;
    let told = events.next().await;
    assert_eq!(
        (&told.data["instanceId"], &told.data["healthy"]),
        (&json!(id), &json!(true))
    );
    let instance = &status["instances"][0];
    assert_eq!(instance["agentHostname"], "127.0.0.1");
    let web = &instance["containers"][0];
    assert_eq!(
        web["endpoints"],
        json!([{"name": "http", "allocatedHostPort": 31_000, "healthy": true}])
    );
    assert_eq!(
        (&web["status"], &web["conditions"][0]["value"]),
        (&json!("TASK_RUNNING"), &json!("true"))
    );
    assert_eq!(
        web["resources"],
        json!({"cpus": 0.1, "mem": 16, "disk": 0, "gpus": 0})
    );
    let reference = instance["specReference"].as_str().unwrap();
    assert_eq!(world.get(reference).await["id"], "/p");
    assert_eq!(world.get("/v2/pods/::status").await[0], status);
    world.stop().await;
}

#[tokio::test]
async fn failed_container_replaces_all_containers_of_its_instance() {
    let world = World::start().await;
    world.send("POST", "/v2/pods", unchecked_pod("/p")).await;
    let instance = world.pod_status("/p", "STABLE").await["instances"][0].clone();
    world.scheduler.set_immediate_launches(false);
    let (web, log) = (task(&instance, "web"), task(&instance, "log"));
    world
        .scheduler
        .update(&web, TaskState::Failed, Some("Command exited with status 3"));
    // The executor ends the other containers; the instance is replaced only after all of them have
    // ended.
    let ending = world.pod_instance("/p", "TERMINAL").await;
    assert_eq!(ending["containers"][0]["termination"]["exitCode"], 3);
    assert_eq!(world.scheduler.submitted().len(), 0);
    world.scheduler.update(&log, TaskState::Killed, None);
    let group = world.scheduler.wait_until_submitted(1).await.remove(0);
    world.scheduler.launch(group.as_str()).await;
    world.scheduler.update(group.as_str(), TaskState::Running, None);
    let status = world.pod_status("/p", "STABLE").await;
    let next = &status["instances"][0];
    assert_eq!(next["id"], instance["id"], "the same instance");
    assert_eq!(task(next, "log"), log.replace(".log.1", ".log.2"));
    let ended = &status["terminationHistory"][0];
    assert_eq!(ended["instanceID"], instance["id"]);
    assert_eq!(ended["containers"].as_array().unwrap().len(), 2);
    world.stop().await;
}

#[tokio::test]
async fn instances_of_a_pod_are_killed_and_replaced() {
    let world = World::start().await;
    world.send("POST", "/v2/pods", unchecked_pod("/p")).await;
    let before = world.pod_status("/p", "STABLE").await["instances"][0].clone();
    let id = before["id"].as_str().unwrap();
    let path = format!("/v2/pods/p::instances/{id}");
    let killed = world.call("DELETE", &path, None).await;
    assert_eq!(killed.status, 200, "{killed:?}");
    assert_eq!(
        (&killed.body["instanceId"], &killed.body["state"]["goal"]),
        (&json!(id), &json!("Running"))
    );
    wait_for("the next tasks run", async || {
        let status = world.get("/v2/pods/p::status").await;
        let containers = &status["instances"][0]["containers"];
        containers[0]["containerId"] == json!(format!("{id}.web.2")) && status["status"] == "STABLE"
    })
    .await;
    let wiped = world
        .send("DELETE", "/v2/pods/p::instances?wipe=true", json!([id, "x"]))
        .await;
    assert_eq!(
        (wiped.status, wiped.body.as_array().unwrap().len()),
        (200, 1),
        "{wiped:?}"
    );
    wait_for("another instance runs", async || {
        let status = world.get("/v2/pods/p::status").await;
        status["status"] == "STABLE" && status["instances"][0]["id"] != id
    })
    .await;
    let missing = world.call("DELETE", &path, None).await;
    assert_eq!(missing.status, 404, "{missing:?}");
    let missing = world.call("DELETE", "/v2/pods/x::instances/i", None).await;
    assert_eq!(missing.status, 404, "{missing:?}");
    world.stop().await;
}

#[tokio::test]
async fn pods_and_apps_do_not_share_ids() {
    let world = World::start().await;
    world.send("POST", "/v2/pods", pod("/p")).await;
    world.send("POST", "/v2/apps", sleeper("/a")).await;
    world.pod_instance("/p", "DEGRADED").await;
    let rejected = world.send("POST", "/v2/pods", pod("/p")).await;
    assert_eq!(
        (rejected.status, &rejected.body["deployments"]),
        (409, &Value::Null)
    );
    assert_eq!(world.send("POST", "/v2/pods", pod("/a")).await.status, 409);
    assert_eq!(world.send("POST", "/v2/apps", sleeper("/p")).await.status, 409);
    let rejected = world.send("PUT", "/v2/apps/p", sleeper("/p")).await;
    assert_eq!(rejected.status, 422, "{rejected:?}");
    assert_eq!(
        rejected.body["details"][0]["errors"][0],
        "Applications and Pods may not share the same id"
    );
    let rejected = world.send("POST", "/v2/pods", pod("/p/below")).await;
    assert_eq!(
        (rejected.status, &rejected.body["details"][0]["errors"][0]),
        (422, &json!("Groups and Pods may not have the same identifier."))
    );
    for (method, path) in [
        ("DELETE", "/v2/apps/p"),
        ("POST", "/v2/apps/p/restart"),
        ("GET", "/v2/apps/p/tasks"),
    ] {
        assert_eq!(
            world.call(method, path, None).await.status,
            404,
            "{method} {path}"
        );
    }
    assert_eq!(world.call("DELETE", "/v2/pods/a", None).await.status, 404);
    let other = world.send("PUT", "/v2/pods/x", pod("/p")).await;
    assert_eq!(
        (other.status, &other.body["message"]),
        (400, &json!("'/x' does not match definition's id ('/p')"))
    );
    assert_eq!(world.send("PUT", "/v2/pods/x", pod("/x")).await.status, 404);
    world.stop().await;
}

#[tokio::test]
async fn pod_keeps_its_tasks_over_a_restart_of_the_daemon() {
    let world = World::start().await;
    world.send("POST", "/v2/pods", unchecked_pod("/p")).await;
    let before = world.pod_status("/p", "STABLE").await["instances"].clone();
    let launches = world.scheduler.launches();
    let world = world.restart().await;
    let after = world.pod_status("/p", "STABLE").await["instances"].clone();
    assert_eq!(after[0]["id"], before[0]["id"]);
    assert_eq!(task(&after[0], "log"), task(&before[0], "log"));
    assert_eq!(world.scheduler.launches(), launches);
    // A changed container replaces the instance.
    let mut changed = unchecked_pod("/p");
    changed["containers"][1]["exec"]["command"] = json!({"shell": "log"});
    let answer = world.send("PUT", "/v2/pods/p", changed).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let replaced = world.pod_status("/p", "STABLE").await["instances"].clone();
    assert_ne!(replaced[0]["id"], before[0]["id"]);
    world.stop().await;
}
