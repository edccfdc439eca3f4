//! `verify` and `transom cluster` as two processes that share only the master's address.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use clap::ValueEnum;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use transom_testkit::eventually;
use transom_tests::process::{binary, components};
use transom_tests::site::{Cluster, copy_components};
use transom_verify::Name;

/// `verify ARGUMENTS` with the daemon and the components under test.
fn verify(master: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_verify"));
    command
        .args(["--master", master])
        .args(arguments)
        .env("TRANSOM_BIN", binary())
        .env("TRANSOM_COMPONENTS", components())
        .env_remove("TRANSOM_VERIFY_PASSWORD")
        .stdin(Stdio::null());
    command
}

/// The report in JSON, and the program's standard error.
fn report(output: &Output) -> (Value, String) {
    let progress = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8_lossy(&output.stdout);
    let report = serde_json::from_str(&text);
    (
        report.unwrap_or_else(|error| panic!("{error}: {text}\n{progress}")),
        progress,
    )
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Requires that nothing of a run is left: no framework on the master, no daemon or Redis that runs
/// in the directory of its logs, and no task in the sandboxes of the cluster in `dir`.
async fn assert_nothing_left(cluster: &Cluster, dir: &Path, run: &str) {
    let url = format!("http://{}/state", cluster.master);
    let answer = transom_tests::http().get(&url).send().await.unwrap();
    let state: Value = answer.json().await.unwrap();
    assert_eq!(state["frameworks"], json!([]), "{}", state["frameworks"]);
    let completed = state["completed_frameworks"].as_array().unwrap();
    assert!(!completed.is_empty(), "no framework was ever registered");
    for framework in completed {
        let name = framework["name"].as_str().unwrap();
        assert!(
            name.starts_with("transom-verify-") && name.starts_with(run),
            "{name} is not of {run}"
        );
    }
    // The master removes a framework before its agents have killed the last task.
    eventually("no process of the run to be left", || async {
        let left = [
            processes_below(&dir.join("logs")),
            processes_below(&dir.join("cluster")),
        ]
        .concat();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
}

/// Process ids and descriptions (working directory and command line) of the processes below `dir`.
fn processes_below(dir: &Path) -> Vec<(i32, String)> {
    let dir = &fs::canonicalize(dir).unwrap();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let below = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let cwd = fs::read_link(entry.path().join("cwd")).ok()?;
        let command = fs::read(entry.path().join("cmdline")).ok()?;
        let description = format!("{} {}", cwd.display(), String::from_utf8_lossy(&command));
        (cwd.starts_with(dir) && !command.is_empty()).then_some((pid, description))
    });
    below.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_story_holds_on_the_embedded_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path());
    let master = format!("http://{}", cluster.master);
    let logs = dir.path().join("logs");
    let logs_text = logs.to_string_lossy().into_owned();
    let output = verify(&master, &["--json", "--logs", &logs_text])
        .output()
        .unwrap();
    let (report, progress) = report(&output);
    assert!(
        output.status.success(),
        "{}: {report:#}\n{progress}",
        output.status
    );
    assert_eq!(report["held"], true, "{report:#}");
    let stories = report["stories"].as_array().unwrap();
    let names: Vec<&str> = stories
        .iter()
        .map(|story| story["name"].as_str().unwrap())
        .collect();
    let all = Name::value_variants().iter().map(|name| name.as_str());
    assert!(names.into_iter().eq(all), "{report:#}");
    assert!(
        stories.iter().all(|story| story["outcome"] == "held"),
        "{report:#}"
    );
    assert_eq!(report["left_behind"], Value::Array(vec![]));
    assert!(logs.join("verify.log").exists() && logs.join("daemon.log").exists());
    assert_nothing_left(&cluster, dir.path(), report["run"].as_str().unwrap()).await;
    cluster.stop();
}

