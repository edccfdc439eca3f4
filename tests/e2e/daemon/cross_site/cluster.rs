//! Web pages and the ports without credentials: those of `transom cluster`, and discovery's.

use std::fs;
use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use transom_testkit::eventually;
use transom_tests::process::Transom;
use transom_tests::site::{Cluster, addresses, copy_components};

use super::{RawRequest, RawResponse, get, post};

async fn send(address: SocketAddr, request: &RawRequest) -> RawResponse {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let text = request.text(address);
    stream.write_all(text.as_bytes()).await.expect("sent");
    RawResponse::read(&mut stream).await
}

/// The agents' addresses, from the master's state.
async fn agents(master: SocketAddr) -> Vec<SocketAddr> {
    let state = send(master, &get("/state")).await;
    let state: Value = serde_json::from_str(&state.body).expect("JSON");
    let agents = state["slaves"].as_array().expect("agents").iter();
    let address = |agent: &Value| {
        let pid = agent["pid"].as_str().expect("a pid").split_once('@');
        pid.expect("an address").1.parse().expect("an address")
    };
    agents.map(address).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_cannot_use_the_embedded_cluster() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start_with(dir.path(), &["--allowed-host", "lb.test"]);
    let master = cluster.master;
    let agents = agents(master).await;
    assert_eq!(agents.len(), 3);
    let info = json!({"user": "root", "name": "page", "roles": ["*"]});
    let subscribe = json!({"type": "SUBSCRIBE", "subscribe": {"framework_info": info}}).to_string();
    let operator = json!({"type": "SUBSCRIBE"}).to_string();
    let launch = json!({"type": "LAUNCH_NESTED_CONTAINER", "launch_nested_container": {
        "container_id": {"value": "x", "parent": {"value": "y"}},
        "command": {"value": format!("touch {}", dir.path().join("ran").display())},
    }});
    let fault = json!({"fault": "delay", "ms": 3_600_000}).to_string();
    let machines = json!([{"hostname": "127.0.0.1", "ip": "127.0.0.1"}]).to_string();
    let form = "frameworkId=x".to_owned();
    let evil = format!("evil.example:{}", master.port());
    let changes = [
        (master, "/api/v1/scheduler", &subscribe),
        (master, "/api/v1", &operator),
        (master, "/minicluster/faults", &fault),
        (master, "/master/teardown", &form),
        (master, "/machine/down", &machines),
        (agents[0], "/api/v1", &launch.to_string()),
        (agents[2], "/slave(1)/api/v1", &launch.to_string()),
    ];
    for (address, path, body) in changes {
        for kind in [
            "application/json",
            "text/plain",
            "application/x-www-form-urlencoded",
        ] {
            let request = post(path, body).with("Content-Type", kind);
            // DNS rebinding, and a page of another site.
            let rebound = request
                .with("Host", &evil)
                .with("Origin", &format!("http://{evil}"));
            let answer = send(address, &rebound).await;
            assert_eq!(answer.status, 421, "{path} {kind}: {answer:?}");
            assert!(answer.body.contains("--allowed-host"), "{answer:?}");
            let foreign = request.with("Origin", "http://evil.example");
            let answer = send(address, &foreign).await;
            assert_eq!(answer.status, 403, "{path} {kind}: {answer:?}");
        }
    }
    for (path, body, kinds) in [
        (
            "/minicluster/faults",
            &fault,
            ["text/plain", "application/x-www-form-urlencoded"],
        ),
        (
            "/machine/down",
            &machines,
            ["text/plain", "application/x-www-form-urlencoded"],
        ),
        ("/teardown", &form, ["text/plain", "application/json"]),
    ] {
        for kind in kinds {
            let answer = send(master, &post(path, body).with("Content-Type", kind)).await;
            assert_eq!(answer.status, 415, "{path} {kind}: {answer:?}");
        }
    }
    let traversal = send(master, &get("/version/..%2fstate")).await;
    assert_eq!(traversal.status, 400, "{traversal:?}");
    // Nothing has changed, and nothing is told to a page in a script.
    let state = send(master, &get("/state?jsonp=leak")).await;
    assert!(state.head.contains("content-type: application/json"), "{state:?}");
    let state: Value = serde_json::from_str(&state.body).expect("JSON");
    assert_eq!(state["frameworks"], json!([]));
    let faults = send(master, &get("/minicluster/faults")).await;
    assert!(faults.body.contains("\"in_force\":[]"), "{faults:?}");
    assert!(!dir.path().join("ran").exists());
    let allowed = send(master, &get("/version").with("Host", "lb.test:5050")).await;
    assert_eq!(allowed.status, 200, "{allowed:?}");
    cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discovery_on_all_addresses_checks_host_names_on_loopback() {
    let dir = tempfile::tempdir().expect("a directory");
    copy_components(&dir.path().join("plugins"));
    let configuration = "[log]\nformat = \"json\"\n[cluster]\nmaster = \"127.0.0.1:1\"\n\
         [discovery]\nlistener = \"127.0.0.1\"\nport = 0\nhttp_port = 0\nexternal_on = false\n\
         allowed_hosts = [\"dns.test\"]\n[admin]\nport = 0\n";
    fs::write(dir.path().join("transom.toml"), configuration).expect("written");
    let mut daemon = Transom::start(dir.path(), ["serve", "--config", "transom.toml"]);
    let addresses = addresses(&mut daemon);
    assert!(addresses["discovery"].ip().is_unspecified());
    let address = SocketAddr::from(([127, 0, 0, 1], addresses["discovery"].port()));
    eventually("discovery to serve", || async {
        let answer = send(address, &get("/v1/version")).await;
        (answer.status == 200).then_some(()).ok_or(format!("{answer:?}"))
    })
    .await;
    for (host, expected) in [
        ("localhost:8123", 200),
        ("dns.test", 200),
        ("evil.example:8123", 421),
        ("192.0.2.1:8123", 421),
    ] {
        let answer = send(address, &get("/v1/version").with("Host", host)).await;
        assert_eq!(answer.status, expected, "{host}: {answer:?}");
        let names_setting = answer.body.contains("`discovery.allowed_hosts`");
        assert_eq!(names_setting, expected == 421, "{answer:?}");
    }
    // A page of another site gets the answer of mesos-dns, which its browser does not show it.
    let foreign = send(address, &get("/v1/version").with("Origin", "http://evil.example")).await;
    assert_eq!(foreign.status, 200, "{foreign:?}");
    assert!(!foreign.head.contains("access-control"), "{foreign:?}");
    let (status, output) = daemon.interrupt();
    assert!(status.success(), "{output}");
}
