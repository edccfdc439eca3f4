//! Configured limits of definitions.

use serde_json::json;
use transom_store::limits::MAX_CHANGES;
use transom_testkit::wait_for;

use super::sleeper;
use crate::Settings;
use crate::testing::{World, operations};

#[tokio::test]
async fn only_the_configured_number_of_versions_is_kept() {
    let config = Settings {
        max_versions: 3,
        ..Settings::default()
    };
    let world = World::start_with(config).await;
    let mut versions = Vec::new();
    for number in 0..5 {
        let mut definition = sleeper("/a");
        // No instance runs an earlier version, which would keep it.
        definition["instances"] = json!(0);
        definition["labels"] = json!({"number": number.to_string()});
        let answer = world.send("PUT", "/v2/apps/a?force=true", definition).await;
        versions.push(answer.body["version"].clone());
    }
    versions.reverse();
    let kept = world.get("/v2/apps/a/versions").await;
    assert_eq!(kept["versions"], json!(versions[..3]));
    world.stop().await;
}

#[tokio::test]
async fn oldest_versions_are_dropped_when_all_need_more_bytes_than_configured() {
    let config = Settings {
        max_versions_bytes: 250_000,
        ..Settings::default()
    };
    let world = World::start_with(config).await;
    let put = async |id: &str, number: u32| {
        let mut definition = sleeper(id);
        definition["instances"] = json!(0);
        definition["labels"] = json!({"text": "x".repeat(100_000), "number": number.to_string()});
        let answer = world
            .send("PUT", &format!("/v2/apps{id}?force=true"), definition)
            .await;
        assert!(answer.status < 300, "{answer:?}");
    };
    let kept = async |id: &str| {
        let kept = world.get(&format!("/v2/apps{id}/versions")).await;
        kept["versions"].as_array().map_or(0, Vec::len)
    };
    for number in 0..5 {
        put("/a", number).await;
    }
    assert_eq!(kept("/a").await, 3, "two past versions and the current one");
    for number in 0..3 {
        put("/b", number).await;
    }
    assert_eq!((kept("/a").await, kept("/b").await), (3, 1));
    world.stop().await;
}

#[tokio::test]
async fn definitions_beyond_their_bytes_are_rejected_and_smaller_ones_are_not() {
    let config = Settings {
        max_definitions_bytes: 100_000,
        ..Settings::default()
    };
    let world = World::start_with(config).await;
    let definition = |id: &str, bytes: usize| {
        let mut definition = sleeper(id);
        definition["instances"] = json!(0);
        definition["labels"] = json!({"text": "x".repeat(bytes)});
        definition
    };
    let post = async |id: &str, bytes| world.send("POST", "/v2/apps", definition(id, bytes)).await;
    for id in ["/a", "/b"] {
        let created = post(id, 40_000).await;
        assert_eq!(created.status, 201, "{created:?}");
    }
    let group = json!({"id": "/g", "apps": [definition("c", 40_000)]});
    let pod = json!({"id": "/p", "labels": {"text": "x".repeat(40_000)}, "scaling": {"kind": "fixed", "instances": 0},
        "containers": [{"name": "c", "exec": {"command": {"shell": "sleep 1"}}, "resources": {"cpus": 0.1, "mem": 32}}]});
    for (method, path, body) in [
        ("POST", "/v2/apps", definition("/c", 40_000)),
        ("PUT", "/v2/apps/a", definition("/a", 80_000)),
        ("POST", "/v2/groups", group),
        ("POST", "/v2/pods", pod),
    ] {
        let rejected = world.send(method, path, body).await;
        assert_eq!(rejected.status, 403, "{method} {path}: {rejected:?}");
        let message = rejected.body["message"].as_str().unwrap();
        assert!(
            message.contains("the maximum is 100000 (`apps.max_definitions_bytes`)"),
            "{message}"
        );
    }
    for (method, path, body) in [
        ("PUT", "/v2/apps/a", json!({"instances": 3})),
        ("PUT", "/v2/apps/a?force=true", json!({"instances": 0})),
        ("PUT", "/v2/apps/b?force=true", definition("/b", 10_000)),
        ("DELETE", "/v2/apps/a?force=true", json!(null)),
    ] {
        let accepted = world.send(method, path, body).await;
        assert_eq!(accepted.status, 200, "{method} {path}: {accepted:?}");
    }
    let created = post("/c", 40_000).await;
    assert_eq!(created.status, 201, "{created:?}");
    world.stop().await;
}

