//! Requests as web pages make a browser send them, to the masters' and agents' ports: none has an
//! effect.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod support;

use std::net::SocketAddr;

use serde_json::{Value, json};
use support::{Cluster, EVENT_TIMEOUT, Framework, framework_info, journal, task};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const JSON: &str = "Content-Type: application/json";
const FORM: &str = "Content-Type: application/x-www-form-urlencoded";
const TEXT: &str = "Content-Type: text/plain;charset=UTF-8";
/// The headers of a page whose host name leads to this machine, and of a page of another site.
const REBOUND: &str =
    "Host: evil.example:5050\r\nOrigin: http://evil.example:5050\r\nSec-Fetch-Site: same-origin";
const FOREIGN: &str = "Host: localhost\r\nOrigin: http://evil.example";
const SANDBOXED: &str = "Host: localhost\r\nOrigin: null";
const OWN: &str = "Host: localhost";

/// Sends a request with these header lines, and returns status, head and the beginning of the body.
async fn send(addr: SocketAddr, line: &str, headers: &[&str], body: &str) -> (u16, String) {
    let head = headers.join("\r\n");
    let length = body.len();
    let request =
        format!("{line} HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    let exchange = async {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A stream of events would not end.
        while !String::from_utf8_lossy(&answer).contains("\r\n\r\n")
            || !String::from_utf8_lossy(&answer).contains("Transfer-Encoding")
        {
            if stream.read_buf(&mut answer).await.unwrap() == 0 {
                break;
            }
        }
        String::from_utf8_lossy(&answer).into_owned()
    };
    let answer = tokio::time::timeout(EVENT_TIMEOUT, exchange).await.unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{line}: {answer:?}")), answer)
}

#[tokio::test]
async fn page_can_neither_subscribe_a_framework_nor_run_a_task() {
    let cluster = Cluster::start(1, |_| ()).await;
    let (master, agent) = (cluster.master(), cluster.minicluster.agents()[0]);
    let subscribe = json!({"type": "SUBSCRIBE", "subscribe": {"framework_info": framework_info()}});
    // With the ids of a real framework, a page can act for it if its requests pass.
    let mut framework = Framework::subscribe(master, &framework_info()).await;
    let offer = framework.offer().await;
    let operations =
        json!([{"type": "LAUNCH", "launch": {"task_infos": [task("stolen", &offer, "sleep 600")]}}]);
    let accept = json!({
        "type": "ACCEPT", "framework_id": {"value": framework.id},
        "accept": {"offer_ids": [offer["id"]], "operations": operations},
    });
    let stream_id = format!("Mesos-Stream-Id: {}", framework.stream_id);
    let nested = json!({"type": "LAUNCH_NESTED_CONTAINER_SESSION", "launch_nested_container_session": {
        "container_id": {"value": "x", "parent": {"value": "y"}}, "command": {"value": "sleep 600"},
    }});
    let executor = json!({"type": "SUBSCRIBE", "framework_id": {"value": framework.id},
                          "executor_id": {"value": "e"}, "subscribe": {}});
    for (page, status) in [(REBOUND, 421), (FOREIGN, 403), (SANDBOXED, 403)] {
        for (addr, path, call) in [
            (master, "/api/v1/scheduler", &subscribe),
            (master, "/master/api/v1/scheduler", &accept),
            (master, "/api/v1", &json!({"type": "GET_STATE"})),
            (agent, "/api/v1", &nested),
            (agent, "/slave(1)/api/v1/executor", &executor),
        ] {
            let headers = [page, JSON, &stream_id, "Accept: application/json"];
            let (found, answer) = send(addr, &format!("POST {path}"), &headers, &call.to_string()).await;
            assert_eq!(found, status, "{page} {path}: {answer}");
        }
    }
    for (page, status) in [(REBOUND, 421), (FOREIGN, 403)] {
        for (addr, path) in [
            (master, "/state"),
            (agent, "/slave(1)/state"),
            (agent, "/files/debug"),
            (agent, "/containers"),
        ] {
            let (found, answer) = send(addr, &format!("GET {path}"), &[page], "").await;
            assert_eq!(found, status, "{page} {path}: {answer}");
        }
    }
    let frameworks = cluster.get("/frameworks").await;
    assert_eq!(
        frameworks["frameworks"].as_array().unwrap().len(),
        1,
        "{frameworks}"
    );
    // The offer is still there for its owner.
    framework
        .launch(&offer, json!([task("own", &offer, "sleep 600")]))
        .await;
    framework.wait_for_state("own", "TASK_RUNNING").await;
    let dir = cluster.stop_keeping_dir().await;
    let stolen = |entry: &Value| entry["task"] == "stolen";
    assert!(!journal(&dir).iter().any(stolen));
}

