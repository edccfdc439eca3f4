//! `transom dev`: one command serves everything, and leaves nothing behind.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::process::Transom;
use transom_tests::{dev, http};

/// Starts `transom dev` in `dir`, with its state in `state`.
fn start(dir: &Path, more: &[&str]) -> Transom {
    dev::start(dir, &[&["--state", "state"], more].concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dev_starts_serves_and_leaves_no_process_behind() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut dev = start(dir.path(), &[]);
    dev.wait_for_line("the greeting", |line| {
        line.contains("Transom is ready").then_some(())
    });
    let apps = dev::address(&mut dev, "apps", "/v2/apps");
    // The admin port is not the default, so the greeting prints the variable that `transom plugin`
    // needs.
    let admin = dev::address(&mut dev, "export", "").replace("TRANSOM_ADMIN_URL=", "");
    let plugins = dev::address(&mut dev, "admin", "/v1/plugins");
    assert_eq!(admin, plugins);
    assert_eq!(dev::address(&mut dev, "dashboard", "/ui/"), plugins);

    // A task that ignores SIGTERM and has a child: both must end.
    let pids = dir.path().join("pids");
    let cmd = format!(
        "trap '' TERM; sleep 600 & echo $$ $! > '{}'; while :; do sleep 1; done",
        pids.display()
    );
    let client = http();
    // Uploads are enabled, so that users can try plugins without access to the directory.
    let listed = client.get(format!("{admin}/v1/plugins")).send().await;
    let listed: Value = listed.expect("an answer").json().await.expect("JSON");
    assert_eq!(listed["uploads"], true);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_of_dev_have_the_given_attributes() {
    let dir = tempfile::tempdir().expect("a directory");
    let agents = [
        "--agents",
        "4",
        "--attributes",
        "rack:a;cores:8",
        "--attributes",
        "rack:b",
    ];
    let mut dev = start(dir.path(), &agents);
    let cluster = dev::address(&mut dev, "cluster", "/state");
    let apps = dev::address(&mut dev, "apps", "/v2/apps");
    let client = http();
    let state: Value = eventually("four agents", || async {
        let answer = client.get(format!("{cluster}/slaves")).send().await;
        let answer = answer.map_err(|error| error.to_string())?;
        let state: Value = answer.json().await.map_err(|error| error.to_string())?;
        match state["slaves"].as_array().map(Vec::len) {
            Some(4) => Ok(state),
            _ => Err(state.to_string()),
        }
    })
    .await;
    let mut found: Vec<(String, Value)> = Vec::new();
    for agent in state["slaves"].as_array().expect("agents") {
        let host = agent["hostname"].as_str().expect("a name").to_owned();
        found.push((host, agent["attributes"].clone()));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let (odd, even) = (json!({"rack": "a", "cores": 8.0}), json!({"rack": "b"}));
    let expected = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"].map(str::to_owned);
    let expected: Vec<(String, Value)> = expected
        .into_iter()
        .zip([&odd, &even, &odd, &even])
        .map(|(host, attributes)| (host, attributes.clone()))
        .collect();
    assert_eq!(found, expected);

    // The matcher places tasks by these attributes.
    let app = json!({
        "id": "/picky", "cmd": "sleep 600", "cpus": 0.1, "mem": 32, "instances": 2,
        "constraints": [["rack", "IS", "b"], ["hostname", "UNIQUE"]],
    });
    let answer = client.post(format!("{apps}/v2/apps")).json(&app).send().await;
    assert_eq!(answer.expect("an answer").status().as_u16(), 201);
    let hosts = eventually("two tasks", || async {
        let answer = client.get(format!("{apps}/v2/tasks")).send().await;
        let answer = answer.map_err(|error| error.to_string())?;
        let tasks: Value = answer.json().await.map_err(|error| error.to_string())?;
        let hosts = tasks["tasks"].as_array().into_iter().flatten();
        let mut hosts: Vec<String> = hosts
            .filter_map(|it| it["host"].as_str().map(str::to_owned))
            .collect();
        hosts.sort();
        if hosts.len() == 2 {
            Ok(hosts)
        } else {
            Err(tasks.to_string())
        }
    })
    .await;
    assert_eq!(hosts, ["127.0.0.2", "127.0.0.4"]);
    let (status, output) = dev.interrupt();
    assert!(status.success(), "{output}");
}

/// Whether a process is running. A zombie is not.
fn alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        stat.rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().next())
            .is_some_and(|state| state != "Z")
    })
}