/// The component that probes TCP ports is missing, so no tcp check can have a result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn story_that_does_not_hold_is_reported_with_reason_and_logs() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path());
    let lacking = dir.path().join("components");
    copy_components(&lacking);
    fs::remove_file(lacking.join("check-tcp.wasm")).unwrap();
    let logs = dir.path().join("logs");
    let logs_text = logs.to_string_lossy().into_owned();
    let master = cluster.master.to_string();
    let arguments = ["--only", "checks,events", "--limit", "40", "--logs", &logs_text];
    let output = verify(&master, &arguments)
        .env("TRANSOM_COMPONENTS", &lacking)
        .output()
        .unwrap();
    let (table, progress) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(1), "{table}\n{progress}");
    // A failed story does not prevent the next one.
    for expected in [
        "checks  FAILED",
        "events  held",
        "checkResult/tcp/succeeded = true of the task of /checks-tcp",
        "1 of 2 stories held",
    ] {
        assert!(table.contains(expected), "{expected}: {table}\n{progress}");
    }
    for file in ["daemon.log", "checks/tasks.json", "checks/master-tasks.json"] {
        assert!(logs.join(file).exists(), "{file}: {table}");
    }
    assert!(
        table.contains(&format!("see {}", logs.join("checks").display())),
        "{table}"
    );
    assert_nothing_left(&cluster, dir.path(), "transom-verify-").await;
    cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_that_ends_behind_the_daemons_back_fails_the_story() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path());
    let master = cluster.master.to_string();
    let logs = dir.path().join("logs");
    let logs_text = logs.to_string_lossy().into_owned();
    let mut run = verify(&master, &["--only", "restart", "--json", "--logs", &logs_text])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    line(&mut run, "the daemon is stopped, its tasks run on");
    let tasks = processes_below(&dir.path().join("cluster"));
    let of_app = |description: &str| description.contains("restart-app") && description.contains("sleep");
    let (victim, _) = tasks
        .iter()
        .find(|(_, description)| of_app(description))
        .expect("a task");
    kill(Pid::from_raw(*victim), Signal::SIGKILL).unwrap();
    let output = run.wait_with_output().unwrap();
    let (report, progress) = report(&output);
    assert_eq!(output.status.code(), Some(1), "{report:#}\n{progress}");
    let reason = report["stories"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("ended in TASK_FAILED"), "{reason}");
    assert_eq!(report["held"], false);
    assert_nothing_left(&cluster, dir.path(), report["run"].as_str().unwrap()).await;
    cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupt_ends_the_run_and_cleans_up() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path());
    let logs = dir.path().join("logs");
    let logs_text = logs.to_string_lossy().into_owned();
    let master = cluster.master.to_string();
    let mut run = verify(
        &master,
        &["--only", "scale,restart", "--json", "--logs", &logs_text],
    )
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    line(&mut run, "scale: 30 tasks");
    kill(Pid::from_raw(i32::try_from(run.id()).unwrap()), Signal::SIGINT).unwrap();
    let output = run.wait_with_output().unwrap();
    let (report, progress) = report(&output);
    assert_eq!(output.status.code(), Some(2), "{report:#}\n{progress}");
    assert_eq!(report["held"], false);
    for story in report["stories"].as_array().unwrap() {
        assert_eq!(story["outcome"], "not_run", "{report:#}");
    }
    assert_eq!(report["left_behind"], Value::Array(vec![]), "{report:#}");
    assert_nothing_left(&cluster, dir.path(), report["run"].as_str().unwrap()).await;
    cluster.stop();
}

/// Reads a program's standard error until a line contains `text`.
fn line(run: &mut Child, text: &str) {
    let mut reader = BufReader::new(run.stderr.take().unwrap());
    let mut seen = String::new();
    while reader.read_line(&mut seen).unwrap() > 0 {
        if seen.contains(text) {
            // The rest must be read, because the program would block on a full pipe.
            std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
            return;
        }
    }
    panic!("the program ended without a line with `{text}`:\n{seen}");
}

/// Requires that the preflight rejects a master with this error and exit code 2.
fn rejected(master: &str, arguments: &[&str], expected: &str) {
    let output = verify(master, arguments).output().unwrap();
    let error = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains(expected), "{expected}: {error}");
    assert_eq!(stdout(&output), "", "{error}");
}

#[test]
fn master_that_cannot_be_reached_is_named() {
    // Nothing listens on a port that was closed a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let master = format!("http://{free}");
    rejected(&master, &[], &format!("http://{free}/version cannot be reached"));
    rejected("http://127.0.0.1", &[], "expected http://HOST:PORT");
}

