//! The workflow service of the real binary: jobs from queue to end, through a kill -9, and from a
//! shell.

use std::fs;
use std::path::Path;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::process::Transom;
use transom_tests::site::Cluster;

use crate::workflow::harness::Workflow;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_queued_launched_and_completed() {
    let workflow = Workflow::start().await;
    let argv = json!([
        "/bin/sh",
        "-c",
        "printf '%s|' \"$@\" \"$MARK\"; echo >&2 err",
        "sh",
        "it's",
        "a \"b\" $c",
        ""
    ]);
    let body = json!({"airflow_task_id": "airflow.d1.t1", "container_type": "DOCKER", "command": argv, "image": "alpine:3.20",
        "cpus": 0.2, "mem_limit": "32m", "environment": {"MARK": "é $HOME"}, "attributes": ["rack:R2"], "volumes": [],
        "force_pull": false});
    workflow.queue(body).await;
    let seen = workflow.wait_for_state("airflow.d1.t1", "TASK_FINISHED").await;
    assert_eq!(seen["status"]["task_id"]["value"], "airflow.d1.t1");
    // The program received the command unchanged and runs on the agent that satisfies the
    // constraint.
    assert_eq!(
        workflow.log("airflow.d1.t1").await,
        "it's|a \"b\" $c||é $HOME|err\n"
    );
    let agent = seen["status"]["agent_id"]["value"].as_str().expect("an agent");
    let place = workflow
        .site
        .get(&workflow.url(&format!("/v0/agent/{agent}")))
        .await;
    assert_eq!(place.expect("an agent")["hostname"], "127.0.0.2");

    workflow
        .queue(json!({"airflow_task_id": "fails", "command": "exit 3", "image": "x"}))
        .await;
    let seen = workflow.wait_for_state("fails", "TASK_FAILED").await;
    assert_eq!(seen["status"]["message"], "Command exited with status 3");

    // A running job is killed; the same request without credentials is rejected.
    workflow
        .queue(json!({"airflow_task_id": "killed", "command": ["sleep", "1000"]}))
        .await;
    workflow.wait_for_state("killed", "TASK_RUNNING").await;
    let kill = workflow
        .site
        .http
        .request(Method::DELETE, workflow.url("/v0/task/killed"));
    let rejected = kill
        .try_clone()
        .expect("a request")
        .send()
        .await
        .expect("an answer");
    assert_eq!(rejected.status(), StatusCode::UNAUTHORIZED);
    let done = kill
        .basic_auth("user", Some("password"))
        .send()
        .await
        .expect("an answer");
    assert_eq!(done.status(), StatusCode::OK);
    workflow.wait_for_state("killed", "TASK_KILLED").await;

    // Queueing the same id again creates a second run.
    workflow
        .queue(json!({"airflow_task_id": "fails", "command": ["sleep", "1000"]}))
        .await;
    workflow.wait_for_state("fails", "TASK_RUNNING").await;
    assert_eq!(workflow.launches("fails"), 2);
    workflow.site.cluster.stop_after(workflow.site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_daemon_loses_no_job_and_runs_none_twice() {
    let mut workflow = Workflow::start().await;
    // Three jobs that fill all agents, three that wait for them, and one whose constraint no agent
    // satisfies.
    for number in 0..3 {
        let body = json!({"airflow_task_id": format!("runs{number}"), "command": workflow.command_until("go"), "cpus": 4});
        workflow.queue(body).await;
    }
    for number in 0..3 {
        workflow
            .wait_for_state(&format!("runs{number}"), "TASK_RUNNING")
            .await;
    }
    for number in 0..3 {
        let body = json!({"airflow_task_id": format!("waits{number}"), "command": workflow.command_until("go"), "cpus": 4});
        workflow.queue(body).await;
    }
    workflow
        .queue(json!({"airflow_task_id": "never", "command": ["true"], "attributes": ["gpu:true"]}))
        .await;
    workflow.wait_for_state("waits0", "TASK_STAGING").await;
    let cursor = workflow
        .site
        .get(&workflow.url("/v0/events?wait=0"))
        .await
        .expect("events")["next"]
        .clone();

    workflow.site.kill_daemon();
    workflow.site.start_daemon().await;
    for number in 0..3 {
        workflow
            .wait_for_state(&format!("runs{number}"), "TASK_RUNNING")
            .await;
        workflow
            .wait_for_state(&format!("waits{number}"), "TASK_STAGING")
            .await;
    }
    // All running jobs end while the daemon is down.
    workflow.site.kill_daemon();
    workflow.raise_flag("go");
    workflow.site.start_daemon().await;
    for number in 0..3 {
        workflow
            .wait_for_state(&format!("runs{number}"), "TASK_FINISHED")
            .await;
        workflow
            .wait_for_state(&format!("waits{number}"), "TASK_FINISHED")
            .await;
    }
    for number in 0..3 {
        assert_eq!(workflow.launches(&format!("runs{number}")), 1);
        assert_eq!(workflow.launches(&format!("waits{number}")), 1);
    }
    // The reason names the unsatisfied constraint.
    let queue = eventually("the reason of waiting", || async {
        let queue = workflow
            .site
            .get(&workflow.url("/v0/queue?task_id=never"))
            .await?;
        let unsatisfied = queue.pointer("/queue/0/reason/unsatisfied_constraints");
        if unsatisfied == Some(&json!(["gpu:true"])) {
            Ok(queue)
        } else {
            Err(queue.to_string())
        }
    })
    .await;
    let message = queue["queue"][0]["reason"]["message"]
        .as_str()
        .expect("a message");
    assert!(message.contains("`gpu:true`"), "{message}");
    // A client of the event log continues at its position.
    let since = workflow.url(&format!("/v0/events?since={cursor}&wait=0"));
    let events = workflow.site.get(&since).await.expect("events");
    let finished = |id: &str| {
        let all = events["events"].as_array().expect("a list");
        all.iter()
            .any(|event| event["task_id"] == id && event["state"] == "TASK_FINISHED")
    };
    assert!(finished("runs0") && finished("waits2"), "{events}");
    workflow.site.cluster.stop_after(workflow.site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_run_prints_states_and_output_and_kills_on_timeout_and_signal() {
    let workflow = Workflow::start().await;
    let (success, output) = workflow.job_run(&[
        "--env",
        "MARK=there",
        "--",
        "/bin/sh",
        "-c",
        "echo is $MARK; echo oops >&2",
    ]);
    assert!(success, "{output}");
    for expected in ["queued", "TASK_FINISHED", "is there", "oops"] {
        assert!(output.contains(expected), "{expected}: {output}");
    }
    let (success, output) = workflow.job_run(&["--shell", "--", "exit", "7"]);
    assert!(!success);
    assert!(
        output.contains("TASK_FAILED: Command exited with status 7"),
        "{output}"
    );

    // A job that is pending for too long is killed, and the reason is printed.
    let waits = [
        "--id",
        "waits",
        "--startup-timeout",
        "7",
        "--attribute",
        "gpu:true",
        "--",
        "true",
    ];
    let (success, output) = workflow.job_run(&waits);
    assert!(!success);
    assert!(
        output.contains(
            "pending: no active agent satisfies the constraint `gpu:true` (3 agents in the cluster)"
        ),
        "{output}"
    );
    assert!(output.contains("it was pending for longer than 7 s"), "{output}");
    workflow.wait_for_state("waits", "TASK_KILLED").await;
    let (success, output) =
        workflow.job_run(&["--id", "long", "--running-timeout", "0.5", "--", "sleep", "1000"]);
    assert!(
        !success && output.contains("it ran for longer than 0.5 s"),
        "{output}"
    );
    workflow.wait_for_state("long", "TASK_KILLED").await;

    // Ctrl-C kills the job, and so does a supervisor's SIGTERM.
    for id in ["interrupted", "terminated"] {
        let mut run = workflow.start_job_run(&["--id", id, "--", "sleep", "1000"]);
        run.wait_for_line("the job to run", |line| {
            line.contains("TASK_RUNNING").then_some(())
        });
        let (status, output) = if id == "interrupted" {
            run.interrupt()
        } else {
            run.terminate()
        };
        assert_eq!(status.code(), Some(1), "{output}");
        assert!(
            output.contains(&format!("cancelled: {id}; it ended in TASK_KILLED")),
            "{output}"
        );
        workflow.wait_for_state(id, "TASK_KILLED").await;
    }

    // A validation error is printed.
    let (success, output) = workflow.job_run(&["--cpus=-1", "--", "true"]);
    assert!(!success && output.contains("/cpus"), "{output}");
    workflow.site.cluster.stop_after(workflow.site.daemon);
}

#[test]
fn job_run_retries_until_its_timeout_when_the_daemon_is_unreachable() {
    let dir = tempfile::tempdir().expect("a directory");
    // Nothing listens on a port that was closed a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("an address");
    let url = format!("http://{free}");
    let arguments = [
        "job",
        "run",
        "--url",
        &url,
        "--poll-interval",
        "0.1",
        "--startup-timeout",
        "1",
        "--",
        "true",
    ];
    let mut run = Transom::start(dir.path(), arguments);
    let status = run.wait();
    assert_eq!(status.code(), Some(3), "{}", run.output());
    assert!(run.output().contains("unreachable"), "{}", run.output());
    let expected = "the daemon did not answer within 1 s, so it is unknown whether job ";
    assert!(run.output().contains(expected), "{}", run.output());
}

/// Sends the requests of the autoscaler for AWS and checks the types of the fields that it decodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dags_lists_pending_tasks_for_autoscalers() {
    let workflow = Workflow::start().await;
    let key = json!({"dag_id": "d1", "task_id": "t1", "run_id": "manual__1", "try_number": 2});
    let config =
        json!({"cpus": 100, "mem_limit": 2048, "architecture": "arm64", "instance_type": "m5.large"});
    let body =
        json!({"airflow_task_id": "a", "command": ["true"], "airflow_key": key, "executor_config": config});
    workflow.queue(body).await;
    // The autoscaler's list does not depend on an operator's pending job, which has no Airflow key.
    workflow
        .queue(json!({"airflow_task_id": "airflow.d1.t2", "command": ["true"], "cpus": 100}))
        .await;
    let ask = || {
        let request = workflow.site.http.get(workflow.url("/v0/dags"));
        let request = request.basic_auth("user", Some("password"));
        request
            .header("Content-Type", "application/json")
            .header("Connection", "close")
    };
    let answer = ask().send().await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    let dags: Value = answer.json().await.expect("JSON");
    let [dag] = dags.as_array().expect("a list").as_slice() else {
        panic!("{dags}");
    };
    assert_eq!((&dag["dag_id"], &dag["task_id"]), (&json!("d1"), &json!("t1")));
    assert_eq!(
        (&dag["run_id"], dag["try_number"].as_i64()),
        (&json!("manual__1"), Some(2))
    );
    let config = &dag["MesosExecutor"];
    assert_eq!(
        (config["cpus"].as_f64(), config["mem_limit"].as_str()),
        (Some(100.0), Some("2048m"))
    );
    assert_eq!(
        (config["architecture"].as_str(), config["instance_type"].as_str()),
        (Some("arm64"), Some("m5.large"))
    );
    // Started and removed jobs are no longer in the list.
    let kill = workflow
        .site
        .http
        .delete(workflow.url("/v0/task/a"))
        .basic_auth("user", Some("password"));
    kill.send().await.expect("an answer");
    eventually("an empty list", || async {
        let text = ask()
            .send()
            .await
            .map_err(|error| error.to_string())?
            .text()
            .await;
        match text.map_err(|error| error.to_string())? {
            text if text == "[]" => Ok(()),
            text => Err(text),
        }
    })
    .await;
    let wrong = workflow
        .site
        .http
        .get(workflow.url("/v0/dags"))
        .basic_auth("user", Some("wrong"));
    assert_eq!(
        wrong.send().await.expect("an answer").status(),
        StatusCode::UNAUTHORIZED
    );
    workflow.site.cluster.stop_after(workflow.site.daemon);
}

#[test]
fn missing_settings_are_all_reported_together() {
    let dir = tempfile::tempdir().expect("a directory");
    let missing =
        "[workflow]\nauthenticate = true\napi_username = \"u\"\ndocker_volume_dag_name = \"dags\"\n";
    fs::write(dir.path().join("t.toml"), missing).expect("written");
    let (code, output) = run(dir.path(), &["config", "check", "--config", "t.toml"]);
    assert_eq!(code, Some(2), "{output}");
    for key in [
        "default_principal",
        "default_secret",
        "api_password",
        "container_volume_dag_container_path",
    ] {
        assert!(
            output.contains(&format!("`workflow.{key}` is missing")),
            "{key}: {output}"
        );
    }
}

#[test]
fn airflow_cfg_is_imported() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = "[mesos]\nmesos_ssl = False\nmaster = localhost:5050\ndocker_sock = /var/run/docker.sock\n\
                mesos_attributes = [\"airflow:true\"]\napi_username = user\napi_password = hunter2\n";
    fs::write(dir.path().join("airflow.cfg"), file).expect("written");
    let (code, output) = run(dir.path(), &["config", "import", "airflow.cfg"]);
    assert_eq!(code, Some(0), "{output}");
    fs::write(dir.path().join("t.toml"), &output).expect("written");
    let (code, output) = run(dir.path(), &["config", "check", "--config", "t.toml"]);
    assert_eq!(code, Some(0), "{output}");
    assert!(
        output.contains("workflow.container_sock") && output.contains("/var/run/docker.sock"),
        "{output}"
    );
    assert!(!output.contains("hunter2"), "{output}");
    let (code, output) = run(dir.path(), &["config", "import", "t.toml"]);
    assert_eq!(code, Some(2), "{output}");
}

/// The output of `config import` can be served unchanged, with a store and with the components.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn imported_configuration_is_served_unchanged() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path());
    let file = format!(
        "[mesos]\nmaster = {}\ndocker_image_slave = apache/airflow:3.3.2\nmesos_attributes = '[\"rack:r1\"]'\n",
        cluster.master
    );
    fs::write(dir.path().join("airflow.cfg"), file).expect("written");
    let (code, output) = run(dir.path(), &["config", "import", "airflow.cfg"]);
    assert_eq!(code, Some(0), "{output}");
    fs::write(dir.path().join("transom.toml"), &output).expect("written");
    let arguments = ["serve", "--port", "workflow=0", "--port", "admin=0"];
    let mut daemon = Transom::start(dir.path(), arguments);
    let of = |name: &'static str| {
        move |line: &str| {
            let at = line
                .find(&format!("{name}=127.0.0.1:"))
                .filter(|_| line.contains("serving"))?;
            let address = line[at..].split(['=', ' ']).nth(1)?;
            Some(address.trim_matches('"').to_owned())
        }
    };
    let admin = daemon.wait_for_line("the admin port", of("admin"));
    let workflow = daemon.wait_for_line("the workflow port", of("workflow"));
    let client = transom_tests::http();
    eventually("the daemon to be ready", || async {
        let answer = client.get(format!("http://{admin}/ready")).send().await;
        let answer = answer.map_err(|error| error.to_string())?;
        let ready = answer.status().is_success();
        let seen = answer.text().await.map_err(|error| error.to_string())?;
        ready.then_some(()).ok_or(seen)
    })
    .await;
    // The matcher is available, because it rejects an invalid constraint.
    let body = json!({"command": ["true"], "attributes": ["gpu"]});
    let answer = client
        .post(format!("http://{workflow}/v0/queue_command"))
        .json(&body);
    let answer = answer.send().await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
    cluster.stop_after(Some(daemon));
}

