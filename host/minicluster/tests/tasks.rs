//! Tasks from launch to end: updates, acknowledgements, kills, groups and rejections. Also checks
//! that no process is left.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod support;

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::{
    Acknowledge, Cluster, Framework, first_port, framework_info, is_group_alive, journal, ports, scalar, task,
};

#[tokio::test]
async fn a_task_runs_in_its_sandbox_and_ends() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let mut hello = task(
        "hello",
        &offer,
        "echo $GREETING from $MESOS_EXECUTOR_ID; pwd; echo trouble >&2; exit 3",
    );
    hello["command"]["environment"] = json!({"variables": [{"name": "GREETING", "value": "hi"}]});
    framework.launch(&offer, json!([hello])).await;
    let starting = framework.wait_for_state("hello", "TASK_STARTING").await;
    assert_eq!(
        starting["container_status"]["network_infos"][0]["ip_addresses"][0]["ip_address"],
        "127.0.0.1"
    );
    framework.wait_for_state("hello", "TASK_RUNNING").await;
    let failed = framework.wait_for_state("hello", "TASK_FAILED").await;
    assert_eq!(failed["message"], "Command exited with status 3");
    let container = failed["container_status"]["container_id"]["value"]
        .as_str()
        .unwrap()
        .to_owned();
    let sandbox = cluster.dir.path().canonicalize().unwrap().join(format!(
        "agents/{agent}/slaves/{agent}/frameworks/{}/executors/hello/runs/{container}",
        framework.id,
        agent = cluster.minicluster.agent_ids()[0],
    ));
    let stdout = std::fs::read_to_string(sandbox.join("stdout")).unwrap();
    assert_eq!(stdout, format!("hi from hello\n{}\n", sandbox.display()));
    assert_eq!(
        std::fs::read_to_string(sandbox.join("stderr")).unwrap(),
        "trouble\n"
    );
    let lines = journal(&cluster.dir);
    let events: Vec<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["launch", "exit"]);
    assert_eq!(lines[0]["task"], "hello");
    cluster.stop().await;
}

/// The output of a task, line by line. `status` names its container.
fn stdout_lines(cluster: &Cluster, status: &Value) -> Vec<String> {
    let container = status["container_status"]["container_id"]["value"]
        .as_str()
        .unwrap();
    let mut folders = vec![cluster.dir.path().to_owned()];
    while let Some(folder) = folders.pop() {
        if folder.ends_with(container) {
            let printed = std::fs::read_to_string(folder.join("stdout")).unwrap();
            return printed.lines().map(str::to_owned).collect();
        }
        let inside = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        folders.extend(inside.filter(|path| path.is_dir() && !path.is_symlink()));
    }
    panic!("no sandbox of {status}")
}

#[tokio::test]
async fn task_environment_has_exactly_the_variables_that_agents_set() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let print = "env | grep -E '^(MESOS|LIBPROCESS)_' | cut -d= -f1 | LC_ALL=C sort";
    let executor = json!({"type": "DEFAULT", "executor_id": {"value": "e"}, "resources": [scalar("cpus", 0.1), scalar("mem", 32.0)]});
    let group = json!({"executor": executor, "task_group": {"tasks": [task("g", &offer, print)]}});
    let operations = json!([
        {"type": "LAUNCH", "launch": {"task_infos": [task("t", &offer, print)]}},
        {"type": "LAUNCH_GROUP", "launch_group": group},
    ]);
    framework.accept(&offer, operations).await;
    let mut found = std::collections::BTreeMap::new();
    while found.len() < 2 {
        let event = framework
            .wait_until(|event| event["update"]["status"]["state"] == "TASK_FINISHED")
            .await;
        let status = &event["update"]["status"];
        let id = status["task_id"]["value"].as_str().unwrap().to_owned();
        found.insert(id, stdout_lines(&cluster, status));
    }
    let mut expected = vec![
        "LIBPROCESS_IP",
        "LIBPROCESS_PORT",
        "MESOS_AGENT_ENDPOINT",
        "MESOS_DIRECTORY",
        "MESOS_EXECUTOR_ID",
        "MESOS_FRAMEWORK_ID",
        "MESOS_SANDBOX",
        "MESOS_SLAVE_ID",
        "MESOS_SLAVE_PID",
    ];
    assert_eq!(found["t"], expected);
    // For a task in a group, the address of its container is set as well.
    expected.insert(3, "MESOS_CONTAINER_IP");
    assert_eq!(found["g"], expected);
    cluster.stop().await;
}

