//! The OpenAPI document: it describes the routes of the documentation, and real exchanges.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use transom_plugin_host::probe::Outcome;
use transom_testkit::wait_for;

use super::sleeper;
use crate::api::client::Answer;
use crate::api::described::{check, problems};
use crate::api::routes::document;
use crate::testing::World;

/// Sends requests, and records the operations that were compared with the document.
struct Recorder {
    world: World,
    seen: BTreeSet<String>,
}

impl Recorder {
    async fn call(&mut self, method: &str, path: &str, body: Value) -> Answer {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let answer = self.world.call(method, path, Some(&body)).await;
        self.seen.extend(check(method, path, &body, &answer));
        answer
    }

    async fn get(&mut self, path: &str) -> Value {
        let answer = self.call("GET", path, Value::Null).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.body
    }
}

#[test]
fn routes_of_the_documentation_are_described() {
    let page = include_str!("../../../../../docs/apps/routes.md");
    let (_, table) = page.split_once("| method | path | |").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let rows = table.lines().filter(|line| line.contains('`'));
    let routes = rows.map(|row| {
        let mut cells = row.split('|').map(str::trim).skip(1);
        let method = cells.next().unwrap().to_lowercase();
        format!("{method} {}", cells.next().unwrap().trim_matches('`'))
    });
    let routes: BTreeSet<String> = routes.collect();
    assert!(routes.len() > 40, "{routes:?}");
    let document = document();
    let (mut described, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if method != "parameters" {
                described.insert(format!("{method} {path}"));
                let id = operation["operationId"].as_str().unwrap();
                assert!(ids.insert(id), "the operation id {id} is used twice");
            }
        }
    }
    assert_eq!(described, routes);
    // Every reference resolves.
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(references.len() > 100);
    for reference in references {
        let target = document.pointer(reference.trim_start_matches('#'));
        assert!(target.is_some(), "{reference}");
    }
}

fn collect<'a>(value: &'a Value, references: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            references.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|value| collect(value, references));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, references)),
        _ => {}
    }
}

/// Operations and statuses that the test below must compare.
const EXPECTED: &[&str] = &[
    "DELETE /v2/apps/{id}/tasks 200",
    "DELETE /v2/deployments/{deployment} 200",
    "DELETE /v2/groups/{id} 200",
    "DELETE /v2/pods/{id} 202",
    "GET /metrics 404",
    "GET /ping 200",
    "GET /v2/apps 200",
    "GET /v2/apps/{id} 200",
    "GET /v2/apps/{id} 404",
    "GET /v2/apps/{id}/* 200",
    "GET /v2/apps/{id}/*/tasks 200",
    "GET /v2/apps/{id}/tasks 200",
    "GET /v2/apps/{id}/versions 200",
    "GET /v2/apps/{id}/versions/{version} 200",
    "GET /v2/deployments 200",
    "GET /v2/events 405",
    "GET /v2/groups 200",
    "GET /v2/groups/{id} 200",
    "GET /v2/groups/{id}/apps 200",
    "GET /v2/groups/{id}/versions 200",
    "GET /v2/groups/{id}/versions/{version} 200",
    "GET /v2/info 200",
    "GET /v2/leader 200",
    "GET /v2/openapi.json 200",
    "GET /v2/plugins 200",
    "GET /v2/pods 200",
    "GET /v2/pods/::status 200",
    "GET /v2/pods/{id} 200",
    "GET /v2/pods/{id} 404",
    "GET /v2/pods/{id}::status 200",
    "GET /v2/pods/{id}::versions 200",
    "GET /v2/queue 200",
    "GET /v2/tasks 200",
    "POST /v2/apps 201",
    "POST /v2/apps 400",
    "POST /v2/apps 409",
    "POST /v2/apps 422",
    "POST /v2/apps 503",
    "POST /v2/pods 201",
    "PUT /v2/apps/{id} 200",
    "PUT /v2/apps/{id} 409",
    "PUT /v2/groups 200",
];

