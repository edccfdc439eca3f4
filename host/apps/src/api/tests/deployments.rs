//! Locks, and deployments that replace others.

use serde_json::{Value, json};
use transom_cluster::v1::TaskState;
use transom_store::limits::MAX_CHANGES;
use transom_store::{Batch, Expect, Store as _};
use transom_testkit::wait_for;

use super::sleeper;
use super::tasks::ids;
use crate::config::Config;
use crate::testing::World;

#[tokio::test]
async fn app_is_locked_during_its_deployment_unless_forced() {
    let world = World::start().await;
    world.scheduler.set_immediate_launches(false);
    let created = world.send("POST", "/v2/apps", sleeper("/x")).await;
    let id = created.headers["marathon-deployment-id"].clone();
    let locked = world.send("PUT", "/v2/apps/x", json!({"instances": 2})).await;
    assert_eq!(
        (locked.status, &locked.body),
        (
            409,
            &json!({
                "message": "App is locked by one or more deployments. Override with the option '?force=true'. View details at '/v2/deployments/<DEPLOYMENT_ID>'.",
                "deployments": [{"id": id}],
            })
        )
    );
    let mut events = world.listen("?event_type=deployment_failed").await;
    let forced = world
        .send("PUT", "/v2/apps/x?force=True", json!({"instances": 2}))
        .await;
    assert_eq!(forced.status, 200, "{forced:?}");
    let failed = events.next().await;
    assert_eq!(
        (failed.kind.as_str(), &failed.data["id"]),
        ("deployment_failed", &json!(id))
    );
    let running = world.get("/v2/deployments").await;
    assert_eq!(
        (running.as_array().unwrap().len(), &running[0]["id"]),
        (1, &forced.body["deploymentId"])
    );

    let reverted = world
        .call(
            "DELETE",
            &format!("/v2/deployments/{}", running[0]["id"].as_str().unwrap()),
            None,
        )
        .await;
    assert_eq!(reverted.status, 200, "{reverted:?}");
    assert_eq!(world.get("/v2/apps/x").await["app"]["instances"], 1);
    let running = world.get("/v2/deployments").await[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        world
            .call("DELETE", &format!("/v2/deployments/{running}?force=true"), None)
            .await
            .status,
        202
    );
    assert_eq!(world.get("/v2/deployments").await, json!([]));
    world.stop().await;
}

#[tokio::test]
async fn a_scaling_that_cancels_an_upgrade_leaves_no_old_instances() {
    let world = World::start().await;
    world.send("POST", "/v2/apps", sleeper("/web")).await;
    world.settled("/web", 1).await;
    // New tasks are not launched from here on, so the upgrade cannot end.
    world.scheduler.set_immediate_launches(false);
    let upgrade = world
        .send("PUT", "/v2/apps/web", json!({"cmd": "sleep 2000"}))
        .await;
    assert_eq!(upgrade.status, 200, "{upgrade:?}");
    let scaled = world
        .send("PUT", "/v2/apps/web?force=true", json!({"instances": 2}))
        .await;
    assert_eq!(scaled.status, 200, "{scaled:?}");
    let deployment = &world.get("/v2/deployments").await[0];
    assert_eq!(
        deployment["currentActions"][0]["action"], "RestartApplication",
        "{deployment}"
    );

    world.scheduler.set_immediate_launches(true);
    world.scheduler.launch_all();
    let app = world.settled("/web", 2).await;
    for task in app["tasks"].as_array().unwrap() {
        assert!(
            task["version"].as_str() >= upgrade.body["version"].as_str(),
            "{app}"
        );
    }
    world.stop().await;
}

