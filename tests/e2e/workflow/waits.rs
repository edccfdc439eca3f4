//! Pending jobs: their order, their reasons, and failures of `transom job run` while it waits.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse;
use reqwest::StatusCode;
use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::process::Transom;

use crate::workflow::harness::Workflow;

/// Fills all agents with three jobs, each of which ends when its flag (`go0` to `go2`) is raised.
async fn fill_agents(workflow: &Workflow) {
    for number in 0..3 {
        let command = workflow.command_until(&format!("go{number}"));
        workflow
            .queue(json!({"workflow_task_id": format!("fills{number}"), "command": command, "cpus": 4}))
            .await;
    }
    for number in 0..3 {
        workflow
            .wait_for_state(&format!("fills{number}"), "TASK_RUNNING")
            .await;
    }
}

async fn reason(workflow: &Workflow, id: &str) -> Result<Value, String> {
    let path = format!("/v0/queue?task_id={id}");
    let queue = workflow.site.get(&workflow.url(&path)).await?;
    Ok(queue["queue"][0]["reason"].clone())
}

/// Waits until `accept` accepts the reason why a job is pending.
async fn wait_for_reason(workflow: &Workflow, id: &str, accept: impl Fn(&Value) -> bool) -> Value {
    eventually(&format!("the reason why {id} waits"), || async {
        let reason = reason(workflow, id).await?;
        if accept(&reason) {
            Ok(reason)
        } else {
            Err(reason.to_string())
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn higher_priorities_are_launched_first() {
    let workflow = Workflow::start().await;
    fill_agents(&workflow).await;
    for (id, priority) in [("low", -1), ("first", 0), ("high", 9), ("second", 0)] {
        let command = workflow.command_until(&format!("end-{id}"));
        let body = json!({"workflow_task_id": id, "command": command, "cpus": 4, "priority": priority});
        workflow.queue(body).await;
    }
    let queue = workflow
        .site
        .get(&workflow.url("/v0/queue"))
        .await
        .expect("a queue");
    let entries = queue["queue"].as_array().expect("a list");
    let shown: Vec<(&str, i64)> = entries
        .iter()
        .map(|entry| {
            (
                entry["task_id"].as_str().expect("a text"),
                entry["priority"].as_i64().expect("a number"),
            )
        })
        .collect();
    let order = ["high", "first", "second", "low"];
    assert_eq!(shown, [("high", 9), ("first", 0), ("second", 0), ("low", -1)]);
    // Agents become free one after the other.
    for (number, id) in order.into_iter().enumerate() {
        workflow.raise_flag(&match number {
            0..3 => format!("go{number}"),
            _ => "end-high".to_owned(),
        });
        workflow.wait_for_state(id, "TASK_RUNNING").await;
        for waits in &order[number + 1..] {
            workflow.wait_for_state(waits, "TASK_STAGING").await;
        }
    }
    workflow.site.cluster.stop_after(workflow.site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_agents_still_satisfy_constraints() {
    let workflow = Workflow::start().await;
    fill_agents(&workflow).await;
    for (id, attributes) in [
        ("busy", json!(["rack:R2"])),
        ("nowhere", json!(["rack:r2", "gpu:true"])),
        ("never-both", json!(["rack:r1", "rack:r2"])),
    ] {
        let body = json!({"workflow_task_id": id, "command": ["true"], "attributes": attributes});
        workflow.queue(body).await;
    }
    // The agents make no offers now, but their attributes are known.
    let nowhere = wait_for_reason(&workflow, "nowhere", |reason| {
        reason["unsatisfied_constraints"] != json!([])
    })
    .await;
    assert_eq!(nowhere["unsatisfied_constraints"], json!(["gpu:true"]));
    assert_eq!(nowhere["code"], "UnfulfilledConstraint");
    let message = nowhere["message"].as_str().expect("a text");
    assert!(
        message.contains("`gpu:true` (3 agents in the cluster)"),
        "{message}"
    );
    let both = wait_for_reason(&workflow, "never-both", |reason| {
        reason["message"]
            .as_str()
            .is_some_and(|text| text.contains("all constraints together"))
    })
    .await;
    assert_eq!(both["unsatisfied_constraints"], json!([]));
    let busy = reason(&workflow, "busy").await.expect("a reason");
    assert_eq!(busy["unsatisfied_constraints"], json!([]), "{busy}");
    assert!(
        !busy["message"]
            .as_str()
            .expect("a text")
            .contains("no active agent"),
        "{busy}"
    );
    workflow.raise_flag("go1");
    workflow.raise_flag("go0");
    workflow.raise_flag("go2");
    workflow.wait_for_state("busy", "TASK_FINISHED").await;
    workflow.site.cluster.stop_after(workflow.site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn binary_output_is_read_in_chunks_unchanged() {
    let workflow = Workflow::start().await;
    // Multi-byte characters, and bytes that are not UTF-8.
    let script = "printf 'gr\\303\\274\\303\\237e \\342\\202\\254 \\377\\000\\376 end'";
    let body = json!({"workflow_task_id": "binary", "command": ["/bin/sh", "-c", script]});
    workflow.queue(body).await;
    workflow.wait_for_state("binary", "TASK_FINISHED").await;
    let written = b"gr\xc3\xbc\xc3\x9fe \xe2\x82\xac \xff\x00\xfe end";
    for length in [1, 3, 1000] {
        let (mut whole, mut offset) = (Vec::new(), 0);
        while offset < written.len() {
            let path = format!("/v0/task/binary/log?stream=stdout&offset={offset}&length={length}");
            let part = workflow
                .site
                .http
                .get(workflow.url(&path))
                .send()
                .await
                .expect("an answer");
            assert_eq!(part.status(), StatusCode::OK);
            let next = part.headers()["transom-next-offset"].to_str().expect("a text");
            offset = next.parse().expect("a number");
            whole.extend(part.bytes().await.expect("a body"));
            assert_eq!(whole.len(), offset);
        }
        assert_eq!(whole, written, "{length}");
    }
    workflow.site.cluster.stop_after(workflow.site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_run_reports_the_pending_reason_on_timeout() {
    let workflow = Workflow::start().await;
    let (success, output) = workflow.job_run(&["--startup-timeout", "2", "--cpus", "100", "--", "true"]);
    for expected in ["it was pending for longer than 2 s (", "offers have too few CPUs"] {
        assert!(!success && output.contains(expected), "{output}");
    }
    // Without a leading master the job is accepted and stays pending.
    let (success, output) = {
        let base = workflow.base();
        let Workflow { site, scratch } = workflow;
        site.cluster.stop();
        let arguments = [
            "job",
            "run",
            "--url",
            &base,
            "--poll-interval",
            "0.1",
            "--startup-timeout",
            "2",
        ];
        let credentials = ["--username", "user", "--password", "password", "--", "true"];
        let mut run = Transom::start(scratch.path(), [&arguments[..], &credentials].concat());
        let status = run.wait();
        let output = run.output();
        let (stopped, output_at_stop) = site.daemon.expect("a daemon").interrupt();
        assert!(stopped.success(), "{output_at_stop}");
        (status.success(), output)
    };
    assert!(
        !success && output.contains("the framework is not registered with the master"),
        "{output}"
    );
}

/// A proxy of the daemon at `target`. It loses the response of the first POST; returns its URL.
async fn proxy_that_loses_a_response(http: reqwest::Client, target: String) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let state = Arc::new((http, AtomicBool::new(false), target));
    let forward = move |request: Request| {
        let state = Arc::clone(&state);
        async move {
            let (http, is_lost, target) = &*state;
            let (parts, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 1 << 20).await.expect("a body");
            let mut forwarded = http.request(parts.method.clone(), format!("{target}{}", parts.uri));
            for name in ["authorization", "content-type"] {
                forwarded = match parts.headers.get(name) {
                    Some(value) => forwarded.header(name, value),
                    None => forwarded,
                };
            }
            let answer = forwarded.body(body).send().await.expect("an answer");
            let status = answer.status();
            let answered = answer.bytes().await.expect("a body");
            if parts.method == "POST" && !is_lost.swap(true, Ordering::SeqCst) {
                return (StatusCode::BAD_GATEWAY, "lost").into_response();
            }
            (status, answered).into_response()
        }
    };
    // The task ends with the test.
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(forward)).await });
    url
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_runs_once_when_the_response_to_job_run_is_lost() {
    let workflow = Workflow::start().await;
    let url = proxy_that_loses_a_response(workflow.site.http.clone(), workflow.base()).await;
    // The job ends before the request is sent again.
    let arguments = [
        "--id",
        "nightly",
        "--poll-interval",
        "3",
        "--no-log",
        "--",
        "true",
    ];
    let access = [
        "job",
        "run",
        "--url",
        &url,
        "--username",
        "user",
        "--password",
        "password",
    ];
    let mut run = Transom::start(workflow.scratch.path(), [&access[..], &arguments].concat());
    let status = run.wait();
    assert!(status.success(), "{}", run.output());
    assert!(run.output().contains("unreachable (502"), "{}", run.output());
    assert_eq!(workflow.launches("nightly"), 1);
    workflow.site.cluster.stop_after(workflow.site.daemon);
}

/// The stand-in for the daemon closes its port instead of answering.
const CLOSE: &str = "close";
/// The stand-in for the daemon leaves requests unanswered.
const HANG: &str = "hang";
/// The response to DELETE of a task, and to GET after it.
const KILLED: &str = "200 OK\n{\"status\": {\"state\": \"TASK_KILLED\"}}";

/// A stand-in for the daemon. It accepts every job, and answers each GET of a task with the next of
/// `answers`, the last one repeatedly. A deleted task is killed at once.
fn stand_in(queue: &'static str, answers: Vec<String>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    // The thread ends with the test's process.
    thread::spawn(move || {
        let mut answers = answers.into_iter().peekable();
        let mut unanswered = Vec::new();
        for stream in listener.incoming().flatten() {
            let line = request(&stream);
            let answer = if line.starts_with("POST ") {
                queue.to_owned()
            } else if line.starts_with("DELETE ") {
                answers = vec![KILLED.to_owned()].into_iter().peekable();
                KILLED.to_owned()
            } else if line.starts_with("GET /v0/task/") && !line.contains("/log") {
                let next = answers.next_if(|_| true).unwrap_or_default();
                if answers.peek().is_none() {
                    answers = vec![next.clone()].into_iter().peekable();
                }
                next
            } else {
                "404 Not Found\n{}".to_owned()
            };
            if answer == CLOSE {
                return;
            }
            if answer == HANG {
                unanswered.push(stream);
                continue;
            }
            let (status, body) = answer.split_once('\n').expect("a status");
            let length = body.len();
            let mut stream = stream;
            // The client may have closed the connection.
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
        }
    });
    address
}

/// Reads a complete request; returns its first line.
fn request(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).expect("a line");
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
        if line.trim().is_empty() {
            break;
        }
    }
    reader.take(length).read_to_end(&mut Vec::new()).expect("a body");
    first
}

#[test]
fn job_run_failures_have_an_exit_code_and_a_message() {
    let dir = tempfile::tempdir().expect("a directory");
    let state = |state: &str| {
        let status = json!({"status": {"task_id": {"value": "x"}, "state": state, "message": "so it was"}});
        format!("200 OK\n{status}")
    };
    let ok = "200 OK\nOk";
    let mut cases = vec![
        (
            "500 Internal Server Error\nno",
            vec![state("TASK_RUNNING")],
            "not queued: ",
        ),
        (
            "401 Unauthorized\nUnauthorized Access",
            vec![state("TASK_RUNNING")],
            "Unauthorized Access",
        ),
        (
            ok,
            vec!["500 Internal Server Error\n{}".to_owned()],
            "cancelled: its status is not available: 500 Internal Server Error: {}; it ended in TASK_KILLED",
        ),
        (
            ok,
            vec!["200 OK\n<html>".to_owned()],
            "cancelled: its status is not available: the response is not JSON",
        ),
        (
            ok,
            vec!["200 OK\nnull".to_owned()],
            "it was pending for longer than 1 s",
        ),
        (
            ok,
            vec![state("TASK_STAGING")],
            "it was pending for longer than 1 s",
        ),
    ];
    for failing in [
        "TASK_FAILED",
        "TASK_ERROR",
        "TASK_KILLED",
        "TASK_LOST",
        "TASK_UNREACHABLE",
        "TASK_GONE",
    ] {
        cases.push((
            ok,
            vec![state("TASK_STARTING"), state("TASK_RUNNING"), state(failing)],
            failing,
        ));
    }
    for (queue, answers, expected) in cases {
        let answers_text = format!("{queue:?} {answers:?}");
        let url = format!("http://{}", stand_in(queue, answers));
        let arguments = [
            // The alias of `job`.
            "operator",
            "run",
            "--url",
            &url,
            "--poll-interval",
            "0.05",
            "--startup-timeout",
            "1",
        ];
        let mut run = Transom::start(dir.path(), [&arguments[..], &["--no-log", "--", "true"]].concat());
        let status = run.wait();
        let output = run.output();
        assert_eq!(status.code(), Some(1), "{answers_text}: {output}");
        assert!(output.contains(expected), "{answers_text}: {output}");
    }
}

#[test]
fn job_run_ends_when_an_outage_exceeds_the_startup_timeout_while_the_job_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    for outage in [CLOSE, HANG, "504 Gateway Timeout\nno"] {
        let running = "200 OK\n{\"status\": {\"state\": \"TASK_RUNNING\"}}".to_owned();
        let address = stand_in("200 OK\nOk", vec![running.clone(), running, outage.to_owned()]);
        let url = format!("http://user:password@{address}");
        let fixed = [
            "job",
            "run",
            "--url",
            &url,
            "--poll-interval",
            "0.1",
            "--startup-timeout",
            "1",
        ];
        let job = ["--id", "a b", "--no-log", "--", "true"];
        let mut run = Transom::start(dir.path(), [&fixed[..], &job].concat());
        let status = run.wait();
        let output = run.output();
        assert_eq!(status.code(), Some(3), "{outage}: {output}");
        let lookup = format!("`GET http://{address}/v0/task/a%20b`");
        for part in ["did not answer for 1 s", "may still be running", &lookup] {
            assert!(output.contains(part), "{outage}: {part}: {output}");
        }
    }
}

#[test]
fn job_run_rejects_invalid_times() {
    let dir = tempfile::tempdir().expect("a directory");
    for option in [
        "--running-timeout=-1",
        "--running-timeout=nan",
        "--startup-timeout=-1",
    ] {
        let mut run = Transom::start(dir.path(), ["job", "run", "--url", "http://127.0.0.1:1", option]);
        assert_eq!(run.wait().code(), Some(2), "{option}: {}", run.output());
        let output = run.output();
        assert!(
            output.contains("expected a number of seconds"),
            "{option}: {output}"
        );
    }
}