#[tokio::test]
async fn documents_are_as_described() {
    let world = World::start().await;
    *world.components.probe.lock().unwrap() = Ok(Outcome::Http(200));
    let mut recorder = Recorder {
        world,
        seen: BTreeSet::new(),
    };
    let health = json!({"intervalSeconds": 1, "timeoutSeconds": 1, "gracePeriodSeconds": 0});
    let checked =
        json!({"http": {"path": "/"}, "intervalSeconds": 2, "timeoutSeconds": 1, "delaySeconds": 0});
    let web = json!({
        "id": "/shop/web", "cmd": "serve", "portDefinitions": [{"port": 0, "name": "http"}], "labels": {"a": "b"},
        "constraints": [["hostname", "LIKE", "127.*"]], "healthChecks": [health], "check": checked,
        "readinessChecks": [{"portName": "http", "intervalSeconds": 2, "timeoutSeconds": 1, "preserveLastResponse": true}],
        "env": {"K": "v"}, "fetch": [{"uri": "http://h/f.zip"}],
    });
    let created = recorder.call("POST", "/v2/apps", web.clone()).await;
    assert_eq!(created.status, 201, "{created:?}");
    wait_for("the app is healthy and checked", async || {
        let app = &recorder.world.get("/v2/apps/shop/web").await["app"];
        app["tasksHealthy"] == 1
            && app["tasks"][0]["checkResult"] != Value::Null
            && app["deployments"] == json!([])
    })
    .await;
    let container = json!({
        "name": "c", "exec": {"command": {"shell": "serve"}}, "resources": {"cpus": 0.1, "mem": 16},
        "endpoints": [{"name": "http", "hostPort": 0}], "healthCheck": {"tcp": {"endpoint": "http"}},
    });
    let pod = json!({"id": "/shop/pod", "containers": [container]});
    let created = recorder.call("POST", "/v2/pods", pod).await;
    assert_eq!(created.status, 201, "{created:?}");
    // Both apps have an unfinished deployment and waiting instances.
    recorder.world.scheduler.set_immediate_launches(false);
    let waiting = recorder
        .call("POST", "/v2/apps?deadline=3600&canary=1", sleeper("/waiting"))
        .await;
    let restarted = recorder
        .call("PUT", "/v2/apps/shop/web?canary=1", json!({"cmd": "serve -v"}))
        .await;
    assert_eq!(restarted.status, 200, "{restarted:?}");
    wait_for("instances are waiting", async || {
        recorder.world.get("/v2/queue").await["queue"]
            .as_array()
            .unwrap()
            .len()
            > 1
    })
    .await;

    read_all(&mut recorder).await;
    fail_in_each_way(&mut recorder, web).await;
    let id = waiting.body["deployments"][0]["id"].as_str().unwrap();
    recorder
        .call("DELETE", &format!("/v2/deployments/{id}"), Value::Null)
        .await;
    recorder.world.scheduler.set_immediate_launches(true);
    recorder
        .call("PUT", "/v2/groups?dryRun=true", json!({"id": "/", "scaleBy": 2}))
        .await;
    recorder
        .call("DELETE", "/v2/apps/shop/web/tasks?force=true", Value::Null)
        .await;
    recorder
        .call("DELETE", "/v2/pods/shop/pod?force=true", Value::Null)
        .await;
    recorder
        .call("DELETE", "/v2/groups/shop?force=true", Value::Null)
        .await;
    recorder.world.components.remove();
    let constraints = json!({"id": "/other", "cmd": "x", "constraints": [["hostname", "UNIQUE"]]});
    assert_eq!(recorder.call("POST", "/v2/apps", constraints).await.status, 503);

    let seen: Vec<&str> = recorder.seen.iter().map(String::as_str).collect();
    for &expected in EXPECTED {
        assert!(seen.contains(&expected), "{expected} is not among {seen:#?}");
    }
    recorder.world.stop().await;
}

