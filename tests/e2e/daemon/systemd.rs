//! The units of the Debian package under a real systemd, as an administrator uses them: hardening,
//! sockets, readiness, restarts, an upgrade and the removal.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::booted_root::BootedRoot;

use crate::daemon::packages::{package, packages, previous_package};

const SERVICE: &str = "transom.service";
const SOCKETS: &[&str] = &[
    "transom-admin.socket",
    "transom-apps.socket",
    "transom-discovery.socket",
];

/// Maximum of `systemd-analyze security`, in tenths; it prints 1.6.
const EXPOSURE: &str = "--threshold=16";

/// The page with a table of the findings that remain.
const SECURITY_PAGE: &str = include_str!("../../../docs/operations/security.md");

/// The kernel's errors for system calls that the unit forbids.
const FORBIDDEN: &[&str] = &[
    "Operation not permitted",
    "Permission denied",
    "Read-only file system",
];

/// `systemctl VERB` for the sockets and the service.
fn systemctl(booted: &BootedRoot, verb: &[&str]) {
    booted.run(&[&["systemctl"], verb, SOCKETS, &[SERVICE]].concat());
}

/// A property of the service.
fn property(booted: &BootedRoot, name: &str) -> String {
    let value = booted.run(&["systemctl", "show", "--property", name, "--value", SERVICE]);
    value.trim().to_owned()
}

fn active_state(booted: &BootedRoot) -> String {
    property(booted, "ActiveState")
}

/// The body of a response without an error status. Nothing is retried: a rejected connection is an
/// error.
fn get(booted: &BootedRoot, url: &str) -> Result<String, String> {
    output(&mut booted.client(&["curl", "--silent", "--show-error", "--fail-with-body", url]))
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{output:?}"))
    }
}

/// The id of the only task of `/kept`, once it runs.
async fn wait_until_running(booted: &BootedRoot) -> String {
    eventually("a running task", async || {
        let tasks = get(booted, "http://127.0.0.1:8080/v2/apps/kept/tasks")?;
        let tasks: Value = serde_json::from_str(&tasks).map_err(|error| error.to_string())?;
        let task = &tasks["tasks"][0];
        match (task["state"].as_str(), task["id"].as_str()) {
            (Some("TASK_RUNNING"), Some(id)) => Ok(id.to_owned()),
            _ => Err(tasks.to_string()),
        }
    })
    .await
}

async fn post_app(booted: &BootedRoot) {
    let app = json!({"id": "/kept", "cmd": "exec sleep 1000000", "cpus": 0.1, "mem": 32, "user": "root"});
    let app = app.to_string();
    let url = "http://127.0.0.1:8080/v2/apps";
    let post = [
        "curl",
        "--silent",
        "--show-error",
        "--fail-with-body",
        "--json",
        &app,
        url,
    ];
    eventually("the leader", async || output(&mut booted.client(&post))).await;
}

/// Restarts the service while requests are sent, each over a new connection; all of them must
/// succeed.
fn restart_under_requests(booted: &BootedRoot) {
    let (restarted, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !restarted.load(Ordering::Relaxed) {
                get(booted, "http://127.0.0.1:8080/v2/info").expect("an answer during the restart");
                answers.fetch_add(1, Ordering::Relaxed);
            }
        });
        while answers.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        booted.run(&["systemctl", "restart", SERVICE]);
        restarted.store(true, Ordering::Relaxed);
    });
}

/// The links that `systemctl enable` created.
fn enabled_links(booted: &BootedRoot) -> Vec<PathBuf> {
    let dir = booted.root().path("/etc/systemd/system");
    let folders = fs::read_dir(dir).expect("units").flatten();
    let wants = folders.filter(|it| it.file_name().to_string_lossy().ends_with(".wants"));
    let links = wants.flat_map(|it| fs::read_dir(it.path()).expect("links").flatten());
    links
        .filter(|it| it.file_name().to_string_lossy().starts_with("transom"))
        .map(|it| it.path())
        .collect()
}

/// Compares the findings of `systemd-analyze security` with the rows of the page: name and exposure.
fn check_exposure(booted: &BootedRoot) {
    let analyze = ["systemd-analyze", "security", "--no-pager"];
    booted.run(&[analyze.as_slice(), &[EXPOSURE, SERVICE]].concat());
    let findings = booted.run(&[analyze.as_slice(), &["--json=short", SERVICE]].concat());
    let findings: Vec<Value> = serde_json::from_str(&findings).expect("JSON");
    let found: BTreeSet<String> = findings
        .iter()
        .filter_map(|it| {
            Some(format!(
                "`{}` | {} |",
                it["name"].as_str()?,
                it["exposure"].as_str()?
            ))
        })
        .collect();
    let (_, section) = SECURITY_PAGE.split_once("\n## The unit\n").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("its end");
    let rows = section.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        Some(format!("`{} | {} |", cells.next()?, cells.next()?))
    });
    // A bar in a cell of a table is escaped.
    let rows: BTreeSet<String> = rows.map(|row| row.replace("\\|", "|")).collect();
    assert_eq!(rows, found);
}

