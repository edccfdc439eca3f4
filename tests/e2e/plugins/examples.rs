//! Third-party components in Rust, Python and JavaScript in a real daemon, and the restrictions of
//! a Python component.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use transom_tests::authors::{is_missing_a_language, run_transom};
use transom_tests::events::Events;
use transom_tests::plugin::Plugin;
use transom_tests::process::components;
use transom_tests::site::Site;

/// Installs a component, which must be admitted.
async fn install_and_wait(site: &Site, name: &str, plugin: &Plugin) {
    plugin.install(&site.plugins(), name);
    site.rescan().await;
    let status = status(site, name).await;
    assert_eq!(
        (&status["refusal"], &status["state"]),
        (&Value::Null, &json!("serving")),
        "{status}"
    );
}

async fn status(site: &Site, name: &str) -> Value {
    let url = site.admin(&format!("/v1/plugins/{name}"));
    site.get(&url).await.expect("a status")
}

#[test]
fn rust_examples_pass_their_own_cases() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/plugins");
    for name in ["redis-ping", "registry-mirror"] {
        let component = components().join(format!("examples/{name}.wasm"));
        let component = component.to_string_lossy();
        let cases = format!("{name}/cases.toml");
        let reports = run_transom(
            &folder,
            &["plugin", "test", &component, &cases, "--output", "json"],
        );
        let reports: Vec<Value> = serde_json::from_str(&reports).expect("JSON");
        assert!(reports.len() >= 5, "{name}: {reports:?}");
        assert!(
            reports.iter().all(|report| report["verdict"] == "passed"),
            "{name}: {reports:?}"
        );
    }
}

/// The Rust example answers a tcp check; the task is Redis's own program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_is_checked_by_a_probe_in_rust() {
    let site = Site::start_with("[plugins.use]\ntcp = \"redis-ping\"\n").await;
    install_and_wait(&site, "redis-ping", &Plugin::example("redis-ping")).await;
    let server = transom_testkit::redis::server();
    let program = server.get_program().to_string_lossy().into_owned();
    let cmd = format!(
        "exec perl -e 'exec {{\"{program}\"}} \"redis-server\", \"--bind\", \"0.0.0.0\", \"--save\", \"\", \"--port\", $ENV{{PORT0}}'"
    );
    site.post_app(&json!({
        "id": "/redis",
        "cmd": cmd,
        "cpus": 0.1,
        "mem": 32,
        "portDefinitions": [{"port": 0, "protocol": "tcp", "name": "redis"}],
        "check": {"tcp": {"portIndex": 0}, "intervalSeconds": 2, "timeoutSeconds": 1, "delaySeconds": 0},
    }))
    .await;
    site.tasks_when("/redis", "Redis to answer", |tasks| {
        tasks.len() == 1 && tasks[0]["checkResult"] == json!({"plugin": {"pong": true}})
    })
    .await;
    site.cluster.stop_after(site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_hidden_by_a_filter_in_python() {
    if is_missing_a_language() {
        return;
    }
    let site = Site::start_with("[plugins.use]\nfilter = \"redact\"\n").await;
    install_and_wait(&site, "redact", &Plugin::example("redact")).await;
    let mut stream = Events::open(&site.http, &site.apps("/v2/events")).await;
    let env = json!({"DB_PASSWORD": "hunter2", "COLOUR": "green"});
    site.post_app(&json!({"id": "/secretive", "cmd": "true", "instances": 0, "env": env}))
        .await;
    let event = stream.next_of("api_post_event").await;
    assert_eq!(
        event.data["appDefinition"]["env"],
        json!({"DB_PASSWORD": "***", "COLOUR": "green"}),
        "{event:?}"
    );
    // The apps API is not filtered: it returns the definition as it was posted.
    let app = site.get(&site.apps("/v2/apps/secretive")).await.expect("an app");
    assert_eq!(app["app"]["env"]["DB_PASSWORD"], "hunter2");
    site.cluster.stop_after(site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_are_kept_apart_by_a_matcher_in_javascript() {
    if is_missing_a_language() {
        return;
    }
    let site = Site::start_with("[plugins.use]\nmatcher = [\"attributes\", \"spread\"]\n").await;
    install_and_wait(&site, "spread", &Plugin::example("spread")).await;
    let app = |id: &str, instances: u32, constraints: Value| json!({"id": id, "cmd": "sleep 600", "cpus": 0.1, "mem": 16, "instances": instances, "constraints": constraints});
    site.post_app(&app("/apart", 3, json!([]))).await;
    let tasks = site.wait_until_running("/apart", 3).await;
    let hosts: BTreeSet<&str> = tasks.iter().filter_map(|task| task["host"].as_str()).collect();
    assert_eq!(hosts.len(), 3, "an agent for each: {tasks:?}");
    site.post_app(&app("/pinned", 2, json!([["rack", "IS", "r2"]])))
        .await;
    let tasks = site.wait_until_running("/pinned", 2).await;
    let hosts: BTreeSet<&str> = tasks.iter().filter_map(|task| task["host"].as_str()).collect();
    assert_eq!(hosts, BTreeSet::from(["127.0.0.2"]), "{tasks:?}");
    // An operator that one of the matchers does not support is an error when the app is posted.
    let answer = site
        .http
        .post(site.apps("/v2/apps"))
        .json(&app("/unknown", 1, json!([["rack", "CLUSTER", "r1"]])))
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status().as_u16(), 422);
    let body = answer.text().await.expect("a body");
    assert!(
        body.contains("spread: ") && body.contains("expected IS with a value"),
        "{body}"
    );
    site.cluster.stop_after(site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_guest_has_no_files_no_network_and_only_granted_variables() {
    if is_missing_a_language() {
        return;
    }
    let site = Site::start_with("[plugins.use]\nfilter = \"sandbox-escape\"\n").await;
    let escape = Plugin::test_guest("sandbox-escape");
    for (withdrawn, expected) in [
        ("clock", "which the manifest denies (grants.clock = false)"),
        ("random", "which the manifest denies (grants.random = false)"),
    ] {
        let manifest = escape
            .manifest
            .replace("[grants]", &format!("[grants]\n{withdrawn} = false"));
        let plugin = Plugin {
            manifest,
            ..escape.clone()
        };
        plugin.install(&site.plugins(), "sandbox-escape");
        site.rescan().await;
        let status = status(&site, "sandbox-escape").await;
        let rejection = status["refusal"].as_str().expect("a rejection");
        assert!(rejection.contains(expected), "{rejection}");
    }
    install_and_wait(&site, "sandbox-escape", &escape).await;
    let mut stream = Events::open(&site.http, &site.apps("/v2/events")).await;
    site.post_app(&json!({"id": "/seen", "cmd": "true", "instances": 0}))
        .await;
    let found = stream.next_of("api_post_event").await.data["found"].clone();
    let path = std::env::var("PATH").expect("PATH");
    assert_eq!(
        found,
        json!({
            "reads": {"error": "FileNotFoundError"},
            "writes": {"error": "FileNotFoundError"},
            "lists": {"error": "FileNotFoundError"},
            "connects": {"error": "PermissionError"},
            "resolves": {"error": "PermissionError"},
            // Only the granted variable is visible.
            "variables": {"got": [["PATH", path]]},
            "clock": {"got": true},
            "random": {"got": true},
        })
    );
    let status = status(&site, "sandbox-escape").await;
    assert_eq!(status["denials"], 2, "the socket and the lookup: {status}");
    site.cluster.stop_after(site.daemon);
}
