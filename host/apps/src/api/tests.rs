//! The API over a real port, against a scripted cluster and scripted components.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use transom_cluster::v1::TaskState;
use transom_plugin_host::matcher::ConstraintError;
use transom_plugin_host::probe::{Failure, Kind, Outcome, Reason};
use transom_scheduler::Event;
use transom_store::Store;

use crate::Config;
use crate::testing::{World, until};

fn sleeper(id: &str) -> Value {
    json!({"id": id, "cmd": "sleep 1000"})
}

impl World {
    /// Waits until an app has `running` running tasks and no deployment.
    async fn settled(&self, app: &str, running: u64) -> Value {
        until(&format!("{app} has {running} running tasks"), async || {
            let shown = &self.get(&format!("/v2/apps{app}")).await["app"];
            shown["tasksRunning"] == running
                && shown["deployments"] == json!([])
                && shown["tasks"].as_array().unwrap().len() as u64 == running
        })
        .await;
        self.get(&format!("/v2/apps{app}")).await["app"].clone()
    }
}

#[tokio::test]
async fn an_app_lives_and_dies() {
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
        "a service port was given"
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
        "empty segments are left out"
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
    until("its task is killed", async || world.cluster.running().is_empty()).await;
    until("its deployment is over", async || {
        world.get("/v2/deployments").await == json!([])
    })
    .await;
    world.stop().await;
}

