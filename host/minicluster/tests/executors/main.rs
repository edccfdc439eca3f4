//! Custom executors. Either the script next to this file runs their tasks, or the test itself makes
//! their calls.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod api;
mod ends;
#[path = "../support/mod.rs"]
mod support;

use base64::Engine;
use serde_json::{Value, json};
use std::net::SocketAddr;
use support::{Cluster, Framework, framework_info, is_group_alive, journal, ports, scalar, task};
use transom_replay::client::{self, Request};

fn encode(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn decode(data: &Value) -> String {
    let data = base64::engine::general_purpose::STANDARD.decode(data.as_str().unwrap());
    String::from_utf8(data.unwrap()).unwrap()
}

/// `ExecutorInfo` of the script, which is fetched into the sandbox.
fn script_executor(id: &str, arguments: &str) -> Value {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/executors/executor.py");
    json!({
        "type": "CUSTOM",
        "executor_id": {"value": id},
        "name": "script",
        "source": "tests",
        "resources": [scalar("cpus", 0.1), scalar("mem", 32.0)],
        "command": {
            "value": format!("exec python3 executor.py {arguments}"),
            "uris": [{"value": file}],
            "environment": {"variables": [{"name": "GREETING", "value": "hi"}]},
        },
    })
}

/// `ExecutorInfo` of a process that makes no calls.
fn silent_executor(id: &str) -> Value {
    json!({
        "executor_id": {"value": id},
        "resources": [scalar("cpus", 0.1), scalar("mem", 32.0)],
        "command": {"value": "exec sleep 600"},
    })
}

/// A task of an executor.
fn executor_task(executor: &Value, id: &str, offer: &Value) -> Value {
    let mut task = task(id, offer, "");
    task.as_object_mut().unwrap().remove("command");
    task["executor"] = executor.clone();
    task
}

/// A framework with a running task `t` of an executor `e`, and the update.
async fn framework_with_executor(cluster: &Cluster, executor: &Value) -> (Framework, Value) {
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([executor_task(executor, "t", &offer)]))
        .await;
    let running = framework.wait_for_state("t", "TASK_RUNNING").await;
    (framework, running)
}

async fn send_message(framework: &Framework, agent: &Value, data: &str) {
    let message = json!({"agent_id": agent, "executor_id": {"value": "e"}, "data": encode(data)});
    framework
        .expect_accepted(json!({"type": "MESSAGE", "message": message}))
        .await;
}

/// The process groups of the executors that were started.
fn executor_pids(cluster: &Cluster) -> Vec<u64> {
    let lines = journal(&cluster.dir).into_iter();
    lines
        .filter(|line| line["event"] == "launch" && line["executor"].is_string())
        .map(|line| line["pid"].as_u64().unwrap())
        .collect()
}

async fn wait_for_exit(pid: u64) {
    transom_testkit::wait_for("the executor's process group to end", async || {
        !is_group_alive(pid)
    })
    .await;
}

async fn get(addr: SocketAddr, path: &str) -> Value {
    client::exchange(addr, &Request::get(path)).await.unwrap().json()
}

async fn api_call(addr: SocketAddr, kind: &str) -> Value {
    let request = Request::post("/api/v1", &json!({ "type": kind }));
    client::exchange(addr, &request).await.unwrap().json()
}