#[tokio::test]
async fn unacknowledged_update_is_resent_and_delays_the_next_one() {
    let cluster = Cluster::start(1, |config| config.update_retry = Duration::from_millis(300)).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    framework.acknowledge = Acknowledge::None;
    framework
        .launch(&offer, json!([task("t", &offer, "sleep 600")]))
        .await;
    let is_update = |event: &Value| event["type"] == "UPDATE";
    let first = framework.wait_until(is_update).await;
    let came = Instant::now();
    let second = framework.wait_until(is_update).await;
    let waited = came.elapsed();
    let third = framework.wait_until(is_update).await;
    for event in [&first, &second, &third] {
        assert_eq!(event["update"]["status"]["state"], "TASK_STARTING");
        assert_eq!(
            event["update"]["status"]["uuid"],
            first["update"]["status"]["uuid"]
        );
    }
    assert!(waited > Duration::from_millis(200), "sent again after {waited:?}");
    assert!(
        came.elapsed() > waited + Duration::from_millis(500),
        "the second wait is twice as long"
    );
    framework.acknowledge(&first).await;
    framework.wait_for_state("t", "TASK_RUNNING").await;
    cluster.stop().await;
}

#[tokio::test]
async fn kill_reports_killing_waits_for_the_grace_period_and_frees_resources() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let port = first_port(&offer);
    let mut polite = task("polite", &offer, "exec sleep 600");
    polite["resources"]
        .as_array_mut()
        .unwrap()
        .push(ports(port, port));
    let mut stubborn = task(
        "stubborn",
        &offer,
        "trap '' TERM; echo ready > ready; while :; do sleep 0.1; done",
    );
    stubborn["kill_policy"] = json!({"grace_period": {"nanoseconds": 300_000_000}});
    framework.launch(&offer, json!([polite, stubborn])).await;
    framework.wait_for_state("stubborn", "TASK_RUNNING").await;
    let rest = framework.offer().await;
    assert_eq!(
        first_port(&rest),
        port + 1,
        "the port of a running task is not offered"
    );
    framework.kill("polite").await;
    framework.wait_for_state("polite", "TASK_KILLING").await;
    let killed = framework.wait_for_state("polite", "TASK_KILLED").await;
    assert_eq!(killed["message"], "Command terminated with signal Terminated");
    assert_eq!(
        first_port(&framework.offer().await),
        port,
        "the port is offered again"
    );
    wait_for_file(&cluster, "ready").await;
    let started_at = Instant::now();
    framework.kill("stubborn").await;
    let killed = framework.wait_for_state("stubborn", "TASK_KILLED").await;
    assert_eq!(killed["message"], "Command terminated with signal Killed");
    assert!(started_at.elapsed() >= Duration::from_millis(300));
    cluster.stop().await;
}

