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
use support::{Cluster, Framework, group_lives, journal, modern, ports, scalar, task};
use transom_replay::client::{self, Request};

fn encoded(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn decoded(data: &Value) -> String {
    let data = base64::engine::general_purpose::STANDARD.decode(data.as_str().unwrap());
    String::from_utf8(data.unwrap()).unwrap()
}

/// `ExecutorInfo` of the script, which is fetched into the sandbox.
fn script(id: &str, arguments: &str) -> Value {
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
fn silent(id: &str) -> Value {
    json!({
        "executor_id": {"value": id},
        "resources": [scalar("cpus", 0.1), scalar("mem", 32.0)],
        "command": {"value": "exec sleep 600"},
    })
}

/// A task of an executor.
fn task_of(executor: &Value, id: &str, offer: &Value) -> Value {
    let mut task = task(id, offer, "");
    task.as_object_mut().unwrap().remove("command");
    task["executor"] = executor.clone();
    task
}

/// A framework with a running task `t` of an executor `e`, and the update.
async fn with_executor(cluster: &Cluster, executor: &Value) -> (Framework, Value) {
    let mut framework = Framework::subscribe(cluster.master(), &modern()).await;
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([task_of(executor, "t", &offer)]))
        .await;
    let running = framework.state("t", "TASK_RUNNING").await;
    (framework, running)
}

async fn send_message(framework: &Framework, agent: &Value, data: &str) {
    let message = json!({"agent_id": agent, "executor_id": {"value": "e"}, "data": encoded(data)});
    framework
        .accepted(json!({"type": "MESSAGE", "message": message}))
        .await;
}

/// The process groups of the executors that were started.
fn executors(cluster: &Cluster) -> Vec<u64> {
    let lines = journal(&cluster.dir).into_iter();
    lines
        .filter(|line| line["event"] == "launch" && line["executor"].is_string())
        .map(|line| line["pid"].as_u64().unwrap())
        .collect()
}

async fn until_gone(pid: u64) {
    transom_testkit::wait_for("the executor's process group to end", async || !group_lives(pid)).await;
}

async fn get(addr: SocketAddr, path: &str) -> Value {
    client::exchange(addr, &Request::get(path)).await.unwrap().json()
}

async fn operate(addr: SocketAddr, kind: &str) -> Value {
    let request = Request::post("/api/v1", &json!({ "type": kind }));
    client::exchange(addr, &request).await.unwrap().json()
}

#[tokio::test]
async fn tasks_share_an_executor_that_runs_until_it_is_shut_down() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &modern()).await;
    let offer = framework.offer().await;
    let executor = script("e", "");
    let mut second = task_of(&executor, "two", &offer);
    second["data"] = json!(encoded("finish"));
    framework
        .launch(&offer, json!([task_of(&executor, "one", &offer), second]))
        .await;
    let one = framework.state("one", "TASK_RUNNING").await;
    assert_eq!(one["executor_id"]["value"], "e");
    assert_eq!(one["source"], "SOURCE_EXECUTOR");
    assert_eq!(one["message"], "told by executor.py");
    assert_eq!(one["agent_id"], offer["agent_id"]);
    let two = framework.state("two", "TASK_FINISHED").await;
    assert_eq!(two["container_status"], one["container_status"]);
    let started = executors(&cluster);
    assert_eq!(one["container_status"]["executor_pid"], started[0]);

    // A later task runs in the same executor, whose resources count only once.
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([task_of(&executor, "three", &offer)]))
        .await;
    framework.state("three", "TASK_RUNNING").await;
    framework.kill("one").await;
    framework.state("one", "TASK_KILLED").await;
    assert_eq!(executors(&cluster), started, "the executor is started once");

    let agent = &cluster.get("/slaves").await["slaves"][0];
    assert_eq!(agent["used_resources"]["cpus"], 0.2);
    let part = json!({"agent_id": offer["agent_id"], "executor_id": {"value": "e"}});
    framework
        .accepted(json!({"type": "SHUTDOWN", "shutdown": part}))
        .await;
    framework.state("three", "TASK_KILLED").await;
    let failure = framework.until(|event| event["type"] == "FAILURE").await;
    let expected = json!({"agent_id": offer["agent_id"], "executor_id": {"value": "e"}, "status": 0});
    assert_eq!(failure["failure"], expected);
    until_gone(started[0]).await;
    cluster
        .until("/slaves", |page| {
            page["slaves"][0]["used_resources"]["cpus"] == 0.0
        })
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn executor_gets_the_variables_that_agents_set() {
    for checkpoint in [true, false] {
        let cluster = Cluster::start(1, |_| ()).await;
        let mut info = modern();
        info["checkpoint"] = json!(checkpoint);
        let mut framework = Framework::subscribe(cluster.master(), &info).await;
        let offer = framework.offer().await;
        let mut executor = script("e", "");
        executor["shutdown_grace_period"] = json!({"nanoseconds": 90_000_000_000_u64});
        framework
            .launch(&offer, json!([task_of(&executor, "t", &offer)]))
            .await;
        let running = framework.state("t", "TASK_RUNNING").await;
        send_message(&framework, &offer["agent_id"], "env").await;
        let event = framework.until(|event| event["type"] == "MESSAGE").await;
        let variables: Value = serde_json::from_str(&decoded(&event["message"]["data"])).unwrap();
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
        let agent = cluster.running.agents()[0];
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
    let (mut framework, running) = with_executor(&cluster, &script("e", "")).await;
    send_message(&framework, &running["agent_id"], "hello").await;
    let event = framework.until(|event| event["type"] == "MESSAGE").await;
    let expected =
        json!({"agent_id": running["agent_id"], "executor_id": {"value": "e"}, "data": encoded("hello")});
    assert_eq!(event["message"], expected);
    let lines = journal(&cluster.dir);
    let line = lines.iter().find(|line| line["event"] == "message").unwrap();
    assert_eq!(line["framework"], framework.id);
    assert_eq!(line["executor"], "e");
    assert_eq!(line["data"], encoded("hello"));
    cluster.stop().await;
}

#[tokio::test]
async fn executors_appear_in_the_documents_of_master_and_agent() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (_framework, running) = with_executor(&cluster, &script("e", "")).await;
    let state = cluster.get("/state").await;
    let shown = &state["frameworks"][0]["executors"][0];
    assert_eq!(shown["executor_id"], "e");
    assert_eq!(
        (&shown["type"], &shown["name"]),
        (&json!("CUSTOM"), &json!("script"))
    );
    assert_eq!(shown["command"]["value"], "exec python3 executor.py ");
    assert_eq!(shown["command"]["uris"][0]["executable"], false);
    assert_eq!(shown["resources"]["cpus"], 0.1);
    assert_eq!(state["frameworks"][0]["tasks"][0]["executor_id"], "e");

    let listed = operate(cluster.master(), "GET_EXECUTORS").await;
    let listed = &listed["get_executors"]["executors"][0];
    assert_eq!(listed["agent_id"], running["agent_id"]);
    assert_eq!(listed["executor_info"]["type"], "CUSTOM");
    let allocated = &listed["executor_info"]["resources"][0]["allocation_info"];
    assert_eq!(allocated["role"], "test");

    let agent = cluster.running.agents()[0];
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
    let own = get(agent, "/state").await;
    let own = &own["frameworks"][0]["executors"][0];
    assert_eq!(own["container"], *container);
    assert_eq!(own["resources"]["cpus"], 0.2);
    assert_eq!(own["tasks"][0]["id"], "t");
    assert_eq!(own["source"], "tests");
    let listed = operate(agent, "GET_EXECUTORS").await;
    assert_eq!(
        listed["get_executors"]["executors"][0]["executor_info"]["executor_id"]["value"],
        "e"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn invalid_executors_are_refused_with_the_masters_messages() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &modern()).await;
    let offer = framework.offer().await;
    framework
        .launch(&offer, json!([task_of(&silent("known"), "first", &offer)]))
        .await;
    let with = |change: fn(&mut Value)| {
        let mut executor = silent("e");
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
            .launch(&offer, json!([task_of(&executor, &id, &offer)]))
            .await;
        let error = framework.state(&id, "TASK_ERROR").await;
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
    let mut both = task_of(&silent("e"), "both", &offer);
    both["command"] = json!({"value": "true"});
    let port = support::first_port(&offer);
    let mut overlapping = task_of(&silent("e"), "overlapping", &offer);
    overlapping["resources"]
        .as_array_mut()
        .unwrap()
        .push(ports(port, port));
    overlapping["executor"]["resources"]
        .as_array_mut()
        .unwrap()
        .push(ports(port, port + 1));
    framework.launch(&offer, json!([both, overlapping])).await;
    let error = framework.state("both", "TASK_ERROR").await;
    let expected = "Task should have at least one (but not both) of CommandInfo or ExecutorInfo present";
    assert_eq!(error["message"], expected);
    let error = framework.state("overlapping", "TASK_ERROR").await;
    let expected = "There are overlapping resources in the task resources ";
    assert!(error["message"].as_str().unwrap().starts_with(expected));
    cluster.stop().await;
}

#[tokio::test]
async fn executor_message_fault_sends_a_message_of_any_tasks_executor() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &modern()).await;
    let offer = framework.offer().await;
    let custom = task_of(&script("e", ""), "t", &offer);
    let resources = [scalar("cpus", 0.1), scalar("mem", 32.0)];
    let group = json!({"type": "DEFAULT", "executor_id": {"value": "g"}, "resources": resources});
    let in_group = task("in-group", &offer, "exec sleep 600");
    let operations = json!([
        {"type": "LAUNCH", "launch": {"task_infos": [custom, task("command", &offer, "exec sleep 600")]}},
        {"type": "LAUNCH_GROUP", "launch_group": {"executor": group, "task_group": {"tasks": [in_group]}}},
    ]);
    framework.accept(&offer, operations).await;
    let mut left = 3;
    while left > 0 {
        framework
            .until(|event| event["update"]["status"]["state"] == "TASK_RUNNING")
            .await;
        left -= 1;
    }
    for (task, executor) in [("t", "e"), ("command", "command"), ("in-group", "g")] {
        cluster
            .fault(json!({"fault": "executor-message", "task": task, "data": encoded(task)}))
            .await;
        let event = framework.until(|event| event["type"] == "MESSAGE").await;
        let expected = json!({
            "agent_id": offer["agent_id"], "executor_id": {"value": executor}, "data": encoded(task),
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
        let answer = client::exchange(cluster.master(), &request).await.unwrap();
        assert_eq!(answer.head.code(), 400, "{fault}");
        assert!(answer.text().starts_with(expected), "{}", answer.text());
    }
    cluster.stop().await;
}
