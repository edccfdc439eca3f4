//! Results of checks.

use serde_json::json;
use transom_plugin_host::probe::{Failure, Kind, Outcome, Reason};
use transom_testkit::wait_for;

use crate::testing::World;

#[tokio::test]
async fn check_results_and_failures_are_shown_with_the_task() {
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
        "a failing check kills no task and delays no deployment"
    );
    let (kind, request) = world.components.last_probe.lock().unwrap().clone().unwrap();
    let endpoint = request.endpoint.unwrap();
    assert_eq!(
        (kind, request.path.as_str(), endpoint.host.as_str(), endpoint.port),
        (Kind::Http, "/health", "127.0.0.1", 31_000)
    );

    *world.components.probe.lock().unwrap() = Err(Failure {
        reason: Reason::Plugin,
        message: "gone".to_owned(),
    });
    wait_for("the failure is shown", async || {
        world.get("/v2/apps/web/tasks?embed=checkFailure").await["tasks"][0]["checkFailure"]
            == json!({"reason": "plugin", "message": "gone"})
    })
    .await;
    let task = world.get("/v2/apps/web/tasks").await["tasks"][0].clone();
    assert_eq!(
        task["checkResult"],
        json!({"http": {"statusCode": 503}}),
        "the last result is kept"
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

#[tokio::test]
async fn plugin_check_calls_the_component_that_it_names() {
    let world = World::start().await;
    *world.components.probe.lock().unwrap() = Ok(Outcome::Custom(r#"{"lag": 3}"#.to_owned()));
    let plugin = json!({"name": "redis-lag", "settings": {"database": 1}});
    let check = json!({"plugin": plugin, "intervalSeconds": 60, "timeoutSeconds": 5, "delaySeconds": 0});
    let app = json!({"id": "/web", "cmd": "sleep 1", "check": check});
    let created = world.send("POST", "/v2/apps", app).await;
    assert_eq!(created.status, 201, "{created:?}");
    wait_for("the result is shown", async || {
        let tasks = world.get("/v2/apps/web/tasks").await;
        tasks["tasks"][0]["checkResult"] == json!({"plugin": {"lag": 3}})
    })
    .await;
    let (kind, request) = world.components.last_probe.lock().unwrap().clone().unwrap();
    assert_eq!(kind, Kind::Named("redis-lag".to_owned()));
    assert_eq!(
        (request.settings.as_str(), request.endpoint),
        (r#"{"database":1}"#, None)
    );
    let shown = world.get("/v2/apps/web").await["app"]["check"].clone();
    assert_eq!(shown["plugin"], plugin);
    world.stop().await;
}

/// The interval of the check is an hour, so a new result can only come from the replacement of the
/// plugin.
#[tokio::test]
async fn check_is_repeated_when_its_plugin_is_replaced() {
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
        wait_for("the failure is shown", async || {
            task().await["checkFailure"] == json!({"reason": "plugin", "message": message})
        })
        .await;
    };
    shows("version 1 trapped").await;

    // The replacement of another plugin does not repeat this check.
    failed("version 2 is busy");
    admitted("operator");
    admitted("prober");
    shows("version 2 is busy").await;

    *world.components.probe.lock().unwrap() = Ok(Outcome::Http(204));
    admitted("prober");
    wait_for("the result is shown", async || {
        task().await["checkResult"] == json!({"http": {"statusCode": 204}})
    })
    .await;
    assert_eq!(task().await.get("checkFailure"), None);
    world.stop().await;
}

/// A changed check is made from its next interval on, without a restart of the task, and the old
/// result is removed.
#[tokio::test]
async fn changed_check_applies_to_running_tasks() {
    let world = World::start().await;
    *world.components.probe.lock().unwrap() = Ok(Outcome::Http(200));
    let check = |path: &str| json!({"http": {"path": path}, "intervalSeconds": 3600, "timeoutSeconds": 1, "delaySeconds": 0});
    let app = json!({"id": "/web", "cmd": "sleep 1", "check": check("/old")});
    assert_eq!(world.send("POST", "/v2/apps", app).await.status, 201);
    let before = world.settled("/web", 1).await["tasks"][0]["id"].clone();
    let task = async || world.get("/v2/apps/web/tasks").await["tasks"][0].clone();
    let shows = async |code: u16| {
        wait_for("the result is shown", async || {
            task().await["checkResult"] == json!({"http": {"statusCode": code}})
        })
        .await;
    };
    shows(200).await;
    *world.components.probe.lock().unwrap() = Ok(Outcome::Http(404));
    let changed = world
        .send("PUT", "/v2/apps/web", json!({"check": check("/new")}))
        .await;
    assert_eq!(changed.status, 200, "{changed:?}");
    shows(404).await;
    let asked = world.components.last_probe.lock().unwrap().clone().unwrap();
    assert!(format!("{asked:?}").contains("/new"), "{asked:?}");
    assert_eq!(task().await["id"], before);

    let mut definition = world.get("/v2/apps/web").await["app"].clone();
    definition = json!({"id": "/web", "cmd": definition["cmd"]});
    let removed = world
        .send("PUT", "/v2/apps/web?partialUpdate=false", definition)
        .await;
    assert_eq!(removed.status, 200, "{removed:?}");
    wait_for("no result is shown", async || {
        task().await.get("checkResult").is_none()
    })
    .await;
    assert_eq!(task().await["id"], before);
    world.stop().await;
}
