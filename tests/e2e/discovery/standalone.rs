//! `transom discovery` as a replacement of mesos-dns: it accepts and rejects the same configuration
//! files, and serves the last known records while the master fails.

mod forwarding;
mod secondary;
mod tls;

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use transom_testkit::{eventually, free_port};
use transom_tests::master::{Master, MasterResponse};
use transom_tests::process::{Transom, binary};
use transom_tests::{dns, http};

const STATE_A: &str = include_str!("../../fixtures/discovery/small-a.json");
const STATE_B: &str = include_str!("../../fixtures/discovery/small-b.json");
const CASES: &str = include_str!("../../fixtures/discovery/config.json");

/// The master's port in the recorded files, and the keys of the served ports.
const RECORDED_MASTER: &str = ":15050";
const RECORDED_PORTS: &[&str] = &["port", "httpport"];

/// Waits for the log line with the HTTP address.
fn http_address(daemon: &mut Transom) -> SocketAddr {
    daemon.wait_for_line("the HTTP port", |line| {
        let (_, rest) = line.split_once("listener=\"discovery\" addr=")?;
        rest.split_whitespace().next()?.parse().ok()
    })
}

fn dns_address(daemon: &mut Transom) -> SocketAddr {
    daemon.wait_for_line("the DNS port", |line| {
        let (_, rest) = line.split_once("listener=\"dns\" addr=")?;
        rest.split_whitespace().next()?.parse().ok()
    })
}

/// A recorded configuration with the ports of this test's master and with free ports to serve.
fn with_own_ports(config: &Value, master: SocketAddr) -> Value {
    let mut config: Map<String, Value> = serde_json::from_value(config.clone()).unwrap();
    for (key, value) in &mut config {
        let recorded = matches!(value.as_u64(), Some(18053 | 18123));
        if recorded && RECORDED_PORTS.contains(&key.to_ascii_lowercase().as_str()) {
            *value = json!(0);
        }
    }
    let text = Value::Object(config).to_string();
    let port = format!(":{}", master.port());
    serde_json::from_str(&text.replace(RECORDED_MASTER, &port)).unwrap()
}

