//! Large changes: other input does not wait until they are planned and stored.

use serde_json::{Value, json};
use transom_cluster::v1::TaskState;
use transom_store::Store;
use transom_testkit::wait_for;

use super::sleeper;
use crate::testing::World;

/// The group `/g` with `/g/web` and 100 apps without instances.
fn group(web: &Value) -> Value {
    let app = |number| json!({"id": format!("idle{number}"), "cmd": "sleep 1000", "instances": 0});
    let apps: Vec<Value> = (0..100).map(app).chain([web.clone()]).collect();
    json!({"id": "/g", "apps": apps})
}

async fn has_ended(world: &World, task: &str) {
    wait_for(&format!("{task} has ended"), async || {
        let shown = world.get("/v2/apps/g/web").await;
        shown["app"]["lastTaskFailure"]["taskId"] == task
    })
    .await;
}

#[tokio::test]
async fn task_updates_are_handled_while_a_large_change_is_stored() {
    let world = World::start().await;
    world.scheduler.set_immediate_kills(true);
    assert_eq!(
        world.send("POST", "/v2/apps", sleeper("/g/web")).await.status,
        201
    );
    let first = world.settled("/g/web", 1).await["tasks"][0]["id"].clone();
    let first = first.as_str().unwrap();
    let mut web = sleeper("web");
    web["labels"] = json!({"changed": "yes"});

    world.store.hold_after(0);
    let (changed, other, ()) = tokio::join!(
        world.send("PUT", "/v2/groups?force=true", group(&web)),
        async {
            world.store.wait_until_held().await;
            world.send("POST", "/v2/apps", sleeper("/other")).await
        },
        async {
            world.store.wait_until_held().await;
            world
                .scheduler
                .update(first, TaskState::Failed, Some("out of paper"));
            has_ended(&world, first).await;
            let shown = world.get("/v2/apps").await;
            assert_eq!(
                shown["apps"].as_array().unwrap().len(),
                1,
                "nothing is stored yet"
            );
            world.store.release();
        }
    );
    assert_eq!(changed.status, 200, "{changed:?}");
    assert_eq!(other.status, 201, "{other:?}");
    world.settled("/other", 1).await;
    let web = world.settled("/g/web", 1).await;
    assert_eq!(web["labels"], json!({"changed": "yes"}));
    assert_eq!(
        web["lastTaskFailure"]["message"], "out of paper",
        "the change, planned before, does not hide the failure"
    );
    assert_eq!(
        world.get("/v2/groups/g").await["apps"].as_array().unwrap().len(),
        101
    );
    wait_for("the failure is stored", async || {
        let stored = world.store.get("apps/apps/g/web").await.unwrap().unwrap();
        String::from_utf8_lossy(&stored.value).contains("out of paper")
    })
    .await;
    world.stop().await;
}

#[tokio::test]
async fn task_updates_are_handled_while_the_end_of_a_large_deployment_is_stored() {
    let world = World::start().await;
    let created = world.send("PUT", "/v2/groups", group(&sleeper("web"))).await;
    assert!(created.status < 300, "{created:?}");
    world.settled("/g/web", 1).await;
    assert_eq!(
        world.send("POST", "/v2/apps", sleeper("/h/web")).await.status,
        201
    );
    let task = world.settled("/h/web", 1).await["tasks"][0]["id"].clone();
    let task = task.as_str().unwrap();

    // The change itself is stored.
    world.store.hold_after(1);
    let (deleted, ()) = tokio::join!(world.call("DELETE", "/v2/groups/g?force=true", None), async {
        world.store.wait_until_held().await;
        world
            .scheduler
            .update(task, TaskState::Failed, Some("out of paper"));
        wait_for("the task is replaced", async || {
            let shown = world.get("/v2/apps/h/web").await;
            shown["app"]["lastTaskFailure"]["taskId"] == task
        })
        .await;
        assert_eq!(world.get("/v2/deployments").await.as_array().unwrap().len(), 1);
        world.store.release();
    });
    assert_eq!(deleted.status, 200, "{deleted:?}");
    wait_for("the group is deleted", async || {
        world.get("/v2/deployments").await == json!([])
            && world.store.scan("apps/apps/g/").await.unwrap().is_empty()
    })
    .await;
    world.settled("/h/web", 1).await;
    world.stop().await;
}

#[tokio::test]
async fn large_change_that_is_not_stored_changes_nothing() {
    let config = crate::Config {
        store_timeout: std::time::Duration::from_millis(300),
        ..crate::Config::default()
    };
    let world = World::start_with(config).await;
    assert_eq!(
        world.send("POST", "/v2/apps", sleeper("/g/web")).await.status,
        201
    );
    world.settled("/g/web", 1).await;
    world.store.hold_after(0);
    let rejected = world
        .send("PUT", "/v2/groups?force=true", group(&sleeper("web")))
        .await;
    assert_eq!(rejected.status, 503, "{rejected:?}");
    assert_eq!(world.get("/v2/apps").await["apps"].as_array().unwrap().len(), 1);
    world.store.release();
    // The core restores what the store has, although the write took effect late.
    wait_for("the store has only the app", async || {
        world.store.scan("apps/apps/").await.unwrap().len() == 1
    })
    .await;
    world.stop().await;
}