#[tokio::test]
async fn groups_count_as_definitions() {
    let config = Settings {
        max_definitions_bytes: 5_000,
        ..Settings::default()
    };
    let world = World::start_with(config).await;
    let mut statuses = Vec::new();
    for number in 0..40 {
        let group = json!({"id": format!("/g{number}")});
        let answer = world.send("POST", "/v2/groups", group).await;
        statuses.push(answer.status.to_string());
    }
    assert_eq!(
        (statuses[0].as_str(), statuses[39].as_str()),
        ("201", "403"),
        "{statuses:?}"
    );
    for id in ["g0", "g1"] {
        let deleted = world
            .send("DELETE", &format!("/v2/groups/{id}"), json!(null))
            .await;
        assert_eq!(deleted.status, 200, "{deleted:?}");
    }
    let created = world.send("POST", "/v2/groups", json!({"id": "/again"})).await;
    assert_eq!(created.status, 201, "{created:?}");
    world.stop().await;
}

#[tokio::test]
async fn one_definition_has_a_maximum_size() {
    let world = World::start().await;
    let mut definition = sleeper("/a");
    definition["labels"] = json!({"text": "x".repeat(4 << 20)});
    let rejected = world.send("POST", "/v2/apps", definition).await;
    assert_eq!(rejected.status, 422, "{:?}", rejected.status);
    let detail = rejected.body["details"][0].to_string();
    assert!(detail.contains("expected at most 4194304"), "{detail}");
    world.stop().await;
}

#[tokio::test]
async fn service_ports_come_from_the_configured_range() {
    let config = Settings {
        local_port_min: 11_000,
        local_port_max: 11_002,
        ..Settings::default()
    };
    let world = World::start_with(config).await;
    for (id, ports, expected) in [
        ("/a", vec![0, 11_001], vec![11_000, 11_001]),
        // The range has one free number left; the second port gets none and stays 0.
        ("/b", vec![0, 0], vec![11_002, 0]),
    ] {
        let mut definition = sleeper(id);
        definition["instances"] = json!(0);
        definition["portDefinitions"] = ports.into_iter().map(|port| json!({"port": port})).collect();
        let created = world.send("POST", "/v2/apps", definition).await;
        let found = created.body["portDefinitions"].as_array().unwrap().iter();
        let found: Vec<_> = found.map(|definition| definition["port"].clone()).collect();
        assert_eq!(json!(found), json!(expected), "{id}: {created:?}");
    }
    world.stop().await;
}

#[tokio::test]
async fn deployments_and_apps_beyond_their_limits_are_rejected() {
    let config = Settings {
        max_running_deployments: 1,
        max_apps: Some(2),
        ..Settings::default()
    };
    let world = World::start_with(config).await;
    world.scheduler.set_immediate_launches(false);
    let first = world.send("POST", "/v2/apps", sleeper("/a")).await;
    assert_eq!(first.status, 201, "{first:?}");
    let rejected = world.send("POST", "/v2/apps", sleeper("/b")).await;
    assert_eq!(rejected.status, 403, "{rejected:?}");
    let message = rejected.body["message"].as_str().unwrap();
    assert!(
        message.starts_with("Max number (1) of running deployments is achieved."),
        "{message}"
    );
    let group = json!({"id": "/", "apps": [sleeper("/a"), sleeper("/b")]});
    let planned = world.send("PUT", "/v2/groups?dryRun=true", group).await;
    assert_eq!(planned.status, 200, "a plan starts no deployment: {planned:?}");
    // A forced change takes the place of the running deployment.
    let forced = world
        .send("PUT", "/v2/apps/a?force=true", json!({"cpus": 2}))
        .await;
    assert_eq!(forced.status, 200, "{forced:?}");
    world.scheduler.set_immediate_launches(true);
    world.scheduler.launch_all();
    world.settled("/a", 1).await;
    world.send("POST", "/v2/apps", sleeper("/b")).await;
    world.settled("/b", 1).await;
    let third = world.send("POST", "/v2/apps", sleeper("/c")).await;
    assert_eq!(third.status, 403, "{third:?}");
    assert!(third.body["message"].as_str().unwrap().contains("at most 2 apps"));
    let changed = world.send("PUT", "/v2/apps/b", json!({"cpus": 2})).await;
    assert_eq!(changed.status, 200, "{changed:?}");
    world.stop().await;
}

