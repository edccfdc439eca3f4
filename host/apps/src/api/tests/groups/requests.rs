//! Forms of requests: documents that were read, merges, ignored fields, and destructive requests.

use serde_json::{Value, json};

use super::super::sleeper;
use super::shop;
use crate::testing::World;

#[tokio::test]
async fn group_document_that_was_read_is_written_back_or_rejected() {
    let world = World::start().await;
    world.send("PUT", "/v2/groups", shop()).await;
    world.quiet().await;
    let mut read = world.get("/v2/groups/shop").await;
    let old = read["version"].clone();
    read["groups"][0]["apps"][0]["instances"] = json!(3);
    let written = world.send("PUT", "/v2/groups/shop", read.clone()).await;
    assert_eq!(written.status, 200, "{written:?}");
    world.settled("/shop/db/pg", 3).await;
    for (body, path) in [
        (read, "/version"),
        (json!({"version": old, "enforceRole": true}), "/version"),
        (json!({"version": old, "scaleBy": 2}), "/version"),
        (json!({"scaleBy": 2, "apps": []}), "/scaleBy"),
        (json!({"scaleBy": 2, "dependencies": []}), "/scaleBy"),
    ] {
        for query in ["", "?dryRun=true"] {
            let url = format!("/v2/groups/shop{query}");
            let rejected = world.send("PUT", &url, body.clone()).await;
            let details = &rejected.body["details"];
            assert_eq!(
                (rejected.status, &details[0]["path"]),
                (422, &json!(path)),
                "{rejected:?}"
            );
        }
    }
    let back = world
        .send("PUT", "/v2/groups/shop", json!({"id": "/shop", "version": old}))
        .await;
    assert_eq!(back.status, 200, "{back:?}");
    world.settled("/shop/db/pg", 1).await;
    world.stop().await;
}

#[tokio::test]
async fn no_empty_or_unknown_part_of_a_request_widens_what_it_deletes() {
    let world = World::start().await;
    world.send("PUT", "/v2/groups", shop()).await;
    world.quiet().await;
    let running = async || world.get("/v2/tasks").await["tasks"].as_array().unwrap().len();
    assert_eq!(running().await, 3);
    for path in [
        "/v2/apps/shop/db/pg/tasks?host=",
        "/v2/apps/shop/db/pg/tasks?host=&host=a&scale=true",
    ] {
        let killed = world.send("DELETE", path, Value::Null).await;
        assert_eq!(killed.status, 200, "{path}: {killed:?}");
    }
    for path in [
        "/v2/apps/shop/db/pg/tasks/",
        "/v2/apps/shop/db/pg/tasks?hosts=a",
        "/v2/groups/",
        "/v2/groups/shop/",
        "/v2/groups/shop/db//",
        "/v2/groups//",
    ] {
        let rejected = world.send("DELETE", path, Value::Null).await;
        assert_eq!(rejected.status, 400, "{path}: {rejected:?}");
    }
    for path in ["/v2/groups/", "/v2/groups//", "/v2/groups/shop/"] {
        for body in [json!({"apps": [], "groups": []}), json!({"scaleBy": 0})] {
            let rejected = world.send("PUT", path, body).await;
            assert_eq!(rejected.status, 400, "{path}: {rejected:?}");
        }
    }
    assert_eq!((running().await, world.ids().await.len()), (3, 3));
    assert_eq!(world.get("/v2/apps/shop/db/pg").await["app"]["instances"], 1);
    world.stop().await;
}

