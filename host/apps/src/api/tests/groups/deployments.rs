//! Deployments of groups: their locks, steps and deadlines.

use serde_json::json;
use transom_cluster::v1::TaskState;
use transom_testkit::wait_for;

use super::super::sleeper;
use super::shop;
use crate::testing::{World, operations};

#[tokio::test]
async fn deployment_locks_all_of_its_apps_and_a_forced_change_cancels_it() {
    let world = World::start().await;
    world.scheduler.set_immediate_launches(false);
    let created = world.send("PUT", "/v2/groups", shop()).await;
    let id = created.body["deploymentId"].clone();
    let other = world.send("POST", "/v2/apps", sleeper("/other")).await;
    assert_eq!(other.status, 201, "other apps are not locked");
    let mut failures = world.listen("?event_type=group_change_failed").await;
    let locked = world
        .send("PUT", "/v2/apps/shop/web/ui", json!({"instances": 2}))
        .await;
    assert_eq!(
        (locked.status, &locked.body["deployments"]),
        (409, &json!([{"id": id}]))
    );
    assert_eq!(failures.next().await.data["groupId"], "/shop/web");
    let forced = world
        .send("PUT", "/v2/apps/shop/web/ui?force=true", json!({"instances": 2}))
        .await;
    assert_eq!(forced.status, 200, "{forced:?}");
    world.scheduler.set_immediate_launches(true);
    world.scheduler.launch_all();
    world.settled("/shop/web/ui", 2).await;
    world.settled("/shop/web/api", 1).await;
    world.stop().await;
}

/// Until its step begins, an app has the definition and the number of instances that it had before.
#[tokio::test]
async fn app_keeps_its_definition_until_its_step() {
    let world = World::start().await;
    world.send("PUT", "/v2/groups", shop()).await;
    world.quiet().await;
    let app = world.settled("/shop/web/api", 1).await;
    let (version, task) = (app["version"].as_str().unwrap(), app["tasks"][0]["id"].clone());
    world.scheduler.set_immediate_launches(false);
    let mut changed = shop();
    for (group, app) in [(0, 0), (1, 0)] {
        changed["groups"][group]["apps"][app]["cmd"] = json!("sleep 2000");
    }
    changed["groups"][1]["apps"][0]["instances"] = json!(3);
    let started = world.send("PUT", "/v2/groups", changed).await;
    assert_eq!(started.status, 200, "{started:?}");
    let only_request = async |world: &World| {
        let found = || {
            let submitted = world.scheduler.submitted().into_iter();
            let of_api = submitted.filter(|request| request.id.as_str().starts_with("shop_web_api"));
            of_api.collect::<Vec<_>>()
        };
        wait_for("one pending task", async || found().len() == 1).await;
        found().remove(0)
    };

    world
        .scheduler
        .update(task.as_str().unwrap(), TaskState::Failed, None);
    let request = only_request(&world).await;
    assert_eq!(request.spec.version, version, "its task has ended");
    let launched = world.scheduler.launch(request.id.as_str()).await;
    assert_eq!(launched.command.unwrap().value.as_deref(), Some("sleep 1000"));
    world
        .scheduler
        .update(request.id.as_str(), TaskState::Running, None);
    let path = format!("/v2/apps/shop/web/api/tasks/{}?wipe=true", request.id.as_str());
    let killed = world.call("DELETE", &path, None).await;
    assert_eq!(killed.status, 200, "{killed:?}");
    let request = only_request(&world).await;
    assert_eq!(request.spec.version, version, "its instance was removed");
    // The next leader has to start it again.
    let world = world.restart().await;
    let request = only_request(&world).await;
    assert_eq!(request.spec.version, version, "another daemon leads");

    world.scheduler.set_immediate_launches(true);
    world.scheduler.launch_all();
    world.quiet().await;
    let app = world.settled("/shop/web/api", 3).await;
    for task in app["tasks"].as_array().unwrap() {
        assert_eq!(task["version"], app["version"], "{app}");
    }
    world.stop().await;
}

