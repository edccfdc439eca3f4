//! An operator schedules maintenance of an agent: instances of apps leave the agent before the
//! window, workflow jobs stay.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::site::Site;

/// Sends an operator call to the master.
async fn call(site: &Site, call: &Value) -> Value {
    let url = format!("http://{}/api/v1", site.cluster.master);
    let answer = site.http.post(url).json(call).send().await.expect("an answer");
    let (status, text) = (answer.status(), answer.text().await.expect("a text"));
    assert_eq!(status.as_u16(), 200, "{call}: {text}");
    serde_json::from_str(&text).unwrap_or_default()
}

/// The id of an agent's machine.
async fn machine(site: &Site, agent: &Value) -> Value {
    let url = format!("http://{}/slaves", site.cluster.master);
    let listed = site.get(&url).await.expect("agents");
    let agents = listed["slaves"].as_array().expect("a list");
    let found = agents.iter().find(|one| one["id"] == *agent);
    let found = found.unwrap_or_else(|| panic!("{agent} in {listed}"));
    let address = found["pid"].as_str().and_then(|pid| pid.split_once('@'));
    let ip = address
        .and_then(|(_, address)| address.split_once(':'))
        .expect("an address")
        .0;
    json!({"hostname": found["hostname"], "ip": ip})
}

/// Schedules an hour of maintenance.
async fn schedule(site: &Site, machine: &Value, in_seconds: u64) {
    let start = SystemTime::now() + Duration::from_secs(in_seconds);
    let start = start.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let window = json!({
        "machine_ids": [machine],
        "unavailability": {
            "start": {"nanoseconds": start.as_nanos() as u64}, "duration": {"nanoseconds": 3_600_000_000_000_i64},
        },
    });
    let update = json!({"schedule": {"windows": [window]}});
    let update = json!({
        "type": "UPDATE_MAINTENANCE_SCHEDULE", "update_maintenance_schedule": update,
    });
    call(site, &update).await;
}

/// Waits until the frameworks have answered the inverse offers with these statuses.
async fn wait_for_inverse_offer_answers(site: &Site, mut expected: Vec<&str>) {
    expected.sort_unstable();
    eventually("answers to inverse offers", || async {
        let status = call(site, &json!({"type": "GET_MAINTENANCE_STATUS"})).await;
        let machines = &status["get_maintenance_status"]["status"]["draining_machines"];
        let statuses = machines[0]["statuses"].as_array().cloned().unwrap_or_default();
        let mut answers: Vec<&str> = statuses.iter().filter_map(|one| one["status"].as_str()).collect();
        answers.sort_unstable();
        if answers == expected {
            Ok(())
        } else {
            Err(status.to_string())
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apps_leave_an_agent_ahead_of_its_maintenance_and_jobs_stay() {
    let site = Site::start_with("[workflow]\nport = 0\ncontainers = false\n").await;
    site.post_app(&json!({
        "id": "/web", "cmd": "trap '' TERM; while :; do sleep 0.1; done", "cpus": 0.1, "mem": 32,
        "instances": 3, "constraints": [["@hostname", "GROUP_BY"]], "taskKillGracePeriodSeconds": 5,
    }))
    .await;
    let before = site.wait_until_running("/web", 3).await;
    let queue = format!("http://{}/v0/queue_command", site.addresses["workflow"]);
    let job = json!({"workflow_task_id": "long", "command": ["sleep", "1000"], "cpus": 0.1, "mem_limit": 16});
    let queued = site.http.post(queue).json(&job).send().await.expect("an answer");
    assert_eq!(queued.status().as_u16(), 200);
    let agent = eventually("the job to run", || async {
        let tasks = call(&site, &json!({"type": "GET_TASKS"})).await;
        let tasks = tasks["get_tasks"]["tasks"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let job = |task: &&Value| {
            let ours = before.iter().any(|web| web["id"] == task["task_id"]["value"]);
            !ours && task["state"] == "TASK_RUNNING"
        };
        let found = tasks.iter().find(job);
        found
            .map(|job| job["agent_id"]["value"].clone())
            .ok_or_else(|| "no job".to_owned())
    })
    .await;
    let old = before.iter().find(|task| task["slaveId"] == agent);
    let old = old.expect("an instance on each agent").clone();
    let machine = machine(&site, &agent).await;

    // The answers announce whether the frameworks will leave; no task moves yet, because the window
    // is far away.
    schedule(&site, &machine, 3600).await;
    wait_for_inverse_offer_answers(&site, vec!["ACCEPT", "DECLINE"]).await;
    assert_eq!(site.wait_until_running("/web", 3).await.len(), 3);

    schedule(&site, &machine, 200).await;
    let moved = "a replacement that runs while the task on the agent ends";
    site.tasks_when("/web", moved, |tasks| {
        let running = tasks.iter().filter(|task| task["state"] == "TASK_RUNNING");
        let ending = tasks.iter().find(|task| task["state"] == "TASK_KILLING");
        running.count() == 3 && ending.is_some_and(|task| task["id"] == old["id"])
    })
    .await;
    let left = site.wait_until_running("/web", 3).await;
    assert!(left.iter().all(|task| task["slaveId"] != agent), "{left:#?}");
    for kept in before.iter().filter(|task| task["id"] != old["id"]) {
        assert!(
            left.iter().any(|task| task["id"] == kept["id"]),
            "{kept} was replaced"
        );
    }
    // The apps framework has no task on the agent any more; the job is still running.
    let tasks = call(&site, &json!({"type": "GET_TASKS"})).await;
    let tasks = tasks["get_tasks"]["tasks"].as_array().expect("tasks").clone();
    let on_agent = tasks.iter().filter(|task| task["agent_id"]["value"] == agent);
    assert_eq!(on_agent.count(), 1, "{tasks:#?}");

    let machines = json!({"machines": [machine]});
    call(
        &site,
        &json!({"type": "START_MAINTENANCE", "start_maintenance": machines}),
    )
    .await;
    let two = site.wait_until_running("/web", 3).await;
    assert_eq!(two, left, "the agent's shutdown affects no instance");
    call(
        &site,
        &json!({"type": "STOP_MAINTENANCE", "stop_maintenance": machines}),
    )
    .await;
    // The agent makes offers again.
    site.scale("/web", 4).await;
    let four = site.wait_until_running("/web", 4).await;
    let new = four
        .iter()
        .find(|task| left.iter().all(|one| one["id"] != task["id"]));
    let new = &new.expect("a fourth")["slaveId"];
    assert!(left.iter().all(|task| task["slaveId"] != *new), "{four:#?}");
    site.cluster.stop_after(site.daemon);
}