/// Starts a master that answers each path with a status, a header line and a body, and other paths
/// with 404. The thread ends with the test program.
fn master_with(answers: Vec<(&'static str, u16, String, Value)>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut lines = Vec::new();
            loop {
                let mut line = String::new();
                if stream.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                    break;
                }
                lines.push(line);
            }
            let path = lines
                .first()
                .and_then(|line| line.split(' ').nth(1))
                .unwrap_or_default();
            let found = answers.iter().find(|(recorded_path, ..)| *recorded_path == path);
            let (status, header, body) = found.map_or(
                (404, String::new(), json!("not here")),
                |(_, status, header, body)| (*status, header.clone(), body.clone()),
            );
            let body = body.to_string();
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status} Said\r\n{header}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            let _ = stream.get_mut().write_all(answer.as_bytes());
        }
    });
    address
}

#[test]
fn master_that_cannot_be_used_is_rejected_with_the_reason() {
    let version = |version: &str| ("/version", 200, String::new(), json!({"version": version}));
    let slaves = |status, body| ("/slaves", status, String::new(), body);
    let start = |answers| master_with(answers).to_string();

    let other = start(vec![]);
    rejected(&other, &[], "does not answer like a Mesos master");
    rejected(
        &start(vec![version("1.5.2")]),
        &[],
        "has version 1.5.2: 1.6.0 or later is needed",
    );
    let secured = start(vec![version("1.11.0"), slaves(401, json!("401 Unauthorized."))]);
    rejected(&secured, &[], "set --username and --password");
    let wrong = ["--username", "ops", "--password", "wrong"];
    rejected(&secured, &wrong, "does not accept the credentials of user ops");
    let forbidden = start(vec![version("1.11.0"), slaves(403, json!(""))]);
    rejected(&forbidden, &wrong, "the principal has to be allowed to");
    let electing = start(vec![version("1.11.0"), slaves(503, json!("No leader elected"))]);
    rejected(&electing, &[], "no master leads");

    let frameworks = ("/api/v1", 200, String::new(), json!({"get_frameworks": {}}));
    let empty = start(vec![
        version("1.11.0"),
        slaves(200, json!({"slaves": []})),
        frameworks.clone(),
    ]);
    rejected(&empty, &[], "the master has no active agent");
    // A master that does not lead redirects to the leading one.
    let to_empty = format!("Location: //{empty}/master/slaves\r\n");
    let standby = start(vec![version("1.11.0"), ("/slaves", 307, to_empty, json!(""))]);
    rejected(&standby, &[], "the master has no active agent");

    let agent = json!({"id": "S0", "hostname": "h", "pid": "slave(1)@127.0.0.1:1", "active": true,
        "unreserved_resources": {"cpus": 0.5, "mem": 4096.0, "ports": "[31000-32000]"}, "used_resources": {}});
    let small = start(vec![
        version("1.11.0"),
        slaves(200, json!({"slaves": [agent]})),
        frameworks.clone(),
    ]);
    rejected(&small, &[], "too little left for role *: 0.5 CPUs");
    let mut far = agent;
    far["unreserved_resources"]["cpus"] = json!(4.0);
    let far = start(vec![
        version("1.11.0"),
        slaves(200, json!({"slaves": [far]})),
        frameworks,
    ]);
    rejected(&far, &[], "agent h cannot be reached from this machine");
}

/// Master and agents require credentials, which the run and its daemon must send everywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_with_credentials_is_verified_with_them() {
    let dir = tempfile::tempdir().unwrap();
    let secret = "s\"cret: \\ü";
    let mut config = transom_minicluster::Config::three_agents(dir.path().join("cluster"));
    config.credentials = vec![("ops".to_owned(), secret.to_owned())];
    let token = CancellationToken::new();
    let cluster = config.start(token.clone()).await.unwrap();
    let master = cluster.master().to_string();
    rejected(&master, &[], "set --username and --password");
    let logs = dir.path().join("logs");
    let logs_text = logs.to_string_lossy().into_owned();
    let arguments = [
        "--username",
        "ops",
        "--only",
        "lifecycle,jobs",
        "--logs",
        &logs_text,
    ];
    let mut command = verify(&master, &arguments);
    command.env("TRANSOM_VERIFY_PASSWORD", secret);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap();
    let (table, progress) = (stdout(&output), stderr(&output));
    assert!(output.status.success(), "{table}\n{progress}");
    assert!(table.contains("2 of 2 stories held"), "{table}");
    // The logs must not contain the password, because they may be passed on.
    for file in ["daemon.toml", "daemon.log", "verify.log"] {
        let text = fs::read_to_string(logs.join(file)).unwrap();
        assert!(!text.contains("cret:"), "{file} shows the password: {text}");
    }
    token.cancel();
    cluster.stopped().await;
}
