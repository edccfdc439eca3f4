//! Apps and pods with persistent volumes, whose instances stay on their agents.

use std::sync::Arc;

use serde_json::{Value, json};
use transom_scheduler::{LocalVolume, Reservation};
use transom_testkit::wait_for;

use crate::Settings;
use crate::testing::{World, agent};

fn resident(id: &str) -> Value {
    json!({
        "id": id, "cmd": "sleep 1000",
        "container": {"type": "MESOS", "volumes": [{"containerPath": "data", "mode": "RW", "persistent": {"size": 10}}]},
    })
}

/// Apps with persistent volumes need a role other than `*`.
async fn world() -> World {
    World::start_with(Settings {
        role: "ops".to_owned(),
        ..Settings::default()
    })
    .await
}

impl World {
    /// Records a reservation for the only instance of the app, and returns its key.
    async fn reserve(&self, app: &str) -> String {
        let task = self.get(&format!("/v2/apps{app}/tasks")).await["tasks"][0].clone();
        let task = task["id"].as_str().unwrap();
        let key = task.split("._app.").next().unwrap().to_owned();
        self.scheduler.set_reservation(Reservation {
            key: key.clone(),
            id: "r1".to_owned(),
            run_spec: app.to_owned(),
            role: "ops".to_owned(),
            agent: Arc::new(agent()),
            agent_attributes: Arc::default(),
            volumes: vec![LocalVolume {
                container_path: "data".to_owned(),
                uuid: "0664256e-6771-11e5-94e1-be5b2935a987".to_owned(),
                persistence_id: "x#data#0664256e-6771-11e5-94e1-be5b2935a987".to_owned(),
            }],
            since: jiff::Timestamp::now(),
            created: true,
            task: Some(task.into()),
            releasing: false,
        });
        wait_for("the volume is shown", async || {
            let tasks = self.get(&format!("/v2/apps{app}/tasks")).await;
            tasks["tasks"][0]["localVolumes"][0]["containerPath"] == "data"
        })
        .await;
        key
    }

    /// Whether the reservation is being released, or no longer exists.
    fn is_released(&self, key: &str) -> bool {
        use transom_scheduler::SchedulerApi;
        let reservations = self.scheduler.reservations();
        reservations.get(key).is_none_or(|one| one.releasing)
    }
}

#[tokio::test]
async fn resident_keeps_its_volume_over_kills_restarts_and_another_leader() {
    let world = world().await;
    let created = world.send("POST", "/v2/apps", resident("/x")).await;
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(created.body["unreachableStrategy"], "disabled");
    assert_eq!(created.body["upgradeStrategy"]["maximumOverCapacity"], 0);
    world.settled("/x", 1).await;
    let key = world.reserve("/x").await;
    let next = async |world: &World, incarnation: u32| {
        let task = format!("{key}._app.{incarnation}");
        wait_for(&format!("{task} runs"), async || {
            let shown = world.get("/v2/apps/x/tasks").await;
            shown["tasks"][0]["id"] == task && shown["tasks"][0]["state"] == "TASK_RUNNING"
        })
        .await;
    };
    world.call("DELETE", "/v2/apps/x/tasks", None).await;
    next(&world, 2).await;
    let restarted = world
        .send("PUT", "/v2/apps/x", json!({"cmd": "sleep 2000"}))
        .await;
    assert_eq!(restarted.status, 200, "{restarted:?}");
    next(&world, 3).await;
    world.settled("/x", 1).await;
    assert!(!world.is_released(&key));

    // A kill for a replacement is under way when the daemon stops.
    world.scheduler.set_immediate_kills(false);
    world.call("DELETE", "/v2/apps/x/tasks", None).await;
    let world = world.restart().await;
    world.scheduler.set_immediate_kills(true);
    let task = format!("{key}._app.3");
    world
        .scheduler
        .update(&task, transom_cluster::v1::TaskState::Killed, None);
    next(&world, 4).await;
    assert!(!world.is_released(&key));
    world.stop().await;
}

#[tokio::test]
async fn volume_is_destroyed_when_its_instance_is_wiped_or_its_app_deleted() {
    let world = world().await;
    world.send("POST", "/v2/apps", resident("/x")).await;
    world.settled("/x", 1).await;
    let key = world.reserve("/x").await;
    world.call("DELETE", "/v2/apps/x/tasks?wipe=true", None).await;
    wait_for("the reservation is released", async || world.is_released(&key)).await;
    let app = world.settled("/x", 1).await;
    let task = app["tasks"][0]["id"].as_str().unwrap();
    assert!(
        !task.starts_with(&key),
        "a new instance takes the place of the wiped one"
    );
    let key = world.reserve("/x").await;
    world.call("DELETE", "/v2/apps/x", None).await;
    wait_for("the reservation is released", async || world.is_released(&key)).await;
    world.stop().await;
}

#[tokio::test]
async fn instance_without_a_task_waits_for_its_volume_under_another_leader() {
    let world = world().await;
    world.send("POST", "/v2/apps", resident("/x")).await;
    world.settled("/x", 1).await;
    let key = world.reserve("/x").await;
    world.scheduler.set_immediate_launches(false);
    world.call("DELETE", "/v2/apps/x/tasks", None).await;
    world.scheduler.wait_until_submitted(1).await;
    let world = world.restart().await;
    let request = world.scheduler.wait_until_submitted(1).await.remove(0);
    assert_eq!(request.as_str(), format!("{key}._app.2"));
    let requests = world.scheduler.submitted();
    assert_eq!(requests[0].reservation.as_deref(), Some(key.as_str()));
    assert_eq!(requests[0].spec.volumes[0].container_path, "data");
    assert_eq!(requests[0].spec.role.as_deref(), Some("ops"));
    world.stop().await;
}

#[tokio::test]
async fn reservation_of_an_unknown_instance_is_released() {
    let world = world().await;
    world.send("POST", "/v2/apps", resident("/x")).await;
    world.settled("/x", 1).await;
    let key = world.reserve("/x").await;
    let mut other = (*transom_scheduler::SchedulerApi::reservations(&*world.scheduler)[&key]).clone();
    other.key = other.key.replace("x.instance-", "y.instance-");
    let unknown = other.key.clone();
    world.scheduler.set_reservation(other);
    wait_for("it is released", async || world.is_released(&unknown)).await;
    assert!(!world.is_released(&key));
    world.stop().await;
}

#[tokio::test]
async fn app_without_volumes_takes_over_no_reservation_of_an_earlier_app() {
    let world = world().await;
    world.send("POST", "/v2/apps", resident("/x")).await;
    world.settled("/x", 1).await;
    let key = world.reserve("/x").await;
    let reservation = (*transom_scheduler::SchedulerApi::reservations(&*world.scheduler)[&key]).clone();
    world.call("DELETE", "/v2/apps/x", None).await;
    wait_for("the reservation is released", async || world.is_released(&key)).await;
    wait_for("the app is gone", async || {
        world.get("/v2/deployments").await == json!([])
    })
    .await;
    world.send("POST", "/v2/apps", super::sleeper("/x")).await;
    let kept = world.settled("/x", 1).await["tasks"][0]["id"].clone();
    // The daemon stopped before the release was done.
    let world = world
        .restart_after(|scheduler| scheduler.set_reservation(reservation))
        .await;
    wait_for("it is released again", async || world.is_released(&key)).await;
    assert_eq!(world.settled("/x", 1).await["tasks"][0]["id"], kept);
    world.stop().await;
}
