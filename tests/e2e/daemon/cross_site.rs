//! Requests that a foreign web page can make a browser send to the daemon's ports: each port
//! rejects host names and origins of other sites, and bodies that a page may post without a
//! preflight. Requests are written byte by byte, as HTTP clients set some of these headers
//! themselves.

mod cluster;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use transom_testkit::{WAIT_TIMEOUT, eventually};
use transom_tests::process::{Transom, binary};
use transom_tests::site::{addresses, copy_components};

/// A daemon with every port that accepts changes. It has no cluster, because these requests need
/// none.
struct Daemon {
    process: Transom,
    addresses: BTreeMap<String, SocketAddr>,
    dir: tempfile::TempDir,
}

/// Additional settings of the sections.
#[derive(Default)]
struct ExtraSettings<'a> {
    apps: &'a str,
    workflow: &'a str,
    admin: &'a str,
}

impl Daemon {
    async fn start(more: &ExtraSettings<'_>) -> Daemon {
        let dir = tempfile::tempdir().expect("a directory");
        copy_components(&dir.path().join("plugins"));
        let configuration = format!(
            "[log]\nformat = \"json\"\n[cluster]\nmaster = \"127.0.0.1:1\"\n[store]\nserver = \"file:{}\"\n\
             [plugins]\ndir = \"plugins\"\n[apps]\nport = 0\n{}\n\
             [workflow]\nport = 0\ncontainers = false\n{}\n[admin]\nport = 0\n{}\n",
            dir.path().join("store").display(),
            more.apps,
            more.workflow,
            more.admin
        );
        fs::write(dir.path().join("transom.toml"), configuration).expect("written");
        let mut process = Transom::start(dir.path(), ["serve", "--config", "transom.toml"]);
        let addresses = addresses(&mut process);
        let daemon = Daemon {
            process,
            addresses,
            dir,
        };
        // Requests are served once this daemon has been elected leader of both services.
        for (port, path) in [("apps", "/v2/queue"), ("workflow", "/v0/queue")] {
            eventually(&format!("{port} to be led"), || async {
                let answer = daemon.send(port, &get(path)).await;
                (answer.status == 200).then_some(()).ok_or(format!("{answer:?}"))
            })
            .await;
        }
        daemon
    }

    async fn send(&self, port: &str, request: &RawRequest) -> RawResponse {
        let address = self.addresses[port];
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let text = request.text(address);
        stream.write_all(text.as_bytes()).await.expect("sent");
        RawResponse::read(&mut stream).await
    }

    /// `transom plugin ARGUMENTS` with the daemon's address and further environment variables.
    fn plugin(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(binary());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TRANSOM_")) {
            command.env_remove(name);
        }
        let url = format!("http://{}", self.addresses["admin"]);
        command
            .arg("plugin")
            .args(arguments)
            .env("TRANSOM_ADMIN_URL", url)
            .envs(variables.iter().copied())
            .current_dir(self.dir.path());
        command.output().expect("it starts")
    }

    fn stop(self) {
        let (status, output) = self.process.interrupt();
        assert!(status.success(), "{output}");
    }
}

/// A request. If `headers` contains no `Host`, the address of the server is used.
#[derive(Clone)]
struct RawRequest {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl RawRequest {
    fn with(&self, name: &'static str, value: &str) -> RawRequest {
        let mut request = self.clone();
        request
            .headers
            .retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        request.headers.push((name, value.to_owned()));
        request
    }

