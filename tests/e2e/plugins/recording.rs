//! Operators and authors use recorded calls: `transom plugin replay` and `transom plugin cases`.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::plugin::Plugin;
use transom_tests::process::binary;
use transom_tests::site::Site;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `transom plugin ARGUMENTS` in a folder, for the site's admin port.
fn plugin(site: &Site, dir: &Path, arguments: &[&str]) -> Output {
    Command::new(binary())
        .arg("plugin")
        .args(arguments)
        .env("TRANSOM_ADMIN_URL", site.admin(""))
        .current_dir(dir)
        .output()
        .expect("transom runs")
}

/// The manifest of another filter, up to its configuration table.
const FILTER: &str = "world = \"event-filter\"\n[limits]\nmemory = \"16MiB\"\n[config]\n";

/// A subscriber of the event stream; events are filtered only for subscribers.
async fn subscribe(site: &Site) -> reqwest::Response {
    let request = site.http.get(site.apps("/v2/events"));
    let stream = request.header("accept", "text/event-stream").send();
    stream.await.expect("a stream")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_placements_are_replayed_and_become_test_cases() {
    let site = Site::start_with("[plugins.recording]\nsample_percent = 100\n").await;
    let app = json!({
        "id": "/web", "cmd": "sleep 1000", "cpus": 0.1, "mem": 16, "instances": 2,
        "constraints": [["hostname", "MAX_PER", "5"]]
    });
    let stream = subscribe(&site).await;
    site.post_app(&app).await;
    site.wait_until_running("/web", 2).await;
    let dir = tempfile::tempdir().expect("a directory");
    let run = |arguments: &[&str]| plugin(&site, dir.path(), arguments);
    Plugin::first_party("attributes").install(dir.path(), "attributes");

    let calls = site
        .get(&site.admin("/v1/plugins/attributes/calls?since=1h&max=5"))
        .await;
    let calls = calls.expect("calls");
    let first = &calls["calls"][0];
    assert_eq!(
        (&first["plugin"], &first["world"]),
        (&json!("attributes"), &json!("attribute-matcher"))
    );

    // The version that serves returns the recorded answers.
    let same = run(&["replay", "attributes.wasm", "--since", "1h", "--json"]);
    assert!(same.status.success(), "{}", text(&same.stderr));
    let report: Value = serde_json::from_slice(&same.stdout).expect("JSON");
    assert!(report["compared"].as_u64() > Some(1), "{report}");
    assert_eq!(report["compared"], report["same"], "{report}");

    // The recorded calls become test cases, in both formats.
    for file in ["cases.json", "cases.toml"] {
        let cases = run(&[
            "cases",
            "attributes",
            "--since",
            "1h",
            "--max",
            "100",
            "--to",
            file,
        ]);
        assert!(cases.status.success(), "{}", text(&cases.stderr));
        let tested = run(&["test", "attributes.wasm", file, "--output", "json"]);
        assert!(
            tested.status.success(),
            "{}{}",
            text(&tested.stdout),
            text(&tested.stderr)
        );
        let reports: Vec<Value> = serde_json::from_slice(&tested.stdout).expect("JSON");
        assert!(
            reports
                .iter()
                .any(|it| it["name"].as_str().is_some_and(|name| name.contains("/web")))
        );
    }

    // Another filter returns other decisions.
    let mut other = Plugin::test_guest("faulty-events");
    other.manifest = FILTER.to_owned() + "mark = \"other\"\n";
    other.install(dir.path(), "other");
    let other = run(&["replay", "other.wasm", "--name", "events", "--since", "1h"]);
    let (table, error) = (text(&other.stdout), text(&other.stderr));
    assert_eq!(other.status.code(), Some(1), "{table}{error}");
    assert!(
        error.contains("answers differ") && error.contains("--allow"),
        "{error}"
    );
    assert!(
        table.contains("RECORDED") && table.contains("decide: pass -> replace"),
        "{table}"
    );
    let allowed = run(&["replay", "other.wasm", "--name", "events", "--allow", "100"]);
    assert!(allowed.status.success(), "{}", text(&allowed.stderr));

    check_argument_errors(&site, dir.path()).await;
    drop(stream);
    let Site { cluster, daemon, .. } = site;
    cluster.stop_after(daemon);
}

/// Invalid arguments of the commands and of the request cause errors that name them.
async fn check_argument_errors(site: &Site, dir: &Path) {
    for (arguments, code, expected) in [
        (
            &["replay", "attributes.wasm", "--since", "yesterday"][..],
            2,
            "30m or 2h",
        ),
        (&["replay", "attributes.wasm", "--allow", "101"], 2, "0 to 100"),
        (&["replay", "absent.wasm"], 2, "absent.wasm"),
        (&["replay", "other.wasm"], 1, "no plugin is named `other`"),
        (
            &["replay", "other.wasm", "--name", "attributes"],
            1,
            "are of another world",
        ),
        (
            &["replay", "attributes.wasm", "--name", "check-tcp"],
            1,
            "no calls of `check-tcp`",
        ),
        (&["cases", "check-tcp"], 1, "plugins.recording.sample_percent"),
        (&["cases", "attributes", "--max", "0"], 2, "1..=10000"),
        (
            &["cases", "attributes", "--to", "cases.yaml"],
            2,
            ".toml or .json",
        ),
    ] {
        let output = plugin(site, dir, arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    for (query, expected) in [
        ("since=1", "expected a duration"),
        ("max=10001", "expected 1 to 10000"),
        ("until=1h", "unknown field `until`"),
    ] {
        let url = site.admin(&format!("/v1/plugins/attributes/calls?{query}"));
        let answer = site.http.get(url).send().await.expect("an answer");
        assert_eq!(answer.status().as_u16(), 400, "{query}");
        let answer = answer.text().await.expect("a text");
        assert!(answer.contains(expected), "{query}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_that_drops_more_is_rejected_by_its_replay() {
    let site = Site::start_with("[plugins.recording]\nsample_percent = 100\n").await;
    let stream = subscribe(&site).await;
    site.post_app(&json!({"id": "/web", "cmd": "sleep 1000", "cpus": 0.1, "mem": 16}))
        .await;
    site.wait_until_running("/web", 1).await;
    let before = site
        .get(&site.admin("/v1/plugins/events"))
        .await
        .expect("a plugin");
    let mut plugin = Plugin::test_guest("faulty-events");
    plugin.manifest = FILTER.replace("\n[limits]", "\nrollout = \"replay\"\n[limits]") + "fault = \"trap\"\n";
    plugin.install(&site.plugins(), "events");
    eventually("the rejection", || async {
        site.rescan().await;
        let shown = site.get(&site.admin("/v1/plugins/events")).await?;
        match shown["refusal"].as_str() {
            Some(rejection)
                if rejection.contains("recorded calls") && rejection.contains("for example decide: trap") =>
            {
                assert_eq!(shown["digest"], before["digest"], "{shown}");
                Ok(())
            }
            _ => Err(shown.to_string()),
        }
    })
    .await;
    drop(stream);
    let Site { cluster, daemon, .. } = site;
    cluster.stop_after(daemon);
}
