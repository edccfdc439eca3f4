//! The commands for plugin authors: new projects build and pass their own cases, and errors are
//! clear.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use transom_tests::authors::{
    is_missing_a_language, node_modules, python, run_transom, set_build_environment, transom,
};
use transom_tests::process::binary;

fn new(dir: &Path, name: &str, world: &str, language: &str) {
    let output_of_new = run_transom(
        dir,
        &["plugin", "new", name, "--world", world, "--language", language],
    );
    assert!(output_of_new.contains("transom plugin build"), "{output_of_new}");
}

/// Runs the project's own cases, which must pass.
fn run_cases(project: &Path, name: &str) {
    let component = format!("out/{name}.wasm");
    let reports = run_transom(
        project,
        &["plugin", "test", &component, "cases.toml", "--output", "json"],
    );
    let reports: Vec<Value> = serde_json::from_str(&reports).expect("JSON");
    assert!(!reports.is_empty());
    for report in &reports {
        assert_eq!(report["verdict"], "passed", "{report}");
        assert!(report["calls"].as_u64() > Some(0), "{report}");
        assert!(report["memory"].as_u64() > Some(0), "{report}");
        assert!(report["cpu_micros"].as_f64() > Some(0.0), "{report}");
    }
}

/// Runs the unit tests as in the project's README.md; they must pass.
fn run_unit_tests(command: &mut Command) {
    let output = command.output().expect("it runs");
    let report = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{report}");
    let has_none = report.contains("Ran 0 tests") || report.contains("pass 0\n");
    assert!(!has_none, "{report}");
}

/// Requires that the component passes every stage of admission.
fn check_admission(project: &Path, name: &str) {
    let component = format!("out/{name}.wasm");
    let verdict = run_transom(project, &["plugin", "check", &component, "--output", "json"]);
    let verdict: Value = serde_json::from_str(&verdict).expect("JSON");
    assert_eq!(verdict["refusal"], Value::Null, "{verdict}");
    let stages = verdict["stages"].as_array().expect("stages");
    assert_eq!(stages.last().expect("a stage")["stage"], "self-tests");
    assert!(stages.iter().all(|it| it["ok"] == true), "{verdict}");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_new_project_in_rust_builds_and_passes_its_own_test() {
    let dir = tempfile::tempdir().expect("a directory");
    for world in [
        "check-probe",
        "attribute-matcher",
        "event-filter",
        "bootstrap-handler",
    ] {
        let name = format!("mine-{world}");
        new(dir.path(), &name, world, "rust");
        let project = dir.path().join(&name);
        run_transom(&project, &["plugin", "build"]);
        run_cases(&project, &name);
        check_admission(&project, &name);
    }
    let project = dir.path().join("mine-event-filter");
    check_case_update(&project);
    check_measurement(&project);
    // The project's unit tests, run natively.
    let mut cargo = Command::new("cargo");
    set_build_environment(&mut cargo);
    // Native tests do not need the settings that the compilation of components does.
    cargo.env_remove("RUSTC").env_remove("CARGO_UNSTABLE_BUILD_STD");
    let output = cargo
        .args(["test", "--quiet"])
        .current_dir(&project)
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    assert!(
        text(&output.stdout).contains("1 passed"),
        "{}",
        text(&output.stdout)
    );
}

/// A case with a wrong expectation fails, and `--update` records the actual answer.
fn check_case_update(project: &Path) {
    let cases = project.join("other.toml");
    let case = "# Ours.\n[[case]]\nname = \"hidden\"\nevents = [{ kind = \"a\", subject = \"/load\" }]\nexpect = [\"pass\"]\n";
    fs::write(&cases, case).expect("written");
    let test = ["plugin", "test", "out/mine-event-filter.wasm", "other.toml"];
    let output = transom(project, &test);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("differs"),
        "{}",
        text(&output.stdout)
    );
    let told_why = text(&output.stderr);
    assert!(
        told_why.contains(r#"{"expect":["drop"]}"#) && told_why.contains(r#"{"expect":["pass"]}"#),
        "{told_why}"
    );
    run_transom(project, &[&test[..], &["--update"]].concat());
    let updated = fs::read_to_string(&cases).expect("read");
    assert_eq!(
        updated,
        case.replace("expect = [\"pass\"]", "expect = [\"drop\"]")
    );
    run_transom(project, &test);
    fs::write(&cases, "[[case]]\nevnets = []\n").expect("written");
    let output = transom(project, &test);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("evnets"),
        "{}",
        text(&output.stderr)
    );
}

