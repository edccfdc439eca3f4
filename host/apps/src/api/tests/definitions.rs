//! Apps with containers, networks and features.

use serde_json::json;
use transom_plugin_host::probe::Outcome;
use transom_testkit::wait_for;

use crate::Config;
use crate::config::Feature;
use crate::testing::World;

#[tokio::test]
async fn mapped_ports_are_assigned_shown_and_probed() {
    let world = World::start().await;
    *world.components.probe.lock().unwrap() = Ok(Outcome::Tcp(true));
    let body = json!({
        "id": "/web", "cmd": "sleep 1", "networks": [{"mode": "container/bridge"}],
        "container": {"type": "MESOS", "portMappings": [{"containerPort": 80, "name": "http"}]},
        "check": {"tcp": {}, "intervalSeconds": 1, "timeoutSeconds": 0, "delaySeconds": 0},
    });
    let created = world.send("POST", "/v2/apps", body).await;
    assert_eq!(created.status, 201, "{created:?}");
    let app = world.settled("/web", 1).await;
    let mapping = json!({
        "containerPort": 80, "hostPort": 0, "servicePort": 10_000, "name": "http", "protocol": "tcp",
    });
    assert_eq!(app["container"]["portMappings"], json!([mapping]));
    assert_eq!(app.get("portDefinitions"), None);
    let task = &app["tasks"][0];
    assert_eq!(
        (&task["ports"], &task["servicePorts"]),
        (&json!([31_000]), &json!([10_000]))
    );
    wait_for("the check is made", async || {
        world.components.last_probe.lock().unwrap().is_some()
    })
    .await;
    let (_, request) = world.components.last_probe.lock().unwrap().clone().unwrap();
    let endpoint = request.endpoint.unwrap();
    assert_eq!(
        (endpoint.host.as_str(), endpoint.port),
        ("127.0.0.1", 31_000),
        "the port of the agent"
    );
    assert_eq!(request.ports[0].endpoint, endpoint);

    // A change of only the command keeps the service port.
    let changed = world.send("PUT", "/v2/apps/web", json!({"cmd": "sleep 2"})).await;
    assert_eq!(changed.status, 200, "{changed:?}");
    let app = world.settled("/web", 1).await;
    assert_eq!(app["container"]["portMappings"], json!([mapping]));
    world.stop().await;
}

#[tokio::test]
async fn enabled_features_are_shown_and_decide_on_definitions() {
    let secret = json!({
        "id": "/a", "cmd": "sleep 1", "env": {"PASSWORD": {"secret": "s"}}, "secrets": {"s": {"source": "/s"}},
    });
    let plain = World::start().await;
    let info = plain.get("/v2/info").await;
    assert_eq!(info["marathon_config"]["features"], json!(["task_killing"]));
    assert_eq!(plain.send("POST", "/v2/apps", secret.clone()).await.status, 422);
    plain.stop().await;
    let world = World::start_with(Config {
        features: [Feature::Secrets].into(),
        ..Config::default()
    })
    .await;
    let info = world.get("/v2/info").await;
    let features = &info["marathon_config"]["features"];
    assert_eq!(features, &json!(["task_killing", "secrets"]));
    let created = world.send("POST", "/v2/apps", secret).await;
    assert_eq!(created.status, 201, "{created:?}");
    world.stop().await;
}
