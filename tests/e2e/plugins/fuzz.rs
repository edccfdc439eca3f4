//! `transom plugin fuzz` finds hidden faults of a component, and reports none for the first-party
//! components.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use transom_tests::authors::transom;
use transom_tests::plugin::Plugin;
use transom_tests::process::components;

/// Writes a guest with this configuration and these self-tests to a folder.
fn guest(dir: &Path, config: &str) -> PathBuf {
    let Plugin { wasm, .. } = Plugin::test_guest("faulty-events");
    let path = dir.join("faulty-events.wasm");
    fs::write(&path, wasm).expect("written");
    let manifest = format!("world = \"event-filter\"\n{config}");
    fs::write(path.with_extension("toml"), manifest).expect("written");
    path
}

/// Runs `transom plugin fuzz`; returns its exit code and its report.
fn run_fuzz(dir: &Path, component: &Path, more: &[&str]) -> (Option<i32>, Value) {
    let component = component.to_string_lossy();
    let arguments = [
        &[
            "plugin",
            "fuzz",
            &component,
            "--output",
            "json",
            "--seconds",
            "300",
        ],
        more,
    ]
    .concat();
    let output = transom(dir, &arguments);
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), report)
}

#[test]
fn call_that_traps_is_found_minimised_and_saved_as_a_case() {
    let dir = tempfile::tempdir().expect("a directory");
    // The component traps on events with an empty kind. No word of its manifest suggests this
    // input.
    let component = guest(dir.path(), "[config]\ntrap_on = [\"\"]\n");
    let run = ["--seed", "3", "--calls", "3000"];
    let (code, report) = run_fuzz(dir.path(), &component, &run);
    assert_eq!(code, Some(1), "{report}");
    let findings = report["findings"].as_array().expect("findings");
    let case = json!({ "events": [{ "kind": "" }] });
    assert!(findings.iter().any(|it| it["case"] == case), "{report}");
    assert_eq!(
        run_fuzz(dir.path(), &component, &run),
        (code, report.clone()),
        "the same seed"
    );

    let saved = dir.path().join("fuzz.json");
    let (file, cases) = (component.to_string_lossy(), saved.to_string_lossy());
    let test = ["plugin", "test", &*file, &*cases, "--output", "json"];
    let output = transom(dir.path(), &test);
    assert_eq!(output.status.code(), Some(1));
    let reports: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(reports.len(), findings.len());
    assert!(reports.iter().all(|it| it["verdict"] == "failed"), "{reports:?}");
    assert!(reports[0]["backtrace"].is_array(), "{reports:?}");
}

#[test]
fn configuration_that_traps_is_found() {
    let dir = tempfile::tempdir().expect("a directory");
    let words = "[config]\nfault = \"none\"\n[[self-test]]\nevents = [{ kind = \"trap-config\" }]\nexpect = [\"pass\"]\n";
    let component = guest(dir.path(), words);
    let (code, report) = run_fuzz(
        dir.path(),
        &component,
        &["--calls", "20000", "--to", "found.json"],
    );
    assert_eq!(code, Some(1), "{report}");
    let found = json!({ "fault": "trap-config" });
    let findings = report["findings"].as_array().expect("findings");
    assert!(findings.iter().any(|it| it["config"] == found), "{report}");
    assert!(
        report["accepted"].as_u64() > Some(0) && report["rejected"].as_u64() > Some(0),
        "{report}"
    );
}

#[test]
fn limit_that_is_exceeded_is_found() {
    let dir = tempfile::tempdir().expect("a directory");
    let limits = "[limits]\ncpu = \"20ms\"\nwall-clock = \"2s\"\n[config]\nfault = \"loop\"\n";
    let component = guest(dir.path(), limits);
    let (code, report) = run_fuzz(dir.path(), &component, &["--calls", "3"]);
    assert_eq!(code, Some(1), "{report}");
    assert!(report["findings"][0]["case"].is_object(), "{report}");
}

#[test]
fn first_party_components_survive() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in [
        "check-http",
        "check-tcp",
        "check-command",
        "attributes",
        "events",
        "bootstrap",
    ] {
        let component = components().join(format!("{name}.wasm"));
        let (code, report) = run_fuzz(dir.path(), &component, &["--seed", "11", "--calls", "800"]);
        assert_eq!(
            (code, &report["findings"]),
            (Some(0), &json!([])),
            "{name}: {report}"
        );
        assert!(report["calls"].as_u64() >= Some(700), "{name}: {report}");
    }
}
