//! The packages for plugin authors: `transom-sdk` from its crate, and `transom-plugin` for Python
//! and JavaScript as `cargo xtask test` installed them, from a wheel and a tarball.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use transom_tests::authors::{
    is_missing_a_language, node_modules, python, run_transom, set_build_environment,
};
use transom_tests::process::{binary, components};

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

/// Runs the unit tests of a project in Python in its folder.
fn run_python_tests(python: &mut Command, project: &Path) {
    python
        .args(["-m", "unittest", "discover", "-s", "tests"])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(project);
    let output = python.output().expect("it runs");
    let report = String::from_utf8_lossy(&output.stderr);
    let has_passed = output.status.success() && !report.contains("Ran 0 tests");
    assert!(has_passed, "{}: {report}", project.display());
}

/// Runs the unit tests of a project in JavaScript in its folder.
fn run_javascript_tests(project: &Path) {
    let mut node = Command::new("node");
    let report = output(node.args(["--test", "plugin.test.js"]).current_dir(project));
    assert!(!report.contains("pass 0\n"), "{}: {report}", project.display());
}

/// The examples whose components are not built here.
#[test]
fn examples_pass_their_unit_tests() {
    if is_missing_a_language() {
        return;
    }
    for name in ["dedicated-python", "smallest-python"] {
        run_python_tests(python3().env("PYTHONPATH", "src"), &example(name));
    }
    for name in ["dedicated-javascript", "redis-ping-javascript"] {
        run_javascript_tests(&example(name));
    }
}

#[test]
fn components_made_with_a_kit_pass_their_cases() {
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
        let component = components().join(format!("examples/{name}.wasm"));
        let cases = example(name).join("cases.toml");
        let mut test = Command::new(binary());
        test.args(["plugin", "test", "--output", "json"])
            .args([&component, &cases]);
        let reports: Vec<Value> = serde_json::from_str(&output(&mut test)).expect("JSON");
        assert!(reports.len() >= 3, "{name}: {reports:?}");
        assert!(
            reports.iter().all(|it| it["verdict"] == "passed"),
            "{name}: {reports:?}"
        );
    }
}

/// The projects use the copies of the kits that `transom plugin new` writes. Nothing else is
/// installed.
#[test]
fn new_projects_of_every_world_pass_their_unit_tests() {
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
            if language == "python" {
                let mut python = Command::new("python3");
                run_python_tests(
                    python.env("PYTHONPATH", "src:vendor/transom-plugin/src"),
                    &project,
                );
            } else {
                let modules = project.join("node_modules");
                fs::create_dir(&modules).expect("made");
                symlink("../vendor/transom-plugin", modules.join("transom-plugin")).expect("linked");
                run_javascript_tests(&project);
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
    assert_eq!(scripts.len(), 4);
    for (name, code) in scripts {
        fs::write(dir.path().join(name), code).expect("written");
    }
    let mut node = Command::new("node");
    node.args(["--test", "kit.test.js", "plugin.test.js", "ping.test.js"]);
    let stdout = output(node.current_dir(dir.path()));
    for test in ["load tests are dropped", "a Redis that answers is healthy"] {
        assert!(stdout.contains(test), "{stdout}");
    }
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
