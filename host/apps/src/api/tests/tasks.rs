//! Killing and showing tasks.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use transom_cluster::v1::TaskState;
use transom_store::Store;
use transom_testkit::wait_for;

use super::sleeper;
use crate::Settings;
use crate::testing::World;

#[tokio::test]
async fn tasks_can_be_killed() {
    let world = World::start().await;
    let mut definition = sleeper("/web");
    definition["instances"] = json!(2);
    world.send("POST", "/v2/apps", definition).await;
    let before = world.settled("/web", 2).await;
    let id = before["tasks"][0]["id"].as_str().unwrap();
    let killed = world
        .call(
            "DELETE",
            &format!("/v2/apps/web/tasks/{id}?scale=False&wipe=False"),
            None,
        )
        .await;
    assert_eq!((killed.status, &killed.body["task"]["id"]), (200, &json!(id)));
    let after = id.replace("._app.1", "._app.2");
    wait_for("the instance runs again", async || {
        world
            .scheduler
            .running()
            .iter()
            .any(|task| task.as_str() == after)
    })
    .await;

    let scaled = world
        .call("DELETE", &format!("/v2/apps/web/tasks/{after}?scale=true"), None)
        .await;
    assert!(scaled.body["deploymentId"].is_string(), "{scaled:?}");
    let left = world.settled("/web", 1).await;
    assert_eq!(
        left["tasks"][0]["id"], before["tasks"][1]["id"],
        "only the selected task was killed"
    );
    assert_eq!(
        world
            .call("DELETE", "/v2/apps/web/tasks/nonesuch", None)
            .await
            .status,
        404
    );
    world.stop().await;
}

#[tokio::test]
async fn task_on_a_drained_agent_is_replaced_while_it_ends() {
    let world = World::start().await;
    world.send("POST", "/v2/apps", sleeper("/web")).await;
    let before = world.settled("/web", 1).await;
    let old = ids(&before["tasks"]).remove(0);
    world.scheduler.drain(&old);
    wait_for("another instance runs beside it", async || {
        let tasks = world.get("/v2/apps/web/tasks").await["tasks"].clone();
        let running = |task: &&Value| task["state"] == "TASK_RUNNING" && task["id"] != *old;
        tasks.as_array().unwrap().len() == 2 && tasks.as_array().unwrap().iter().filter(running).count() == 1
    })
    .await;
    // The next leader does not launch a third task.
    let world = world.restart().await;
    world.scheduler.update(&old, TaskState::Killed, None);
    let after = world.settled("/web", 1).await;
    assert_ne!(ids(&after["tasks"])[0], old);
    world.stop().await;
}

#[tokio::test]
async fn killed_task_is_followed_by_the_next_of_its_instance_after_a_change_of_leader() {
    let world = World::start().await;
    world.send("POST", "/v2/apps", sleeper("/web")).await;
    let before = world.settled("/web", 1).await;
    let old = ids(&before["tasks"]).remove(0);
    world.scheduler.set_immediate_kills(false);
    let path = format!("/v2/apps/web/tasks/{old}");
    assert_eq!(world.call("DELETE", &path, None).await.status, 200);
    world.scheduler.wait_until_killed(&old).await;
    let world = world.restart().await;
    world.scheduler.update(&old, TaskState::Killed, None);
    let next = old.replace("._app.1", "._app.2");
    wait_for("the next task of the instance", async || {
        let tasks = world.get("/v2/apps/web/tasks").await["tasks"].clone();
        ids(&tasks) == [next.clone()] && tasks[0]["state"] == "TASK_RUNNING"
    })
    .await;
    world.stop().await;
}

#[tokio::test]
async fn task_that_ends_without_a_leader_is_followed_by_the_next_of_its_instance() {
    let world = World::start().await;
    let mut definition = sleeper("/web");
    definition["instances"] = json!(2);
    world.send("POST", "/v2/apps", definition).await;
    let before = ids(&world.settled("/web", 2).await["tasks"]);
    world.scheduler.set_immediate_kills(false);
    // One task is killed for a replacement, the other fails.
    let path = format!("/v2/apps/web/tasks/{}", before[0]);
    assert_eq!(world.call("DELETE", &path, None).await.status, 200);
    world.scheduler.wait_until_killed(&before[0]).await;
    let ended = before.clone();
    let world = world
        .restart_after(|scheduler| {
            scheduler.update(&ended[0], TaskState::Killed, None);
            scheduler.update(&ended[1], TaskState::Failed, Some("exited with status 3"));
        })
        .await;
    let next: BTreeSet<String> = before
        .iter()
        .map(|task| task.replace("._app.1", "._app.2"))
        .collect();
    wait_for("the next task of each instance", async || {
        let tasks = world.get("/v2/apps/web/tasks").await["tasks"].clone();
        let running = |task: &Value| task["state"] == "TASK_RUNNING";
        ids(&tasks).into_iter().collect::<BTreeSet<_>>() == next
            && tasks.as_array().unwrap().iter().all(running)
    })
    .await;
    let app = world.get("/v2/apps/web").await["app"].clone();
    assert_eq!(app["lastTaskFailure"]["taskId"], before[1]);
    world.scheduler.wait_until_purged(&before[0]).await;
    world.scheduler.wait_until_purged(&before[1]).await;
    world.stop().await;
}