#[tokio::test]
async fn version_is_ignored_in_a_complete_replacement_and_a_malformed_id_is_a_problem_of_the_request() {
    let world = World::start().await;
    let with_version = |id: &str| {
        let mut body = sleeper(id);
        body["version"] = json!("2015-01-01T00:00:00.000Z");
        body
    };
    let new = world.send("PUT", "/v2/apps/a", with_version("/a")).await;
    assert_eq!(new.status, 201, "{new:?}");
    world.quiet().await;
    let rejected = world.send("PUT", "/v2/apps/a", with_version("/a")).await;
    assert_eq!(rejected.body["details"][0]["path"], "/version", "{rejected:?}");
    let one = world
        .send("PUT", "/v2/apps/a?partialUpdate=false", with_version("/a"))
        .await;
    assert_eq!(one.status, 200, "{one:?}");
    let list = json!([with_version("/a"), with_version("/b")]);
    let several = world.send("PUT", "/v2/apps?partialUpdate=false", list).await;
    assert_eq!(several.status, 200, "{several:?}");
    for path in ["/v2/apps/Upper", "/v2/groups/Upper", "/v2/pods/Upper"] {
        let rejected = world.send("PUT", path, json!({})).await;
        let details = &rejected.body["details"];
        assert_eq!(
            (rejected.status, &details[0]["path"]),
            (422, &json!("/id")),
            "{path}: {rejected:?}"
        );
    }
    world.stop().await;
}

#[tokio::test]
async fn patch_merges_objects_and_removes_what_is_null() {
    let world = World::start().await;
    let app = json!({
        "id": "/img", "instances": 0, "cpus": 0.1, "mem": 16, "cmd": "start", "env": {"A": "1", "B": "2"},
        "container": {
            "type": "DOCKER",
            "docker": {
                "image": "x:1", "network": "BRIDGE", "forcePullImage": true,
                "portMappings": [{"containerPort": 80, "hostPort": 0}],
            },
            "volumes": [{"containerPath": "/a", "hostPath": "/a", "mode": "RO"}],
        },
    });
    assert_eq!(world.send("POST", "/v2/apps", app).await.status, 201);
    world.quiet().await;
    let before = world.get("/v2/apps/img").await["app"].clone();
    let patch = json!({
        "container": {"docker": {"image": "x:2"}}, "env": {"A": null, "C": "3"}, "cmd": null,
        "upgradeStrategy": {"maximumOverCapacity": 0.5},
    });
    let patched = world.send("PATCH", "/v2/apps/img", patch).await;
    assert_eq!(patched.status, 200, "{patched:?}");
    world.quiet().await;
    let after = world.get("/v2/apps/img").await["app"].clone();
    let mut container = before["container"].clone();
    container["docker"]["image"] = json!("x:2");
    assert_eq!(after["container"], container);
    assert_eq!(
        (&after["env"], after.get("cmd")),
        (&json!({"B": "2", "C": "3"}), None)
    );
    assert_eq!(
        after["upgradeStrategy"],
        json!({"maximumOverCapacity": 0.5, "minimumHealthCapacity": 1})
    );
    world.quiet().await;
    // A list of patches, the deprecated place of mappings, and another list of them.
    let mappings = json!([{"containerPort": 81}, {"containerPort": 82}]);
    let list = json!([{"id": "/img", "container": {"docker": {"portMappings": mappings}}}]);
    let patched = world.send("PATCH", "/v2/apps", list).await;
    assert_eq!(patched.status, 200, "{patched:?}");
    let after = world.get("/v2/apps/img").await["app"]["container"].clone();
    assert_eq!(after["portMappings"].as_array().unwrap().len(), 2);
    assert_eq!(after["docker"]["image"], "x:2");
    world.quiet().await;
    for (patch, path) in [
        (json!({"instances": null}), "/instances"),
        (
            json!({"container": {"docker": {"image": null}}}),
            "/container/docker/image",
        ),
        (
            json!({"container": {"docker": {"image": 1}}}),
            "/container/docker/image",
        ),
        (
            json!({"version": before["version"], "env": {"A": "1"}}),
            "/version",
        ),
    ] {
        let rejected = world.send("PATCH", "/v2/apps/img", patch).await;
        let details = &rejected.body["details"];
        assert_eq!(
            (rejected.status, &details[0]["path"]),
            (422, &json!(path)),
            "{rejected:?}"
        );
    }
    // PUT stays a partial update that replaces fields.
    let put = json!({"env": {"D": "4"}});
    assert_eq!(world.send("PUT", "/v2/apps/img", put).await.status, 200);
    assert_eq!(world.get("/v2/apps/img").await["app"]["env"], json!({"D": "4"}));
    world.stop().await;
}
