//! The packages for plugin authors: `transom-sdk` from its crate, and `transom-plugin` for Python
//! and JavaScript as `cargo xtask test` installed them, from a wheel and a tarball.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use transom_tests::authors::{
    is_missing_a_language, node_modules, python, run_transom, set_build_environment, transom,
};
use transom_tests::process::components;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn example(name: &str) -> PathBuf {
    root().join("examples/plugins").join(name)
}

/// The standard output of a command, which must succeed.
fn output(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{command:?}: {}\n{stdout}{stderr}",
        output.status
    );
    stdout.into_owned()
}

/// The Python of the environment; no folder of the repository is on its path.
fn python3() -> Command {
    let mut command = Command::new(python().join("python3"));
    command
        .env_remove("PYTHONPATH")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// The harness of the Python kit with an example.
fn python_harness(name: &str, cases: &Path) -> Command {
    let mut command = python3();
    command
        .args(["-m", "transom_plugin.testing", "src/app.py"])
        .arg(cases)
        .arg("--manifest")
        .arg(format!("{name}.toml"))
        .arg("--json")
        .current_dir(example(name));
    command
}

/// The harness of the JavaScript kit with an example in which the kit is installed.
fn javascript_harness(name: &str, cases: &Path) -> Command {
    let mut command = Command::new("node");
    command
        .arg(node_modules().join(".bin/transom-plugin"))
        .args(["test", "plugin.js"])
        .arg(cases)
        .arg("--manifest")
        .arg(format!("{name}.toml"))
        .arg("--json")
        .current_dir(example(name));
    command
}

fn harness(name: &str, cases: &Path) -> Command {
    if name.ends_with("-python") {
        python_harness(name, cases)
    } else {
        javascript_harness(name, cases)
    }
}

/// The part of the reports that every harness must agree on: the name, the verdict and both answers
/// of each case.
fn verdicts(reports: &[u8]) -> Vec<[Value; 4]> {
    let reports: Vec<Value> = serde_json::from_slice(reports)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(reports)));
    let verdict = |it: &Value| ["name", "verdict", "found", "expected"].map(|key| it[key].clone());
    reports.iter().map(verdict).collect()
}

/// The results of `transom plugin test` for an example's component.
fn verdicts_of_component(component: &str, cases: &Path) -> Vec<[Value; 4]> {
    let component = components().join(format!("examples/{component}.wasm"));
    let arguments = [
        "plugin",
        "test",
        &*component.to_string_lossy(),
        &*cases.to_string_lossy(),
        "--output",
        "json",
    ];
    verdicts(&transom(&root(), &arguments).stdout)
}

#[test]
fn examples_with_a_kit_pass_their_cases_natively() {
    if is_missing_a_language() {
        return;
    }
    for base in ["smallest", "redis-ping", "dedicated", "proxy"] {
        for language in ["python", "javascript"] {
            let name = format!("{base}-{language}");
            let reports = output(&mut harness(&name, Path::new("cases.toml")));
            let reports = verdicts(reports.as_bytes());
            assert!(reports.len() >= 3, "{name}: {reports:?}");
            assert!(reports.iter().all(|it| it[1] == "passed"), "{name}: {reports:?}");
        }
    }
}

#[test]
fn components_made_with_a_kit_pass_the_same_cases() {
    let mut names = vec!["dedicated", "smallest"];
    if !is_missing_a_language() {
        names.extend([
            "proxy-python",
            "redis-ping-python",
            "proxy-javascript",
            "smallest-javascript",
        ]);
    }
    for name in names {
        let reports = verdicts_of_component(name, &example(name).join("cases.toml"));
        assert!(reports.len() >= 3, "{name}: {reports:?}");
        assert!(reports.iter().all(|it| it[1] == "passed"), "{name}: {reports:?}");
    }
}

/// The projects use the copies of the kits that `transom plugin new` writes. Nothing else is
/// installed except the TOML parser.
#[test]
fn new_projects_of_every_world_pass_their_cases_natively() {
    if is_missing_a_language() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    for world in [
        "check-probe",
        "attribute-matcher",
        "event-filter",
        "bootstrap-handler",
    ] {
        for language in ["python", "javascript"] {
            let name = format!("{world}-{language}");
            run_transom(
                dir.path(),
                &["plugin", "new", &name, "--world", world, "--language", language],
            );
            let project = dir.path().join(&name);
            let manifest = format!("{name}.toml");
            let stdout = if language == "python" {
                let mut command = Command::new("python3");
                command
                    .args(["-m", "transom_plugin.testing", "src/app.py", "cases.toml"])
                    .env("PYTHONPATH", "vendor/transom-plugin/src");
                output(command.args(["--manifest", &manifest]).current_dir(&project))
            } else {
                let modules = project.join("node_modules");
                fs::create_dir(&modules).expect("made");
                symlink("../vendor/transom-plugin", modules.join("transom-plugin")).expect("linked");
                symlink(node_modules().join("smol-toml"), modules.join("smol-toml")).expect("linked");
                let mut command = Command::new("node");
                command.args([
                    "node_modules/transom-plugin/src/cli.js",
                    "test",
                    "plugin.js",
                    "cases.toml",
                ]);
                output(command.args(["--manifest", &manifest]).current_dir(&project))
            };
            assert!(stdout.matches("passed ").count() >= 2, "{name}: {stdout}");
        }
    }
}

