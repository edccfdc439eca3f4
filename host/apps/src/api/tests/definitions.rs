//! Apps with containers, networks and features.

use serde_json::json;
use transom_plugin_host::probe::Outcome;
use transom_testkit::wait_for;

use crate::Settings;
use crate::settings::Feature;
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
    let world = World::start_with(Settings {
        enable_features: vec![Feature::Secrets],
        ..Settings::default()
    })
    .await;
    let info = world.get("/v2/info").await;
    let features = &info["marathon_config"]["features"];
    assert_eq!(features, &json!(["task_killing", "secrets"]));
    let created = world.send("POST", "/v2/apps", secret).await;
    assert_eq!(created.status, 201, "{created:?}");
    world.stop().await;
}

#[tokio::test]
async fn unknown_fields_are_accepted_and_named_and_rejected_if_strict() {
    const HEADER: &str = "x-transom-unknown-fields";
    let world = World::start().await;
    let app = |id: &str| json!({"id": id, "cmd": "sleep 1", "instances": 0, "forcePullImage": true});
    let strict = world.send("POST", "/v2/apps?strict=true", app("/a")).await;
    assert_eq!(strict.status, 422, "{strict:?}");
    assert_eq!(strict.headers[HEADER], "/forcePullImage");
    assert_eq!(
        strict.body["details"],
        json!([{"path": "/forcePullImage", "errors": [
            "is not a known field, so it has no effect; did you mean /container/docker/forcePullImage?",
        ]}])
    );
    let created = world.send("POST", "/v2/apps", app("/a")).await;
    assert_eq!(
        (created.status, created.headers[HEADER].as_str()),
        (201, "/forcePullImage")
    );

    // A group, a list of apps, a part of an app, and a pod.
    let group = json!({"app": [{"id": "a", "cmd": "x1"}], "pods": [{"id": "p"}]});
    let pod = json!({
        "id": "/p", "user_": "x", "scaling": {"kind": "fixed", "instances": 0},
        "containers": [{"name": "c", "exec": {"command": {"shell": "x"}}, "resources": {"cpus": 0.1, "mem": 1}}],
    });
    for (method, path, body, fields) in [
        ("PUT", "/v2/groups/typo", group, "/app, /pods"),
        (
            "PUT",
            "/v2/apps",
            json!([app("/a"), app("/b")]),
            "/(0)/forcePullImage, /(1)/forcePullImage",
        ),
        ("PATCH", "/v2/apps/a", json!({"cpu": 1}), "/cpu"),
        ("POST", "/v2/pods/", pod, "/user_"),
    ] {
        let rejected = world
            .send(method, &format!("{path}?strict=true"), body.clone())
            .await;
        assert_eq!(rejected.status, 422, "{method} {path}: {rejected:?}");
        let accepted = world.send(method, path, body).await;
        assert!(
            (200..300).contains(&accepted.status),
            "{method} {path}: {accepted:?}"
        );
        assert_eq!(accepted.headers[HEADER], fields, "{method} {path}");
    }

    // A document that was read can be written back, strictly.
    let shown = world.get("/v2/apps/a").await["app"].clone();
    let written = world
        .send(
            "PUT",
            "/v2/apps/a?strict=true&force=true&partialUpdate=false",
            shown,
        )
        .await;
    assert_eq!(written.status, 200, "{written:?}");
    assert_eq!(written.headers.get(HEADER), None);
    world.stop().await;
}

#[tokio::test]
async fn null_means_not_given_in_a_put_and_removes_the_field_in_a_patch() {
    let world = World::start().await;
    let body = json!({
        "id": "/n", "instances": 0, "cmd": "start", "container": {"type": "DOCKER", "docker": {"image": "x/i"}},
    });
    assert_eq!(world.send("POST", "/v2/apps", body.clone()).await.status, 201);
    let put = world.send("PUT", "/v2/apps/n", json!({"cmd": null})).await;
    assert_eq!(put.status, 200, "{put:?}");
    assert_eq!(world.get("/v2/apps/n").await["app"]["cmd"], "start");
    let mut replacement = body;
    replacement["cmd"] = json!(null);
    for (method, path, body) in [
        ("PATCH", "/v2/apps/n", json!({"cmd": null})),
        ("PUT", "/v2/apps/n?partialUpdate=false", replacement),
    ] {
        let with_command = world
            .send("PUT", "/v2/apps/n?force=true", json!({"cmd": "start"}))
            .await;
        assert_eq!(with_command.status, 200, "{with_command:?}");
        let removed = world
            .send(
                method,
                &format!("{path}{}force=true", if path.contains('?') { "&" } else { "?" }),
                body,
            )
            .await;
        assert_eq!(removed.status, 200, "{method}: {removed:?}");
        assert_eq!(world.get("/v2/apps/n").await["app"].get("cmd"), None, "{method}");
    }
    world.stop().await;
}