#[tokio::test]
async fn many_instances_are_started_and_removed_in_several_turns() {
    let world = World::start().await;
    world.scheduler.set_immediate_launches(false);
    let mut definition = sleeper("/a");
    definition["instances"] = json!(2500);
    let created = world.send("POST", "/v2/apps", definition).await;
    assert_eq!(created.status, 201, "{created:?}");
    world.scheduler.wait_until_submitted(2500).await;
    assert_eq!(world.scheduler.largest_submission(), 1000);
    operations::take_largest_turn();
    let deleted = world.call("DELETE", "/v2/apps/a?force=true", None).await;
    assert_eq!(deleted.status, 200, "{deleted:?}");
    wait_for("the app is deleted", async || {
        world.get("/v2/deployments").await == json!([])
    })
    .await;
    assert_eq!(operations::take_largest_turn(), 1001);
    world.stop().await;
}

#[tokio::test]
async fn many_apps_are_reconciled_in_several_turns() {
    let world = World::start().await;
    world.scheduler.set_immediate_launches(false);
    let app = |number| json!({"id": format!("app{number}"), "cmd": "sleep 1000", "instances": 1});
    let body = json!({"id": "/many", "apps": (0..700).map(app).collect::<Vec<_>>()});
    operations::take_largest_turn();
    let created = world.send("PUT", "/v2/groups", body).await;
    assert!(created.status < 300, "{created:?}");
    world.scheduler.wait_until_submitted(700).await;
    let largest = operations::take_largest_turn();
    assert!((1000..=1001).contains(&largest), "{largest}");
    world.stop().await;
}

#[tokio::test]
async fn instances_beyond_the_limit_are_rejected() {
    let config = Settings {
        max_instances: 2,
        ..Settings::default()
    };
    let world = World::start_with(config).await;
    let mut definition = sleeper("/a");
    definition["instances"] = json!(3);
    let rejected = world.send("POST", "/v2/apps", definition).await;
    assert_eq!(rejected.status, 422, "{rejected:?}");
    assert_eq!(rejected.body["details"][0]["path"], "/instances", "{rejected:?}");
    world.stop().await;
}

#[tokio::test]
async fn change_with_more_definitions_than_a_store_accepts_records_is_rejected_with_the_limit() {
    let world = World::start().await;
    // A list has at most 20,000 elements.
    let group = |number| json!({"id": format!("g{number}")});
    let groups: Vec<_> = (0..MAX_CHANGES / 4).map(group).collect();
    let parts: Vec<_> = (0..4)
        .map(|number| json!({"id": format!("part{number}"), "groups": groups}))
        .collect();
    let body = json!({"id": "/all", "groups": parts});
    let rejected = world.send("PUT", "/v2/groups", body).await;
    assert_eq!(rejected.status, 422, "{rejected:?}");
    let message = rejected.body["message"].as_str().unwrap();
    assert!(
        message.contains("in definitions") && message.contains("65541, at most 65536"),
        "{message}"
    );
    assert_eq!(world.get("/v2/groups").await["groups"], json!([]));
    world.stop().await;
}