/// Waits until some sandbox has a file of that name.
async fn wait_for_file(cluster: &Cluster, name: &str) {
    let end = Instant::now() + support::EVENT_TIMEOUT;
    while !contains_file(cluster.dir.path(), name) {
        assert!(Instant::now() < end, "no file {name}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn contains_file(dir: &std::path::Path, name: &str) -> bool {
    std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .any(|entry| {
            entry.file_name() == name
                || (entry.file_type().is_ok_and(|kind| kind.is_dir()) && contains_file(&entry.path(), name))
        })
}

#[tokio::test]
async fn killing_one_of_a_group_kills_all_and_ends_the_executor() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let executor = json!({"type": "DEFAULT", "executor_id": {"value": "e"}, "resources": [scalar("cpus", 0.1), scalar("mem", 32.0)]});
    let tasks = json!([task("a", &offer, "sleep 600"), task("b", &offer, "sleep 600")]);
    let group = json!({"type": "LAUNCH_GROUP", "launch_group": {"executor": executor, "task_group": {"tasks": tasks}}});
    framework.accept(&offer, json!([group])).await;
    let mut running = std::collections::BTreeSet::new();
    while running.len() < 2 {
        let event = framework
            .wait_until(|event| event["update"]["status"]["state"] == "TASK_RUNNING")
            .await;
        let status = &event["update"]["status"];
        assert_eq!(status["executor_id"]["value"], "e");
        assert!(status["container_status"]["container_id"]["parent"]["value"].is_string());
        running.insert(status["task_id"]["value"].to_string());
    }
    assert_eq!(
        cluster.get("/state").await["frameworks"][0]["executors"][0]["executor_id"],
        "e"
    );
    framework.kill("a").await;
    let mut killed = std::collections::BTreeSet::new();
    while killed.len() < 2 {
        let event = framework
            .wait_until(|event| event["update"]["status"]["state"] == "TASK_KILLED")
            .await;
        killed.insert(event["update"]["status"]["task_id"]["value"].to_string());
    }
    let failure = framework.wait_until(|event| event["type"] == "FAILURE").await;
    assert_eq!(failure["failure"]["executor_id"]["value"], "e");
    assert_eq!(failure["failure"]["status"], 0);
    cluster.stop().await;
}

#[tokio::test]
async fn two_tasks_cannot_use_the_same_port() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let port = first_port(&offer);
    let mut first = task("first", &offer, "sleep 600");
    first["resources"].as_array_mut().unwrap().push(ports(port, port));
    let mut second = first.clone();
    second["task_id"]["value"] = json!("second");
    framework.launch(&offer, json!([first, second])).await;
    let rejected = framework.wait_for_state("second", "TASK_ERROR").await;
    assert_eq!(rejected["reason"], "REASON_TASK_INVALID");
    assert!(
        rejected["message"]
            .as_str()
            .unwrap()
            .starts_with("Total resources cpus(allocated: test):0.1"),
        "{rejected}"
    );
    framework.wait_for_state("first", "TASK_RUNNING").await;
    cluster.stop().await;
}

