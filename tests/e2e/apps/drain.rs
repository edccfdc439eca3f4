//! An operator drains an agent: its tasks are replaced on other agents while they end.

use std::fs;

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::site::Site;

async fn drain(site: &Site, agent: &Value) {
    let call = json!({
        "type": "DRAIN_AGENT",
        "drain_agent": {"agent_id": {"value": agent}, "max_grace_period": {"seconds": 60}},
    });
    let url = format!("http://{}/api/v1", site.cluster.master);
    let answer = site.http.post(url).json(&call).send().await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_a_drained_agent_are_replaced_before_they_have_ended() {
    let site = Site::start().await;
    // Each task ends when its file exists.
    let released = site.cluster.work_dir().to_owned();
    let command = format!(
        "trap '' TERM; while [ ! -e '{}'/$MESOS_TASK_ID ]; do sleep 0.1; done",
        released.display()
    );
    site.post_app(&json!({
        "id": "/slow", "cmd": command, "cpus": 0.1, "mem": 32, "taskKillGracePeriodSeconds": 60,
        "instances": 3, "constraints": [["@hostname", "GROUP_BY"]],
    }))
    .await;
    let before = site.wait_until_running("/slow", 3).await;
    let old = before[0].clone();
    drain(&site, &old["slaveId"]).await;
    let shown = site
        .tasks_when("/slow", "a replacement beside the task that ends", |tasks| {
            let running = tasks.iter().filter(|task| task["state"] == "TASK_RUNNING");
            tasks.len() == 4 && running.count() == 3
        })
        .await;
    for task in &shown {
        let (is_old, is_there) = (task["id"] == old["id"], task["slaveId"] == old["slaveId"]);
        assert_eq!(
            (is_old, task["state"] == "TASK_KILLING"),
            (is_there, is_there),
            "{task}"
        );
    }
    fs::write(released.join(old["id"].as_str().expect("an id")), "").expect("written");
    eventually("the drained task to end", || async {
        let tasks = site.get(&site.apps("/v2/apps/slow/tasks")).await?;
        let remaining = tasks["tasks"].as_array().cloned().unwrap_or_default();
        let gone = remaining.iter().all(|task| task["id"] != old["id"]);
        if gone && remaining.len() == 3 {
            Ok(())
        } else {
            Err(tasks.to_string())
        }
    })
    .await;
    site.cluster.stop_after(site.daemon);
}