/// Each file has passing, failing and malformed cases.
#[test]
fn harnesses_judge_every_case_as_the_command_does() {
    if is_missing_a_language() {
        return;
    }
    for (world, base, component) in [
        ("check-probe", "redis-ping", "redis-ping"),
        ("event-filter", "smallest", "smallest"),
        ("attribute-matcher", "dedicated", "dedicated"),
        ("bootstrap-handler", "proxy", "proxy-python"),
    ] {
        let cases = root().join(format!("tests/fixtures/kits/{world}.toml"));
        let expected = verdicts_of_component(component, &cases);
        for verdict in ["passed", "differs", "failed"] {
            let some = expected.iter().filter(|it| it[1] == verdict).count();
            assert!(some >= 3, "{world}: {some} {verdict}");
        }
        for language in ["python", "javascript"] {
            let output = harness(&format!("{base}-{language}"), &cases)
                .output()
                .expect("it runs");
            assert_eq!(output.status.code(), Some(1), "{world} {language}");
            let found = verdicts(&output.stdout);
            assert_eq!(found.len(), expected.len(), "{world} {language}");
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found, expected, "{world} {language}");
            }
        }
    }
}

#[test]
fn python_kit_passes_its_own_tests_and_doctests_from_the_wheel() {
    if is_missing_a_language() {
        return;
    }
    let place = "import transom_plugin as it; print(it.__path__[0])";
    let installed = output(python3().args(["-c", place]).current_dir("/"));
    let installed = Path::new(installed.trim());
    assert!(
        installed.components().any(|it| it.as_os_str() == "site-packages"),
        "{installed:?}"
    );
    for file in [
        "py.typed",
        "wit/plugin/0.1.0/plugin.wit",
        "wit/probe/0.1.0/probe.wit",
    ] {
        assert!(installed.join(file).is_file(), "the wheel has no {file}");
    }
    output(
        python3()
            .args(["-m", "unittest", "discover", "-s", "tests"])
            .current_dir(root().join("clients/plugin-kit-python")),
    );
}

/// The `js` blocks of a page, by the file name in the first line of each.
fn scripts(page: &str) -> Vec<(String, String)> {
    let blocks = page.split("```js\n// ").skip(1);
    let script = |block: &str| {
        let (name, rest) = block.split_once('\n').expect("a first line");
        let code = rest.split("```").next().expect("the block's end");
        (name.to_owned(), code.to_owned())
    };
    blocks.map(script).collect()
}

#[test]
fn javascript_kit_passes_its_own_tests_and_its_page_runs() {
    if is_missing_a_language() {
        return;
    }
    let kit = root().join("clients/plugin-kit-javascript");
    let dir = tempfile::tempdir().expect("a directory");
    symlink(node_modules(), dir.path().join("node_modules")).expect("linked");
    let installed = node_modules().join("transom-plugin");
    assert!(!installed.is_symlink(), "installed from its tarball");
    for file in ["src/probe.d.ts", "wit/plugin/0.1.0/plugin.wit", "LICENSE"] {
        assert!(installed.join(file).is_file(), "the package has no {file}");
    }
    fs::write(dir.path().join("package.json"), "{\"type\": \"module\"}").expect("written");
    fs::copy(kit.join("tests/kit.test.js"), dir.path().join("kit.test.js")).expect("copied");
    let page = fs::read_to_string(kit.join("README.md")).expect("a page");
    let scripts = scripts(&page);
    assert_eq!(scripts.len(), 3);
    for (name, code) in scripts {
        fs::write(dir.path().join(name), code).expect("written");
    }
    // The page shows these cases without a test that runs them.
    let ping = r#"[{"endpoint": "a:1", "answers": [{"connected": 1}, {"sent": true}, {"received": "+PONG"}], "expect": {"custom": {"pong": true}}}]"#;
    fs::write(dir.path().join("ping.json"), ping).expect("written");
    let program = node_modules().join(".bin/transom-plugin");
    let mut harness = Command::new("node");
    harness.arg(program).args(["test", "ping.js", "ping.json"]);
    output(harness.current_dir(dir.path()));
    let mut node = Command::new("node");
    node.args(["--test", "kit.test.js", "plugin.test.js"]);
    let stdout = output(node.current_dir(dir.path()));
    assert!(stdout.contains("load tests are dropped"), "{stdout}");
}

/// `cargo package` works, and a plugin can be built with the files of the package alone.
#[test]
fn sdk_package_suffices_to_build_plugins() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cargo = Command::new("cargo");
    set_build_environment(&mut cargo);
    cargo
        .args([
            "package",
            "--package",
            "transom-sdk",
            "--offline",
            "--allow-dirty",
            "--no-verify",
        ])
        .arg("--target-dir")
        .arg(dir.path())
        .current_dir(root());
    output(&mut cargo);
    let packages = dir.path().join("package");
    let package = fs::read_dir(&packages)
        .expect("a folder")
        .filter_map(|it| Some(it.ok()?.path()))
        .find(|it| it.extension().is_some_and(|it| it == "crate"))
        .expect("a package");
    output(
        Command::new("tar")
            .arg("xzf")
            .arg(&package)
            .current_dir(dir.path()),
    );
    let unpacked = dir.path().join(package.file_stem().expect("a name"));
    for file in ["README.md", "LICENSE", "wit/probe/0.1.0/probe.wit"] {
        let metadata = fs::symlink_metadata(unpacked.join(file)).expect(file);
        assert!(metadata.is_file(), "{file}");
    }
    run_transom(
        dir.path(),
        &[
            "plugin",
            "new",
            "mine",
            "--world",
            "event-filter",
            "--language",
            "rust",
        ],
    );
    let project = dir.path().join("mine");
    fs::remove_dir_all(project.join("vendor/transom-sdk")).expect("removed");
    symlink(&unpacked, project.join("vendor/transom-sdk")).expect("linked");
    run_transom(&project, &["plugin", "build"]);
    run_transom(&project, &["plugin", "test", "out/mine.wasm", "cases.toml"]);
}