/// The limits of the running daemon, and that a drop-in changes the one of memory.
fn check_limits(booted: &BootedRoot) {
    let limits = booted.run(&["cat", &format!("/proc/{}/limits", property(booted, "MainPID"))]);
    let core = limits.lines().find(|line| line.starts_with("Max core file size"));
    let core: Vec<&str> = core.expect("a limit").split_whitespace().collect();
    assert_eq!(core[4..6], ["0", "0"], "{limits}");
    let machine = booted.run(&["grep", "MemTotal", "/proc/meminfo"]);
    let kibibytes: u64 = machine
        .split_whitespace()
        .nth(1)
        .expect("a number")
        .parse()
        .expect("a number");
    let limit: u64 = property(booted, "MemoryMax")
        .parse()
        .expect("bytes, not infinity");
    assert!(limit <= kibibytes * 1024 * 3 / 4, "{limit} of {machine}");

    let (_, drop_in) = SECURITY_PAGE.split_once("```ini\n").expect("a drop-in");
    let (drop_in, _) = drop_in.split_once("```").expect("its end");
    let dir = booted.root().path("/etc/systemd/system/transom.service.d");
    fs::create_dir(&dir).expect("made");
    fs::write(dir.join("memory.conf"), drop_in).expect("written");
    booted.run(&["systemctl", "daemon-reload"]);
    assert_eq!(property(booted, "MemoryMax"), (16_u64 << 30).to_string());
    fs::remove_dir_all(&dir).expect("removed");
    booted.run(&["systemctl", "daemon-reload"]);
    assert_eq!(property(booted, "MemoryMax"), limit.to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_serve_hardened_keep_ports_open_through_restarts_and_follow_an_upgrade() {
    let Some(booted) = BootedRoot::for_test("units_serve_hardened").await else {
        return;
    };
    booted.install(&previous_package());
    let all = [SOCKETS, &[SERVICE]].concat();
    booted.run(&[["systemd-analyze", "verify", "--man=no"].as_slice(), &all].concat());
    check_exposure(&booted);
    assert_eq!(active_state(&booted), "inactive");

    // The package's settings determine the master and the ports, and a variable selects port 53,
    // for which the unit has a capability.
    let variables = booted.root().path("/etc/default/transom");
    fs::write(variables, "TRANSOM_DISCOVERY_PORT=53\n").expect("written");
    let cluster = [
        "transom",
        "cluster",
        "--listen",
        "127.0.0.1:5050",
        "--work-dir",
        "/var/lib/cluster",
    ];
    booted.run(&[["systemd-run", "--quiet", "--unit=cluster"].as_slice(), &cluster].concat());
    booted.run(&[["systemctl", "--quiet", "enable", "--now"].as_slice(), SOCKETS].concat());
    assert_eq!(active_state(&booted), "inactive");
    // A connection to the socket starts the daemon.
    get(&booted, "http://127.0.0.1:8080/v2/info").expect("an answer of the started daemon");
    assert_eq!(active_state(&booted), "active");
    check_limits(&booted);
    post_app(&booted).await;
    let task = wait_until_running(&booted).await;
    eventually("the app's address", async || {
        let lookup = ["dig", "@127.0.0.1", "+short", "kept.marathon.mesos"];
        let found = output(&mut booted.client(&lookup))?;
        if found.starts_with("127.") {
            Ok(())
        } else {
            Err(found)
        }
    })
    .await;

    let first = property(&booted, "MainPID");
    restart_under_requests(&booted);
    let second = property(&booted, "MainPID");
    assert_ne!(first, second);
    booted.install(&package(packages(), ".deb"));
    assert_eq!(active_state(&booted), "active");
    assert_ne!(property(&booted, "MainPID"), second);
    assert_eq!(wait_until_running(&booted).await, task);

    systemctl(&booted, &["stop"]);
    assert_eq!(active_state(&booted), "inactive");
    assert_eq!(property(&booted, "Result"), "success");
    let log = [
        "journalctl",
        "--no-pager",
        "--output=cat",
        "--unit",
        SERVICE,
        "--identifier=transom",
    ];
    let log = booted.run(&log);
    assert!(log.lines().any(|line| line.contains("\"serving\"")), "{log}");
    for line in log.lines() {
        assert!(line.starts_with('{') && line.ends_with('}'), "no JSON: {line}");
        assert!(!FORBIDDEN.iter().any(|it| line.contains(it)), "{line}");
    }

    systemctl(&booted, &["--quiet", "enable", "--now"]);
    assert_eq!(enabled_links(&booted).len(), 4, "{:?}", enabled_links(&booted));
    booted.run(&["dpkg", "--remove", "transom"]);
    assert_eq!(active_state(&booted), "inactive");
    assert_eq!(enabled_links(&booted), Vec::<PathBuf>::new());
}
