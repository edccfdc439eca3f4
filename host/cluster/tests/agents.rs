//! Agents: files, and commands in running tasks.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod support;

use serde_json::{Value, json};
use std::time::Duration;
use support::{LAST_CHUNK, ReceivedRequest, Server, Step, json_answer, record_chunk, recorded, text_answer};
use transom_cluster::agent::{Agents, CommandResult};
use transom_cluster::v1::{CommandInfo, Offer};
use transom_cluster::{Client, Config, ContainerId, Error};
use transom_common::HostPort;

fn agents() -> Agents {
    Client::new(Config {
        call_timeout: Duration::from_secs(10),
        ..Config::default()
    })
    .unwrap()
    .agents()
}

fn endpoint(server: &Server) -> HostPort {
    HostPort::new(server.address.ip().to_string(), server.address.port())
}

fn parent() -> ContainerId {
    ContainerId::from("top").child("task")
}

fn command() -> CommandInfo {
    CommandInfo {
        value: Some("test -f ok".into()),
        ..CommandInfo::default()
    }
}

/// A chunk of output; `base64` is its text in base64.
fn output(stream: &str, base64: &str) -> Value {
    json!({"type": "DATA", "data": {"type": stream, "data": base64}})
}

/// An agent whose session sends all of these records, and whose container ended with this status.
async fn agent(records: Vec<Value>, exit_status: Value) -> Server {
    Server::start(move |request: &ReceivedRequest| match request.json()["type"].as_str().unwrap() {
        "LAUNCH_NESTED_CONTAINER_SESSION" => {
            let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/recordio\r\n\
                         Message-Content-Type: application/json\r\n\r\n";
            let records: Vec<u8> = records.iter().flat_map(record_chunk).collect();
            vec![Step::Trickle([head.as_slice(), &records, LAST_CHUNK].concat(), 5)]
        }
        "WAIT_NESTED_CONTAINER" => json_answer(
            &json!({"type": "WAIT_NESTED_CONTAINER", "wait_nested_container": {"exit_status": exit_status}}),
        ),
        "REMOVE_NESTED_CONTAINER" => text_answer("200 OK", ""),
        other => panic!("unexpected request: {other}"),
    })
    .await
}

async fn run(server: &Server, limit: Duration) -> transom_cluster::Result<CommandResult> {
    agents()
        .run_in_task(&endpoint(server), &parent(), &command(), limit)
        .await
}

#[tokio::test]
async fn command_returns_its_exit_code_and_output() {
    let heartbeat = json!({"type": "CONTROL", "control": {"type": "HEARTBEAT", "heartbeat": {}}});
    let records = vec![
        output("STDOUT", "b3V0"),
        heartbeat,
        output("STDERR", "ZXJy"),
        output("STDOUT", "cHV0"),
    ];
    let server = agent(records, json!(3 << 8)).await;
    let result = run(&server, Duration::from_secs(10)).await.unwrap();
    assert_eq!(
        (result.exit_code, &*result.stdout, &*result.stderr),
        (3, &b"output"[..], &b"err"[..])
    );

    let requests = server.requests();
    let calls: Vec<_> = requests
        .iter()
        .map(|request| request.json()["type"].clone())
        .collect();
    assert_eq!(
        calls,
        [
            "LAUNCH_NESTED_CONTAINER_SESSION",
            "WAIT_NESTED_CONTAINER",
            "REMOVE_NESTED_CONTAINER"
        ]
    );
    assert!(requests.iter().all(|request| request.line == "POST /api/v1"));
    assert_eq!(requests[0].header("accept"), Some("application/recordio"));
    assert_eq!(requests[0].header("message-accept"), Some("application/json"));
    assert_eq!(requests[0].header("content-type"), Some("application/json"));
    let launch = requests[0].json()["launch_nested_container_session"].clone();
    assert_eq!(launch["command"], json!({"value": "test -f ok"}));
    assert_eq!(
        launch["container_id"]["parent"],
        json!({"value": "task", "parent": {"value": "top"}})
    );
    for (call, part) in [(1, "wait_nested_container"), (2, "remove_nested_container")] {
        assert_eq!(
            requests[call].json()[part]["container_id"],
            launch["container_id"]
        );
    }
}

#[tokio::test]
async fn flags_of_an_agent_are_read_by_name() {
    let server = Server::start(|request: &ReceivedRequest| {
        assert_eq!(request.line, "GET /flags");
        json_answer(&json!({"flags": {"isolation": "posix/cpu,posix/mem", "port": "5051"}}))
    })
    .await;
    let flags = agents().flags(&endpoint(&server)).await.unwrap();
    assert_eq!(flags["isolation"], "posix/cpu,posix/mem");
}

#[tokio::test]
async fn every_command_has_its_own_container() {
    let server = agent(Vec::new(), json!(0)).await;
    for _ in 0..2 {
        assert_eq!(
            run(&server, Duration::from_secs(10)).await.unwrap(),
            CommandResult::default()
        );
    }
    let launch =
        |at: usize| server.requests()[at].json()["launch_nested_container_session"]["container_id"].clone();
    assert_ne!(launch(0)["value"], launch(3)["value"]);
}

