//! What fails of an app or pod, as `embed=failing` shows it.

use serde_json::{Value, json};
use transom_cluster::v1::TaskState;
use transom_store::Store as _;
use transom_testkit::wait_for;

use super::sleeper;
use crate::testing::World;

async fn failing(world: &World) -> Value {
    world.get("/v2/apps/a?embed=app.failing").await["app"]["failing"].clone()
}

/// Ends the tasks of `/a` one after the other.
async fn fail(world: &World, times: usize, state: &TaskState, message: &str) {
    for _ in 0..times {
        let task = world.settled("/a", 1).await["tasks"][0]["id"].clone();
        let task = task.as_str().unwrap();
        world.scheduler.update(task, state.clone(), Some(message));
        wait_for("the next task", async || {
            let running = world.scheduler.running();
            running.iter().any(|other| other.as_str() != task)
        })
        .await;
    }
}

#[tokio::test]
async fn row_of_failures_is_shown_on_request_until_the_configuration_changes() {
    let world = World::start().await;
    let mut definition = sleeper("/a");
    definition["backoffSeconds"] = json!(0);
    world.send("POST", "/v2/apps", definition.clone()).await;
    let exited = "Command exited with status 3";
    fail(&world, 2, &TaskState::Failed, exited).await;
    fail(&world, 1, &TaskState::Gone, "the agent was removed").await;
    world.settled("/a", 1).await;
    assert_eq!(
        failing(&world).await,
        Value::Null,
        "two failures, and a lost task"
    );

    fail(&world, 1, &TaskState::Failed, exited).await;
    wait_for("the row is shown", async || failing(&world).await.is_object()).await;
    let shown = failing(&world).await;
    assert_eq!(
        (&shown["kind"], &shown["count"]),
        (&json!("crash-loop"), &json!(3))
    );
    let message = shown["message"].as_str().unwrap();
    assert!(
        message.starts_with("/a: crash loop: failed 3 times since "),
        "{message}"
    );
    assert!(
        message.ends_with("; last: Command exited with status 3"),
        "{message}"
    );
    let plain = world.get("/v2/apps/a").await;
    assert_eq!(plain["app"].get("failing"), None);

    wait_for("the row is stored", async || {
        let stored = world.store.get("apps/apps/a").await.unwrap().unwrap();
        let record: Value = serde_json::from_slice(&stored.value).unwrap();
        record["failures"]["count"] == 3
    })
    .await;
    let world = world.restart().await;
    assert_eq!(failing(&world).await, shown);

    definition["instances"] = json!(1);
    definition["cmd"] = json!("sleep 2");
    assert_eq!(world.send("PUT", "/v2/apps/a", definition).await.status, 200);
    assert_eq!(failing(&world).await, Value::Null);
    world.stop().await;
}