/// An unreachable agent may never return, so a deployment does not wait for its tasks. They are
/// killed if the agent returns.
#[tokio::test]
async fn unreachable_tasks_do_not_delay_kills_scaling_or_deletion() {
    let world = World::start().await;
    let mut definition = sleeper("/a");
    definition["unreachableStrategy"] = json!("disabled");
    definition["instances"] = json!(3);
    assert_eq!(world.send("POST", "/v2/apps", definition).await.status, 201);
    let tasks = ids(&world.settled("/a", 3).await["tasks"]);
    world.scheduler.set_immediate_kills(false);
    world.scheduler.update(&tasks[0], TaskState::Unreachable, None);
    let killed = world
        .call("DELETE", &format!("/v2/apps/a/tasks/{}", tasks[0]), None)
        .await;
    assert_eq!(killed.status, 200, "{killed:?}");
    let now = ids(&world.settled("/a", 3).await["tasks"]);
    assert!(!now.contains(&tasks[0]), "{now:?}");
    world.scheduler.wait_until_killed(&tasks[0]).await;
    // The earlier task returns and is still being killed when another leader takes over.
    world.scheduler.update(&tasks[0], TaskState::Killing, None);
    let world = world.restart().await;
    assert_eq!(ids(&world.settled("/a", 3).await["tasks"]), now);
    world.scheduler.update(&tasks[0], TaskState::Killed, None);
    world.scheduler.wait_until_purged(&tasks[0]).await;

    for task in &now {
        world.scheduler.update(task, TaskState::Unreachable, None);
    }
    let scaled = world.send("PUT", "/v2/apps/a", json!({"instances": 1})).await;
    assert_eq!(scaled.status, 200, "{scaled:?}");
    let no_deployment = async || world.get("/v2/deployments").await == json!([]);
    wait_for("the end of the scaling", no_deployment).await;
    let world = world.restart().await;
    wait_for("one task", async || {
        world.get("/v2/apps/a").await["app"]["tasks"]
            .as_array()
            .unwrap()
            .len()
            == 1
    })
    .await;
    let deleted = world.call("DELETE", "/v2/apps/a", None).await;
    assert_eq!(deleted.status, 200, "{deleted:?}");
    wait_for("the end of the app", async || {
        world.call("GET", "/v2/apps/a", None).await.status == 404
            && world.get("/v2/deployments").await == json!([])
    })
    .await;
    for task in now {
        world.scheduler.wait_until_killed(&task).await;
    }
    world.stop().await;
}

#[tokio::test]
async fn changes_in_place_keep_the_tasks_unless_a_restart_is_requested() {
    let world = World::start().await;
    let mut definition = sleeper("/a");
    definition["instances"] = json!(2);
    assert_eq!(world.send("POST", "/v2/apps", definition).await.status, 201);
    let tasks = ids(&world.settled("/a", 2).await["tasks"]);
    let changed = json!({
        "labels": {"tier": "web"}, "upgradeStrategy": {"minimumHealthCapacity": 0.5, "maximumOverCapacity": 1},
        "backoffSeconds": 7, "killSelection": "OLDEST_FIRST", "unreachableStrategy": "disabled",
    });
    let put = world.send("PUT", "/v2/apps/a", changed.clone()).await;
    assert_eq!(put.status, 200, "{put:?}");
    let app = world.settled("/a", 2).await;
    assert_eq!(app["labels"], json!({"tier": "web"}));
    assert_eq!(app["version"], put.body["version"]);
    assert_eq!(app["versionInfo"]["lastConfigChangeAt"], put.body["version"]);
    assert_eq!(ids(&app["tasks"]), tasks);
    // Nothing changes, so the version stays.
    world.send("PUT", "/v2/apps/a", changed).await;
    assert_eq!(world.settled("/a", 2).await["version"], put.body["version"]);

    let put = world.send("PUT", "/v2/apps/a?restart=true", json!({})).await;
    assert_eq!(put.status, 200, "{put:?}");
    let restarted = ids(&world.settled("/a", 2).await["tasks"]);
    assert!(
        restarted.iter().all(|task| !tasks.contains(task)),
        "{restarted:?}"
    );
    // The restart is done: neither the next change nor the next leader repeats it.
    let world = world.restart().await;
    world.send("PUT", "/v2/apps/a", json!({"labels": {}})).await;
    assert_eq!(ids(&world.settled("/a", 2).await["tasks"]), restarted);
    world.stop().await;
}

#[tokio::test]
async fn reverted_deployment_keeps_the_tasks_of_the_earlier_definition() {
    let world = World::start().await;
    let mut definition = sleeper("/a");
    definition["instances"] = json!(3);
    definition["upgradeStrategy"] = json!({"minimumHealthCapacity": 1, "maximumOverCapacity": 0.34});
    assert_eq!(world.send("POST", "/v2/apps", definition).await.status, 201);
    let before = ids(&world.settled("/a", 3).await["tasks"]);
    let version = world.get("/v2/apps/a").await["app"]["version"].clone();

    // The first task of the new definition does not start, so every earlier one still runs.
    world.scheduler.set_immediate_launches(false);
    let put = world
        .send("PUT", "/v2/apps/a", json!({"cmd": "sleep 2000"}))
        .await;
    world.scheduler.wait_until_submitted(1).await;
    let deployment = put.body["deploymentId"].as_str().unwrap().to_owned();
    let reverted = world
        .call("DELETE", &format!("/v2/deployments/{deployment}"), None)
        .await;
    assert_eq!(reverted.status, 200, "{reverted:?}");
    world.scheduler.set_immediate_launches(true);
    let app = world.settled("/a", 3).await;
    assert_eq!(
        (&app["cmd"], ids(&app["tasks"])),
        (&json!("sleep 1000"), before.clone())
    );

    // A rollback to the earlier version by its name has the same effect, while the new tasks still
    // wait for offers.
    world.scheduler.set_immediate_launches(false);
    world
        .send("PUT", "/v2/apps/a", json!({"cmd": "sleep 3000"}))
        .await;
    world.scheduler.wait_until_submitted(1).await;
    let rolled_back = world
        .send("PUT", "/v2/apps/a?force=true", json!({"version": version}))
        .await;
    assert_eq!(rolled_back.status, 200, "{rolled_back:?}");
    world.scheduler.set_immediate_launches(true);
    let app = world.settled("/a", 3).await;
    assert_eq!((&app["cmd"], ids(&app["tasks"])), (&json!("sleep 1000"), before));
    world.stop().await;
}