#[tokio::test]
async fn container_images_are_rejected_with_a_reason() {
    let cluster = Cluster::start(1, |config| config.images = transom_minicluster::Images::None).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let mut image = task("image", &offer, "true");
    image["container"] = json!({"type": "DOCKER", "docker": {"image": "alpine"}});
    framework.launch(&offer, json!([image])).await;
    let failed = framework.wait_for_state("image", "TASK_FAILED").await;
    assert!(
        failed["message"]
            .as_str()
            .unwrap()
            .contains("container images are disabled"),
        "{failed}"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn docker_containers_and_separate_networks_are_rejected_in_groups() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let cases = [
        (
            json!({"type": "DOCKER", "docker": {"image": "alpine"}}),
            "Docker ContainerInfo is not supported on the task",
        ),
        (
            json!({"type": "MESOS", "network_infos": [{"name": "n"}]}),
            "NetworkInfos must not be set on the task",
        ),
    ];
    for (container, expected) in cases {
        let offer = framework.offer().await;
        let executor = json!({"type": "DEFAULT", "executor_id": {"value": "e"}, "resources": [scalar("cpus", 0.1), scalar("mem", 32.0)]});
        let mut rejected = task("rejected", &offer, "true");
        rejected["container"] = container;
        let group = json!({"executor": executor, "task_group": {"tasks": [rejected]}});
        framework
            .accept(&offer, json!([{"type": "LAUNCH_GROUP", "launch_group": group}]))
            .await;
        let error = framework.wait_for_state("rejected", "TASK_ERROR").await;
        assert_eq!(error["reason"], "REASON_TASK_GROUP_INVALID");
        assert!(error["message"].as_str().unwrap().ends_with(expected), "{error}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn stopping_leaves_no_process_behind() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let command = "trap '' TERM; (trap '' TERM; echo ready > ready; sleep 600) & while :; do sleep 0.1; done";
    framework
        .launch(&offer, json!([task("stubborn", &offer, command)]))
        .await;
    framework.wait_for_state("stubborn", "TASK_RUNNING").await;
    wait_for_file(&cluster, "ready").await;
    let pid = journal(&cluster.dir)[0]["pid"].as_u64().unwrap();
    assert!(is_group_alive(pid));
    let dir = cluster.stop_keeping_dir().await;
    assert!(!is_group_alive(pid), "process group {pid} is still running");
    assert_eq!(journal(&dir).last().unwrap()["event"], "exit");
}

#[tokio::test]
async fn child_processes_of_an_ended_task_are_killed() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([task("parent", &offer, "sleep 600 & exit 0")]))
        .await;
    framework.wait_for_state("parent", "TASK_FINISHED").await;
    let pid = journal(&cluster.dir)[0]["pid"].as_u64().unwrap();
    let end = Instant::now() + support::EVENT_TIMEOUT;
    while is_group_alive(pid) {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    cluster.stop().await;
}

#[tokio::test]
async fn files_are_fetched_before_the_task_begins() {
    let cluster = Cluster::start(1, |_| ()).await;
    let source = cluster.dir.path().join("greet.sh");
    std::fs::write(&source, "#!/bin/sh\necho fetched\n").unwrap();
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let mut good = task("good", &offer, "./greet.sh > out && grep -q fetched out");
    good["command"]["uris"] = json!([{"value": format!("file://{}", source.display()), "executable": true}]);
    let mut escape = task("escape", &offer, "true");
    escape["command"]["uris"] = json!([{"value": source.display().to_string(), "output_file": "../../x"}]);
    framework.launch(&offer, json!([good, escape])).await;
    let mut ended = std::collections::BTreeMap::new();
    while ended.len() < 2 {
        let event = framework.wait_until(|event| event["type"] == "UPDATE").await;
        let status = &event["update"]["status"];
        if ["TASK_FINISHED", "TASK_FAILED"].contains(&status["state"].as_str().unwrap()) {
            ended.insert(
                status["task_id"]["value"].as_str().unwrap().to_owned(),
                status.clone(),
            );
        }
    }
    assert_eq!(ended["good"]["state"], "TASK_FINISHED");
    assert_eq!(ended["escape"]["reason"], "REASON_CONTAINER_LAUNCH_FAILED");
    cluster.stop().await;
}

#[tokio::test]
async fn task_fails_when_its_max_completion_time_is_reached() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let mut limited = task("limited", &offer, "exec sleep 600");
    limited["max_completion_time"] = json!({"nanoseconds": 200_000_000});
    framework.launch(&offer, json!([limited])).await;
    let failed = framework.wait_for_state("limited", "TASK_FAILED").await;
    assert_eq!(failed["reason"], "REASON_MAX_COMPLETION_TIME_REACHED");
    cluster.stop().await;
}

#[tokio::test]
async fn limits_of_mesos_containers_need_an_isolator() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    for (name, isolator) in [("cpus", "'cgroups/cpu'"), ("mem", "'cgroups/mem'")] {
        let offer = framework.offer().await;
        let mut limited = task(name, &offer, "sleep 1000");
        limited["limits"] = json!({name: {"value": 64.0}});
        framework.launch(&offer, json!([limited])).await;
        let dropped = framework.wait_for_state(name, "TASK_DROPPED").await;
        let message = dropped["message"].as_str().unwrap();
        assert!(
            message.ends_with(&format!("has loaded the {isolator} isolator")),
            "{message}"
        );
    }
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([task("free", &offer, "true")]))
        .await;
    framework.wait_for_state("free", "TASK_FINISHED").await;
    cluster.stop().await;
}
