//! An app whose tasks run in custom executors.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use reqwest::Method;
use serde_json::json;
use transom_testkit::eventually;
use transom_tests::events::Events;
use transom_tests::site::Site;

/// A program that runs the cluster manager's own test executor.
const PROGRAM: &str = concat!(
    "#!/bin/sh\necho \"arguments: $*\"\nexec python3 '",
    env!("CARGO_MANIFEST_DIR"),
    "/../host/minicluster/tests/executors/executor.py' \"$@\"\n"
);

fn write_program(path: &Path) {
    fs::write(path, PROGRAM).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).expect("set");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_run_in_their_own_executors_whose_messages_become_events() {
    let site = Site::start().await;
    let program = site.cluster.work_dir().join("own-executor");
    write_program(&program);
    let url = site.apps("/v2/events?event_type=framework_message_event");
    let mut events = Events::open(&site.http, &url).await;
    site.post_app(&json!({
        "id": "/own", "executor": "./own-executor", "cmd": "one two", "cpus": 0.1, "mem": 32, "instances": 2,
        "executorResources": {"cpus": 0.2, "mem": 48, "disk": 16},
        "fetch": [{"uri": format!("file://{}", program.display())}],
    }))
    .await;
    let tasks = site.wait_until_running("/own", 2).await;

    let state = format!("http://{}/state", site.cluster.master);
    let state = site.get(&state).await.expect("the state");
    let frameworks = state["frameworks"].as_array().expect("a list");
    let ours = frameworks
        .iter()
        .find(|one| one["name"] == "marathon")
        .expect("ours");
    for task in &tasks {
        let id = task["id"].as_str().expect("an id");
        let executor = format!("marathon-{id}");
        let seen = ours["tasks"]
            .as_array()
            .expect("tasks")
            .iter()
            .find(|one| one["id"] == id);
        assert_eq!(seen.expect("the task")["executor_id"], executor);
        let executors = ours["executors"].as_array().expect("executors");
        let seen = executors.iter().find(|one| one["executor_id"] == executor);
        assert_eq!(seen.expect("its executor")["resources"]["mem"], 48.0);
    }

    let id = tasks[0]["id"].as_str().expect("an id");
    site.fault(&json!({"fault": "executor-message", "task": id, "data": "aGVsbG8="}))
        .await;
    let event = events.next_of("framework_message_event").await.data;
    assert_eq!(event["executorId"], format!("marathon-{id}"));
    assert_eq!(event["slaveId"], tasks[0]["slaveId"]);
    assert_eq!(event["message"], "aGVsbG8=");

    let deleted = site
        .http
        .request(Method::DELETE, site.apps("/v2/apps/own"))
        .send()
        .await;
    assert_eq!(deleted.expect("an answer").status().as_u16(), 200);
    eventually("the tasks to be killed by their executors", || async {
        let remaining = site.get(&site.apps("/v2/tasks")).await?;
        let none = remaining["tasks"].as_array().is_some_and(Vec::is_empty);
        if none { Ok(()) } else { Err(remaining.to_string()) }
    })
    .await;
    site.cluster.stop_after(site.daemon);
}