/// A task that ran once counts for the step of its deployment, even if it failed afterwards.
#[tokio::test]
async fn repeatedly_failing_task_does_not_block_scaling() {
    let world = World::start().await;
    let mut definition = sleeper("/a");
    definition["backoffSeconds"] = json!(3600);
    assert_eq!(world.send("POST", "/v2/apps", definition).await.status, 201);
    let first = ids(&world.settled("/a", 1).await["tasks"]).remove(0);
    world.scheduler.set_immediate_launches(false);
    world.send("PUT", "/v2/apps/a", json!({"instances": 2})).await;
    let second = world.scheduler.wait_until_submitted(1).await.remove(0);
    world.scheduler.launch(second.as_str()).await;
    world.scheduler.update(&first, TaskState::Failed, None);
    let next = world.scheduler.wait_until_submitted(1).await.remove(0);
    world.scheduler.launch(next.as_str()).await;
    world.scheduler.update(next.as_str(), TaskState::Running, None);
    world.scheduler.update(next.as_str(), TaskState::Failed, None);
    world.scheduler.wait_until_submitted(1).await;
    assert_ne!(
        world.get("/v2/deployments").await,
        json!([]),
        "scaling waits for the second task, which has not run"
    );
    world.scheduler.update(second.as_str(), TaskState::Running, None);
    wait_for("the end of the scaling", async || {
        world.get("/v2/deployments").await == json!([])
    })
    .await;
    world.stop().await;
}

#[tokio::test]
async fn deleted_apps_with_more_versions_than_a_batch_has_changes_leave_the_store() {
    let world = World::start().await;
    let mut app = sleeper("/large/app");
    app["instances"] = json!(0);
    let created = world.send("POST", "/v2/apps", app).await;
    assert_eq!(created.status, 201, "{created:?}");
    wait_for("no deployment", async || {
        world.get("/v2/deployments").await == json!([])
    })
    .await;

    // As many past versions as these would take 100 changes of every app.
    let prefix = Config::default().settings.framework_name.clone();
    let stored = world.store.scan(&format!("{prefix}/apps/large/")).await.unwrap();
    let mut record: Value = serde_json::from_slice(&stored[0].value).unwrap();
    let past =
        |number| json!({"version": format!("2020-01-01T00:00:00.{number:03}Z"), "config": "c", "bytes": 9});
    record["past"] = (0..100).map(past).collect();
    let mut batch = Batch::new();
    for number in 0..MAX_CHANGES / 100 {
        record["spec"]["app"]["id"] = json!(format!("/large/app{number}"));
        let key = format!("{prefix}/apps/large/app{number}");
        batch = batch.put(key, serde_json::to_vec(&record).unwrap(), Expect::Any);
    }
    world.store.commit(batch).await.unwrap();
    let world = world.restart().await;
    let before = world.get("/v2/apps/large/app0/versions").await;
    assert_eq!(before["versions"].as_array().unwrap().len(), 101);

    let deleted = world.call("DELETE", "/v2/groups/large?force=true", None).await;
    assert_eq!(deleted.status, 200, "{deleted:?}");
    wait_for("the end of the deletion", async || {
        let left = world.store.scan(&format!("{prefix}/apps/large/")).await.unwrap();
        left.is_empty() && world.get("/v2/deployments").await == json!([])
    })
    .await;
    let left = world
        .store
        .scan(&format!("{prefix}/versions/large/"))
        .await
        .unwrap();
    assert!(
        left.len() <= MAX_CHANGES / 100 + 1,
        "only the definitions that a revert restores"
    );
    world.stop().await;
}
