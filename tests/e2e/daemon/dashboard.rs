//! An operator opens the dashboard in a browser: Debian's Chromium, driven by the programs in
//! `tests/dashboard`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use transom_tests::installed;
use transom_tests::plugin::Plugin;
use transom_tests::site::Site;

fn source(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)
}

/// A running program; killed when dropped.
struct Program {
    child: Child,
}

impl Program {
    fn start(name: &str, variables: &[(&str, &str)]) -> Program {
        let mut command = Command::new("node");
        command
            .arg(source("dashboard").join(name))
            .env("TRANSOM_NODE_PACKAGES", installed("node/dashboard"))
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().expect("node starts");
        Program { child }
    }

    /// Executes the request in each line of the program's output, then waits for its end, which
    /// must be successful.
    async fn serve(mut self, mut request: impl AsyncFnMut(&str)) {
        let (errors, mut stdin) = (self.child.stderr.take(), self.child.stdin.take().expect("piped"));
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            errors.expect("piped").read_to_string(&mut text).map(|_| text)
        });
        let output = BufReader::new(self.child.stdout.take().expect("piped"));
        for line in output.lines() {
            let line = line.expect("a line");
            if line.starts_with('{') {
                eprintln!("{line}");
                continue;
            }
            request(&line).await;
            writeln!(stdin, "done").expect("the program reads");
        }
        let status = self.child.wait().expect("the program ends");
        let errors = errors.join().expect("no panic").expect("text");
        assert!(status.success(), "{status}\n{errors}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // An error means that the program has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Fixes the ports in the configuration, so that a restarted daemon uses the same ones.
fn keep_ports(site: &Site) {
    let port = |name: &str| site.addresses[name].port();
    let configuration = fs::read_to_string(site.config()).expect("a configuration");
    let configuration = configuration
        .replace("[admin]\nport = 0", &format!("[admin]\nport = {}", port("admin")))
        .replace("[apps]\nport = 0", &format!("[apps]\nport = {}", port("apps")));
    fs::write(site.config(), configuration).expect("written");
}

fn origin(site: &Site, port: &str) -> String {
    format!("http://{}", site.addresses[port])
}

/// The files that the operator uploads: a new version, one that does not compile, and a new plugin.
fn files_to_upload() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let folder = |name: &str| {
        let folder = dir.path().join(name);
        fs::create_dir(&folder).expect("made");
        folder
    };
    let events = Plugin::first_party("events").stamped(2).wasm;
    fs::write(folder("good").join("events.wasm"), events).expect("written");
    fs::write(folder("bad").join("events.wasm"), "\0asm\x0d\0\x01\0broken").expect("written");
    Plugin::first_party("check-tcp").install(&folder("new"), "mine");
    dir
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_sees_and_changes_everything_in_a_browser() {
    let workflow = "[workflow]\nport = 0\ncontainers = false\n";
    let mut site = Site::start_with_plugins("uploads = true\n", workflow).await;
    keep_ports(&site);
    let (admin, workflow) = (origin(&site, "admin"), origin(&site, "workflow"));
    let files = files_to_upload();
    let variables = [
        ("ADMIN", admin.as_str()),
        ("WORKFLOW", &workflow),
        ("UPLOADS", &files.path().to_string_lossy()),
    ];
    let program = Program::start("daemon.mjs", &variables);
    program
        .serve(async |request| match request {
            "kill" => site.kill_daemon(),
            "start" => site.start_daemon().await,
            "plugin" => {
                Plugin::first_party("events")
                    .stamped(1)
                    .install(&site.plugins(), "events");
                site.rescan().await;
            }
            other => panic!("unknown request {other:?}"),
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only_user_cannot_change_anything_in_a_browser() {
    // Additional configuration belongs to `[admin]`, which is the last section of a site's
    // configuration.
    let site = Site::start_with_plugins(
        "uploads = true\n",
        "username = \"ann\"\npassword = \"secret\"\nread_only_username = \"rob\"\nread_only_password = \"look\"\n",
    )
    .await;
    site.post_app(&json!({"id": "/kept", "cmd": "sleep 1000", "cpus": 0.1, "mem": 32}))
        .await;
    site.wait_until_running("/kept", 1).await;
    let admin = origin(&site, "admin");
    let variables = [
        ("ADMIN", admin.as_str()),
        ("READER_NAME", "rob"),
        ("READER_PASSWORD", "look"),
    ];
    let program = Program::start("reader.mjs", &variables);
    program
        .serve(async |request| panic!("unknown request {request:?}"))
        .await;
    assert_eq!(site.wait_until_running("/kept", 1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_cluster_does_not_freeze_the_page() {
    let dist = source("../dashboard/dist");
    let program = Program::start("large.mjs", &[("DIST", &dist.to_string_lossy())]);
    program
        .serve(async |request| panic!("unknown request {request:?}"))
        .await;
}

/// Sends a request without a browser; returns the status and the body.
async fn send(site: &Site, method: reqwest::Method, path: &str, body: &str) -> (u16, String) {
    let request = site.http.request(method, site.admin(path));
    let answer = request
        .header("content-type", "application/json")
        .body(body.to_owned())
        .send()
        .await
        .expect("an answer");
    let status = answer.status().as_u16();
    (status, answer.text().await.expect("a body"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_port_passes_requests_to_services_with_their_limits_and_audit_events() {
    let mut site = Site::start_with_apps("max_body = 1024\n").await;
    let app = json!({"id": "/web", "cmd": "sleep 1000", "cpus": 0.1, "mem": 32}).to_string();
    let path = "/v1/services/apps/v2/apps";
    let (status, text) = send(&site, reqwest::Method::POST, path, &app).await;
    assert_eq!(status, 201, "{text}");
    let created: Value = serde_json::from_str(&text).expect("JSON");
    let deployment = created["deployments"][0]["id"]
        .as_str()
        .expect("a deployment")
        .to_owned();
    site.daemon
        .as_mut()
        .expect("a daemon")
        .wait_for_line("the audit event", |line| {
            let entry: Value = serde_json::from_str(line).ok()?;
            let is_audit = entry["target"] == "transom::audit" && entry["port"] == "admin";
            (is_audit && entry["path"] == path && entry["deployment"] == deployment.as_str()).then_some(())
        });
    for (path, body, expected) in [
        (path, " ".repeat(2000), 413),
        ("/v1/services/nope/v2/apps", String::new(), 404),
        ("/v1/services/apps/v2/nope", String::new(), 404),
        ("/v1/services/discovery/v1/version", String::new(), 405),
    ] {
        let (status, text) = send(&site, reqwest::Method::POST, path, &body).await;
        assert_eq!(status, expected, "{path}: {text}");
    }
    let (status, text) = send(
        &site,
        reqwest::Method::GET,
        "/v1/services/discovery/v1/version",
        "",
    )
    .await;
    assert_eq!(status, 200, "{text}");
    let (status, text) = send(&site, reqwest::Method::GET, "/v1/cluster/agents", "").await;
    let listed: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (status, listed["agents"].as_array().map(Vec::len)),
        (200, Some(3))
    );
    for ids in [
        "framework=..&task=t",
        "framework=f&task=t&executor=..",
        "framework=f&task=../t&executor=e",
    ] {
        let log = format!("/v1/cluster/log?agent=a&stream=stdout&{ids}");
        assert_eq!(send(&site, reqwest::Method::GET, &log, "").await.0, 400, "{ids}");
    }
}