#[tokio::test]
async fn tasks_share_an_executor_that_runs_until_it_is_shut_down() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let executor = script_executor("e", "");
    let mut second = executor_task(&executor, "two", &offer);
    second["data"] = json!(encode("finish"));
    framework
        .launch(&offer, json!([executor_task(&executor, "one", &offer), second]))
        .await;
    let one = framework.wait_for_state("one", "TASK_RUNNING").await;
    assert_eq!(one["executor_id"]["value"], "e");
    assert_eq!(one["source"], "SOURCE_EXECUTOR");
    assert_eq!(one["message"], "told by executor.py");
    assert_eq!(one["agent_id"], offer["agent_id"]);
    let two = framework.wait_for_state("two", "TASK_FINISHED").await;
    assert_eq!(two["container_status"], one["container_status"]);
    let started = executor_pids(&cluster);
    assert_eq!(one["container_status"]["executor_pid"], started[0]);

    // A later task runs in the same executor, whose resources count only once.
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([executor_task(&executor, "three", &offer)]))
        .await;
    framework.wait_for_state("three", "TASK_RUNNING").await;
    framework.kill("one").await;
    framework.wait_for_state("one", "TASK_KILLED").await;
    assert_eq!(executor_pids(&cluster), started, "the executor is started once");

    let agent = &cluster.get("/slaves").await["slaves"][0];
    assert_eq!(agent["used_resources"]["cpus"], 0.2);
    let part = json!({"agent_id": offer["agent_id"], "executor_id": {"value": "e"}});
    framework
        .expect_accepted(json!({"type": "SHUTDOWN", "shutdown": part}))
        .await;
    framework.wait_for_state("three", "TASK_KILLED").await;
    let failure = framework.wait_until(|event| event["type"] == "FAILURE").await;
    let expected = json!({"agent_id": offer["agent_id"], "executor_id": {"value": "e"}, "status": 0});
    assert_eq!(failure["failure"], expected);
    wait_for_exit(started[0]).await;
    cluster
        .wait_until("/slaves", |page| {
            page["slaves"][0]["used_resources"]["cpus"] == 0.0
        })
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn executor_gets_the_variables_that_agents_set() {
    for checkpoint in [true, false] {
        let cluster = Cluster::start(1, |_| ()).await;
        let mut info = framework_info();
        info["checkpoint"] = json!(checkpoint);
        let mut framework = Framework::subscribe(cluster.master(), &info).await;
        let offer = framework.offer().await;
        let mut executor = script_executor("e", "");
        executor["shutdown_grace_period"] = json!({"nanoseconds": 90_000_000_000_u64});
        framework
            .launch(&offer, json!([executor_task(&executor, "t", &offer)]))
            .await;
        let running = framework.wait_for_state("t", "TASK_RUNNING").await;
        send_message(&framework, &offer["agent_id"], "env").await;
        let event = framework.wait_until(|event| event["type"] == "MESSAGE").await;
        let variables: Value = serde_json::from_str(&decode(&event["message"]["data"])).unwrap();
        let mut expected = vec![
            ("GREETING", "hi"),
            ("LIBPROCESS_PORT", "0"),
            ("MESOS_CHECKPOINT", if checkpoint { "1" } else { "0" }),
            ("MESOS_EXECUTOR_ID", "e"),
            ("MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD", "90secs"),
            ("MESOS_FRAMEWORK_ID", &framework.id),
            ("MESOS_HTTP_COMMAND_EXECUTOR", "0"),
            ("MESOS_SLAVE_ID", offer["agent_id"]["value"].as_str().unwrap()),
        ];
        if checkpoint {
            expected.push(("MESOS_RECOVERY_TIMEOUT", "15mins"));
            expected.push(("MESOS_SUBSCRIPTION_BACKOFF_MAX", "2secs"));
        } else {
            assert_eq!(variables["MESOS_RECOVERY_TIMEOUT"], Value::Null);
        }
        for (name, value) in expected {
            assert_eq!(variables[name], value, "{name}");
        }
        let agent = cluster.minicluster.agents()[0];
        assert_eq!(variables["MESOS_AGENT_ENDPOINT"], agent.to_string());
        assert_eq!(variables["MESOS_SLAVE_PID"], format!("slave(1)@{agent}"));
        assert_eq!(variables["MESOS_DIRECTORY"], variables["MESOS_SANDBOX"]);
        let container = running["container_status"]["container_id"]["value"].as_str();
        let sandbox = format!("/executors/e/runs/{}", container.unwrap());
        assert!(variables["MESOS_SANDBOX"].as_str().unwrap().ends_with(&sandbox));
        cluster.stop().await;
    }
}