/// The ids of tasks, in the order of the document.
pub(super) fn ids(tasks: &Value) -> Vec<String> {
    let tasks = tasks.as_array().unwrap();
    let id = |task: &Value| task["id"].as_str().unwrap().to_owned();
    tasks.iter().map(id).collect()
}

impl World {
    /// Creates two apps with two running tasks each; returns the ids of these.
    async fn two_apps(&self) -> (Vec<String>, Vec<String>) {
        for app in ["/shop/web", "/db"] {
            let mut definition = sleeper(app);
            definition["instances"] = json!(2);
            assert_eq!(self.send("POST", "/v2/apps", definition).await.status, 201);
        }
        let (web, db) = (self.settled("/shop/web", 2).await, self.settled("/db", 2).await);
        (ids(&web["tasks"]), ids(&db["tasks"]))
    }
}

const UNKNOWN: &str = "db.instance-0664256e-6771-11e5-94e1-be5b2935a987._app.1";

#[tokio::test]
async fn named_tasks_of_several_apps_are_killed_and_unknown_ones_skipped() {
    let world = World::start().await;
    let (web, db) = world.two_apps().await;
    let given = json!({"ids": [web[0], db[1], UNKNOWN, "old.0664256e-6771-11e5-94e1-be5b2935a987", web[0]]});
    let killed = world.send("POST", "/v2/tasks/delete", given.clone()).await;
    assert_eq!(killed.status, 200, "{killed:?}");
    assert_eq!(ids(&killed.body["tasks"]), [db[1].clone(), web[0].clone()]);
    assert_eq!(
        killed.body["tasks"][0]["state"], "TASK_RUNNING",
        "tasks are shown in their state before the kill"
    );
    assert_eq!(killed.headers.get("marathon-deployment-id"), None);

    // The same instances run again; the others were not touched.
    let again = |id: &str| id.replace("._app.1", "._app.2");
    wait_for("both instances run their next tasks", async || {
        let running = world.get("/v2/tasks?status=running").await;
        let mut running = ids(&running["tasks"]);
        running.sort();
        let mut expected = vec![again(&web[0]), web[1].clone(), db[0].clone(), again(&db[1])];
        expected.sort();
        running == expected
    })
    .await;
    // These ids are outdated: the tasks that replaced them stay.
    let nothing = world.send("POST", "/v2/tasks/delete", given).await;
    assert_eq!((nothing.status, &nothing.body), (200, &json!({"tasks": []})));
    let none = world.send("POST", "/v2/tasks/delete", json!({"ids": []})).await;
    assert_eq!((none.status, &none.body), (200, &json!({"tasks": []})));

    let wiped = world
        .send("POST", "/v2/tasks/delete?wipe=True", json!({"ids": [web[1]]}))
        .await;
    assert_eq!(ids(&wiped.body["tasks"]), [web[1].clone()]);
    let instance = web[1].split_once("._app").unwrap().0.to_owned();
    wait_for(
        "another instance has taken the place of the wiped one",
        async || {
            let shown = world.get("/v2/apps/shop/web").await;
            let tasks = ids(&shown["app"]["tasks"]);
            tasks.len() == 2 && tasks.iter().all(|task| !task.starts_with(&instance))
        },
    )
    .await;
    world.stop().await;
}

