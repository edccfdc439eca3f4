//! Restarts that begin with some of the instances.

use serde_json::{Value, json};
use transom_cluster::v1::TaskState;
use transom_testkit::wait_for;

use super::sleeper;
use super::tasks::ids;
use crate::testing::World;

impl World {
    /// Creates an app with four running instances; returns the ids of their tasks.
    async fn four(&self) -> Vec<String> {
        let mut app = sleeper("/x");
        app["instances"] = json!(4);
        self.send("POST", "/v2/apps", app).await;
        ids(&self.settled("/x", 4).await["tasks"])
    }

    /// Starts a restart with this query; returns the id of its deployment.
    async fn restart_with(&self, query: &str) -> String {
        let body = json!({"cmd": "sleep 2000"});
        let started = self.send("PUT", &format!("/v2/apps/x?{query}"), body).await;
        assert_eq!(started.status, 200, "{started:?}");
        started.body["deploymentId"].as_str().unwrap().to_owned()
    }

    async fn canary(&self) -> Value {
        self.get("/v2/deployments?embed=canary").await[0]["canary"].clone()
    }

    async fn held(&self) {
        wait_for("the restart is held", async || {
            self.canary().await["state"] == "held"
        })
        .await;
    }

    /// The number of these tasks that still exist.
    async fn left(&self, tasks: &[String]) -> usize {
        let shown = self.get("/v2/apps/x/tasks").await["tasks"].clone();
        let shown = ids(&shown);
        tasks.iter().filter(|task| shown.contains(task)).count()
    }
}

#[tokio::test]
async fn restart_is_held_with_its_first_instances_until_it_is_continued() {
    let world = World::start().await;
    let old = world.four().await;
    let mut events = world.listen("?event_type=deployment_canary_held_event").await;
    let deployment = world.restart_with("canary=25%").await;
    world.held().await;
    assert_eq!(events.next().await.data["plan"]["id"], deployment);
    let canary = world.canary().await;
    assert_eq!(
        (&canary["instances"], &canary["seconds"]),
        (&json!("25%"), &Value::Null)
    );
    assert_eq!(world.left(&old).await, 3);
    let plain = world.get("/v2/deployments").await;
    assert_eq!(plain[0]["canary"], Value::Null, "only shown with embed=canary");

    // The next leader holds the restart too.
    let world = world.restart().await;
    world.held().await;
    assert_eq!(world.left(&old).await, 3);
    let path = format!("/v2/deployments/{deployment}/continue");
    assert_eq!(world.call("POST", &path, None).await.status, 204);
    world.settled("/x", 4).await;
    assert_eq!(world.left(&old).await, 0);
    assert_eq!(world.call("POST", &path, None).await.status, 404);
    world.stop().await;
}

#[tokio::test]
async fn earlier_instance_that_ends_while_the_restart_is_held_keeps_its_definition() {
    let world = World::start().await;
    let old = world.four().await;
    let version = world.get("/v2/apps/x").await["app"]["version"].clone();
    let deployment = world.restart_with("canary=1").await;
    world.held().await;
    let shown = ids(&world.get("/v2/apps/x/tasks").await["tasks"]);
    let task = old.iter().find(|task| shown.contains(task)).unwrap();
    world.scheduler.update(task, TaskState::Failed, None);
    let next = task.replace("._app.1", "._app.2");
    wait_for("the next task", async || {
        world.left(std::slice::from_ref(&next)).await == 1
    })
    .await;
    let tasks = world.get("/v2/apps/x/tasks").await["tasks"].clone();
    let relaunched = tasks.as_array().unwrap().iter().find(|one| one["id"] == next);
    assert_eq!(relaunched.unwrap()["version"], version);
    let path = format!("/v2/deployments/{deployment}/continue");
    assert_eq!(world.call("POST", &path, None).await.status, 204);
    let app = world.settled("/x", 4).await;
    for task in app["tasks"].as_array().unwrap() {
        assert_eq!(task["version"], app["version"], "{app}");
    }
    world.stop().await;
}

#[tokio::test]
async fn restart_is_rolled_back_when_its_first_instance_fails() {
    let world = World::start().await;
    let old = world.four().await;
    world.scheduler.set_immediate_launches(false);
    let mut events = world
        .listen("?event_type=deployment_failed&plan-format=light")
        .await;
    let deployment = world.restart_with("canary=1").await;
    let task = world.scheduler.wait_until_submitted(1).await.remove(0);
    world.scheduler.launch(task.as_str()).await;
    world.scheduler.update(task.as_str(), TaskState::Running, None);
    world.held().await;
    world.scheduler.set_immediate_launches(true);
    world.scheduler.update(
        task.as_str(),
        TaskState::Failed,
        Some("Command exited with status 1"),
    );
    let failed = events.next().await.data;
    assert_eq!(failed["id"], deployment);
    assert_eq!(
        failed["reason"],
        "The deployment was rolled back: a new instance of /x failed."
    );
    let app = world.settled("/x", 4).await;
    assert_eq!(app["cmd"], "sleep 1000");
    assert_eq!(world.left(&old).await, 3, "the other instances keep their tasks");
    world.stop().await;
}

#[tokio::test]
async fn restart_continues_when_instances_are_healthy_and_checks_succeed_for_canary_seconds() {
    let world = World::start().await;
    let mut app = sleeper("/x");
    app["instances"] = json!(2);
    app["portDefinitions"] = json!([{"port": 0}]);
    app["check"] = json!({"tcp": {}, "intervalSeconds": 2, "timeoutSeconds": 1, "delaySeconds": 0});
    *world.components.probe.lock().unwrap() = Ok(transom_plugin_host::probe::Outcome::Tcp(false));
    world.send("POST", "/v2/apps", app).await;
    let old = ids(&world.settled("/x", 2).await["tasks"]);
    world.restart_with("canary=1&canarySeconds=1").await;
    world.held().await;
    wait_for("the check has its result", async || {
        let tasks = world.get("/v2/apps/x/tasks").await["tasks"].clone();
        let results = tasks.as_array().unwrap().iter().map(|task| &task["checkResult"]);
        results
            .into_iter()
            .all(|result| *result == json!({"tcp": {"succeeded": false}}))
    })
    .await;
    assert_eq!(
        world.canary().await["state"],
        "held",
        "its check does not succeed"
    );
    *world.components.probe.lock().unwrap() = Ok(transom_plugin_host::probe::Outcome::Tcp(true));
    world.settled("/x", 2).await;
    assert_eq!(world.left(&old).await, 0);
    world.stop().await;
}

#[tokio::test]
async fn wrong_canaries_are_rejected() {
    let world = World::start().await;
    world.send("POST", "/v2/apps", sleeper("/x")).await;
    world.settled("/x", 1).await;
    for query in [
        "canary=0",
        "canary=x",
        "canary=200%",
        "canarySeconds=5",
        "canary=1&canarySeconds=-1",
    ] {
        let body = json!({"cmd": "sleep 2000"});
        let rejected = world.send("PUT", &format!("/v2/apps/x?{query}"), body).await;
        assert_eq!(rejected.status, 400, "{query}: {rejected:?}");
    }
    world.scheduler.set_immediate_launches(false);
    let deployment = world.restart_with("force=false").await;
    let path = format!("/v2/deployments/{deployment}/continue");
    let rejected = world.call("POST", &path, None).await;
    assert_eq!(rejected.status, 409, "{rejected:?}");
    world.stop().await;
}
