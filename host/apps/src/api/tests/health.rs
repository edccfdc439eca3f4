//! Health and readiness: results, events, kills, and what deployments wait for.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::{Value, json};
use transom_plugin_host::probe::{Failure, Outcome, Reason};
use transom_scheduler::SchedulerApi as _;
use transom_store::{Entry, Expect, Store as _};
use transom_testkit::wait_for;

use crate::Config;
use crate::core::mirror::Mirror;
use crate::core::snapshot::Snapshot;
use crate::testing::World;

/// A health check at an interval of a second, without a grace period.
fn check(more: &Value) -> Value {
    let mut check = json!({"intervalSeconds": 1, "gracePeriodSeconds": 0, "timeoutSeconds": 1});
    check
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    check
}

impl World {
    fn answers(&self, result: Result<Outcome, Failure>) {
        *self.components.probe.lock().unwrap() = result;
    }

    async fn task(&self) -> Value {
        self.get("/v2/apps/web/tasks").await["tasks"][0].clone()
    }

    async fn post(&self, more: &Value) {
        let mut app =
            json!({"id": "/web", "cmd": "sleep 1", "portDefinitions": [{"port": 0, "name": "http"}]});
        app.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let created = self.send("POST", "/v2/apps", app).await;
        assert_eq!(created.status, 201, "{created:?}");
    }

    async fn wait_for_health(&self, counts: (u64, u64)) {
        wait_for(&format!("{counts:?} are healthy and unhealthy"), async || {
            let app = &self.get("/v2/apps/web?embed=app.taskStats").await["app"];
            let total = &app["tasksStats"]["totalSummary"]["stats"]["counts"];
            let life_time = &app["tasksStats"]["totalSummary"]["stats"]["lifeTime"];
            let runs = counts.0 + counts.1 > 0;
            (&app["tasksHealthy"], &app["tasksUnhealthy"]) == (&json!(counts.0), &json!(counts.1))
                && (!runs || life_time["averageSeconds"].is_number())
                && (&total["healthy"], &total["unhealthy"]) == (&json!(counts.0), &json!(counts.1))
        })
        .await;
    }
}

