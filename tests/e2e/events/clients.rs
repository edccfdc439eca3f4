//! Third-party clients of the event stream, which reconnect and resume automatically, over
//! connections that break repeatedly.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use transom_testkit::WAIT_TIMEOUT;
use transom_tests::breaking_proxy::BreakingProxy;
use transom_tests::site::Site;
use transom_tests::{installed, set_proxies};

/// A running client, which writes a line for each event.
pub(crate) struct Client {
    _process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Client {
    pub(crate) async fn start(mut command: Command, url: &str) -> Client {
        set_proxies(command.as_std_mut());
        let mut process = command
            .arg(url)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a client");
        let lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let mut client = Client {
            _process: process,
            lines,
        };
        assert_eq!(client.next().await, json!({"open": true}));
        client
    }

    pub(crate) async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(WAIT_TIMEOUT, self.lines.next_line()).await;
        let line = line.expect("a line in time").expect("its output");
        serde_json::from_str(&line.expect("a client that still runs")).expect("JSON")
    }
}

pub(crate) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sse").join(name)
}

fn python() -> Command {
    let mut command = Command::new(installed("python/marathon/bin/python"));
    command.arg(script("follow.py"));
    command
}

fn javascript() -> Command {
    let mut command = Command::new("node");
    command
        .arg(script("follow.mjs"))
        .arg(installed("node/eventsource/node_modules/eventsource"));
    command
}

async fn post(site: &Site, number: usize) {
    let app = json!({"id": format!("/a{number}"), "cmd": "true", "instances": 0});
    site.post_app(&app).await;
}

/// The client must receive one event for each change, in their order, and a gap event after a
/// restart of the daemon.
async fn check_resuming_client(command: Command) {
    const CHANGES: usize = 80;
    let mut site = Site::start().await;
    let proxy = BreakingProxy::before(site.addresses["apps"]).await;
    let url = format!(
        "http://{}/v2/events?event_type=api_post_event&ids=true",
        proxy.address
    );
    let mut client = Client::start(command, &url).await;
    let mut last = String::new();
    for number in 0..CHANGES {
        post(&site, number).await;
        // Some changes happen while the client is disconnected, others while it is reading.
        if number % 8 != 7 {
            continue;
        }
        for expected in number - 7..=number {
            let event = client.next().await;
            assert_eq!(event["event"], "api_post_event", "{event}");
            assert_eq!(
                event["data"]["appDefinition"]["id"],
                format!("/a{expected}"),
                "each event once and in order: {event}"
            );
            event["id"].as_str().expect("an id").clone_into(&mut last);
        }
    }
    assert!(
        proxy.broken_connections() >= 10,
        "{} broken connections",
        proxy.broken_connections()
    );

    // The next daemon has another term. No event was sent twice if the gap is the next one.
    proxy.stop_breaking();
    proxy.set_daemon(None);
    site.kill_daemon();
    site.start_daemon().await;
    proxy.set_daemon(Some(site.addresses["apps"]));
    let gap = client.next().await;
    assert_eq!(gap["event"], "event_stream_gap", "{gap}");
    assert_eq!(
        (&gap["data"]["from"], &gap["data"]["to"]),
        (&json!(last), &gap["id"])
    );
    post(&site, CHANGES).await;
    let event = client.next().await;
    assert_eq!(
        event["data"]["appDefinition"]["id"],
        format!("/a{CHANGES}"),
        "{event}"
    );
    let more = tokio::time::timeout(Duration::from_millis(300), client.lines.next_line()).await;
    assert!(more.is_err(), "no event is sent twice: {more:?}");
    site.cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_sse_gets_each_event_once_over_broken_connections() {
    check_resuming_client(python()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eventsource_of_node_gets_each_event_once_over_broken_connections() {
    check_resuming_client(javascript()).await;
}