    fn text(&self, address: SocketAddr) -> String {
        let mut text = format!("{} {} HTTP/1.1\r\nConnection: close\r\n", self.method, self.path);
        if !self.headers.iter().any(|(name, _)| *name == "Host") {
            let _ = write!(text, "Host: {address}\r\n");
        }
        for (name, value) in &self.headers {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        text + &format!("Content-Length: {}\r\n\r\n{}", self.body.len(), self.body)
    }
}

fn get(path: &str) -> RawRequest {
    RawRequest {
        method: "GET",
        path: path.to_owned(),
        headers: Vec::new(),
        body: String::new(),
    }
}

fn post(path: &str, body: &str) -> RawRequest {
    RawRequest {
        method: "POST",
        body: body.to_owned(),
        ..get(path)
    }
    .with("Content-Type", "application/json")
}

#[derive(Debug)]
struct RawResponse {
    status: u16,
    head: String,
    body: String,
}

impl RawResponse {
    /// Reads the head, and the body up to its `Content-Length`. Without that header no body is
    /// read.
    async fn read(stream: &mut TcpStream) -> RawResponse {
        let mut bytes = Vec::new();
        let read = async {
            loop {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                if let Some((head, body)) = text.split_once("\r\n\r\n") {
                    let head = head.to_ascii_lowercase();
                    let length = head
                        .lines()
                        .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
                    if body.len() >= length.unwrap_or(0) {
                        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
                        return RawResponse {
                            status: status.expect("a status"),
                            body: body.to_owned(),
                            head,
                        };
                    }
                }
                let count = stream.read_buf(&mut bytes).await.expect("an answer");
                assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&bytes));
            }
        };
        tokio::time::timeout(WAIT_TIMEOUT, read)
            .await
            .expect("an answer in time")
    }

    /// The message of an error body, which must be JSON.
    fn message(&self) -> String {
        assert!(self.head.contains("content-type: application/json"), "{self:?}");
        let body: Value =
            serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        body["message"]
            .as_str()
            .unwrap_or_else(|| panic!("{self:?}"))
            .to_owned()
    }
}

