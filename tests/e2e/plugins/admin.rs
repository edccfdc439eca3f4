//! An operator manages plugins with `transom plugin`: history, rollback to an earlier version, and
//! the events about them.

use std::process::{Command, Output};

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::events::Events;
use transom_tests::plugin::Plugin;
use transom_tests::process::{Transom, binary};
use transom_tests::site::Site;

/// `transom plugin ARGUMENTS` on the site's daemon.
fn plugin(site: &Site, arguments: &[&str]) -> Output {
    Command::new(binary())
        .arg("plugin")
        .args(arguments)
        .args(["--admin", &site.admin("")])
        .env("USER", "grace")
        .output()
        .expect("transom runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the command with JSON output; it must succeed.
fn run_json(site: &Site, arguments: &[&str]) -> Value {
    let output = plugin(site, &[arguments, &["--output", "json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn digest(site: &Site) -> String {
    let shown = run_json(site, &["show", "events"]);
    shown["digest"].as_str().expect("a digest").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_rollback_is_recorded_and_survives_a_restart() {
    let mut site = Site::start().await;
    let mut stream = Events::open(
        &site.http,
        &site.apps("/v2/events?event_type=plugin_admitted_event&event_type=plugin_rolled_back_event&event_type=plugin_refused_event"),
    )
    .await;
    let first = digest(&site);
    Plugin::first_party("events")
        .stamped(1)
        .install(&site.plugins(), "events");
    site.rescan().await;
    let second = digest(&site);
    assert_ne!(first, second);
    let event = stream.next().await.expect("an event");
    assert_eq!(
        (event.event.as_str(), &event.data["digest"]),
        ("plugin_admitted_event", &Value::from(second.clone()))
    );

    // A rejected file changes nothing.
    std::fs::write(site.plugins().join("events.wasm"), "no component").expect("written");
    site.rescan().await;
    assert_eq!(digest(&site), second);
    let event = stream.next().await.expect("an event");
    assert_eq!(event.event, "plugin_refused_event");

    let change = run_json(&site, &["rollback", "events"]);
    assert_eq!(change["digest"], first.as_str(), "{change}");
    assert_eq!(digest(&site), first);
    let event = stream.next().await.expect("an event");
    assert_eq!(event.event, "plugin_rolled_back_event");
    assert_eq!(
        (&event.data["plugin"], &event.data["digest"]),
        (&Value::from("events"), &Value::from(first.clone()))
    );

    let records = run_json(&site, &["history", "events"]);
    let outcomes: Vec<&str> = records
        .as_array()
        .expect("records")
        .iter()
        .filter_map(|record| record["outcome"].as_str())
        .collect();
    assert_eq!(outcomes, ["rolled-back", "refused", "admitted", "admitted"]);
    assert_eq!(records[0]["by"], "grace");
    let table = text(&plugin(&site, &["history", "events"]).stdout);
    assert!(table.contains("OUTCOME") && table.contains("grace"), "{table}");

    // After SIGKILL and a restart the state is unchanged: neither the rejected file nor the version
    // before the rollback returns.
    site.kill_daemon();
    site.start_daemon().await;
    assert_eq!(digest(&site), first);

    // Roll back to that version by the number of its record.
    let number = records[2]["sequence"].to_string();
    run_json(&site, &["rollback", "events", &number]);
    assert_eq!(digest(&site), second);

    for (arguments, expected) in [
        (["rollback", "events", "77"].as_slice(), "has no record 77"),
        (&["rollback", "nobody"], "no plugin is named `nobody`"),
        (&["promote", "events"], "has no shadow and no canary to promote"),
        (&["abort", "events"], "has no shadow and no canary to abort"),
        (&["abort", "nobody"], "no plugin is named `nobody`"),
        (&["history", "nobody"], "no records of plugin `nobody`"),
    ] {
        let output = plugin(&site, arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(digest(&site), second);
    let Site { cluster, daemon, .. } = site;
    cluster.stop_after(daemon);
}

/// The events plugin with another digest, as a canary for 99 % of the queries.
fn canary(stamp: u64) -> Plugin {
    let plugin = Plugin::first_party("events").stamped(stamp);
    let rollout = "rollout = \"canary-manual\"\ncanary = { percent = 99, compare-percent = 50 }";
    Plugin {
        manifest: format!("{rollout}\n{}", plugin.manifest),
        ..plugin
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_observes_a_canary_aborts_it_and_promotes_the_next_one() {
    let mut site = Site::start().await;
    let mut stream = Events::open(
        &site.http,
        &site.apps("/v2/events?event_type=plugin_canary_event&event_type=plugin_rollout_aborted_event&event_type=plugin_promoted_event"),
    )
    .await;
    let first = digest(&site);
    canary(1).install(&site.plugins(), "events");
    site.rescan().await;
    assert_eq!(digest(&site), first, "a canary is not the version that serves");
    let event = stream.next().await.expect("an event");
    assert_eq!(event.event, "plugin_canary_event");

    let list = run_json(&site, &["list"]);
    let listed = list
        .as_array()
        .expect("plugins")
        .iter()
        .find(|it| it["name"] == "events");
    let rollout = &listed.expect("the plugin")["rollout"];
    assert_eq!(
        (&rollout["kind"], &rollout["percent"], &rollout["automatic"]),
        (&json!("canary"), &json!(99), &json!(false)),
        "{rollout}"
    );
    assert_eq!(rollout["digest"], event.data["digest"]);
    let version = rollout["version"].as_str().expect("a version");
    let table = text(&plugin(&site, &["list"]).stdout);
    assert!(
        table.contains("ROLLOUT") && table.contains(&format!("canary {version}, 99 %")),
        "{table}"
    );
    let table = text(&plugin(&site, &["show", "events"]).stdout);
    for expected in [
        "rollout.kind",
        "99 %",
        "(canary.min-duration)",
        "promotion by an operator (transom plugin promote events)",
        "recording.dropped",
        "MiB",
    ] {
        assert!(table.contains(expected), "{expected}: {table}");
    }
    assert!(!table.contains("_micros"), "{table}");

    let change = run_json(&site, &["abort", "events"]);
    assert_eq!(
        (&change["change"], &change["reason"]),
        (&json!("aborted"), &json!("aborted by grace"))
    );
    let event = stream.next().await.expect("an event");
    assert_eq!(
        (event.event.as_str(), &event.data["plugin"]),
        ("plugin_rollout_aborted_event", &json!("events"))
    );
    // The daemon ignores the files of the aborted canary, even after SIGKILL and a restart.
    site.kill_daemon();
    site.start_daemon().await;
    assert_eq!(digest(&site), first);
    assert_eq!(run_json(&site, &["show", "events"])["rollout"], Value::Null);

    canary(2).install(&site.plugins(), "events");
    site.rescan().await;
    let second = run_json(&site, &["show", "events"])["rollout"]["digest"].clone();
    // A canary continues after SIGKILL and a restart.
    site.kill_daemon();
    site.start_daemon().await;
    let shown = run_json(&site, &["show", "events"]);
    assert_eq!(
        (&shown["digest"], &shown["rollout"]["digest"]),
        (&json!(first), &second)
    );
    run_json(&site, &["promote", "events"]);
    assert_eq!(json!(digest(&site)), second);
    let records = run_json(&site, &["history", "events"]);
    let outcomes: Vec<&str> = records
        .as_array()
        .expect("records")
        .iter()
        .filter_map(|record| record["outcome"].as_str())
        .collect();
    assert_eq!(outcomes, ["promoted", "canary", "aborted", "canary", "admitted"]);
    let table = text(&plugin(&site, &["history", "events"]).stdout);
    assert!(table.contains("promoted by grace"), "{table}");
    let Site { cluster, daemon, .. } = site;
    cluster.stop_after(daemon);
}

/// `transom plugin check ARGUMENTS`, which needs no daemon.
fn check(arguments: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(["plugin", "check"]).args(arguments);
    command.output().expect("transom runs")
}

#[test]
fn plugin_check_accepts_valid_and_rejects_invalid_components() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let probe = Plugin::first_party("check-tcp");
    probe.install(dir.path(), "mine");
    let good = check(&[&path("mine.wasm"), "--output", "json"]);
    assert!(good.status.success(), "{}", text(&good.stderr));
    let verdict: Value = serde_json::from_slice(&good.stdout).expect("JSON");
    assert_eq!(verdict["world"], "check-probe");
    assert_eq!(verdict["grants"]["network"], serde_json::json!(["task"]));

    std::fs::write(path("other.toml"), "world = \"event-filter\"\n").expect("written");
    std::fs::write(
        path("typo.toml"),
        "world = \"check-probe\"\n[grants]\nnetwrok = [\"task\"]\n",
    )
    .expect("written");
    std::fs::write(path("text.wasm"), "no component").expect("written");
    std::fs::write(path("text.toml"), "world = \"check-probe\"\n").expect("written");
    std::fs::copy(path("mine.wasm"), path("alone.wasm")).expect("copied");
    for (file, manifest, code, expected) in [
        (
            "mine.wasm",
            "other.toml",
            1,
            "does not export `transom:events/filter",
        ),
        ("mine.wasm", "typo.toml", 1, "network"),
        ("text.wasm", "text.toml", 1, "does not compile"),
        ("mine.wasm", "absent.toml", 2, "--manifest"),
        ("absent.wasm", "other.toml", 2, "absent.wasm"),
    ] {
        let output = check(&[&path(file), "--manifest", &path(manifest)]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{file} {manifest}: {error}");
        assert!(error.contains(expected), "{file} {manifest}: {error}");
    }
    let alone = check(&[&path("alone.wasm")]);
    assert!(
        text(&alone.stderr).contains("alone.toml"),
        "the error names the missing manifest"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollback_does_not_wait_for_a_compilation() {
    let site = Site::start().await;
    let first = digest(&site);
    Plugin::first_party("events")
        .stamped(1)
        .install(&site.plugins(), "events");
    site.rescan().await;
    assert_ne!(digest(&site), first);
    Plugin::first_party("check-tcp")
        .slow_to_compile()
        .install(&site.plugins(), "slow");
    eventually("the slow component to be compiled", || async {
        let shown = site.get(&site.admin("/v1/plugins/slow")).await?;
        if shown["state"] == "admitting" && shown["admitting"].is_u64() {
            Ok(())
        } else {
            Err(shown.to_string())
        }
    })
    .await;
    run_json(&site, &["rollback", "events"]);
    assert_eq!(digest(&site), first);
    assert_eq!(
        run_json(&site, &["show", "slow"])["state"],
        "admitting",
        "the rollback waited"
    );
    let Site { cluster, daemon, .. } = site;
    cluster.stop_after(daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_ends_the_daemon_while_its_start_waits_for_a_component() {
    let mut site = Site::start().await;
    site.kill_daemon();
    Plugin::first_party("check-tcp")
        .slow_to_compile()
        .install(&site.plugins(), "check-tcp");
    let mut daemon = Transom::start(
        site.config().parent().expect("a folder"),
        ["serve", "--config", "transom.toml"],
    );
    daemon.wait_for_line("the delay of the start", |line| {
        (line.contains("for these plugins to be compiled") && line.contains("check-tcp")).then_some(())
    });
    let (status, output) = daemon.terminate();
    assert!(
        status.success() && !output.contains("shutdown timeout"),
        "{status}: {output}"
    );
    site.cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_that_compiles_too_long_is_rejected_with_the_setting() {
    // The other components are compiled without that limit and cached.
    let mut site = Site::start().await;
    let config = site.config();
    let text = std::fs::read_to_string(&config).expect("a configuration");
    let text = text.replace("[plugins]\n", "[plugins]\ncompile_timeout_seconds = 2\n");
    std::fs::write(&config, text).expect("written");
    site.kill_daemon();
    site.start_daemon().await;
    let first = digest(&site);
    Plugin::first_party("events")
        .slow_to_compile()
        .install(&site.plugins(), "events");
    site.rescan().await;
    let shown = run_json(&site, &["show", "events"]);
    let rejection = shown["refusal"].as_str().expect("a rejection");
    assert!(
        rejection.contains("more than 2s of processor time")
            && rejection.contains("plugins.compile_timeout_seconds"),
        "{rejection}"
    );
    assert_eq!(digest(&site), first);
    let Site { cluster, daemon, .. } = site;
    cluster.stop_after(daemon);
}

/// Whether a text contains characters that control a terminal.
fn has_control_characters(text: &str) -> bool {
    text.contains(|c: char| {
        c.is_control() && c != '\n'
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn component_text_cannot_control_the_operators_terminal() {
    let site = Site::start().await;
    let hostile = Plugin::test_guest("faulty-probe").patched(
        b"misbehaves on demand",
        "\u{202e}\u{2066}\u{1b}]0;x\u{7}\u{9b}2J...\u{7f}".as_bytes(),
    );
    hostile.install(&site.plugins(), "drives");
    hostile.install(&site.plugins(), "sgni\u{202e}\u{1b}[31m\nx");
    site.rescan().await;

    let mut seen = Vec::new();
    for arguments in [
        ["list"].as_slice(),
        &["show", "drives"],
        &["history", "drives"],
        &["show", "sgni\\u{202e}\\u{1b}[31m\\u{a}x"],
        &["list", "--output", "json"],
        &["show", "drives", "--output", "json"],
        &["rollback", "no\u{202e}\u{1b}[31mbody"],
    ] {
        let output = plugin(&site, arguments);
        let text = text(&output.stdout) + &text(&output.stderr);
        assert!(!has_control_characters(&text), "{arguments:?}: {text:?}");
        seen.push(text);
    }
    assert!(seen[0].contains("sgni\\u{202e}\\u{1b}[31m\\u{a}x"), "{}", seen[0]);
    assert!(seen[1].contains("\\u{202e}\\u{2066}\\u{1b}]0;x"), "{}", seen[1]);
    assert!(seen[3].contains("a backslash, percent-encoded"), "{}", seen[3]);
    assert!(seen[6].contains("is rejected on every port"), "{}", seen[6]);
    let answer = site
        .http
        .get(site.admin("/v1/plugins"))
        .send()
        .await
        .expect("an answer");
    let body = answer.text().await.expect("a body");
    assert!(!has_control_characters(&body), "{body:?}");

    // The commands that need no daemon escape this text, too.
    let dir = tempfile::tempdir().expect("a directory");
    hostile.install(dir.path(), "mine");
    let settings = json!({"do": "say", "text": "a\u{202e}\u{9b}2J\u{1b}[31m"});
    let cases = json!([{"name": "one\u{202e}", "settings": settings, "expect": {"tcp": true}}]);
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    std::fs::write(path("cases.json"), cases.to_string()).expect("written");
    for (arguments, expected) in [
        (
            vec!["check".to_owned(), path("mine.wasm")],
            "\\u{202e}\\u{2066}\\u{1b}]0;x",
        ),
        (
            vec!["test".to_owned(), path("mine.wasm"), path("cases.json")],
            "a\\u202e\\u009b2J\\u001b[31m",
        ),
    ] {
        let mut command = Command::new(binary());
        let output = command
            .arg("plugin")
            .args(&arguments)
            .output()
            .expect("transom runs");
        let text = text(&output.stdout) + &text(&output.stderr);
        assert!(!has_control_characters(&text), "{arguments:?}: {text:?}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
    let Site { cluster, daemon, .. } = site;
    cluster.stop_after(daemon);
}
