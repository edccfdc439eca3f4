//! The work for small events, which must not grow with the size of the app: counted are the visits of
//! instances, not times.

use serde_json::json;
use transom_cluster::v1::TaskState;
use transom_testkit::wait_for;

use super::sleeper;
use crate::testing::{World, operations};

/// The visits of instances for ten status updates of one task of an app.
async fn work_of_updates(instances: u64, is_deploying: bool) -> usize {
    let world = World::start().await;
    let mut app = sleeper("/a");
    app["instances"] = json!(instances);
    world.send("POST", "/v2/apps", app).await;
    let app = world.settled("/a", instances).await;
    if is_deploying {
        world.scheduler.set_immediate_launches(false);
        let change = json!({"instances": instances + 1});
        let started = world.send("PUT", "/v2/apps/a", change).await;
        assert_eq!(started.status, 200, "{started:?}");
        world.scheduler.wait_until_submitted(1).await;
    }
    let task = app["tasks"][0]["id"].as_str().unwrap();
    operations::take();
    for _ in 0..10 {
        let before = world.published();
        world.scheduler.update(task, TaskState::Running, None);
        wait_for("the event of the update", async || world.published() > before).await;
    }
    let work = operations::take();
    world.stop().await;
    work
}

#[tokio::test]
async fn work_of_a_status_update_does_not_grow_with_the_app() {
    for is_deploying in [false, true] {
        // Small apps are counted again in debug builds.
        let (small, large) = (
            work_of_updates(25, is_deploying).await,
            work_of_updates(400, is_deploying).await,
        );
        assert!(
            0 < small && large <= 2 * small,
            "deploying: {is_deploying}; {small} and {large} visits"
        );
    }
}

/// Counts are read, not computed, by `/metrics` and by documents of apps.
#[tokio::test]
async fn counts_are_read_without_visits_of_instances() {
    let world = World::start().await;
    let mut app = sleeper("/a");
    app["instances"] = json!(30);
    world.send("POST", "/v2/apps", app).await;
    world.settled("/a", 30).await;
    operations::take();
    assert!(
        world
            .metrics()
            .contains("transom_apps_instances{condition=\"Running\"} 30.0")
    );
    assert_eq!(world.get("/v2/apps").await["apps"][0]["tasksRunning"], 30);
    assert_eq!(operations::take(), 0);
    world.stop().await;
}