/// Reads every document.
async fn read_all(recorder: &mut Recorder) {
    let embeds = "embed=tasks&embed=lastTaskFailure&embed=readiness&embed=taskStats&embed=checkFailure";
    let apps = recorder.get(&format!("/v2/apps?{embeds}")).await;
    let app = &apps["apps"][0];
    assert_eq!(app["id"], "/shop/web");
    assert!(app["tasksStats"]["totalSummary"] != Value::Null, "{app}");
    assert!(
        app["tasks"][0]["healthCheckResults"][0]["alive"] != Value::Null,
        "{app}"
    );
    for path in [
        "/v2/apps/shop/web",
        "/v2/apps/shop/web/tasks",
        "/v2/apps/shop/web/versions",
        "/v2/apps/shop/*",
        "/v2/apps/shop/*/tasks",
        "/v2/tasks?status=running",
        "/v2/pods",
        "/v2/pods/shop/pod",
        "/v2/pods/::status",
        "/v2/pods/shop/pod::status",
        "/v2/pods/shop/pod::versions",
        "/v2/groups",
        "/v2/groups/shop",
        "/v2/groups/shop/apps",
        "/v2/groups/shop/versions",
        "/v2/info",
        "/v2/leader",
        "/v2/plugins",
        "/v2/openapi.json",
        "/ping",
    ] {
        recorder.get(path).await;
    }
    let version = recorder.get("/v2/apps/shop/web/versions").await["versions"][1].clone();
    let version = version.as_str().unwrap();
    for path in ["/v2/apps/shop/web", "/v2/groups"] {
        recorder
            .call("GET", &format!("{path}/versions/{version}"), Value::Null)
            .await;
    }
    let queue = recorder
        .get("/v2/queue?embed=reasons&embed=lastUnusedOffers")
        .await;
    assert!(queue["queue"][0]["reasons"] != Value::Null, "{queue}");
    let deployments = recorder.get("/v2/deployments?embed=deadline&embed=canary").await;
    assert!(deployments[0].get("steps").is_some(), "{deployments}");
}

/// Causes errors of each kind.
async fn fail_in_each_way(recorder: &mut Recorder, web: Value) {
    for (method, path, body, status) in [
        ("POST", "/v2/apps", json!({"id": "/new", "executor": 1}), 422),
        ("POST", "/v2/apps", json!({"id": "/new"}), 422),
        ("POST", "/v2/apps", Value::Null, 400),
        ("POST", "/v2/apps", web, 409),
        ("PUT", "/v2/apps/shop/web", json!({"cmd": "serve -q"}), 409),
        ("GET", "/v2/apps/none", Value::Null, 404),
        ("GET", "/v2/pods/none", Value::Null, 404),
        ("GET", "/v2/events", Value::Null, 405),
        ("GET", "/metrics", Value::Null, 404),
    ] {
        let answer = recorder.call(method, path, body).await;
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
    }
}

#[tokio::test]
async fn deviations_from_the_document_are_detected() {
    let world = World::start().await;
    world.send("POST", "/v2/apps", sleeper("/a")).await;
    world.settled("/a", 1).await;
    let schema = json!({"$ref": "#/components/schemas/AppList"});
    let apps = world.get("/v2/apps?embed=tasks").await;
    assert_eq!(problems(&schema, &apps), [""; 0]);
    for (pointer, change) in [
        ("/apps/0", json!({"more": 1})),
        ("/apps/0/tasks/0", json!({"more": 1})),
        ("/apps/0/tasks/0", json!({"stagedAt": "yesterday"})),
        ("/apps/0/tasks/0", json!({"ports": ["31000"]})),
        ("/apps/0/tasks/0", json!({"startedAt": null})),
        ("/apps/0/upgradeStrategy", json!({"maximumOverCapacity": "all"})),
        ("/apps/0", json!({"killSelection": "ANY"})),
        ("/apps/0", json!({"constraints": [{"field": "hostname"}]})),
    ] {
        let mut wrong = apps.clone();
        let part = wrong.pointer_mut(pointer).and_then(Value::as_object_mut).unwrap();
        part.extend(change.as_object().unwrap().clone());
        assert_ne!(problems(&schema, &wrong), [""; 0], "{pointer} {change}");
    }
    let mut wrong = apps.clone();
    wrong["apps"][0].as_object_mut().unwrap().remove("tasksStaged");
    assert_ne!(problems(&schema, &wrong), [""; 0], "a missing member is reported");
    world.stop().await;
}

/// Definitions that the recordings call valid.
#[test]
fn accepted_definitions_are_as_described() {
    let (mut accepted, mut rejected) = (0, 0);
    for (suite, schema) in [
        (
            include_str!("../../../tests/fixtures/app-validation.json"),
            "AppInput",
        ),
        (
            include_str!("../../../tests/fixtures/pod-validation.json"),
            "PodInput",
        ),
    ] {
        let suite: Value = serde_json::from_str(suite).unwrap();
        let schema = json!({"$ref": format!("#/components/schemas/{schema}")});
        for case in suite["cases"].as_array().unwrap() {
            let found = problems(&schema, &case["request"]["body"]);
            if case["expect"]["outcome"] == "accept" {
                assert!(found.is_empty(), "{found:#?} in {case:#}");
                accepted += 1;
            } else {
                rejected += usize::from(!found.is_empty());
            }
        }
    }
    assert!(accepted > 20 && rejected > 0, "{accepted} {rejected}");
}