fn check_measurement(project: &Path) {
    let component = "out/mine-event-filter.wasm";
    let bench = [
        "plugin",
        "bench",
        component,
        "cases.toml",
        "--seconds",
        "1",
        "--output",
        "json",
    ];
    let figures: Vec<Value> = serde_json::from_str(&run_transom(project, &bench)).expect("JSON");
    assert_eq!(figures.len(), 3, "{figures:?}");
    for it in &figures {
        let number = |key: &str| it[key].as_f64().unwrap_or_else(|| panic!("{key} of {it}"));
        assert!(number("runs") > 1.0 && number("calls") >= number("runs"), "{it}");
        assert!(number("p50_micros") <= number("p99_micros"), "{it}");
        assert!(number("p99_micros") <= number("max_micros"), "{it}");
        assert!(
            number("cpu_micros_per_call") > 0.0 && number("memory") > 0.0,
            "{it}"
        );
    }
    fs::write(
        project.join("wrong.toml"),
        "[[case]]\nevents = [{ kind = \"a\" }]\nexpect = [\"drop\"]\n",
    )
    .expect("written");
    let output = transom(project, &["plugin", "bench", component, "wrong.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("`case 1` fails"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_new_project_in_python_builds_and_passes_its_own_test() {
    if is_missing_a_language() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    new(dir.path(), "mine", "attribute-matcher", "python");
    let project = dir.path().join("mine");
    let venv = python();
    symlink(venv.parent().expect("a folder"), project.join(".venv")).expect("linked");
    run_transom(&project, &["plugin", "build"]);
    run_cases(&project, "mine");
    let mut python = Command::new(project.join(".venv/bin/python"));
    python
        .args(["-m", "unittest", "discover", "-s", "tests"])
        .env("PYTHONPATH", "src")
        .current_dir(&project);
    run_unit_tests(&mut python);
}

#[test]
fn a_new_project_in_javascript_builds_and_passes_its_own_test() {
    if is_missing_a_language() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    new(dir.path(), "mine", "check-probe", "javascript");
    let project = dir.path().join("mine");
    symlink(node_modules(), project.join("node_modules")).expect("linked");
    run_transom(&project, &["plugin", "build"]);
    run_cases(&project, "mine");
    let mut npm = Command::new("npm");
    npm.arg("test").current_dir(&project);
    run_unit_tests(&mut npm);
}

/// `transom plugin build` in a project, with an empty `PATH` and these variables.
fn build_without(project: &Path, variables: &[(&str, &str)]) -> Output {
    Command::new(binary())
        .args(["plugin", "build"])
        .current_dir(project)
        .env("PATH", "")
        .env_remove("CARGO_UNSTABLE_BUILD_STD")
        .envs(variables.iter().copied())
        .output()
        .expect("transom runs")
}

#[test]
fn missing_build_tools_are_reported_with_the_install_command() {
    let dir = tempfile::tempdir().expect("a directory");
    for language in ["rust", "python", "javascript"] {
        new(dir.path(), language, "event-filter", language);
    }
    // A compiler without a WebAssembly target.
    let rustc = dir.path().join("rustc");
    fs::write(&rustc, "#!/bin/sh\necho /nowhere\n").expect("written");
    fs::set_permissions(&rustc, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("allowed");
    let rustc = rustc.to_string_lossy();
    for (language, variables, expected) in [
        (
            "rust",
            &[("RUSTC", &*rustc)][..],
            "rustup target add wasm32-unknown-unknown",
        ),
        ("rust", &[("RUSTC", "rustc-nobody-has")], "https://rustup.rs"),
        (
            "python",
            &[],
            "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt",
        ),
        ("javascript", &[], "npm install"),
    ] {
        let output = build_without(&dir.path().join(language), variables);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{language}: {error}");
        assert!(error.contains(expected), "{language}: {error}");
    }
}

#[test]
fn invalid_arguments_are_rejected_with_the_reason() {
    let dir = tempfile::tempdir().expect("a directory");
    new(dir.path(), "mine", "event-filter", "python");
    fs::create_dir(dir.path().join("empty")).expect("made");
    let world = ["--world", "event-filter", "--language", "python"];
    for (arguments, expected) in [
        (
            [&["plugin", "new", "mine"][..], &world].concat(),
            "mine is not empty; name another folder with --dir",
        ),
        (
            [&["plugin", "new", "My_Plugin"][..], &world].concat(),
            "`My_Plugin` is not a plugin name",
        ),
        (
            vec!["plugin", "new", "a", "--world", "nowhere", "--language", "rust"],
            "event-filter",
        ),
        (
            vec![
                "plugin",
                "new",
                "a",
                "--world",
                "event-filter",
                "--language",
                "cobol",
            ],
            "javascript",
        ),
        (vec!["plugin", "build", "empty"], "is not a plugin project"),
        (vec!["plugin", "build", "absent"], "cannot read absent"),
        (
            vec!["plugin", "test", "absent.wasm", "mine/cases.toml"],
            "cannot read absent.wasm",
        ),
        (
            vec![
                "plugin",
                "bench",
                "absent.wasm",
                "mine/cases.toml",
                "--seconds",
                "0",
            ],
            "--seconds",
        ),
    ] {
        let output = transom(dir.path(), &arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    // An empty folder is accepted.
    run_transom(
        dir.path(),
        &[&["plugin", "new", "mine", "--dir", "empty"][..], &world].concat(),
    );
    assert!(dir.path().join("empty/mine.toml").is_file());
}