#[tokio::test]
async fn unhealthy_task_is_killed_and_its_instance_launched_again() {
    let world = World::start().await;
    let kinds = "?event_type=failed_health_check_event&event_type=health_status_changed_event\
                 &event_type=instance_health_changed_event&event_type=unhealthy_instance_kill_event\
                 &event_type=unhealthy_task_kill_event&event_type=add_health_check_event";
    let mut events = world.listen(kinds).await;
    world.answers(Ok(Outcome::Http(200)));
    world
        .post(&json!({"healthChecks": [check(&json!({"maxConsecutiveFailures": 1}))]}))
        .await;
    world.wait_for_health((1, 0)).await;
    let task = world.task().await["id"].clone();
    world.answers(Ok(Outcome::Http(503)));
    for (kind, field, value) in [
        ("add_health_check_event", "/appId", json!("/web")),
        ("health_status_changed_event", "/alive", json!(true)),
        ("instance_health_changed_event", "/healthy", json!(true)),
        (
            "failed_health_check_event",
            "/healthCheck/maxConsecutiveFailures",
            json!(1),
        ),
        ("health_status_changed_event", "/alive", json!(false)),
        ("instance_health_changed_event", "/healthy", json!(false)),
        ("failed_health_check_event", "/appId", json!("/web")),
        (
            "unhealthy_instance_kill_event",
            "/reason",
            json!("503 Service Unavailable"),
        ),
        ("unhealthy_task_kill_event", "/taskId", task.clone()),
    ] {
        let event = events.next().await;
        assert_eq!(event.kind, kind, "{:?}", event.data);
        assert_eq!(event.data.pointer(field), Some(&value), "{:?}", event.data);
    }
    world.answers(Ok(Outcome::Http(200)));
    world.wait_for_health((1, 0)).await;
    let next = world.task().await;
    assert!(next["id"].as_str().unwrap().ends_with("._app.2"), "{next}");
    let result = &next["healthCheckResults"][0];
    assert_eq!(
        (&result["alive"], &result["consecutiveFailures"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(
        result.get("lastFailure"),
        None,
        "the results of the killed task are dropped"
    );
    world.stop().await;
}

impl World {
    /// Waits until the store has these health records: whether each check succeeds, by instance.
    async fn wait_for_stored_health(&self, expected: &[&[Option<bool>]]) {
        let prefix = format!("{}/health/", Config::default().settings.framework_name);
        wait_for(&format!("{expected:?} in the store"), async || {
            let entries = self.store.scan(&prefix).await.unwrap();
            let alive = |entry: &Entry| {
                let record: Value = serde_json::from_slice(&entry.value).unwrap();
                let checks = record["checks"].as_array().unwrap();
                checks
                    .iter()
                    .map(|check| check["alive"].as_bool())
                    .collect::<Vec<_>>()
            };
            entries.iter().map(alive).collect::<Vec<_>>() == expected
        })
        .await;
    }
}

impl World {
    /// The health of the only instance as a standby shows it while no daemon leads.
    async fn health_on_standby(&self) -> Option<bool> {
        let prefix = Config::default().settings.framework_name.clone();
        for (id, record) in self.scheduler.tasks().iter() {
            let key = format!("{prefix}/tasks/{id}");
            let value = serde_json::to_vec(record).unwrap();
            self.store.put(&key, value.into(), Expect::Any).await.unwrap();
        }
        let snapshot = Arc::new(ArcSwap::from_pointee(Snapshot::default()));
        let mut mirror = Mirror::new(self.store.clone(), &prefix, Arc::clone(&snapshot));
        mirror.load().await.unwrap();
        let snapshot = snapshot.load();
        let mut instances = snapshot.specs.values().flat_map(|view| view.instances.values());
        instances.next().unwrap().is_healthy()
    }
}

/// Load balancers that read the results see no gap.
#[tokio::test]
async fn last_known_health_is_shown_after_a_restart_and_ends_no_task() {
    let world = World::start().await;
    let unavailable = || {
        Err(Failure {
            reason: Reason::Internal,
            message: "no attempt".to_owned(),
        })
    };
    world.answers(Ok(Outcome::Http(200)));
    let check = check(&json!({"maxConsecutiveFailures": 3}));
    world.post(&json!({"healthChecks": [check]})).await;
    world.wait_for_health((1, 0)).await;
    world.wait_for_stored_health(&[&[Some(true)]]).await;
    assert_eq!(world.health_on_standby().await, Some(true));
    let task = world.task().await;
    // No new result arrives after the restart.
    world.answers(unavailable());
    let world = world.restart().await;
    let restored = world.task().await;
    let (before, after) = (&task["healthCheckResults"][0], &restored["healthCheckResults"][0]);
    assert_eq!(restored["id"], task["id"]);
    assert_eq!(after["alive"], true, "{restored}");
    assert_eq!(after["firstSuccess"], before["firstSuccess"]);
    world.wait_for_health((1, 0)).await;

    // Another result is stored, and its failures before a restart do not count after it.
    let mut events = world
        .listen("?event_type=health_status_changed_event&event_type=unhealthy_task_kill_event")
        .await;
    world.answers(Ok(Outcome::Http(503)));
    let event = events.next().await;
    assert_eq!(
        (event.kind.as_str(), &event.data["alive"]),
        ("health_status_changed_event", &json!(false))
    );
    world.answers(unavailable());
    world.wait_for_stored_health(&[&[Some(false)]]).await;
    let task = world.task().await["id"].clone();
    let world = world.restart().await;
    world.wait_for_health((0, 1)).await;
    let restored = world.task().await;
    assert_eq!(restored["id"], task);
    assert_eq!(restored["healthCheckResults"][0]["consecutiveFailures"], 0);
    let mut events = world
        .listen("?event_type=failed_health_check_event&event_type=unhealthy_task_kill_event")
        .await;
    world.answers(Ok(Outcome::Http(503)));
    for kind in [
        "failed_health_check_event",
        "failed_health_check_event",
        "failed_health_check_event",
        "failed_health_check_event",
        "unhealthy_task_kill_event",
    ] {
        assert_eq!(events.next().await.kind, kind);
    }
    // The record ends with its task.
    world.answers(unavailable());
    world.wait_for_stored_health(&[]).await;
    world.stop().await;
}

/// A task that its agent kills because of a COMMAND check has failed, like one that the daemon kills.
#[tokio::test]
async fn task_killed_by_the_check_of_its_agent_is_a_failure() {
    let world = World::start().await;
    let mut events = world
        .listen("?event_type=unhealthy_instance_kill_event&event_type=unhealthy_task_kill_event")
        .await;
    let check = json!({"protocol": "COMMAND", "command": {"value": "false"}, "gracePeriodSeconds": 0});
    world
        .post(&json!({"healthChecks": [check], "backoffSeconds": 600}))
        .await;
    wait_for("the task runs", async || world.scheduler.running().len() == 1).await;
    let task = world.scheduler.running().remove(0);
    world.scheduler.set_immediate_launches(false);
    world.scheduler.kill_unhealthy(task.as_str());
    for kind in ["unhealthy_instance_kill_event", "unhealthy_task_kill_event"] {
        let event = events.next().await;
        assert_eq!(event.kind, kind);
        assert_eq!(event.data["taskId"], json!(task.as_str()), "{:?}", event.data);
        assert_eq!(event.data["reason"], "the agent's health check failed");
    }
    wait_for("the next task waits for the backoff", async || {
        let queue = world.get("/v2/queue").await;
        queue["queue"][0]["delay"]["overdue"] == json!(false)
    })
    .await;
    let app = &world.get("/v2/apps/web").await["app"];
    let failure = &app["lastTaskFailure"];
    assert_eq!(failure["taskId"], json!(task.as_str()), "{app}");
    assert_eq!(failure["state"], "TASK_KILLED");
    assert_eq!(failure["message"], "Command terminated with signal Terminated");
    world.stop().await;
}

/// The first attempt of a health check is due five seconds after the start of the task, that of a
/// changed one immediately.
#[tokio::test]
async fn failing_component_and_unchanged_checks_leave_the_health_as_it_is() {
    let world = World::start().await;
    world.answers(Ok(Outcome::Http(200)));
    let slow = check(&json!({"path": "/a", "intervalSeconds": 3600}));
    world.post(&json!({"healthChecks": [slow]})).await;
    world.wait_for_health((1, 0)).await;
    let before = world.task().await;
    world.answers(Err(Failure {
        reason: Reason::Plugin,
        message: "the component is gone".to_owned(),
    }));
    let both = json!({"healthChecks": [check(&json!({"path": "/new", "maxConsecutiveFailures": 1})), slow]});
    let changed = world.send("PUT", "/v2/apps/web", both).await;
    assert_eq!(changed.status, 200, "{changed:?}");
    wait_for("the new check is made", async || {
        let asked = world.components.last_probe.lock().unwrap().clone().unwrap();
        asked.1.path == "/new"
    })
    .await;
    let after = world.task().await;
    assert_eq!(after["id"], before["id"]);
    let results = after["healthCheckResults"].as_array().unwrap();
    assert_eq!(
        results.len(),
        1,
        "only the unchanged check keeps its result: {after}"
    );
    assert_eq!(
        results[0]["firstSuccess"],
        before["healthCheckResults"][0]["firstSuccess"]
    );

    // A check with a new path has no result yet, and the failures of the old path are not counted
    // for it.
    world.answers(Ok(Outcome::Http(404)));
    let lenient = check(&json!({"path": "/b", "maxConsecutiveFailures": 0}));
    let changed = world
        .send("PUT", "/v2/apps/web", json!({"healthChecks": [lenient]}))
        .await;
    assert_eq!(changed.status, 200, "{changed:?}");
    world.wait_for_health((0, 1)).await;
    let result = world.task().await["healthCheckResults"][0].clone();
    assert_eq!(result["lastFailureCause"], "404 Not Found");
    assert_eq!(
        (result.get("firstSuccess"), &result["alive"]),
        (None, &json!(false))
    );
    assert_eq!(world.task().await["id"], before["id"]);
    world.stop().await;
}

/// During the upgrade the earlier instance has the checks of its own version, in another order.
#[tokio::test]
async fn instance_of_a_restored_version_keeps_its_health() {
    let world = World::start().await;
    world.answers(Ok(Outcome::Http(200)));
    let slow = check(&json!({"path": "/a", "intervalSeconds": 3600}));
    let other = check(&json!({"path": "/b", "intervalSeconds": 3600}));
    world.post(&json!({"healthChecks": [slow]})).await;
    world.wait_for_health((1, 0)).await;
    let before = world.task().await;
    world.answers(Err(Failure {
        reason: Reason::Plugin,
        message: "the component is gone".to_owned(),
    }));
    world.scheduler.set_immediate_launches(false);
    let upgrade = json!({"cmd": "sleep 2", "healthChecks": [other, slow]});
    let upgraded = world.send("PUT", "/v2/apps/web", upgrade).await;
    assert_eq!(upgraded.status, 200, "{upgraded:?}");
    let first = json!({"version": before["version"]});
    let restored = world.send("PUT", "/v2/apps/web?force=true", first).await;
    assert_eq!(restored.status, 200, "{restored:?}");
    let app = world.settled("/web", 1).await;
    assert_eq!(
        app["tasks"][0]["healthCheckResults"], before["healthCheckResults"],
        "{app}"
    );
    world.stop().await;
}

#[tokio::test]
async fn health_reported_by_agents_is_shown_and_never_kills_a_task() {
    let world = World::start().await;
    world
        .post(&json!({"healthChecks": [check(&json!({"protocol": "MESOS_HTTP", "maxConsecutiveFailures": 1}))]}))
        .await;
    wait_for("the task runs", async || {
        world.task().await["state"] == "TASK_RUNNING"
    })
    .await;
    let task = world.task().await["id"].as_str().unwrap().to_owned();
    assert_eq!(world.task().await["healthCheckResults"], json!([]));
    assert_ne!(
        world.get("/v2/deployments").await,
        json!([]),
        "the deployment waits for the first health result"
    );
    world.scheduler.report_health(&task, true);
    world.wait_for_health((1, 0)).await;
    world.settled("/web", 1).await;
    for _ in 0..4 {
        world.scheduler.report_health(&task, false);
    }
    wait_for("each failure counts", async || {
        world.task().await["healthCheckResults"][0]["consecutiveFailures"] == 4
    })
    .await;
    assert_eq!(world.task().await["id"], task);

    let world = world.restart().await;
    world.wait_for_health((0, 1)).await;
    world.scheduler.report_health(&task, true);
    world.wait_for_health((1, 0)).await;
    world.stop().await;
}

#[tokio::test]
async fn readiness_is_probed_only_while_a_deployment_waits_for_it() {
    let world = World::start().await;
    let whole = |status| {
        let document = json!({"status": status, "contentType": "application/json", "body": "{}"});
        Ok(Outcome::Custom(document.to_string()))
    };
    world.answers(whole(503));
    let ready = json!({
        "portName": "http", "intervalSeconds": 2, "timeoutSeconds": 1, "preserveLastResponse": true,
    });
    world.post(&json!({"readinessChecks": [ready]})).await;
    let results = async || {
        let deployments = world.get("/v2/deployments").await;
        deployments[0]["currentActions"][0]["readinessCheckResults"].clone()
    };
    wait_for("the first answer", async || results().await[0]["ready"] == false).await;
    let task = world.task().await["id"].clone();
    let expected = json!([{
        "name": "readinessCheck", "taskId": task, "ready": false,
        "lastResponse": {"status": 503, "contentType": "application/json", "body": "{}"},
    }]);
    assert_eq!(results().await, expected);
    let shown = world.get("/v2/apps/web?embed=app.readiness").await;
    assert_eq!(shown["app"]["readinessCheckResults"], expected);
    world.answers(whole(200));
    world.settled("/web", 1).await;
    let shown = world.get("/v2/apps/web?embed=app.readiness").await;
    assert_eq!(
        shown["app"]["readinessCheckResults"],
        json!([]),
        "readiness is shown only during a deployment"
    );

    // A task that is launched outside of a deployment is not probed for readiness.
    *world.components.last_probe.lock().unwrap() = None;
    let killed = world.send("DELETE", "/v2/apps/web/tasks", Value::Null).await;
    assert_eq!(killed.status, 200, "{killed:?}");
    wait_for("the next task runs", async || {
        let next = world.task().await;
        next["id"] != task && next["state"] == "TASK_RUNNING"
    })
    .await;
    assert!(world.components.last_probe.lock().unwrap().is_none());
    world.stop().await;
}