#[tokio::test]
async fn named_tasks_are_killed_and_their_apps_scaled() {
    let world = World::start().await;
    let (web, db) = world.two_apps().await;
    let mut events = world.listen("").await;
    let scaled = world
        .send(
            "POST",
            "/v2/tasks/delete?scale=True&force=False",
            json!({"ids": [web[0], UNKNOWN]}),
        )
        .await;
    assert_eq!(scaled.status, 200, "{scaled:?}");
    assert_eq!(
        scaled.body["deploymentId"].as_str().unwrap(),
        scaled.headers["marathon-deployment-id"]
    );
    assert!(scaled.body["version"].is_string() && scaled.body.get("tasks").is_none());
    let left = world.settled("/shop/web", 1).await;
    assert_eq!(
        (&left["instances"], ids(&left["tasks"])),
        (&json!(1), vec![web[1].clone()])
    );
    assert_eq!(ids(&world.settled("/db", 2).await["tasks"]), db);
    let mut told = Vec::new();
    loop {
        let frame = events.next().await;
        let ended = frame.kind == "deployment_success";
        told.push(frame.kind);
        if ended {
            assert_eq!(frame.data["id"], scaled.body["deploymentId"]);
            break;
        }
    }
    assert!(
        !told.contains(&"api_post_event".to_owned()),
        "a kill posts no api_post_event: {told:?}"
    );

    // Several apps: one deployment each, and the header is repeated for each.
    let both = json!({"ids": [web[1], db[0], db[1]]});
    let scaled = world.send("POST", "/v2/tasks/delete?scale=true", both).await;
    assert_eq!(scaled.status, 200, "{scaled:?}");
    for app in ["/shop/web", "/db"] {
        assert_eq!(world.settled(app, 0).await["instances"], 0, "{app}");
    }
    // A deployment without actions is complete.
    let nothing = world
        .send("POST", "/v2/tasks/delete?scale=true", json!({"ids": [UNKNOWN]}))
        .await;
    assert_eq!(nothing.status, 200);
    assert!(nothing.body["deploymentId"].is_string() && nothing.body["version"].is_string());
    assert_eq!(world.get("/v2/deployments").await, json!([]));
    world.stop().await;
}

#[tokio::test]
async fn killing_with_scale_is_rejected_for_a_locked_app_unless_forced() {
    let world = World::start().await;
    let (web, db) = world.two_apps().await;
    world.scheduler.set_immediate_launches(false);
    let locking = world.send("PUT", "/v2/apps/db", json!({"instances": 3})).await;
    let given = json!({"ids": [web[0], db[0]]});
    let locked = world
        .send("POST", "/v2/tasks/delete?scale=true", given.clone())
        .await;
    assert_eq!(
        (locked.status, &locked.body["deployments"]),
        (409, &json!([{"id": locking.body["deploymentId"]}]))
    );
    assert_eq!(world.get("/v2/apps/shop/web").await["app"]["instances"], 2);
    assert_eq!(world.scheduler.running().len(), 4);

    let forced = world
        .send("POST", "/v2/tasks/delete?scale=true&force=true", given)
        .await;
    assert_eq!(forced.status, 200, "{forced:?}");
    assert_eq!(world.get("/v2/apps/shop/web").await["app"]["instances"], 1);
    assert_eq!(world.get("/v2/apps/db").await["app"]["instances"], 2);
    wait_for("the given tasks are killed", async || {
        let running = world.scheduler.running();
        running
            .iter()
            .all(|task| task.as_str() != web[0] && task.as_str() != db[0])
    })
    .await;
    world.stop().await;
}

#[tokio::test]
async fn invalid_kill_requests_are_rejected_with_the_reason() {
    let world = World::start().await;
    world.send("POST", "/v2/apps", sleeper("/web")).await;
    let task = ids(&world.settled("/web", 1).await["tasks"]).remove(0);
    let good = json!({"ids": [task]}).to_string();
    for (query, body, status, message, details) in [
        (
            "",
            "",
            400,
            "Please specify data in JSON format",
            "the body is empty",
        ),
        ("", "{\"ids\": [", 400, "Invalid JSON", "EOF"),
        ("", "[[\"a.b\"]]", 422, "Invalid JSON", "\"path\":\"/\""),
        ("", "{}", 422, "Invalid JSON", "\"path\":\"/ids\""),
        (
            "",
            "{\"ids\": null}",
            422,
            "Invalid JSON",
            "expected a list of task ids",
        ),
        ("", "{\"ids\": \"x\"}", 422, "Invalid JSON", "\"path\":\"/ids\""),
        (
            "",
            "{\"ids\": [\"a.b\", 7]}",
            422,
            "Invalid JSON",
            "\"path\":\"/ids(1)\"",
        ),
        (
            "",
            "{\"ids\": [\"a.b\", \"ab\"]}",
            400,
            "Invalid task id 'ab'. [",
            "",
        ),
        ("", "{\"ids\": [\".b\"]}", 400, "Invalid task id '.b'. [", ""),
        ("", "{\"ids\": [\"\"]}", 400, "Invalid task id ''. [", ""),
        (
            "?scale=true&wipe=true",
            good.as_str(),
            400,
            "You cannot use scale and wipe at the same time.",
            "",
        ),
    ] {
        let answer = world
            .call("POST", &format!("/v2/tasks/delete{query}"), Some(body))
            .await;
        assert_eq!(answer.status, status, "{query} {body}: {answer:?}");
        let told = answer.body["message"].as_str().unwrap();
        assert!(told.starts_with(message), "{query} {body}: {told}");
        let text = answer.body["details"].to_string();
        assert!(text.contains(details), "{query} {body}: {text}");
    }
    assert_eq!(world.call("GET", "/v2/tasks/delete", None).await.status, 405);
    assert_eq!(world.scheduler.running().len(), 1, "nothing was killed");
    world.stop().await;
}