#[tokio::test]
async fn only_the_end_of_a_long_output_is_kept() {
    // 3 bytes each: "abc", then 2,000 times "xyz", then "END".
    let mut records = vec![output("STDOUT", "YWJj"), output("STDERR", "YWJj")];
    records.extend(std::iter::repeat_n(output("STDOUT", "eHl6"), 2000));
    records.push(output("STDOUT", "RU5E"));
    let server = agent(records, json!(0)).await;
    let result = run(&server, Duration::from_secs(30)).await.unwrap();
    assert_eq!(
        (result.stdout.len(), result.stderr.as_slice()),
        (4096, &b"abc"[..])
    );
    assert!(result.stdout.ends_with(b"xyzEND"));
    assert!(!result.stdout.starts_with(b"abc"));
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_ended() {
    let server = Server::start(|request| match request.json()["type"].as_str().unwrap() {
        "LAUNCH_NESTED_CONTAINER_SESSION" => {
            let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            vec![
                Step::Send([head.to_vec(), record_chunk(&output("STDOUT", "b3V0"))].concat()),
                Step::Silence,
            ]
        }
        _ => text_answer("200 OK", ""),
    })
    .await;
    let error = run(&server, Duration::from_millis(200)).await.unwrap_err();
    assert!(
        matches!(&error, Error::TimedOut { after, .. } if *after == Duration::from_millis(200)),
        "{error:?}"
    );
    // The session's connection is closed, and the agent gets a kill call as well.
    server.closed(1).await;
    assert_eq!(
        server.requests().last().unwrap().json()["type"],
        "KILL_NESTED_CONTAINER"
    );
}

#[tokio::test]
async fn rejected_command_returns_status_and_reason() {
    let server =
        Server::start(|_| text_answer("403 Forbidden", "Remote container execution is disabled")).await;
    let error = run(&server, Duration::from_secs(10)).await.unwrap_err();
    assert!(
        matches!(&error, Error::Rejected { status: 403, body, .. } if body == "Remote container execution is disabled"),
        "{error:?}"
    );
    assert_eq!(
        server.requests().len(),
        1,
        "nothing was launched, so nothing is removed"
    );
}

#[tokio::test]
async fn a_session_that_breaks_is_an_error() {
    let server = Server::start(|request| match request.json()["type"].as_str().unwrap() {
        "LAUNCH_NESTED_CONTAINER_SESSION" => {
            vec![
                Step::Send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n40\n{\"\r\n".to_vec()),
                Step::Close,
            ]
        }
        _ => text_answer("404 Not Found", ""),
    })
    .await;
    let error = run(&server, Duration::from_secs(10)).await.unwrap_err();
    assert!(matches!(&error, Error::Broken { .. }), "{error:?}");
}

#[tokio::test]
async fn an_end_without_exit_status_is_an_error() {
    let server = agent(Vec::new(), Value::Null).await;
    let error = run(&server, Duration::from_secs(10)).await.unwrap_err();
    assert!(error.to_string().ends_with("lacks an exit_status"), "{error}");
    let server = agent(vec![output("STDOUT", "!")], json!(0)).await;
    let error = run(&server, Duration::from_secs(10)).await.unwrap_err();
    assert!(error.to_string().contains("base64"), "{error}");
}

#[tokio::test]
async fn files_are_listed_and_read_as_recorded() {
    let server = Server::start(|request| {
        let file = match request.line.as_str() {
            "GET /files/browse?path=%2Fa+b%2F%26c" => "1-main/06-agent-files-browse-ok.raw",
            "GET /files/read?path=%2Fstdout&offset=0&length=1000" => "1-main/06-agent-files-read-ok.raw",
            "GET /files/read?path=%2Fstdout&offset=100000&length=10" => {
                "1-main/06-agent-files-read-past-end.raw"
            }
            "GET /files/read?path=%2Fstdout&offset=-1" => "1-main/06-agent-files-read-size.raw",
            "GET /files/read?path=%2Fnope&offset=0&length=1" => "1-main/06-agent-files-read-missing.raw",
            "POST /api/v1" => "1-main/06-agent-v1-READ_FILE.raw",
            other => panic!("unexpected request: {other}"),
        };
        vec![Step::Send(recorded(file))]
    })
    .await;
    let (agents, at) = (agents(), &endpoint(&server));
    let chunk = agents.read_bytes(at, "/stdout", 0, 1000).await.unwrap();
    assert_eq!((chunk.data.as_slice(), chunk.size), (&b"out\n"[..], 4));
    let files = agents.browse(at, "/a b/&c").await.unwrap();
    assert!(
        files
            .iter()
            .any(|file| file.path.ends_with("/stdout") && file.size == 4 && file.mode == "-rw-r--r--")
    );
    assert_eq!(agents.read(at, "/stdout", 0, 1000).await.unwrap().data, "out\n");
    assert_eq!(agents.read(at, "/stdout", 100_000, 10).await.unwrap().data, "");
    assert_eq!(agents.size(at, "/stdout").await.unwrap(), 4);
    let error = agents.read(at, "/nope", 0, 1).await.unwrap_err();
    assert!(matches!(error, Error::Rejected { status: 404, .. }), "{error:?}");
}

#[tokio::test]
async fn unreachable_agent_is_reported_with_its_address() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = agents()
        .browse(&HostPort::new(address.ip().to_string(), address.port()), "/")
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(&format!("http://{address} cannot be reached")),
        "{error}"
    );
    assert!(error.to_string().contains("that an agent runs there"), "{error}");
}

#[test]
fn agent_address_is_read_from_the_offer() {
    let offer: Offer = serde_json::from_slice(&recorded("1-main/02-offer.json")).unwrap();
    assert_eq!(offer.agent_address().unwrap().to_string(), "127.0.0.1:5051");
    assert_eq!(Offer::default().agent_address(), None);
}