#[tokio::test]
async fn messages_go_from_framework_to_executor_and_back() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (mut framework, running) = framework_with_executor(&cluster, &script_executor("e", "")).await;
    send_message(&framework, &running["agent_id"], "hello").await;
    let event = framework.wait_until(|event| event["type"] == "MESSAGE").await;
    let expected =
        json!({"agent_id": running["agent_id"], "executor_id": {"value": "e"}, "data": encode("hello")});
    assert_eq!(event["message"], expected);
    let lines = journal(&cluster.dir);
    let line = lines.iter().find(|line| line["event"] == "message").unwrap();
    assert_eq!(line["framework"], framework.id);
    assert_eq!(line["executor"], "e");
    assert_eq!(line["data"], encode("hello"));
    cluster.stop().await;
}

#[tokio::test]
async fn executors_appear_in_the_documents_of_master_and_agent() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (_framework, running) = framework_with_executor(&cluster, &script_executor("e", "")).await;
    let state = cluster.get("/state").await;
    let executor_document = &state["frameworks"][0]["executors"][0];
    assert_eq!(executor_document["executor_id"], "e");
    assert_eq!(
        (&executor_document["type"], &executor_document["name"]),
        (&json!("CUSTOM"), &json!("script"))
    );
    assert_eq!(executor_document["command"]["value"], "exec python3 executor.py ");
    assert_eq!(executor_document["command"]["uris"][0]["executable"], false);
    assert_eq!(executor_document["resources"]["cpus"], 0.1);
    assert_eq!(state["frameworks"][0]["tasks"][0]["executor_id"], "e");

    let listed = api_call(cluster.master(), "GET_EXECUTORS").await;
    let listed = &listed["get_executors"]["executors"][0];
    assert_eq!(listed["agent_id"], running["agent_id"]);
    assert_eq!(listed["executor_info"]["type"], "CUSTOM");
    let allocated = &listed["executor_info"]["resources"][0]["allocation_info"];
    assert_eq!(allocated["role"], "test");

    let agent = cluster.minicluster.agents()[0];
    let container = &running["container_status"]["container_id"]["value"];
    let containers = get(agent, "/containers").await;
    assert_eq!(containers.as_array().unwrap().len(), 1);
    assert_eq!(containers[0]["container_id"], *container);
    assert_eq!(containers[0]["executor_id"], "e");
    assert_eq!(containers[0]["executor_name"], "script");
    assert_eq!(
        containers[0]["status"]["executor_pid"],
        running["container_status"]["executor_pid"]
    );
    let agent_document = get(agent, "/state").await;
    let agent_document = &agent_document["frameworks"][0]["executors"][0];
    assert_eq!(agent_document["container"], *container);
    assert_eq!(agent_document["resources"]["cpus"], 0.2);
    assert_eq!(agent_document["tasks"][0]["id"], "t");
    assert_eq!(agent_document["source"], "tests");
    let listed = api_call(agent, "GET_EXECUTORS").await;
    assert_eq!(
        listed["get_executors"]["executors"][0]["executor_info"]["executor_id"]["value"],
        "e"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn invalid_executors_are_rejected_with_the_masters_messages() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    framework
        .launch(
            &offer,
            json!([executor_task(&silent_executor("known"), "first", &offer)]),
        )
        .await;
    let with = |change: fn(&mut Value)| {
        let mut executor = silent_executor("e");
        change(&mut executor);
        executor
    };
    let cases = [
        (
            with(|executor| executor["type"] = json!("DEFAULT")),
            "'ExecutorInfo.command' must not be set for 'DEFAULT' executor",
        ),
        (
            with(|executor| {
                executor.as_object_mut().unwrap().remove("command");
                executor["type"] = json!("CUSTOM");
            }),
            "'ExecutorInfo.command' must be set for 'CUSTOM' executor",
        ),
        (
            with(|executor| {
                executor.as_object_mut().unwrap().remove("command");
            }),
            "'ExecutorInfo.command' must be set",
        ),
        (
            with(|executor| executor["executor_id"]["value"] = json!("a/b")),
            "Executor ID 'a/b' is not a valid path component",
        ),
        (
            with(|executor| executor["shutdown_grace_period"] = json!({"nanoseconds": -1})),
            "ExecutorInfo's 'shutdown_grace_period' must be non-negative",
        ),
        (
            with(|executor| executor["framework_id"] = json!({"value": "x"})),
            "ExecutorInfo has an invalid FrameworkID (Actual: x vs Expected: ",
        ),
        (
            with(|executor| executor["executor_id"]["value"] = json!("known")),
            "",
        ),
        (
            with(|executor| executor["resources"] = json!([scalar("cpus", 1.95)])),
            "Total resources ",
        ),
    ];
    for (index, (mut executor, expected)) in cases.into_iter().enumerate() {
        if expected.is_empty() {
            executor["command"]["value"] = json!("exec sleep 601");
        }
        let offer = framework.offer().await;
        let id = format!("t{index}");
        framework
            .launch(&offer, json!([executor_task(&executor, &id, &offer)]))
            .await;
        let error = framework.wait_for_state(&id, "TASK_ERROR").await;
        assert_eq!(error["reason"], "REASON_TASK_INVALID");
        let message = error["message"].as_str().unwrap();
        let expected = if expected.is_empty() {
            "ExecutorInfo is not compatible with existing ExecutorInfo with same ExecutorID.\n-----"
        } else {
            expected
        };
        assert!(message.starts_with(expected), "{message}");
    }
    let offer = framework.offer().await;
    let mut both = executor_task(&silent_executor("e"), "both", &offer);
    both["command"] = json!({"value": "true"});
    let port = support::first_port(&offer);
    let mut overlapping = executor_task(&silent_executor("e"), "overlapping", &offer);
    overlapping["resources"]
        .as_array_mut()
        .unwrap()
        .push(ports(port, port));
    overlapping["executor"]["resources"]
        .as_array_mut()
        .unwrap()
        .push(ports(port, port + 1));
    framework.launch(&offer, json!([both, overlapping])).await;
    let error = framework.wait_for_state("both", "TASK_ERROR").await;
    let expected = "Task should have at least one (but not both) of CommandInfo or ExecutorInfo present";
    assert_eq!(error["message"], expected);
    let error = framework.wait_for_state("overlapping", "TASK_ERROR").await;
    let expected = "There are overlapping resources in the task resources ";
    assert!(error["message"].as_str().unwrap().starts_with(expected));
    cluster.stop().await;
}

