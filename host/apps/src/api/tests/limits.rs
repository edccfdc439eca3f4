//! Configured limits of definitions.

use serde_json::json;

use super::sleeper;
use crate::Config;
use crate::testing::World;

#[tokio::test]
async fn only_the_configured_number_of_versions_is_kept() {
    let config = Config {
        max_versions: 3,
        ..Config::default()
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
async fn service_ports_come_from_the_configured_range() {
    let config = Config {
        service_ports: 11_000..=11_002,
        ..Config::default()
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
    let config = Config {
        max_running_deployments: 1,
        max_apps: Some(2),
        ..Config::default()
    };
    let world = World::start_with(config).await;
    world.scheduler.set_immediate_launches(false);
    let first = world.send("POST", "/v2/apps", sleeper("/a")).await;
    assert_eq!(first.status, 201, "{first:?}");
    let refused = world.send("POST", "/v2/apps", sleeper("/b")).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    let message = refused.body["message"].as_str().unwrap();
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
async fn many_instances_are_started_in_several_turns() {
    let world = World::start().await;
    world.scheduler.set_immediate_launches(false);
    let mut definition = sleeper("/a");
    definition["instances"] = json!(2500);
    let created = world.send("POST", "/v2/apps", definition).await;
    assert_eq!(created.status, 201, "{created:?}");
    world.scheduler.wait_until_submitted(2500).await;
    assert_eq!(world.scheduler.largest_submission(), 1000);
    world.stop().await;
}

#[tokio::test]
async fn instances_beyond_the_limit_are_rejected() {
    let config = Config {
        max_instances: 2,
        ..Config::default()
    };
    let world = World::start_with(config).await;
    let mut definition = sleeper("/a");
    definition["instances"] = json!(3);
    let refused = world.send("POST", "/v2/apps", definition).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    assert_eq!(refused.body["details"][0]["path"], "/instances", "{refused:?}");
    world.stop().await;
}