#[tokio::test]
async fn page_can_neither_inject_faults_nor_remove_frameworks_and_machines() {
    let cluster = Cluster::start(1, |config| config.standby = Some(([127, 0, 0, 1], 0).into())).await;
    let standby = cluster.minicluster.standby().unwrap();
    let framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let machine = json!({"hostname": "a0", "ip": "127.0.0.1"});
    let fault = json!({"fault": "restart-master"}).to_string();
    let form = format!("frameworkId={}", framework.id);
    let machines = json!([machine]).to_string();
    let schedule =
        json!({"windows": [{"machine_ids": [machine], "unavailability": {"start": {"nanoseconds": 1}}}]});
    let schedule = schedule.to_string();
    for addr in [cluster.master(), standby] {
        for (page, status) in [(REBOUND, 421), (FOREIGN, 403), (SANDBOXED, 403)] {
            for (path, body) in [
                ("/minicluster/faults", &fault),
                ("/master/minicluster/faults", &fault),
                ("/teardown", &form),
                ("/master/teardown", &form),
                ("/machine/down", &machines),
                ("/master/machine/up", &machines),
                ("/maintenance/schedule", &schedule),
            ] {
                // A `Blob` without a type is sent without a Content-Type.
                for kind in [JSON, FORM, TEXT, "Accept: */*"] {
                    let (found, answer) = send(addr, &format!("POST {path}"), &[page, kind], body).await;
                    assert_eq!(found, status, "{page} {path} {kind}: {answer}");
                }
            }
        }
    }
    for (path, kinds, body) in [
        ("/minicluster/faults", &[FORM, TEXT, "Accept: */*"][..], &fault),
        ("/teardown", &[JSON, TEXT], &form),
        ("/machine/down", &[FORM, TEXT], &machines),
        ("/machine/up", &[FORM, TEXT], &machines),
        ("/maintenance/schedule", &[FORM, TEXT], &schedule),
        ("/api/v1", &[FORM, TEXT], &machines),
        ("/api/v1/scheduler", &[FORM, TEXT], &machines),
    ] {
        for kind in kinds {
            let (found, answer) = send(cluster.master(), &format!("POST {path}"), &[OWN, kind], body).await;
            assert_eq!(found, 415, "{path} {kind}: {answer}");
        }
    }
    assert_eq!(cluster.get("/maintenance/schedule").await, json!({}));
    assert_eq!(cluster.get("/frameworks").await["frameworks"][0]["active"], true);
    assert_eq!(cluster.get("/minicluster/faults").await["in_force"], json!([]));
    // Programs send the same requests with the types of a real master.
    let (found, answer) = send(
        cluster.master(),
        "POST /maintenance/schedule",
        &[OWN, JSON],
        &schedule,
    )
    .await;
    assert_eq!(found, 200, "{answer}");
    let (found, answer) = send(cluster.master(), "POST /machine/down", &[OWN], &machines).await;
    assert_eq!(found, 200, "{answer}");
    let (found, answer) = send(cluster.master(), "POST /master/teardown", &[OWN, FORM], &form).await;
    assert_eq!(found, 200, "{answer}");
    cluster.stop().await;
}

#[tokio::test]
async fn documents_are_scripts_only_when_asked_for() {
    for jsonp in [false, true] {
        let cluster = Cluster::start(1, |config| config.jsonp = jsonp).await;
        for (addr, path) in [
            (cluster.master(), "/state?jsonp=leak"),
            (cluster.master(), "/frameworks?jsonp=leak"),
            (cluster.master(), "/maintenance/schedule?x&jsonp=leak"),
            (cluster.minicluster.agents()[0], "/state?%6asonp=leak"),
            (cluster.minicluster.agents()[0], "/files/debug?jsonp=leak"),
        ] {
            let (status, answer) = send(addr, &format!("GET {path}"), &[OWN], "").await;
            assert_eq!(status, 200, "{path}: {answer}");
            assert_eq!(answer.contains("leak("), jsonp, "{path}: {answer}");
            assert_eq!(answer.contains("text/javascript"), jsonp, "{path}: {answer}");
        }
        cluster.stop().await;
    }
}

#[tokio::test]
async fn targets_with_a_second_meaning_are_rejected() {
    let cluster = Cluster::start(1, |_| ()).await;
    for addr in [cluster.master(), cluster.minicluster.agents()[0]] {
        for path in [
            "/version/../state",
            "/version/%2e%2E/state",
            "/version/.%2e/state",
            "/./state",
            "/version\\..\\state",
            "/version%5cstate",
            "/master%2fstate",
            "/state%00",
            "/minicluster/../state",
        ] {
            let (status, answer) = send(addr, &format!("GET {path}"), &[OWN], "").await;
            assert_eq!(status, 400, "{path}: {answer}");
        }
        // Paths within a query are those of files.
        let (status, answer) = send(addr, "GET /state?path=..%2f%2e%2e", &[OWN], "").await;
        assert_eq!(status, 200, "{answer}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn only_names_of_the_cluster_are_accepted() {
    let cluster = Cluster::start(1, |config| {
        "master.internal".clone_into(&mut config.hostname);
        config.allowed_hosts = vec!["host.containers.internal".parse().unwrap()];
    })
    .await;
    for addr in [cluster.master(), cluster.minicluster.agents()[0]] {
        for (host, expected) in [
            ("localhost:5050", 200),
            ("127.0.0.1", 200),
            ("[::1]:5050", 200),
            ("master.internal:5050", 200),
            ("a0", 200),
            ("host.containers.internal:5050", 200),
            ("evil.example", 421),
            ("localhost.evil.example", 421),
            ("10.1.2.3:5050", 421),
        ] {
            let (status, answer) = send(addr, "GET /version", &[&format!("Host: {host}")], "").await;
            assert_eq!(status, expected, "{host}: {answer}");
            assert_eq!(answer.contains("--allowed-host"), expected == 421, "{answer}");
        }
        // The name in an absolute target counts too.
        let (status, _) = send(addr, "GET http://evil.example/version", &[OWN], "").await;
        assert_eq!(status, 421);
        // A page of the port itself, and a link from another site, which cannot read the answer.
        let own_page = "Host: localhost:5050\r\nOrigin: http://localhost:5050\r\nSec-Fetch-Site: same-origin";
        let link = "Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document";
        for page in [own_page, link] {
            assert_eq!(send(addr, "GET /version", &[page], "").await.0, 200, "{page}");
        }
    }
    cluster.stop().await;
}