#[tokio::test]
async fn executor_message_fault_sends_a_message_of_any_tasks_executor() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let custom = executor_task(&script_executor("e", ""), "t", &offer);
    let resources = [scalar("cpus", 0.1), scalar("mem", 32.0)];
    let group = json!({"type": "DEFAULT", "executor_id": {"value": "g"}, "resources": resources});
    let in_group = task("in-group", &offer, "exec sleep 600");
    let operations = json!([
        {"type": "LAUNCH", "launch": {"task_infos": [custom, task("command", &offer, "exec sleep 600")]}},
        {"type": "LAUNCH_GROUP", "launch_group": {"executor": group, "task_group": {"tasks": [in_group]}}},
    ]);
    framework.accept(&offer, operations).await;
    let mut remaining = 3;
    while remaining > 0 {
        framework
            .wait_until(|event| event["update"]["status"]["state"] == "TASK_RUNNING")
            .await;
        remaining -= 1;
    }
    for (task, executor) in [("t", "e"), ("command", "command"), ("in-group", "g")] {
        cluster
            .fault(json!({"fault": "executor-message", "task": task, "data": encode(task)}))
            .await;
        let event = framework.wait_until(|event| event["type"] == "MESSAGE").await;
        let expected = json!({
            "agent_id": offer["agent_id"], "executor_id": {"value": executor}, "data": encode(task),
        });
        assert_eq!(event["message"], expected);
    }
    let cases = [
        (json!({"task": "none", "data": ""}), "There are 0 tasks 'none'"),
        (json!({"task": "t", "data": "!"}), "Expecting 'data' to be base64"),
        (
            json!({"task": "t", "data": "", "framework": "x"}),
            "There is no framework 'x'",
        ),
    ];
    for (mut fault, expected) in cases {
        fault["fault"] = json!("executor-message");
        let request = Request::post("/minicluster/faults", &fault);
        let response = client::exchange(cluster.master(), &request).await.unwrap();
        assert_eq!(response.head.code(), 400, "{fault}");
        assert!(response.text().starts_with(expected), "{}", response.text());
    }
    cluster.stop().await;
}