#[tokio::test]
async fn killing_a_replaced_task_with_scale_keeps_the_number_of_instances() {
    let world = World::start().await;
    let mut definition = sleeper("/web");
    definition["instances"] = json!(2);
    world.send("POST", "/v2/apps", definition).await;
    let tasks = ids(&world.settled("/web", 2).await["tasks"]);
    world
        .scheduler
        .update(tasks[0].as_str(), TaskState::Unreachable, None);
    // The instance is given up immediately, the default in its definition, and replaced.
    wait_for("it is replaced", async || world.scheduler.running().len() == 2).await;
    let scaled = world
        .send("POST", "/v2/tasks/delete?scale=true", json!({"ids": [tasks[0]]}))
        .await;
    assert_eq!(scaled.status, 200, "{scaled:?}");
    let app = world.settled("/web", 2).await;
    assert_eq!(app["instances"], 2);
    assert!(!ids(&app["tasks"]).contains(&tasks[0]));
    world.stop().await;
}

#[tokio::test]
async fn task_that_does_not_start_in_time_is_killed_and_launched_again() {
    let world = World::start_with(Settings {
        task_launch_timeout_seconds: 1,
        ..Settings::default()
    })
    .await;
    world.scheduler.set_immediate_launches(false);
    assert_eq!(world.send("POST", "/v2/apps", sleeper("/a")).await.status, 201);
    let task = world.scheduler.wait_until_submitted(1).await.remove(0);
    world.scheduler.launch(task.as_str()).await;
    wait_for("the task is shown as staged", async || {
        world.get("/v2/apps/a").await["app"]["tasksStaged"] == 1
    })
    .await;
    let staging = world.get("/v2/tasks?status=staging").await;
    assert_eq!(ids(&staging["tasks"]), [task.as_str()]);
    world.scheduler.wait_until_purged(task.as_str()).await;
    let next = world.scheduler.wait_until_submitted(1).await.remove(0);
    assert_ne!(next, task);
    world.stop().await;
}

#[tokio::test]
async fn tasks_of_an_app_that_is_being_deleted_are_listed_until_they_end() {
    let world = World::start().await;
    assert_eq!(world.send("POST", "/v2/apps", sleeper("/a")).await.status, 201);
    let tasks = ids(&world.settled("/a", 1).await["tasks"]);
    world.scheduler.set_immediate_kills(false);
    assert_eq!(world.call("DELETE", "/v2/apps/a", None).await.status, 200);
    assert_eq!(ids(&world.get("/v2/tasks").await["tasks"]), tasks);
    assert_eq!(world.call("GET", "/v2/apps/a", None).await.status, 404);
    world.scheduler.update(&tasks[0], TaskState::Killed, None);
    wait_for("no task is left", async || {
        world.get("/v2/tasks").await["tasks"] == json!([])
    })
    .await;
    world.stop().await;
}

#[tokio::test]
async fn last_task_failure_survives_a_restart_of_the_daemon() {
    let world = World::start().await;
    assert_eq!(world.send("POST", "/v2/apps", sleeper("/a")).await.status, 201);
    let task = ids(&world.settled("/a", 1).await["tasks"]).remove(0);
    world
        .scheduler
        .update(&task, TaskState::Failed, Some("exited with status 3"));
    let failure = async |world: &World| world.get("/v2/apps/a").await["app"]["lastTaskFailure"].clone();
    wait_for("the failure is shown", async || {
        failure(&world).await["taskId"] == task.as_str()
    })
    .await;
    let shown = failure(&world).await;
    wait_for("the failure is stored", async || {
        let stored = world.store.get("apps/apps/a").await.unwrap().unwrap();
        let record: Value = serde_json::from_slice(&stored.value).unwrap();
        !record["last_failure"].is_null()
    })
    .await;
    let world = world.restart().await;
    assert_eq!(failure(&world).await, shown);
    world.stop().await;
}
