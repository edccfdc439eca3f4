//! Errors, and responses that do not depend on apps.

use std::time::Duration;

use serde_json::{Value, json};
use transom_store::Store;
use transom_testkit::wait_for;

use super::sleeper;
use crate::testing::World;
use crate::{Config, Settings};

#[tokio::test]
async fn error_responses_have_the_format_of_upstream() {
    let world = World::start().await;
    world.send("POST", "/v2/apps", sleeper("/x")).await;
    world.settled("/x", 1).await;
    let suite: Value = serde_json::from_str(include_str!("../../../tests/fixtures/errors.json")).unwrap();
    for case in suite["cases"].as_array().unwrap() {
        // This case needs a deployment that does not end: see
        // `app_is_locked_during_its_deployment_unless_forced`.
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
    assert!(world.apps.is_ready());
    world.stop().await;
}

#[tokio::test]
async fn info_shows_the_configuration_by_upstream_s_names() {
    let mut config = Config::from(Settings {
        user: "svc".to_owned(),
        failover_timeout: 77,
        max_versions: 7,
        local_port_min: 11_000,
        local_port_max: 11_009,
        env_vars_prefix: "P_".to_owned(),
        task_launch_timeout_seconds: 9,
        allowed_origins: vec!["https://ui.example".parse().unwrap()],
        ..Settings::default()
    });
    config.shared_store = true;
    let world = World::start_with(config).await;
    let port = world.apps.addr().port();
    let info = world.get("/v2/info").await;
    for (key, expected) in [
        ("access_control_allow_origin", json!(["https://ui.example"])),
        ("env_vars_prefix", json!("P_")),
        ("failover_timeout", json!(77)),
        ("ha", json!(true)),
        ("hostname", json!("localhost")),
        ("leader_proxy_connection_timeout_ms", json!(5000)),
        ("leader_proxy_read_timeout_ms", json!(60_000)),
        ("local_port_min", json!(11_000)),
        ("local_port_max", json!(11_009)),
        ("mesos_role", json!("*")),
        ("mesos_user", json!("svc")),
        ("min_revive_offers_interval", json!(1000)),
        ("task_launch_timeout", json!(9000)),
        ("webui_url", json!(format!("http://localhost:{port}"))),
    ] {
        assert_eq!(info["marathon_config"][key], expected, "{key}: {info}");
    }
    assert_eq!(info["elected"], true);
    assert_eq!(info["leader"], format!("localhost:{port}"));
    assert_eq!(info["http_config"], json!({"http_port": port, "https_port": 0}));
    assert_eq!(info["zookeeper_config"]["zk_max_versions"], 7);
    world.stop().await;
}

#[tokio::test]
async fn metrics_plugins_and_leader_answer_in_upstream_s_form() {
    let world = World::start().await;
    let metrics = world.call("GET", "/metrics", None).await;
    let text = metrics.body["message"].as_str().unwrap().to_owned();
    assert_eq!(metrics.status, 404);
    assert!(text.contains("admin port") && text.contains("/metrics"), "{text}");

    let component = json!({
        "id": "attributes",
        "plugin": "matcher",
        "implementation": "attributes 0.1.0",
        "info": {"version": "0.1.0", "digest": "sha256:00"},
    });
    assert_eq!(world.get("/v2/plugins").await, json!({"plugins": [component]}));
    for (method, path, id) in [
        ("GET", "/v2/plugins/none", "none"),
        ("GET", "/v2/plugins/attributes/x/y", "attributes"),
        ("POST", "/v2/plugins/a%20b/x", "a b"),
        ("DELETE", "/v2/plugins/none", "none"),
    ] {
        let answer = world.call(method, path, None).await;
        let expected = json!({"message": format!("No plugin with this pluginId: {id}")});
        assert_eq!((answer.status, &answer.body), (404, &expected), "{method} {path}");
    }

    for (parameter, command) in [
        ("backup", "transom apps export"),
        ("restore", "transom apps import"),
    ] {
        let path = format!("/v2/leader?{parameter}=file:///x");
        let rejected = world.call("DELETE", &path, None).await;
        assert_eq!(rejected.status, 400, "{rejected:?}");
        assert!(
            rejected.body["message"].as_str().unwrap().contains(command),
            "{rejected:?}"
        );
    }
    assert!(!world.abdicated(), "a rejected request does not abdicate");
    let answer = world.call("DELETE", "/v2/leader", None).await;
    let expected = json!({"message": "Leadership abdicated"});
    assert_eq!((answer.status, &answer.body), (200, &expected));
    assert!(world.abdicated());
    world.stop().await;
}

#[tokio::test]
async fn writes_are_rejected_with_503_while_the_store_hangs() {
    let world = World::start_with(Config {
        store_timeout: Duration::from_secs(2),
        ..Config::default()
    })
    .await;
    let none = |id: &str| {
        let mut definition = sleeper(id);
        definition["instances"] = json!(0);
        definition
    };
    let created = world.send("POST", "/v2/apps", none("/before")).await;
    assert_eq!(created.status, 201, "{created:?}");
    let published = world.published();
    world.store.hold_after(0);
    let rejected = world.send("POST", "/v2/apps", none("/a")).await;
    assert_eq!(rejected.status, 503, "{rejected:?}");
    assert_eq!(rejected.headers["retry-after"], "5");
    let rejected = world.call("DELETE", "/v2/apps/before", None).await;
    assert_eq!(rejected.status, 503, "{rejected:?}");
    // The rejected changes are not visible, and no event is published.
    assert_eq!(world.call("GET", "/v2/apps/a", None).await.status, 404);
    assert_eq!(world.call("GET", "/v2/apps/before", None).await.status, 200);
    assert_eq!(world.published(), published);
    world.store.release();
    let created = world.send("POST", "/v2/apps", none("/b")).await;
    assert_eq!(created.status, 201, "{created:?}");
    // Commits that the store finished after the timeout are undone.
    wait_for("the store has what clients see", async || {
        let stored = world.store.scan("apps/apps/").await.unwrap();
        let apps: Vec<Value> = stored
            .iter()
            .map(|entry| serde_json::from_slice(&entry.value).unwrap())
            .collect();
        let ids: Vec<&Value> = apps.iter().map(|app| &app["spec"]["app"]["id"]).collect();
        ids == ["/b", "/before"] && apps.iter().all(|app| app["gone"] == json!(false))
    })
    .await;
    let world = world.restart().await;
    assert_eq!(world.call("GET", "/v2/apps/a", None).await.status, 404);
    assert_eq!(world.call("GET", "/v2/apps/before", None).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn exposed_port_without_credentials_is_rejected() {
    let mut config = Config::default();
    (config.port.listener, config.port.port) = ("0.0.0.0".parse().unwrap(), 0);
    let error = transom_common::error_chain(&config.bind().await.unwrap_err());
    assert!(
        error.contains("`apps.listener` is 0.0.0.0") && error.contains("or use 127.0.0.1"),
        "{error}"
    );
}
