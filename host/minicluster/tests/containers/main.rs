//! Tasks with container images, as real containers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod pulls;
#[path = "../support/mod.rs"]
mod support;

use base64::Engine;
use serde_json::{Value, json};
use std::path::PathBuf;
use support::{Cluster, Framework, first_port, framework_info, ports, scalar, task};
use transom_minicluster::Images;
use transom_testkit::containers::{IMAGE, Runtime};
use transom_testkit::{eventually, wait_for};

/// A cluster of one agent, and the runtime that runs its containers.
struct ContainerCluster {
    cluster: Cluster,
    runtime: Runtime,
}

impl ContainerCluster {
    /// Returns `None` if this machine cannot run containers.
    async fn start(test: &str) -> Option<Self> {
        let cluster = Cluster::start(1, |_| ()).await;
        let found = cluster.minicluster.container_runtime().await;
        let Some(runtime) = Runtime::for_test(test, found) else {
            cluster.stop().await;
            return None;
        };
        Some(Self { cluster, runtime })
    }

    /// The names of the cluster's containers.
    fn container_names(&self) -> Vec<String> {
        self.runtime.names(self.cluster.dir.path())
    }
}

/// A shell task for Docker's containerizer.
fn docker_task(id: &str, offer: &Value, command: &str, more: &Value) -> Value {
    let mut task = task(id, offer, command);
    task["container"] = json!({"type": "DOCKER", "docker": {"image": IMAGE}});
    for (key, value) in more.as_object().unwrap() {
        task["container"]["docker"][key] = value.clone();
    }
    task
}

/// A shell task for the Mesos containerizer.
fn mesos_task(id: &str, offer: &Value, command: &str) -> Value {
    let mut task = task(id, offer, command);
    let image = json!({"type": "DOCKER", "docker": {"name": IMAGE}, "cached": true});
    task["container"] = json!({"type": "MESOS", "mesos": {"image": image}});
    task
}

/// The sandbox of a task, from its id and one of its statuses.
fn sandbox(cluster: &Cluster, framework: &Framework, task: &str, status: &Value) -> PathBuf {
    let container = status["container_status"]["container_id"]["value"]
        .as_str()
        .unwrap();
    cluster.dir.path().canonicalize().unwrap().join(format!(
        "agents/{agent}/slaves/{agent}/frameworks/{}/executors/{task}/runs/{container}",
        framework.id,
        agent = cluster.minicluster.agent_ids()[0],
    ))
}

fn read(sandbox: &std::path::Path, name: &str) -> String {
    std::fs::read_to_string(sandbox.join(name)).unwrap()
}

fn address(status: &Value) -> &str {
    status["container_status"]["network_infos"][0]["ip_addresses"][0]["ip_address"]
        .as_str()
        .unwrap()
}

/// Waits until a URL responds, and returns the body.
async fn fetch(url: &str) -> String {
    let address = url.strip_prefix("http://").unwrap().trim_end_matches('/');
    eventually(&format!("an answer of {url}"), async || {
        let request = transom_replay::client::Request::get("/");
        let response = transom_replay::client::exchange(address.parse().unwrap(), &request).await;
        let response = response.map_err(|error| error.to_string())?;
        match response.head.code() {
            200 => Ok(response.text()),
            code => Err(format!("status {code}")),
        }
    })
    .await
}

/// The command of a web server in a container that serves this page.
fn serve_page(page: &str) -> String {
    format!("mkdir /www; echo {page} > /www/index.html; exec httpd -f -p 80 -h /www")
}