/// Without a Redis no service starts; the error suggests the embedded store.
#[test]
fn daemon_without_redis_suggests_the_embedded_store() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join("plugins")).expect("made");
    // Nothing listens on a port that was closed a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("an address");
    let text = format!("[store]\nserver = \"{free}\"\n[workflow]\nport = 0\n[admin]\nport = 0\n");
    fs::write(dir.path().join("transom.toml"), text).expect("written");
    let mut daemon = Transom::start(dir.path(), ["serve"]);
    daemon.wait_for_line("the embedded store", |line| {
        (line.contains("WARN") && line.contains("file:DIR")).then_some(())
    });
    daemon.terminate();
}

/// Zero resources are accepted, as in the older provider; the task receives the minimum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_without_resources_runs() {
    let workflow = Workflow::start().await;
    for (id, body) in [
        ("no-memory", json!({"mem_limit": 0})),
        ("no-memory-with-a-unit", json!({"mem_limit": "0m"})),
        ("no-cpus", json!({"cpus": 0})),
        ("nothing", json!({"cpus": 0, "mem_limit": 0, "disk": 0})),
    ] {
        let mut body = body;
        body["workflow_task_id"] = json!(id);
        body["command"] = json!(["true"]);
        workflow.queue(body).await;
        workflow.wait_for_state(id, "TASK_FINISHED").await;
        assert_eq!(workflow.launches(id), 1, "{id}");
    }
    workflow.site.cluster.stop_after(workflow.site.daemon);
}

/// A wrong password is rejected immediately, even where none is required.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_password_is_rejected_on_a_trusted_network() {
    let workflow = Workflow::start().await;
    let body = json!({"workflow_task_id": "a", "command": ["true"]});
    let queue = || {
        workflow
            .site
            .http
            .post(workflow.url("/v0/queue_command"))
            .json(&body)
    };
    let look = || workflow.site.http.get(workflow.url("/v0/task/a"));
    for request in [
        queue().basic_auth("user", Some("wrong")),
        queue().bearer_auth("password"),
        look().basic_auth("user", Some("wrong")),
    ] {
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(answer.text().await.expect("a text"), "Unauthorized Access");
    }
    assert_eq!(
        look()
            .send()
            .await
            .expect("an answer")
            .text()
            .await
            .expect("a text"),
        "null"
    );
    for request in [queue(), queue().basic_auth("user", Some("password"))] {
        assert_eq!(request.send().await.expect("an answer").status(), StatusCode::OK);
    }
    workflow.site.cluster.stop_after(workflow.site.daemon);
}

/// Runs a command to its end; returns its exit code and its output.
fn run(dir: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Transom::start(dir, arguments);
    let status = command.wait();
    (status.code(), command.output())
}