/// The leader is replaced in each step of a deployment of three steps.
#[tokio::test]
async fn deployment_of_a_group_continues_after_a_restart_in_each_step() {
    let mut world = World::start().await;
    world.scheduler.set_immediate_launches(false);
    let created = world.send("PUT", "/v2/groups", shop()).await;
    assert_eq!(created.status, 200, "{created:?}");
    for (step, group) in [(2, "shop_db"), (3, "shop_web")] {
        world = world.restart().await;
        wait_for("the deployment is in its step", async || {
            world.get("/v2/deployments").await[0]["currentStep"] == step
        })
        .await;
        wait_for("the step is done", async || {
            world.launch_below(group).await;
            world.get("/v2/deployments").await[0]["currentStep"] != step
        })
        .await;
    }
    world.quiet().await;
    world.settled("/shop/web/ui", 1).await;
    let mut changed = shop();
    changed["groups"] = json!([changed["groups"][0].clone()]);
    world.scheduler.set_immediate_kills(false);
    world.send("PUT", "/v2/groups", changed).await;
    world = world.restart().await;
    assert_eq!(world.get("/v2/deployments").await.as_array().unwrap().len(), 1);
    world.end_all("/shop/web").await;
    world.quiet().await;
    assert_eq!(world.ids().await, ["/shop/db/pg"]);
    world.stop().await;
}

#[tokio::test]
async fn deployment_is_reverted_or_stopped_at_its_deadline() {
    let world = World::start().await;
    world.send("POST", "/v2/apps", sleeper("/a")).await;
    let task = world.settled("/a", 1).await["tasks"][0]["id"].clone();
    // New tasks are not launched from here on.
    world.scheduler.set_immediate_launches(false);
    let mut events = world
        .listen("?event_type=deployment_step_failure&event_type=deployment_failed")
        .await;
    for (then, cmd) in [("rollback", "sleep 1000"), ("fail", "sleep 2000")] {
        let change = json!({"cmd": "sleep 2000"});
        let url = format!("/v2/apps/a?deadline=1&onDeadline={then}");
        let changed = world.send("PUT", &url, change).await;
        assert_eq!(changed.status, 200, "{changed:?}");
        let shown = &world.get("/v2/deployments?embed=deadline").await[0];
        assert_eq!(shown["deadline"]["onDeadline"], then, "{shown}");
        assert_eq!(world.get("/v2/deployments").await[0].get("deadline"), None);
        let failed = [events.next().await, events.next().await];
        assert_eq!(failed[0].kind, "deployment_step_failure");
        assert_eq!(failed[1].data["id"], changed.body["deploymentId"]);
        let reason = failed[1].data["reason"].as_str().unwrap();
        assert!(reason.contains("not done within 1 s"), "{reason}");
        world.quiet().await;
        let app = world.get("/v2/apps/a").await["app"].clone();
        assert_eq!(app["cmd"], cmd);
        assert_eq!(app["tasks"][0]["id"], task, "the instance is left unchanged");
    }
    for wrong in [
        "deadline=0",
        "deadline=x",
        "deadline=5&onDeadline=no",
        "onDeadline=fail",
    ] {
        let url = format!("/v2/apps/a?{wrong}");
        let rejected = world.send("PUT", &url, json!({"cpus": 2})).await;
        assert_eq!(rejected.status, 400, "{rejected:?}");
    }
    world.stop().await;
}

/// A group of apps of which each depends on the one before.
fn chain(length: usize) -> serde_json::Value {
    let app = |number: usize| {
        let mut app = sleeper(&format!("a{number}"));
        if number > 0 {
            app["dependencies"] = json!([format!("a{}", number - 1)]);
        }
        app
    };
    let apps: Vec<serde_json::Value> = (0..length).map(app).collect();
    json!({"id": "/chain", "apps": apps})
}

#[tokio::test]
async fn work_of_a_chain_grows_with_its_apps() {
    let mut visited = Vec::new();
    for length in [10, 80] {
        let world = World::start().await;
        operations::take();
        let started = world.send("PUT", "/v2/groups", chain(length)).await;
        assert_eq!(started.status, 200, "{started:?}");
        world.settled(&format!("/chain/a{}", length - 1), 1).await;
        world.quiet().await;
        visited.push(operations::take());
        world.stop().await;
    }
    assert!(
        visited[1] <= 9 * visited[0],
        "{visited:?} actions and ports visited"
    );
}

/// The step is stored apart from the deployment.
#[tokio::test]
async fn deployment_continues_at_its_step_after_a_restart() {
    let world = World::start().await;
    world.scheduler.set_immediate_launches(false);
    world.send("PUT", "/v2/groups", chain(3)).await;
    let step = async |world: &World| world.get("/v2/deployments").await[0]["currentStep"].clone();
    world.scheduler.launch_all();
    wait_for("the step of a1", async || step(&world).await == 3).await;
    let world = world.restart().await;
    assert_eq!(step(&world).await, json!(3));
    world.scheduler.set_immediate_launches(true);
    world.scheduler.launch_all();
    world.settled("/chain/a2", 1).await;
    world.quiet().await;
    let world = world.restart().await;
    assert_eq!(world.get("/v2/deployments").await, json!([]));
    world.stop().await;
}