#[tokio::test]
async fn scaling_restarting_and_rolling_back() {
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
        "the instance was left alone"
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
async fn a_task_that_ends_is_replaced_after_a_while() {
    let world = World::start().await;
    world.send("POST", "/v2/apps", sleeper("/web")).await;
    world.settled("/web", 1).await;
    world.cluster.obliging.store(false, Ordering::SeqCst);
    let task = world.cluster.running()[0].clone();
    world
        .cluster
        .update(&task, TaskState::Failed, Some("Command exited with status 3"));
    until("the next task waits", async || !world.cluster.wanted().is_empty()).await;
    let next = world.cluster.wanted()[0].clone();
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
    world.cluster.launch();
    world.settled("/web", 1).await;
    until("the old record is forgotten", async || {
        world.cluster.running() == [next.id.clone()]
    })
    .await;
    world.stop().await;
}

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
    until("the instance runs again", async || {
        world.cluster.running().iter().any(|task| task.as_str() == after)
    })
    .await;

    let scaled = world
        .call("DELETE", &format!("/v2/apps/web/tasks/{after}?scale=true"), None)
        .await;
    assert!(scaled.body["deploymentId"].is_string(), "{scaled:?}");
    let left = world.settled("/web", 1).await;
    assert_eq!(
        left["tasks"][0]["id"], before["tasks"][1]["id"],
        "exactly that one went"
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
async fn a_task_in_a_state_that_is_not_known_is_kept() {
    let world = World::start().await;
    world.send("POST", "/v2/apps", sleeper("/web")).await;
    world.settled("/web", 1).await;
    let task = world.cluster.running()[0].clone();
    let new = TaskState::Other("TASK_NEW".to_owned());
    world.cluster.update(&task, new, None);
    until("the state is shown as the cluster names it", async || {
        world.get("/v2/apps/web/tasks").await["tasks"][0]["state"] == "TASK_NEW"
    })
    .await;
    assert_eq!(world.get("/v2/apps/web").await["app"]["tasksRunning"], 1);
    assert!(world.cluster.wanted().is_empty(), "it was not replaced");
    world.cluster.update(&task, TaskState::Running, None);
    let tasks = world.settled("/web", 1).await["tasks"].clone();
    assert_eq!(ids(&tasks), [task.to_string()]);
    world.stop().await;
}

/// The ids in documents of tasks.
fn ids(tasks: &Value) -> Vec<String> {
    let tasks = tasks.as_array().unwrap();
    let id = |task: &Value| task["id"].as_str().unwrap().to_owned();
    tasks.iter().map(id).collect()
}

impl World {
    /// Two apps with two running tasks each, and their tasks' ids.
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
async fn given_tasks_of_several_apps_are_killed_and_unknown_ones_passed_over() {
    let world = World::start().await;
    let (web, db) = world.two_apps().await;
    let given = json!({"ids": [web[0], db[1], UNKNOWN, "old.0664256e-6771-11e5-94e1-be5b2935a987", web[0]]});
    let killed = world.send("POST", "/v2/tasks/delete", given.clone()).await;
    assert_eq!(killed.status, 200, "{killed:?}");
    assert_eq!(ids(&killed.body["tasks"]), [db[1].clone(), web[0].clone()]);
    assert_eq!(killed.body["tasks"][0]["state"], "TASK_RUNNING", "as they were");
    assert_eq!(killed.headers.get("marathon-deployment-id"), None);

    // The same instances run again; the others were not touched.
    let again = |id: &str| id.replace("._app.1", "._app.2");
    until("both instances run their next tasks", async || {
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
    until(
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
async fn given_tasks_are_killed_and_their_apps_scaled() {
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
        "a kill changes no definition by request: {told:?}"
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
async fn given_tasks_of_a_locked_app_are_scaled_by_force_only_and_nothing_else_before() {
    let world = World::start().await;
    let (web, db) = world.two_apps().await;
    world.cluster.obliging.store(false, Ordering::SeqCst);
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
    assert_eq!(world.cluster.running().len(), 4);

    let forced = world
        .send("POST", "/v2/tasks/delete?scale=true&force=true", given)
        .await;
    assert_eq!(forced.status, 200, "{forced:?}");
    assert_eq!(world.get("/v2/apps/shop/web").await["app"]["instances"], 1);
    assert_eq!(world.get("/v2/apps/db").await["app"]["instances"], 2);
    until("the given tasks are killed", async || {
        let running = world.cluster.running();
        running
            .iter()
            .all(|task| task.as_str() != web[0] && task.as_str() != db[0])
    })
    .await;
    world.stop().await;
}

#[tokio::test]
async fn given_tasks_have_to_be_given_as_such() {
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
        (
            "?scale=perhaps",
            good.as_str(),
            400,
            "the parameter scale is perhaps",
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
    assert_eq!(world.cluster.running().len(), 1, "nothing was killed");
    world.stop().await;
}

#[tokio::test]
async fn a_task_whose_place_is_free_already_is_not_taken_off_the_number_of_instances() {
    let world = World::start().await;
    let mut definition = sleeper("/web");
    definition["instances"] = json!(2);
    world.send("POST", "/v2/apps", definition).await;
    let tasks = ids(&world.settled("/web", 2).await["tasks"]);
    world
        .cluster
        .update(&tasks[0].as_str().into(), TaskState::Unreachable, None);
    // The instance is given up immediately, the default in its definition, and replaced.
    until("it is replaced", async || world.cluster.running().len() == 2).await;
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
async fn a_restart_of_the_daemon_changes_nothing() {
    let world = World::start().await;
    world.send("POST", "/v2/apps", sleeper("/web")).await;
    let before = world.settled("/web", 1).await;
    world.cluster.obliging.store(false, Ordering::SeqCst);
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
        "the deployment goes on"
    );
    assert_eq!(
        world.get("/v2/apps/web/tasks").await["tasks"],
        before["tasks"],
        "the task is known"
    );
    world.cluster.obliging.store(true, Ordering::SeqCst);
    until("all are launched", async || {
        world.cluster.launch();
        world.cluster.running().len() == 3
    })
    .await;
    world.settled("/web", 3).await;
    world.stop().await;
}

#[tokio::test]
async fn what_is_being_deployed_is_locked() {
    let world = World::start().await;
    world.cluster.obliging.store(false, Ordering::SeqCst);
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
    world.cluster.obliging.store(false, Ordering::SeqCst);
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

    world.cluster.obliging.store(true, Ordering::SeqCst);
    world.cluster.launch();
    let app = world.settled("/web", 2).await;
    for task in app["tasks"].as_array().unwrap() {
        assert!(
            task["version"].as_str() >= upgrade.body["version"].as_str(),
            "{app}"
        );
    }
    world.stop().await;
}

#[tokio::test]
async fn errors_have_upstream_s_shapes() {
    let world = World::start().await;
    world.send("POST", "/v2/apps", sleeper("/x")).await;
    world.settled("/x", 1).await;
    let suite: Value = serde_json::from_str(include_str!("../../tests/fixtures/errors.json")).unwrap();
    for case in suite["cases"].as_array().unwrap() {
        // This case needs a deployment that does not end: see `what_is_being_deployed_is_locked`.
        if case["id"] == "errors/locked" {
            continue;
        }
        let request = &case["request"];
        let body = request.get("body").map(Value::to_string);
        let answer = world
            .call(
                request["method"].as_str().unwrap(),
                request["path"].as_str().unwrap(),
                body.as_deref(),
            )
            .await;
        assert_eq!(
            answer.status, case["expect"]["http_status"],
            "{} {answer:?}",
            case["id"]
        );
        for (key, value) in case["expect"]["body_contains"].as_object().unwrap() {
            assert_eq!(&answer.body[key], value, "{}", case["id"]);
        }
    }
    for (method, path, body, status, message) in [
        ("GET", "/v2/apps/none", None, 404, "App '/none' does not exist"),
        (
            "PATCH",
            "/v2/apps/none",
            Some("{}"),
            404,
            "App '/none' does not exist",
        ),
        ("DELETE", "/v2/apps/none", None, 404, "App '/none' does not exist"),
        (
            "DELETE",
            "/v2/deployments/none",
            None,
            404,
            "DeploymentPlan none does not exist",
        ),
        (
            "POST",
            "/v2/apps",
            Some(""),
            400,
            "Please specify data in JSON format",
        ),
        ("POST", "/v2/apps", Some("{"), 400, "Invalid JSON"),
        ("POST", "/v2/apps", Some(r#"{"id":1}"#), 422, "Invalid JSON"),
        (
            "POST",
            "/v2/apps",
            Some(r#"{"id":"/y","cmd":"sleep 1","container":{"type":"DOCKER"}}"#),
            422,
            "Object is not valid",
        ),
        (
            "PUT",
            "/v2/apps/x",
            Some(r#"{"version":"2018-01-01T00:00:00.000Z","instances":2}"#),
            422,
            "Object is not valid",
        ),
        (
            "PUT",
            "/v2/apps/x",
            Some(r#"{"version":"2018-01-01T00:00:00.000Z"}"#),
            404,
            "App '/x' does not exist in version 2018-01-01T00:00:00.000Z",
        ),
        ("GET", "/v2/nothing", None, 404, "Not found: /v2/nothing"),
        (
            "GET",
            "/v2/apps?label=(",
            None,
            422,
            "invalid label selector: a label or value was expected before '('",
        ),
    ] {
        let answer = world.call(method, path, body).await;
        assert_eq!(
            (answer.status, answer.body["message"].as_str().unwrap()),
            (status, message),
            "{method} {path}"
        );
    }
    world.stop().await;
}

#[tokio::test]
async fn an_id_is_needed_and_has_rules() {
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
    world.stop().await;
}

#[tokio::test]
async fn constraints_are_the_component_s_business() {
    let world = World::start().await;
    let suite: Value =
        serde_json::from_str(include_str!("../../tests/fixtures/constraint-syntax.json")).unwrap();
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
        "nothing is accepted unchecked"
    );
    world.stop().await;
}

#[tokio::test]
async fn checks_show_what_they_find_and_why_they_cannot() {
    let world = World::start().await;
    let mut events = world.listen("?event_type=check_result_changed_event").await;
    *world.components.probe.lock().unwrap() = Ok(Outcome::Http(503));
    let check =
        json!({"http": {"path": "/health"}, "intervalSeconds": 1, "timeoutSeconds": 0, "delaySeconds": 0});
    let created = world
        .send(
            "POST",
            "/v2/apps",
            json!({"id": "/web", "cmd": "sleep 1", "check": check}),
        )
        .await;
    assert_eq!(created.status, 201, "{created:?}");
    let changed = events.next().await.data;
    assert_eq!(
        (&changed["checkResult"], &changed["appId"]),
        (&json!({"http": {"statusCode": 503}}), &json!("/web"))
    );
    let app = world.settled("/web", 1).await;
    assert_eq!(
        app["tasks"][0]["checkResult"],
        json!({"http": {"statusCode": 503}}),
        "it kills nothing and holds up nothing"
    );
    let (kind, request) = world.components.asked.lock().unwrap().clone().unwrap();
    let endpoint = request.endpoint.unwrap();
    assert_eq!(
        (kind, request.path.as_str(), endpoint.host.as_str(), endpoint.port),
        (Kind::Http, "/health", "127.0.0.1", 31_000)
    );

    *world.components.probe.lock().unwrap() = Err(Failure {
        reason: Reason::Plugin,
        message: "gone".to_owned(),
    });
    until("the failure is shown", async || {
        world.get("/v2/apps/web/tasks?embed=checkFailure").await["tasks"][0]["checkFailure"]
            == json!({"reason": "plugin", "message": "gone"})
    })
    .await;
    let task = world.get("/v2/apps/web/tasks").await["tasks"][0].clone();
    assert_eq!(
        task["checkResult"],
        json!({"http": {"statusCode": 503}}),
        "the last result stays"
    );
    assert_eq!(task.get("checkFailure"), None, "opt-in");

    *world.components.probe.lock().unwrap() = Ok(Outcome::Http(200));
    assert_eq!(
        events.next().await.data["checkResult"],
        json!({"http": {"statusCode": 200}})
    );
    let task = world.get("/v2/apps/web/tasks?embed=checkFailure").await["tasks"][0].clone();
    assert_eq!(
        (task.get("checkFailure"), &task["state"]),
        (None, &json!("TASK_RUNNING"))
    );
    world.stop().await;
}

/// The check's interval is an hour, so the result after the swap does not come from the next
/// interval.
#[tokio::test]
async fn a_check_is_made_again_when_its_plugin_is_replaced() {
    let world = World::start().await;
    let failed = |message: &str| {
        *world.components.probe.lock().unwrap() = Err(Failure {
            reason: Reason::Plugin,
            message: message.to_owned(),
        });
    };
    let admitted = |name: &str| {
        world.components.changed(transom_plugin_host::Change::Admitted {
            name: name.to_owned(),
            version: "2".to_owned(),
            digest: "sha256:00".to_owned(),
        });
    };
    failed("version 1 trapped");
    let check = json!({"http": {}, "intervalSeconds": 3600, "timeoutSeconds": 1, "delaySeconds": 0});
    let app = json!({"id": "/web", "cmd": "sleep 1", "check": check});
    let created = world.send("POST", "/v2/apps", app).await;
    assert_eq!(created.status, 201, "{created:?}");
    let task = async || world.get("/v2/apps/web/tasks?embed=checkFailure").await["tasks"][0].clone();
    let shows = async |message: &str| {
        until("the failure is shown", async || {
            task().await["checkFailure"] == json!({"reason": "plugin", "message": message})
        })
        .await;
    };
    shows("version 1 trapped").await;

    // A new version of another plugin does not affect this one.
    failed("version 2 is busy");
    admitted("operator");
    admitted("prober");
    shows("version 2 is busy").await;

    *world.components.probe.lock().unwrap() = Ok(Outcome::Http(204));
    admitted("prober");
    until("the result is shown", async || {
        task().await["checkResult"] == json!({"http": {"statusCode": 204}})
    })
    .await;
    assert_eq!(task().await.get("checkFailure"), None);
    world.stop().await;
}

#[tokio::test]
async fn the_stream_tells_everything() {
    let world = World::start().await;
    let mut events = world.listen("").await;
    let first = events.next().await;
    assert_eq!(
        (
            first.kind.as_str(),
            &first.data["remoteAddress"],
            &first.data["clientIp"]
        ),
        ("event_stream_attached", &json!("127.0.0.1"), &json!("127.0.0.1"))
    );
    assert_eq!(
        (first.data["callbackUrl"].as_str(), first.id),
        (Some("/v2/events"), None)
    );
    world.send("POST", "/v2/apps", sleeper("/a/web")).await;
    let posted = events.next_of("api_post_event").await;
    assert_eq!(
        (&posted["uri"], &posted["appDefinition"]["id"]),
        (&json!("/v2/apps"), &json!("/a/web"))
    );
    assert_eq!(events.next_of("group_change_success").await["groupId"], "/a");
    let info = events.next_of("deployment_info").await;
    assert_eq!(
        info["plan"]["steps"],
        json!([{"action": "StartApplication", "app": "/a/web"}, {"action": "ScaleApplication", "app": "/a/web"}])
    );
    let action = json!({"type": "StartApplication", "action": "StartApplication", "app": "/a/web"});
    assert_eq!(info["currentStep"]["actions"], json!([action]));
    let update = events.next_of("status_update_event").await;
    assert_eq!(
        (&update["taskStatus"], &update["ports"], &update["slaveId"]),
        (&json!("TASK_RUNNING"), &json!([31000]), &json!("a-S0"))
    );
    assert_eq!(
        events.next_of("instance_changed_event").await["condition"],
        "Running"
    );
    assert_eq!(
        events.next_of("deployment_success").await["id"],
        info["plan"]["id"]
    );
    world.call("DELETE", "/v2/apps/a/web", None).await;
    assert_eq!(events.next_of("app_terminated_event").await["appId"], "/a/web");
    world.cluster.send(Event::Disconnected);
    events.next_of("scheduler_disconnected_event").await;
    world.cluster.send(Event::Message {
        agent: "s".into(),
        executor: "e".into(),
        data: "aGk=".to_owned(),
    });
    assert_eq!(events.next_of("framework_message_event").await["message"], "aGk=");
    let stray = transom_cluster::v1::TaskStatus {
        task_id: "b.instance-0664256e-6771-11e5-94e1-be5b2935a987._app.1".into(),
        state: TaskState::Failed,
        ..Default::default()
    };
    world.cluster.send(Event::Unknown {
        status: Box::new(stray),
    });
    let unknown = events.next_of("unknown_instance_terminated_event").await;
    assert_eq!(
        (&unknown["runSpecId"], &unknown["condition"]),
        (&json!("/b"), &json!("Failed"))
    );
    world.stop().await;
    events.rest().await;
}

#[tokio::test]
async fn streams_are_filtered_numbered_and_refused() {
    let world = World::start().await;
    let mut light = world
        .listen("?plan-format=light&event_type=deployment_success&ids=true")
        .await;
    world.send("POST", "/v2/apps", sleeper("/web")).await;
    let success = light.next().await;
    assert_eq!(success.kind, "deployment_success", "nothing else passes");
    assert_eq!(
        success.data["plan"]["steps"][0],
        json!({"actions": [{"action": "StartApplication", "app": "/web"}]})
    );
    let id = success.id.unwrap();
    let (term, sequence) = id.split_once('-').unwrap();
    assert_eq!(term, "1", "{id}");
    assert!(sequence.parse::<u64>().unwrap() > 1, "{id}");

    for accept in ["*/*", "text/event-stream, application/json"] {
        let answer = world.call_with("/v2/events", accept).await;
        assert_eq!(answer.status, 405, "{accept}");
    }
    let refused = world
        .call_with("/v2/events?filter=bad", "text/event-stream")
        .await;
    assert_eq!(
        (refused.status, &refused.body["message"]),
        (400, &json!("the filter makes no sense"))
    );

    world.components.remove();
    let rest = light.rest().await;
    assert!(
        rest.contains(": no plugin `filter` serves filter"),
        "open streams are told why they end: {rest}"
    );
    let answer = world.call_with("/v2/events", "text/event-stream").await;
    assert_eq!((answer.status, &answer.body["reason"]), (503, &json!("missing")));
    world.stop().await;
}

#[tokio::test]
async fn info_has_only_upstream_s_keys() {
    let world = World::start().await;
    let info = world.get("/v2/info").await;
    let keys: Vec<&String> = info.as_object().unwrap().keys().collect();
    let known = [
        "buildref",
        "elected",
        "frameworkId",
        "http_config",
        "leader",
        "marathon_config",
        "name",
        "version",
        "zookeeper_config",
    ];
    assert_eq!(keys, known);
    assert_eq!(
        (&info["version"], &info["frameworkId"]),
        (&json!("1.11.0"), &json!("fw-1"))
    );
    let port = world.apps.addr().port();
    assert_eq!(
        world.get("/v2/leader").await,
        json!({"leader": format!("localhost:{port}")})
    );
    assert_eq!(world.get("/ping").await, "pong");
    assert!(world.apps.ready());
    world.stop().await;
}

#[tokio::test]
async fn snapshot_is_published_before_the_events_of_the_same_change() {
    let world = World::start().await;
    let before = world.published();
    let mut definition = sleeper("/web");
    definition["instances"] = json!(0);
    // The definition is stored, and the core waits for the end of its deployment to be stored.
    world.store.hold_after(1);
    let (created, ()) = tokio::join!(world.send("POST", "/v2/apps", definition), async {
        world.store.holding().await;
        assert_eq!(world.call("GET", "/v2/apps/web", None).await.status, 404);
        assert_eq!(
            world.published(),
            before,
            "nothing is published that no reader sees"
        );
        world.store.release();
    });
    assert_eq!(created.status, 201, "{created:?}");
    assert!(world.published() > before);
    assert_eq!(world.call("GET", "/v2/apps/web", None).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn hanging_store_is_answered_with_503_until_it_recovers() {
    let world = World::start_with_store_timeout(Duration::from_secs(2)).await;
    let none = |id: &str| {
        let mut definition = sleeper(id);
        definition["instances"] = json!(0);
        definition
    };
    let created = world.send("POST", "/v2/apps", none("/before")).await;
    assert_eq!(created.status, 201, "{created:?}");
    let published = world.published();
    world.store.hold_after(0);
    let refused = world.send("POST", "/v2/apps", none("/a")).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(refused.headers["retry-after"], "5");
    let refused = world.call("DELETE", "/v2/apps/before", None).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    // Nothing is reported as done.
    assert_eq!(world.call("GET", "/v2/apps/a", None).await.status, 404);
    assert_eq!(world.call("GET", "/v2/apps/before", None).await.status, 200);
    assert_eq!(world.published(), published);
    world.store.release();
    let created = world.send("POST", "/v2/apps", none("/b")).await;
    assert_eq!(created.status, 201, "{created:?}");
    // What the store committed too late is undone.
    until("the store has what clients see", async || {
        let stored = world.store.scan("apps/apps/").await.unwrap();
        let apps: Vec<Value> = stored
            .iter()
            .map(|entry| serde_json::from_slice(&entry.value).unwrap())
            .collect();
        let ids: Vec<&Value> = apps.iter().map(|app| &app["app"]["id"]).collect();
        ids == ["/b", "/before"] && apps.iter().all(|app| app["gone"] == json!(false))
    })
    .await;
    let world = world.restart().await;
    assert_eq!(world.call("GET", "/v2/apps/a", None).await.status, 404);
    assert_eq!(world.call("GET", "/v2/apps/before", None).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn nobody_else_may_reach_the_port() {
    let mut config = Config::default();
    (config.port.listener, config.port.port) = ("0.0.0.0".parse().unwrap(), 0);
    let error = transom_common::error_chain(&config.bind().await.unwrap_err());
    assert!(
        error.contains("`apps.listener` is 0.0.0.0") && error.contains("or use 127.0.0.1"),
        "{error}"
    );
}
