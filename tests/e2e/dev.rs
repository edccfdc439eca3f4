//! `transom dev`: one command serves everything, and leaves nothing behind.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::http;
use transom_tests::process::{Transom, components};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dev_starts_serves_and_leaves_no_process_behind() {
    let dir = tempfile::tempdir().expect("a directory");
    let components = components();
    let arguments = [
        "dev",
        "--state",
        "state",
        "--components",
        &components.to_string_lossy(),
        "--ports",
        "14000-14299",
        "--port",
        "apps=0",
        "--port",
        "dns=0",
        "--port",
        "discovery=0",
        "--port",
        "workflow=0",
        "--port",
        "admin=0",
        "--port",
        "cluster=0",
    ]
    .map(str::to_owned);
    let mut dev = Transom::start(dir.path(), arguments);
    dev.line("the greeting", |line| {
        line.contains("Transom is ready").then_some(())
    });
    let apps: String = dev.line("the address of apps", |line| {
        line.trim()
            .strip_prefix("apps")?
            .trim()
            .strip_suffix("/v2/apps")
            .map(str::to_owned)
    });

    // A task that ignores SIGTERM and has a child: both must end.
    let pids = dir.path().join("pids");
    let cmd = format!(
        "trap '' TERM; sleep 600 & echo $$ $! > {}; while :; do sleep 1; done",
        pids.display()
    );
    let client = http();
    let answer = client
        .post(format!("{apps}/v2/apps"))
        .json(&json!({"id": "/stubborn", "cmd": cmd, "cpus": 0.1, "mem": 32}))
        .send()
        .await
        .expect("an answer");
    assert_eq!(
        answer.status().as_u16(),
        201,
        "{}",
        answer.text().await.unwrap_or_default()
    );
    let pids = eventually("the task to write its process ids", || async {
        let text = fs::read_to_string(&pids).map_err(|error| error.to_string())?;
        let pids: Vec<u32> = text
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect();
        if pids.len() == 2 { Ok(pids) } else { Err(text) }
    })
    .await;
    let tasks: Value = client
        .get(format!("{apps}/v2/tasks"))
        .send()
        .await
        .expect("an answer")
        .json()
        .await
        .expect("JSON");
    assert_eq!(tasks["tasks"][0]["appId"], "/stubborn", "{tasks}");
    for pid in &pids {
        assert!(Path::new("/proc").join(pid.to_string()).exists(), "{pid} runs");
    }

    let (status, output) = dev.interrupt();
    assert!(status.success(), "{output}");
    for pid in &pids {
        assert!(!alive(*pid), "{pid} was left behind:\n{output}");
    }
}

/// Whether a process runs; one that ended and was not yet reaped does not.
fn alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        stat.rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().next())
            .is_some_and(|state| state != "Z")
    })
}