/// The flags for a recorded case; writes its configuration file.
fn flags(case: &Value, dir: &Path, master: SocketAddr) -> Vec<String> {
    let request = &case["request"];
    if let Some(flags) = request["argv"].as_array() {
        return flags
            .iter()
            .map(|flag| flag.as_str().unwrap().to_owned())
            .collect();
    }
    let file = dir.join("config.json");
    let text = match request["config_text"].as_str() {
        Some(text) => text.to_owned(),
        None => with_own_ports(&request["config"], master).to_string(),
    };
    fs::write(&file, text).unwrap();
    vec![format!("-config={}", file.display())]
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_files_are_accepted_and_rejected_like_mesos_dns() {
    let master = Master::start(MasterResponse::document(STATE_A)).await;
    let cases: Value = serde_json::from_str(CASES).unwrap();
    let cases = cases["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 96);
    let mut wrong = Vec::new();
    for case in cases {
        let dir = tempfile::tempdir().unwrap();
        let arguments = ["discovery".to_owned()]
            .into_iter()
            .chain(flags(case, dir.path(), master.address));
        let mut daemon = Transom::start(dir.path(), arguments);
        let expect = &case["expect"];
        let ended = if expect["exit_code"].is_null() {
            http_address(&mut daemon);
            daemon.interrupt().0.code().filter(|code| *code != 0)
        } else {
            daemon.wait().code()
        };
        // A configuration that crashed mesos-dns is rejected here like any invalid file.
        let due = match (case["class"].as_str(), expect["accepted"].as_bool()) {
            (Some("bug"), Some(false)) => Some(1),
            _ => expect["exit_code"].as_i64(),
        };
        if ended.map(i64::from) != due {
            wrong.push(format!(
                "{} ({}): {ended:?} instead of {due:?}",
                case["id"], case["note"]
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A daemon with a configuration file of mesos-dns.
struct Lookups {
    daemon: Transom,
    dns: SocketAddr,
    http: SocketAddr,
    _dir: TempDir,
}

impl Lookups {
    fn start(keys: &Value) -> Lookups {
        Lookups::start_with(keys, &[])
    }

    fn start_with(keys: &Value, flags: &[&str]) -> Lookups {
        let dir = tempfile::tempdir().unwrap();
        let mut config = json!({
            "refreshSeconds": 1, "port": 0, "httpport": 0, "listener": "127.0.0.1", "HTTPListener": "127.0.0.1",
            "externalon": false,
        });
        config
            .as_object_mut()
            .unwrap()
            .extend(keys.as_object().unwrap().clone());
        let file = dir.path().join("config.json");
        fs::write(&file, config.to_string()).unwrap();
        let config = format!("-config={}", file.display());
        let arguments = ["discovery", &config].into_iter().chain(flags.iter().copied());
        let mut daemon = Transom::start(dir.path(), arguments);
        Lookups {
            dns: dns_address(&mut daemon),
            http: http_address(&mut daemon),
            daemon,
            _dir: dir,
        }
    }

    async fn web(&self) -> (ResponseCode, Vec<IpAddr>) {
        let answer = dns::ask(self.dns, "web.marathon.mesos.", RecordType::A)
            .await
            .unwrap();
        (answer.code, answer.addresses)
    }

    async fn wait_for_answer(&self, address: &str) {
        let due = (ResponseCode::NoError, vec![address.parse().unwrap()]);
        eventually(&format!("web at {address}"), || async {
            let found = self.web().await;
            if found == due {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    }

    async fn status(&self, path: &str) -> u16 {
        let url = format!("http://{}{path}", self.http);
        http().get(url).send().await.unwrap().status().as_u16()
    }
}

/// The address of `web` in each of the documents.
const WEB_ADDRESS_A: &str = "10.0.0.10";
const WEB_ADDRESS_B: &str = "10.0.0.11";

#[tokio::test(flavor = "multi_thread")]
async fn last_records_are_served_while_the_master_fails() {
    let master = Master::start(MasterResponse::document(STATE_A).with_status(503)).await;
    let lookups = Lookups::start(&json!({"masters": [master.address.to_string()]}));
    assert_eq!(lookups.web().await.0, ResponseCode::ServFail);
    assert_eq!(lookups.status("/v1/hosts/leader.mesos").await, 503);
    assert_eq!(lookups.status("/v1/version").await, 200);
    master.set_response(MasterResponse::document(STATE_A));
    lookups.wait_for_answer(WEB_ADDRESS_A).await;
    for trouble in [
        MasterResponse::document(STATE_B).with_status(500),
        MasterResponse::document("{\"leader\": "),
        MasterResponse::document(r#"{"slaves": [], "frameworks": []}"#),
        MasterResponse::document(""),
        MasterResponse::document(STATE_B).with_status(401),
    ] {
        master.set_response(trouble.clone());
        let requests_before = master.state_requests();
        eventually("it to be asked twice more", || async {
            if master.state_requests() >= requests_before + 2 {
                Ok(())
            } else {
                Err(format!("{}", master.state_requests()))
            }
        })
        .await;
        assert_eq!(
            lookups.web().await.1,
            [WEB_ADDRESS_A.parse::<IpAddr>().unwrap()],
            "{trouble:?}"
        );
    }
    master.set_response(MasterResponse::document(STATE_B));
    lookups.wait_for_answer(WEB_ADDRESS_B).await;
    let (status, output) = lookups.daemon.interrupt();
    assert!(status.success(), "{output}");
}

/// Each of these entries crashed mesos-dns, or stopped its updates permanently.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_entry_does_not_stop_updates() {
    // A JSON pointer into the document and a value, which is appended to a list (`-`) or replaces
    // the old value.
    let odd = [
        ("/slaves/-", json!({"id": "x"})),
        ("/slaves/-", json!({"id": "x", "pid": "garbage"})),
        (
            "/slaves/-",
            json!({"id": "x", "pid": "slave(1)@no.such.invalid:5051"}),
        ),
        ("/slaves/-", json!(null)),
        (
            "/frameworks/-",
            json!({"id": "y", "name": "y", "pid": "garbage", "tasks": []}),
        ),
        (
            "/frameworks/-",
            json!({"id": "y", "hostname": "no.such.invalid", "tasks": null}),
        ),
        ("/frameworks/0/tasks/0/resources/ports", json!("31000")),
        ("/frameworks/0/tasks/-", json!({"id": 5, "state": []})),
        ("/leader", json!("master@localhost:15050")),
    ];
    let master = Master::start(MasterResponse::document(STATE_A)).await;
    let lookups = Lookups::start(&json!({"masters": [master.address.to_string()]}));
    for (place, entry) in odd {
        for (document, address) in [(STATE_A, WEB_ADDRESS_A), (STATE_B, WEB_ADDRESS_B)] {
            let mut document: Value = serde_json::from_str(document).unwrap();
            match place.strip_suffix("/-") {
                Some(list) => {
                    let list = document.pointer_mut(list).and_then(Value::as_array_mut);
                    list.unwrap().push(entry.clone());
                }
                None => *document.pointer_mut(place).unwrap() = entry.clone(),
            }
            master.set_response(MasterResponse::document(document.to_string()));
            lookups.wait_for_answer(address).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn master_with_host_name_and_credentials_is_followed() {
    let mut response = MasterResponse::document(STATE_A);
    response.required_authorization = Some("Basic ZG5zOnMzY3JldA==".into());
    let master = Master::start(response).await;
    let lookups = Lookups::start(&json!({
        "masters": [format!("localhost:{}", master.address.port())], "mesosAuthentication": "basic",
        "mesosCredentials": {"principal": "dns", "secret": "s3cret"},
    }));
    lookups.wait_for_answer(WEB_ADDRESS_A).await;
    let url = format!("http://{}/v1/config", lookups.http);
    let shown = http().get(url).send().await.unwrap().text().await.unwrap();
    assert!(
        shown.contains("\"Principal\": \"dns\"") && !shown.contains("s3cret"),
        "{shown}"
    );
    let (_, output) = lookups.daemon.interrupt();
    assert!(!output.contains("s3cret"), "{output}");
}

/// The daemon queries the first master of the list that answers, then the leader that it names, at
/// the port of the list. When the leader is down, the next master of the list is queried.
#[tokio::test(flavor = "multi_thread")]
async fn leader_is_queried_at_the_port_of_the_masters_list() {
    let port = free_port();
    let [first, second, third] = [1, 2, 3].map(|last| SocketAddr::from(([127, 0, 0, last], port)));
    let follower = Master::start_at(
        second,
        MasterResponse::document(Master::with_leader(STATE_A, third.ip())),
    )
    .await;
    let leader = Master::start_at(
        third,
        MasterResponse::document(Master::with_leader(STATE_B, third.ip())),
    )
    .await;
    let masters = [first, second, third].map(|master| master.to_string());
    let lookups = Lookups::start(&json!({"masters": masters}));
    lookups.wait_for_answer(WEB_ADDRESS_B).await;
    assert!(
        follower.state_requests() > 0,
        "the first reachable master of the list is queried first"
    );
    // The leader that the remaining master names is down.
    drop(leader);
    let requests_before = follower.state_requests();
    eventually("the follower to be asked again", || async {
        if follower.state_requests() > requests_before + 1 {
            Ok(())
        } else {
            Err(format!("{}", follower.state_requests()))
        }
    })
    .await;
    lookups.wait_for_answer(WEB_ADDRESS_B).await;
    follower.set_response(MasterResponse::document(
        STATE_A.replace("127.0.0.1", "127.0.0.2"),
    ));
    lookups.wait_for_answer(WEB_ADDRESS_A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_master_is_abandoned_after_the_state_timeout() {
    let master = Master::start(MasterResponse::document(STATE_A)).await;
    let lookups = Lookups::start(&json!({"masters": [master.address.to_string()], "stateTimeoutSeconds": 1}));
    lookups.wait_for_answer(WEB_ADDRESS_A).await;
    let mut silent = MasterResponse::document(STATE_A);
    silent.never_responds = true;
    master.set_response(silent);
    let requests_before = master.state_requests();
    eventually("it to be asked, and again", || async {
        if master.state_requests() >= requests_before + 2 {
            Ok(())
        } else {
            Err(format!("{}", master.state_requests()))
        }
    })
    .await;
    master.set_response(MasterResponse::document(STATE_B));
    lookups.wait_for_answer(WEB_ADDRESS_B).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_of_a_name_receive_every_change() {
    use futures::StreamExt;

    let master = Master::start(MasterResponse::document(STATE_A)).await;
    let lookups = Lookups::start(&json!({"masters": [master.address.to_string()]}));
    lookups.wait_for_answer(WEB_ADDRESS_A).await;
    let url = format!("http://{}/v1/watch/hosts/web.marathon.mesos", lookups.http);
    let answer = http().get(url).send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let mut frames = answer.bytes_stream();
    let mut printed = String::new();
    for address in [WEB_ADDRESS_A, WEB_ADDRESS_B] {
        while !printed.contains(address) {
            let frame = frames.next().await.expect("the stream goes on").unwrap();
            printed.push_str(&String::from_utf8_lossy(&frame));
        }
        master.set_response(MasterResponse::document(STATE_B));
    }
    let due = |address| {
        format!("event: changed\ndata: [{{\"host\":\"web.marathon.mesos.\",\"ip\":\"{address}\"}}]\n\n")
    };
    assert!(
        printed.contains(&due(WEB_ADDRESS_A)) && printed.contains(&due(WEB_ADDRESS_B)),
        "{printed}"
    );
    // The stream ends when the daemon does, and without an error.
    let (status, output) = lookups.daemon.interrupt();
    assert!(status.success(), "{output}");
    while let Some(frame) = frames.next().await {
        frame.expect("a good end");
    }
}

/// A response has an `ETag`, and a request with that tag receives no body.
#[tokio::test(flavor = "multi_thread")]
async fn request_with_the_current_etag_is_answered_with_304() {
    let master = Master::start(MasterResponse::document(STATE_A)).await;
    let lookups = Lookups::start(&json!({"masters": [master.address.to_string()], "refreshSeconds": 3600}));
    lookups.wait_for_answer(WEB_ADDRESS_A).await;
    for path in [
        "/v1/enumerate",
        "/v1/axfr",
        "/v1/hosts/web.marathon.mesos",
        "/v1/services/_web._tcp.marathon.mesos",
    ] {
        let url = format!("http://{}{path}", lookups.http);
        let answer = http().get(&url).send().await.unwrap();
        let tag = answer.headers()["etag"].clone();
        let body: Value = answer.json().await.unwrap();
        assert!(body.to_string().contains("web"), "{path}: {body}");
        let again = http()
            .get(&url)
            .header("If-None-Match", tag)
            .send()
            .await
            .unwrap();
        assert_eq!(again.status(), 304, "{path}");
    }
    let url = format!("http://{}/v1/openapi.json", lookups.http);
    let description: Value = http().get(url).send().await.unwrap().json().await.unwrap();
    assert!(description["paths"].get("/v1/watch/hosts/{host}").is_some());
}

#[test]
fn daemon_exits_when_no_leader_is_detected_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let config = json!({
        "zk": format!("zk://127.0.0.1:{}/mesos", free_port()), "zkDetectionTimeout": 1, "port": 0, "httpport": 0,
        "listener": "127.0.0.1", "HTTPListener": "127.0.0.1", "externalon": false,
    });
    fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    // The default name of the file.
    let mut daemon = Transom::start(dir.path(), ["discovery", "-v=1"]);
    assert_eq!(daemon.wait().code(), Some(1));
    assert!(
        daemon.output().contains("ZkDetectionTimeout"),
        "{}",
        daemon.output()
    );
}

#[test]
fn used_port_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let dir = tempfile::tempdir().unwrap();
    let config = json!({
        "masters": ["127.0.0.1:1"], "port": 0, "httpport": port, "listener": "127.0.0.1",
        "HTTPListener": "127.0.0.1", "externalon": false,
    });
    fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    let mut daemon = Transom::start(dir.path(), ["discovery"]);
    assert_eq!(daemon.wait().code(), Some(1));
    assert!(daemon.output().contains(&port.to_string()), "{}", daemon.output());
}

#[test]
fn imported_mesos_dns_file_becomes_equivalent_toml() {
    let dir = tempfile::tempdir().unwrap();
    let config = json!({
        "zk": "zk://ops:hunter2@h:2181/mesos", "masters": ["10.0.0.1:5050"], "domain": "Example", "ttl": 20,
        "port": 8053, "zoneResolvers": {"weave": ["10.0.0.9"]}, "mesosAuthentication": "basic",
        "mesosCredentials": {"principal": "p", "secret": "hunter2"}, "bogus": 1,
    });
    fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    let mut import = Transom::start(dir.path(), ["config", "import", "config.json"]);
    assert!(import.wait().success(), "{}", import.output());
    let printed = import.output();
    assert!(!printed.contains("hunter2"), "{printed}");
    assert!(printed.contains("# `bogus` is not a known key"), "{printed}");
    fs::write(dir.path().join("transom.toml"), printed + "\n").unwrap();
    let mut check = Transom::start_with(
        dir.path(),
        ["config", "check", "--config", "transom.toml", "--output", "json"],
        &[("TRANSOM_CLUSTER_PASSWORD", "hunter2")],
    );
    assert!(check.wait().success(), "{}", check.output());
    let rows: Vec<Value> = serde_json::from_str(&check.output()).unwrap();
    let value = |key: &str| {
        let row = rows
            .iter()
            .find(|row| row["key"] == key)
            .unwrap_or_else(|| panic!("no {key}"));
        serde_json::from_str::<Value>(row["value"].as_str().unwrap()).unwrap()
    };
    for (key, due) in [
        ("discovery.domain", json!("example")),
        ("discovery.ttl", json!(20)),
        ("discovery.port", json!(8053)),
        ("discovery.resolvers", json!(["8.8.8.8"])),
        ("discovery.zone_resolvers.weave", json!(["10.0.0.9"])),
        ("cluster.username", json!("p")),
        ("cluster.fallback_masters", json!(["10.0.0.1:5050"])),
        ("cluster.detection_timeout_seconds", json!(30)),
    ] {
        assert_eq!(value(key), due, "{key}");
    }
    fs::write(dir.path().join("wrong.json"), "{]").unwrap();
    let mut wrong = Transom::start(dir.path(), ["config", "import", "wrong.json"]);
    assert_eq!(wrong.wait().code(), Some(2), "{}", wrong.output());
    assert!(
        wrong.output().contains("expected a JSON object"),
        "{}",
        wrong.output()
    );
}

/// The specification's variable and its Mesos name override the file and are overridden by our own
/// variable.
#[test]
fn master_is_read_from_environment_variables_by_precedence() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("transom.toml"),
        "[cluster]\nmaster = \"file:1\"\n[discovery]\n",
    )
    .unwrap();
    let ours = ("TRANSOM_CLUSTER_MASTER", "ours:1");
    let neutral = ("CLUSTER_MASTER", "neutral:1");
    let theirs = ("MESOS_MASTER", "theirs:1");
    for (variables, due) in [
        (&[][..], "file:1"),
        (&[theirs], "theirs:1"),
        (&[theirs, neutral], "neutral:1"),
        (&[theirs, neutral, ours], "ours:1"),
    ] {
        let mut check = std::process::Command::new(binary());
        check
            .args(["config", "check", "--config", "transom.toml", "--output", "json"])
            .current_dir(dir.path());
        for (name, _) in [ours, neutral, theirs] {
            check.env_remove(name);
        }
        let checked = check.envs(variables.iter().copied()).output().unwrap();
        assert!(checked.status.success(), "{checked:?}");
        let rows: Vec<Value> = serde_json::from_slice(&checked.stdout).unwrap();
        let row = rows.iter().find(|row| row["key"] == "cluster.master").unwrap();
        assert_eq!(row["value"], json!(format!("{due:?}")), "{variables:?}");
        let both = variables.contains(&theirs) && variables.contains(&neutral);
        assert_eq!(!checked.stderr.is_empty(), both, "{checked:?}");
    }
}