/// For each port: a request that reads, a request that changes something, and the status of its
/// success.
fn requests() -> [(&'static str, RawRequest, RawRequest, u16); 3] {
    let app = json!({"id": "/a", "cmd": "sleep 1000", "cpus": 0.1, "mem": 16}).to_string();
    let job = json!({"workflow_task_id": "a", "command": ["true"]}).to_string();
    let order = json!({"record": 1}).to_string();
    [
        ("apps", get("/v2/apps"), post("/v2/apps", &app), 201),
        ("workflow", get("/v0/queue"), post("/v0/queue_command", &job), 200),
        (
            "admin",
            get("/metrics"),
            post("/v1/plugins/events/rollback", &order),
            200,
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_other_sites_are_rejected_on_every_port() {
    let daemon = Daemon::start(&ExtraSettings::default()).await;
    for (port, read, change, _) in requests() {
        let own = daemon.addresses[port].port();
        for request in [&read, &change] {
            for (header, value, status, setting) in [
                // DNS rebinding: the name of a foreign page resolves to this address.
                ("Host", format!("evil.test:{own}"), 421, "allowed_hosts"),
                ("Host", "localhost.evil.test".to_owned(), 421, "allowed_hosts"),
                ("Host", format!("192.0.2.1:{own}"), 421, "allowed_hosts"),
                ("Origin", "http://evil.test".to_owned(), 403, "allowed_origins"),
                ("Origin", "null".to_owned(), 403, "allowed_origins"),
                ("Origin", "http://127.0.0.1:1".to_owned(), 403, "allowed_origins"),
                ("Sec-Fetch-Site", "cross-site".to_owned(), 403, "allowed_origins"),
                ("Sec-Fetch-Site", "same-site".to_owned(), 403, "allowed_origins"),
            ] {
                let answer = daemon.send(port, &request.with(header, &value)).await;
                let what = format!(
                    "{port}: {} {} with {header}: {value}",
                    request.method, request.path
                );
                assert_eq!(answer.status, status, "{what}: {answer:?}");
                let message = answer.message();
                assert!(
                    message.contains(&format!("`{port}.{setting}`")),
                    "{what}: {message}"
                );
            }
        }
        for kind in [
            "text/plain",
            "text/plain;charset=UTF-8",
            "application/x-www-form-urlencoded",
        ] {
            let answer = daemon.send(port, &change.with("Content-Type", kind)).await;
            assert_eq!(answer.status, 415, "{port}: {answer:?}");
            assert!(
                answer.message().contains("application/json"),
                "{port}: {answer:?}"
            );
        }
    }
    // None of the rejected requests had an effect.
    let apps = daemon.send("apps", &get("/v2/apps")).await;
    assert_eq!(apps.body, json!({"apps": []}).to_string());
    let queue = daemon.send("workflow", &get("/v0/queue")).await;
    assert!(queue.body.contains("\"count\":0"), "{queue:?}");

    // A page of another site cannot open the event stream either, although it is a GET request.
    let events = get("/v2/events").with("Accept", "text/event-stream");
    for rejected in [
        events.with("Origin", "http://evil.test"),
        events.with("Sec-Fetch-Site", "cross-site"),
    ] {
        assert_eq!(daemon.send("apps", &rejected).await.status, 403);
    }

    // The same requests succeed without these headers, and from pages of the port's own origin.
    for (port, read, change, done) in requests() {
        let own = daemon.addresses[port];
        let host = format!("localhost:{}", own.port());
        let page = |request: &RawRequest| {
            let request = request
                .with("Host", &host)
                .with("Origin", &format!("http://{host}"));
            request.with("Sec-Fetch-Site", "same-origin")
        };
        assert_eq!(daemon.send(port, &page(&read)).await.status, 200, "{port}");
        let answer = daemon.send(port, &page(&change)).await;
        assert_eq!(answer.status, done, "{port}: {answer:?}");
    }
    assert_eq!(daemon.send("apps", &events).await.status, 200);
    daemon.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configured_hosts_and_origins_are_accepted() {
    const ORIGIN: &str = "https://ui.example.com";
    let both = format!("allowed_hosts = [\"lb.test\", \"*.svc.test\"]\nallowed_origins = [\"{ORIGIN}\"]");
    let daemon = Daemon::start(&ExtraSettings {
        apps: &format!("{both}\nhostname = \"apps.test\""),
        workflow: &format!(
            "{both}\nhostname = \"workflow.test\"\noperator_api_url = \"http://operators.test:11000\""
        ),
        admin: &both,
    })
    .await;
    let names = BTreeMap::from([
        ("apps", vec!["apps.test"]),
        ("workflow", vec!["workflow.test", "operators.test"]),
        ("admin", vec!["apps.test", "workflow.test"]),
    ]);
    for (port, read, ..) in requests() {
        let mut hosts = vec!["lb.test", "LB.test:80", "a.svc.test"];
        hosts.extend(&names[port]);
        for host in hosts {
            let answer = daemon.send(port, &read.with("Host", host)).await;
            assert_eq!(answer.status, 200, "{port} {host}: {answer:?}");
        }
        for host in ["svc.test", "lb.test.evil.test", "other.test"] {
            let answer = daemon.send(port, &read.with("Host", host)).await;
            assert_eq!(answer.status, 421, "{port} {host}: {answer:?}");
        }
        // A page of the configured origin may send requests and read the responses.
        let page = read.with("Origin", ORIGIN).with("Sec-Fetch-Site", "cross-site");
        let answer = daemon.send(port, &page).await;
        assert_eq!(answer.status, 200, "{port}: {answer:?}");
        let readable = format!("access-control-allow-origin: {ORIGIN}");
        assert!(answer.head.contains(&readable), "{port}: {answer:?}");
        let mut preflight = page.with("Access-Control-Request-Method", "POST");
        preflight.method = "OPTIONS";
        let answer = daemon.send(port, &preflight).await;
        assert_eq!(answer.status, 204, "{port}: {answer:?}");
        assert!(answer.head.contains(&readable), "{port}: {answer:?}");
    }
    let events = get("/v2/events").with("Accept", "text/event-stream");
    let answer = daemon.send("apps", &events.with("Origin", ORIGIN)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    daemon.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_admin_port_needs_the_credentials_that_are_configured() {
    let daemon = Daemon::start(&ExtraSettings {
        admin: "username = \"ops\"\npassword = \"hunter2\"",
        ..ExtraSettings::default()
    })
    .await;
    let list = get("/v1/plugins");
    // ops:hunter2, and ops:wrong
    let (right, wrong) = ("Basic b3BzOmh1bnRlcjI=", "Basic b3BzOndyb25n");
    for (request, status) in [
        (list.clone(), 401),
        (list.with("Authorization", wrong), 401),
        (list.with("Authorization", right), 200),
        (get("/metrics"), 401),
        (get("/metrics").with("Authorization", right), 200),
        (get("/health"), 200),
        (post("/v1/plugins/rescan", ""), 401),
        (post("/v1/plugins/rescan", "").with("Authorization", right), 200),
        // Valid credentials do not permit a request of another site's page.
        (
            list.with("Authorization", right)
                .with("Origin", "http://evil.test"),
            403,
        ),
    ] {
        let answer = daemon.send("admin", &request).await;
        assert_eq!(
            answer.status, status,
            "{} {}: {answer:?}",
            request.method, request.path
        );
        if status == 401 {
            assert!(answer.message().contains("admin.username"), "{answer:?}");
            assert!(
                answer.head.contains("www-authenticate: basic realm="),
                "{answer:?}"
            );
        }
    }
    // `/ready` needs no credentials, because supervisors use it. Without a cluster it returns 503.
    assert_eq!(daemon.send("admin", &get("/ready")).await.status, 503);

    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let password = ("TRANSOM_ADMIN_PASSWORD", "hunter2");
    for (arguments, variables) in [
        (&["list"][..], &[("TRANSOM_ADMIN_USERNAME", "ops"), password][..]),
        (&["list", "--username", "ops"], &[password]),
        (&["list", "--username", "ops", "--password", "hunter2"], &[]),
        // The credentials are read from the daemon's configuration file.
        (&["list", "--config", "transom.toml"], &[]),
        (&["list"], &[("TRANSOM_CONFIG", "transom.toml")]),
    ] {
        let output = daemon.plugin(arguments, variables);
        let (stdout, failed) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {failed}");
        assert!(stdout.contains("check-http"), "{arguments:?}: {stdout}");
    }
    for (arguments, code, expected) in [
        (&["list"][..], 1, "TRANSOM_ADMIN_USERNAME"),
        (
            &["list", "--username", "ops", "--password", "wrong"],
            1,
            "admin.password",
        ),
        (
            &["list", "--username", "ops"],
            2,
            "--username and --password go together",
        ),
        (
            &["list", "--config", "none.toml"],
            2,
            "no configuration at none.toml",
        ),
    ] {
        let output = daemon.plugin(arguments, &[]);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(
            text(&output.stderr).contains(expected),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
    }
    let (code, checked) = run(
        daemon.dir.path(),
        &["config", "check", "--config", "transom.toml"],
    );
    assert_eq!(code, Some(0), "{checked}");
    assert!(
        checked.contains("admin.password") && !checked.contains("hunter2"),
        "{checked}"
    );
    let logged = daemon.process.output();
    assert!(
        !logged.contains("hunter2") && !logged.contains("b3Bz"),
        "{logged}"
    );
    daemon.stop();
}

/// Runs a command to its end; returns its exit code and its output.
fn run(dir: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Transom::start(dir, arguments);
    let status = command.wait();
    (status.code(), command.output())
}

#[test]
fn invalid_port_settings_and_attributes_prevent_the_start() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join("plugins")).expect("made");
    for (section, expected) in [
        ("[admin]\nlistener = \"0.0.0.0\"\n", "admin.trusted_networks"),
        ("[admin]\nusername = \"u\"\n", "`admin.password` is missing"),
        ("[admin]\npassword = \"p\"\n", "`admin.username` is missing"),
        (
            "[admin]\nallowed_hosts = [\"http://a\"]\n",
            "without scheme and port",
        ),
        ("[apps]\nallowed_origins = [\"ui\"]\n", "\"ui\" is not an origin"),
        (
            "[workflow]\ncluster_attributes = [\"airflow\"]\n",
            "`workflow.cluster_attributes` has \"airflow\", which no agent can ever match",
        ),
    ] {
        let store = dir.path().join("store");
        let text = format!("[store]\nserver = \"file:{}\"\n{section}", store.display());
        fs::write(dir.path().join("t.toml"), text).expect("written");
        for command in [&["config", "check"][..], &["serve"]] {
            let (code, output) = run(dir.path(), &[command, &["--config", "t.toml"]].concat());
            assert_eq!(code, Some(2), "{command:?} {section}: {output}");
            assert!(output.contains(expected), "{command:?} {section}: {output}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_error_is_json_on_every_port() {
    let daemon = Daemon::start(&ExtraSettings::default()).await;
    let mut delete = get("/v2/info");
    delete.method = "DELETE";
    for (port, request, status, expected) in [
        ("apps", get("/v2/apps/%ff"), 400, "not UTF-8"),
        ("apps", get("/v2/deployments/%C3"), 400, "not UTF-8"),
        ("apps", get("/nothing"), 404, "/nothing"),
        ("apps", delete, 405, "DELETE"),
        ("apps", get("/v2/apps?label=%3D%3D%3D"), 422, "label"),
        ("apps", get("/v2/events"), 405, "text/event-stream"),
        ("apps", post("/v2/apps", "{"), 400, "Invalid JSON"),
        ("workflow", get("/v0/task/%ff"), 400, "not UTF-8"),
        ("workflow", get("/v0/agent/%ff"), 400, "not UTF-8"),
        ("workflow", get("/nothing"), 404, "/nothing"),
        ("workflow", get("/v0/queue_command"), 405, "GET"),
        ("workflow", get("/v0/events?since=soon"), 400, "'since' is 'soon'"),
        ("workflow", post("/v0/queue_command", "{"), 400, "Invalid JSON"),
        ("admin", get("/v1/plugins/%ff"), 400, "not UTF-8"),
        ("admin", get("/v1/plugins/none"), 404, "none"),
        ("admin", get("/nothing"), 404, "/nothing"),
        ("admin", post("/metrics", ""), 405, "POST"),
        (
            "admin",
            post("/v1/plugins/events/rollback", "{"),
            400,
            "invalid body",
        ),
    ] {
        let answer = daemon.send(port, &request).await;
        let what = format!("{port}: {} {}", request.method, request.path);
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        assert!(answer.message().contains(expected), "{what}: {answer:?}");
    }
    // A chunked body, whose size is unknown until it exceeds the limit.
    for (port, path, limit) in [
        ("apps", "/v2/apps", 8 << 20),
        ("workflow", "/v0/queue_command", 1 << 20),
        ("admin", "/v1/plugins/events/rollback", 8 << 20),
    ] {
        let address = daemon.addresses[port];
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nTransfer-Encoding: chunked\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("sent");
        let chunk = format!("{:x}\r\n{}\r\n", limit, " ".repeat(limit));
        stream.write_all(chunk.as_bytes()).await.expect("sent");
        // One byte too many; the body does not end.
        stream.write_all(b"1\r\n1\r\n").await.expect("sent");
        let answer = RawResponse::read(&mut stream).await;
        assert_eq!(answer.status, 413, "{port}: {answer:?}");
        let message = answer.message();
        assert!(message.contains(&limit.to_string()), "{port}: {message}");
    }
    daemon.stop();
}

/// The real matcher rejects constraints that no agent could ever satisfy when a job is queued.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_job_fields_are_rejected_with_their_path() {
    let daemon = Daemon::start(&ExtraSettings::default()).await;
    for (body, path, expected) in [
        (
            json!({"command": ["true"], "attributes": ["a:b", "airflow"]}),
            "/attributes(1)",
            "key:value",
        ),
        (json!({"command": ["echo", "a\u{0}b"]}), "/command(1)", "NUL"),
        (
            json!({"command": ["true"], "environment": {"A": "b\u{0}"}}),
            "/environment/A",
            "NUL",
        ),
    ] {
        let answer = daemon
            .send("workflow", &post("/v0/queue_command", &body.to_string()))
            .await;
        assert_eq!(answer.status, 422, "{body}: {answer:?}");
        let details: Value = serde_json::from_str(&answer.body).expect("JSON");
        assert_eq!(details["details"][0]["path"], path, "{details}");
        let message = details["details"][0]["errors"][0].to_string();
        assert!(message.contains(expected), "{message}");
    }
    daemon.stop();
}