#[tokio::test]
async fn docker_task_runs_in_its_container_and_is_reported_as_by_docker() {
    let Some(containers) = ContainerCluster::start("docker_task_runs").await else {
        return;
    };
    let mut framework = Framework::subscribe(containers.cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let command =
        "echo $GREETING $MESOS_SANDBOX; echo trouble >&2; echo kept > $MESOS_SANDBOX/file; ls / ; exit 3";
    let mut hello = docker_task("hello", &offer, command, &json!({}));
    hello["command"]["environment"] = json!({"variables": [{"name": "GREETING", "value": "hi there"}]});
    framework.launch(&offer, json!([hello])).await;
    let starting = framework.wait_for_state("hello", "TASK_STARTING").await;
    assert!(starting.get("data").is_none());
    let running = framework.wait_for_state("hello", "TASK_RUNNING").await;
    let data = base64::engine::general_purpose::STANDARD
        .decode(running["data"].as_str().unwrap())
        .unwrap();
    let inspected: Value = serde_json::from_slice(&data).unwrap();
    let container = running["container_status"]["container_id"]["value"]
        .as_str()
        .unwrap();
    let name = inspected[0]["Name"].as_str().unwrap().trim_start_matches('/');
    assert_eq!(name, format!("mesos-{container}"));
    // The container shares the agent's network.
    assert_eq!(address(&running), "127.0.0.1");
    let failed = framework.wait_for_state("hello", "TASK_FAILED").await;
    assert_eq!(failed["message"], "Container exited with status 3");
    assert_eq!(failed["source"], "SOURCE_EXECUTOR");
    assert!(failed.get("reason").is_none(), "{failed}");
    let sandbox = sandbox(&containers.cluster, &framework, "hello", &failed);
    let stdout = read(&sandbox, "stdout");
    assert!(stdout.starts_with("hi there /mnt/mesos/sandbox\n"), "{stdout}");
    // The listing shows the root directory of the image, not that of this machine.
    assert!(
        stdout.lines().any(|line| line == "bin") && !stdout.contains("home"),
        "{stdout}"
    );
    assert_eq!(read(&sandbox, "stderr"), "trouble\n");
    assert_eq!(read(&sandbox, "file"), "kept\n");
    assert!(containers.container_names().is_empty());
    containers.cluster.stop().await;
}

#[tokio::test]
async fn mesos_task_runs_in_its_container_and_is_reported_as_a_command() {
    let Some(containers) = ContainerCluster::start("mesos_task_runs").await else {
        return;
    };
    let mut framework = Framework::subscribe(containers.cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let mut argv = mesos_task("argv", &offer, "");
    argv["command"] =
        json!({"shell": false, "value": "/bin/sh", "arguments": ["sh", "-c", "pwd; exit $1", "x", "0"]});
    framework
        .launch(&offer, json!([mesos_task("fails", &offer, "exit 4"), argv]))
        .await;
    let mut ended = std::collections::BTreeMap::new();
    while ended.len() < 2 {
        let event = framework.wait_until(|event| event["type"] == "UPDATE").await;
        let status = &event["update"]["status"];
        if ["TASK_FINISHED", "TASK_FAILED"].contains(&status["state"].as_str().unwrap()) {
            let id = status["task_id"]["value"].as_str().unwrap().to_owned();
            ended.insert(id, status.clone());
        } else {
            assert!(status.get("data").is_none(), "{status}");
        }
    }
    assert_eq!(ended["fails"]["message"], "Command exited with status 4");
    assert_eq!(ended["argv"]["state"], "TASK_FINISHED");
    let sandbox = sandbox(&containers.cluster, &framework, "argv", &ended["argv"]);
    assert_eq!(read(&sandbox, "stdout"), "/mnt/mesos/sandbox\n");
    containers.cluster.stop().await;
}

#[tokio::test]
async fn killed_container_ends_within_its_grace_period() {
    let Some(containers) = ContainerCluster::start("killed_container").await else {
        return;
    };
    let mut framework = Framework::subscribe(containers.cluster.master(), &framework_info()).await;
    let polite = "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.1; done";
    let stubborn = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
    for (task, command, message) in [
        ("polite", polite, "Container exited with status 5"),
        ("stubborn", stubborn, "Container exited with status 137"),
    ] {
        let offer = framework.offer().await;
        let mut info = docker_task(task, &offer, command, &json!({}));
        info["kill_policy"] = json!({"grace_period": {"nanoseconds": 1_000_000_000_u64}});
        framework.launch(&offer, json!([info])).await;
        let running = framework.wait_for_state(task, "TASK_RUNNING").await;
        let sandbox = sandbox(&containers.cluster, &framework, task, &running);
        wait_for(&format!("{task} is ready"), async || {
            read(&sandbox, "stdout").contains("ready")
        })
        .await;
        framework.kill(task).await;
        framework.wait_for_state(task, "TASK_KILLING").await;
        let killed = framework.wait_for_state(task, "TASK_KILLED").await;
        assert_eq!(killed["message"], message, "{task}");
    }
    assert!(containers.container_names().is_empty());
    containers.cluster.stop().await;
}

#[tokio::test]
async fn volumes_are_mounted_read_only_or_writable() {
    let Some(containers) = ContainerCluster::start("volumes").await else {
        return;
    };
    let mut framework = Framework::subscribe(containers.cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let data = containers.cluster.dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("given"), "given\n").unwrap();
    let command = "cat /ro/given; touch /ro/new || echo rejected; echo made > /rw/made; echo own > /own/file";
    let mut volumes = docker_task("volumes", &offer, command, &json!({}));
    volumes["container"]["volumes"] = json!([
        {"container_path": "/ro", "host_path": data, "mode": "RO"},
        {"container_path": "/rw", "host_path": data, "mode": "RW"},
        {"container_path": "/own", "host_path": "own", "mode": "RW"},
    ]);
    framework.launch(&offer, json!([volumes])).await;
    let finished = framework.wait_for_state("volumes", "TASK_FINISHED").await;
    let sandbox = sandbox(&containers.cluster, &framework, "volumes", &finished);
    assert_eq!(read(&sandbox, "stdout"), "given\nrejected\n");
    assert_eq!(read(&data, "made"), "made\n");
    assert_eq!(read(&sandbox, "own/file"), "own\n");
    containers.cluster.stop().await;
}

#[tokio::test]
async fn bridge_has_an_address_a_mapped_port_and_health() {
    let Some(containers) = ContainerCluster::start("bridge").await else {
        return;
    };
    let mut framework = Framework::subscribe(containers.cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let port = first_port(&offer);
    let mapping = json!({"host_port": port, "container_port": 80, "protocol": "tcp"});
    let network = json!({"network": "BRIDGE", "port_mappings": [mapping]});
    let mut info = docker_task("web", &offer, &serve_page("hello"), &network);
    info["resources"].as_array_mut().unwrap().push(ports(port, port));
    info["health_check"] = json!({"type": "HTTP", "http": {"port": 80, "path": "/", "scheme": "http"},
        "delay_seconds": 0.0, "interval_seconds": 0.1, "grace_period_seconds": 20.0});
    framework.launch(&offer, json!([info])).await;
    let running = framework.wait_for_state("web", "TASK_RUNNING").await;
    let ip = address(&running).to_owned();
    assert!(!ip.starts_with("127."), "{running}");
    let label = &running["labels"]["labels"][0];
    assert_eq!(label["key"], "Docker.NetworkSettings.IPAddress");
    assert_eq!(label["value"], ip.as_str());
    assert_eq!(fetch(&format!("http://127.0.0.1:{port}/")).await, "hello\n");
    let healthy = framework
        .wait_until(|event| event["update"]["status"]["healthy"] == true)
        .await;
    assert_eq!(address(&healthy["update"]["status"]), ip);
    containers.cluster.stop().await;
}

#[tokio::test]
async fn command_checks_run_inside_the_container() {
    let Some(containers) = ContainerCluster::start("command_checks").await else {
        return;
    };
    let mut framework = Framework::subscribe(containers.cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let mut info = mesos_task("checked", &offer, "touch /inside; exec sleep 600");
    let times = json!({"delay_seconds": 0.0, "interval_seconds": 0.1, "grace_period_seconds": 20.0});
    info["check"] = times.clone();
    info["check"]["type"] = json!("COMMAND");
    info["check"]["command"] = json!({"command": {"value": "test -e /inside && exit 7"}});
    info["health_check"] = times;
    info["health_check"]["type"] = json!("COMMAND");
    info["health_check"]["command"] =
        json!({"shell": false, "value": "/bin/test", "arguments": ["test", "-e", "/inside"]});
    framework.launch(&offer, json!([info])).await;
    let (mut checked, mut healthy) = (false, false);
    while !(checked && healthy) {
        let event = framework.wait_until(|event| event["type"] == "UPDATE").await;
        let status = &event["update"]["status"];
        checked |= status["check_status"]["command"]["exit_code"] == 7;
        healthy |= status["healthy"] == true;
    }
    containers.cluster.stop().await;
}

#[tokio::test]
async fn memory_limit_ends_a_container_that_exceeds_it() {
    let Some(containers) = ContainerCluster::start("memory_limit").await else {
        return;
    };
    let mut framework = Framework::subscribe(containers.cluster.master(), &framework_info()).await;
    let eat = "exec tail /dev/zero";
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([mesos_task("m", &offer, eat)]))
        .await;
    let failed = framework.wait_for_state("m", "TASK_FAILED").await;
    assert_eq!(failed["reason"], "REASON_CONTAINER_LIMITATION_MEMORY", "{failed}");
    assert_eq!(failed["source"], "SOURCE_AGENT");
    assert_eq!(failed["limitation"]["resources"][0]["scalar"]["value"], 32.0);
    // Docker's executor does not report the reason.
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([docker_task("d", &offer, eat, &json!({}))]))
        .await;
    let failed = framework.wait_for_state("d", "TASK_FAILED").await;
    assert_eq!(failed["message"], "Container exited with status 137");
    assert!(failed.get("reason").is_none(), "{failed}");
    containers.cluster.stop().await;
}

#[tokio::test]
async fn tasks_of_a_group_reach_each_other_in_their_network() {
    let Some(containers) = ContainerCluster::start("group_network").await else {
        return;
    };
    let mut framework = Framework::subscribe(containers.cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let port = first_port(&offer);
    let mapping = json!({"host_port": port, "container_port": 80, "protocol": "tcp"});
    let network = json!({"name": "mesos-bridge", "port_mappings": [mapping]});
    let executor = json!({"type": "DEFAULT", "executor_id": {"value": "e"},
        "resources": [scalar("cpus", 0.1), scalar("mem", 32.0), ports(port, port)],
        "container": {"type": "MESOS", "network_infos": [network]}});
    let server = mesos_task("server", &offer, &serve_page("inside"));
    let client = mesos_task(
        "client",
        &offer,
        "until wget -q -O page http://127.0.0.1/; do sleep 0.1; done; cat page; exec sleep 600",
    );
    let group = json!({"executor": executor, "task_group": {"tasks": [server, client]}});
    framework
        .accept(&offer, json!([{"type": "LAUNCH_GROUP", "launch_group": group}]))
        .await;
    let mut addresses = Vec::new();
    while addresses.len() < 2 {
        let event = framework
            .wait_until(|event| event["update"]["status"]["state"] == "TASK_RUNNING")
            .await;
        addresses.push(address(&event["update"]["status"]).to_owned());
    }
    assert_eq!(addresses[0], addresses[1]);
    assert!(!addresses[0].starts_with("127."), "{addresses:?}");
    assert_eq!(fetch(&format!("http://127.0.0.1:{port}/")).await, "inside\n");
    assert_eq!(
        containers.container_names().len(),
        3,
        "two tasks and the holder of their network"
    );
    framework.kill("client").await;
    framework.wait_until(|event| event["type"] == "FAILURE").await;
    wait_for("the containers are gone", async || {
        containers.container_names().is_empty()
    })
    .await;
    containers.cluster.stop().await;
}

#[tokio::test]
async fn containers_of_an_earlier_run_and_of_a_stopped_cluster_are_removed() {
    let Some(containers) = ContainerCluster::start("leftovers").await else {
        return;
    };
    let mut framework = Framework::subscribe(containers.cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    framework
        .launch(
            &offer,
            json!([docker_task("long", &offer, "exec sleep 600", &json!({}))]),
        )
        .await;
    framework.wait_for_state("long", "TASK_RUNNING").await;
    assert_eq!(containers.container_names().len(), 1);
    let runtime = containers.runtime.clone();
    let dir = containers.cluster.stop_keeping_dir().await;
    let work_dir = dir.path().canonicalize().unwrap();
    assert!(
        runtime.names(&work_dir).is_empty(),
        "a stopped cluster leaves no container"
    );

    // The state that a killed cluster leaves behind: its marker file and its containers.
    std::fs::write(work_dir.join("containers"), &runtime.program).unwrap();
    let label = format!("transom.cluster={}", work_dir.display());
    let name = format!("transom-test-{}", work_dir.file_name().unwrap().to_string_lossy());
    runtime.run(&[
        "create",
        "--name",
        &name,
        "--network",
        "none",
        "--label",
        &label,
        IMAGE,
        "sh",
    ]);
    assert_eq!(runtime.names(&work_dir), [name]);
    let again = Cluster::start(1, |config| config.work_dir = work_dir.clone()).await;
    assert!(
        runtime.names(&work_dir).is_empty(),
        "the next cluster removes them"
    );
    again.stop().await;
    assert!(!work_dir.join("containers").exists());
}

#[tokio::test]
async fn containers_that_cannot_start_fail_with_the_reason() {
    let Some(containers) = ContainerCluster::start("cannot_start").await else {
        return;
    };
    let mut framework = Framework::subscribe(containers.cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let absent = docker_task(
        "absent",
        &offer,
        "true",
        &json!({"image": "127.0.0.1:9/absent:1"}),
    );
    framework.launch(&offer, json!([absent])).await;
    let failed = framework.wait_for_state("absent", "TASK_FAILED").await;
    let message = failed["message"].as_str().unwrap();
    assert!(
        message.starts_with("Failed to launch container: Failed to run '")
            && message.contains("pull --quiet")
            && message.contains("127.0.0.1:9/absent:1': exited with status"),
        "{message}"
    );
    assert_eq!(failed["reason"], "REASON_CONTAINER_LAUNCH_FAILED");
    assert_eq!(failed["source"], "SOURCE_AGENT");

    let offer = framework.offer().await;
    let mapping = json!({"port_mappings": [{"host_port": 80, "container_port": 80}]});
    framework
        .launch(&offer, json!([docker_task("ports", &offer, "true", &mapping)]))
        .await;
    framework.wait_for_state("ports", "TASK_STARTING").await;
    let failed = framework.wait_for_state("ports", "TASK_FAILED").await;
    assert_eq!(
        failed["message"],
        "Failed to create docker run options: Port mappings are only supported for bridge and user-defined networks"
    );

    let offer = framework.offer().await;
    let mut missing = docker_task("missing", &offer, "", &json!({}));
    missing["command"] = json!({"shell": false, "value": "/nonexistent"});
    framework.launch(&offer, json!([missing])).await;
    let failed = framework.wait_for_state("missing", "TASK_FAILED").await;
    assert_eq!(failed["message"], "Container exited with status 127");
    assert!(containers.container_names().is_empty());
    containers.cluster.stop().await;
}

#[tokio::test]
async fn commands_run_as_processes_with_the_setting_process() {
    let cluster = Cluster::start(1, |config| config.images = Images::Process).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let mut info = docker_task("process", &offer, "", &json!({}));
    info["command"] = json!({"shell": false, "value": "sh", "arguments": ["-c", "exit 6"]});
    framework.launch(&offer, json!([info])).await;
    let running = framework.wait_for_state("process", "TASK_RUNNING").await;
    let notice = format!("The command runs as a process, without its image {IMAGE}");
    assert_eq!(running["message"], notice);
    let failed = framework.wait_for_state("process", "TASK_FAILED").await;
    assert_eq!(failed["message"], "Command exited with status 6");
    cluster.stop().await;
}
