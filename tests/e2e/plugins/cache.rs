//! The cache of compiled components that `transom plugin check`, `test` and `bench` use.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use transom_tests::process::{binary, components};

/// `transom plugin ARGUMENTS` in `dir`, which also contains this user's cache.
fn plugin(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(binary())
        .arg("plugin")
        .args(arguments)
        .current_dir(dir)
        .env_remove("TRANSOM_CACHE_DIR")
        .env("XDG_CACHE_HOME", dir.join("xdg"))
        .output()
        .expect("transom runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The line of `check` about the compilation.
fn compilation(dir: &Path, arguments: &[&str]) -> String {
    let check = [&["check", "events.wasm", "--output", "json"][..], arguments].concat();
    let output = plugin(dir, &check);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let verdict: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let stages = verdict["stages"].as_array().expect("stages");
    let stage = stages.iter().find(|it| it["stage"] == "compile");
    stage.expect("a stage")["detail"]
        .as_str()
        .expect("text")
        .to_owned()
}

/// A folder with a component, its manifest and a case.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    for file in ["events.wasm", "events.toml"] {
        fs::copy(components().join(file), dir.path().join(file)).expect("a component");
    }
    let case =
        "[[case]]\nname = \"one\"\nevents = [{ kind = \"group_change_success\" }]\nexpect = [\"pass\"]\n";
    fs::write(dir.path().join("cases.toml"), case).expect("written");
    dir
}

fn cached(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.join("xdg/transom/plugins/compiled")).expect("a cache");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

#[test]
fn commands_of_authors_share_one_cache_of_compiled_components() {
    let folder = folder();
    let dir = folder.path();
    assert_eq!(compilation(dir, &["--no-cache"]), "compiled");
    assert_eq!(compilation(dir, &[]), "compiled", "nothing was cached before");
    assert_eq!(compilation(dir, &[]), "from the cache");
    for command in [
        &["test", "events.wasm", "cases.toml", "--verbose"][..],
        &["bench", "events.wasm", "cases.toml", "--seconds", "1", "-v"],
    ] {
        let output = plugin(dir, command);
        let stages = text(&output.stderr);
        assert!(output.status.success(), "{stages}");
        assert!(stages.contains("from the cache"), "{stages}");
    }
    let file = cached(dir).remove(0);
    assert_eq!(
        fs::metadata(&file).expect("a file").permissions().mode() & 0o777,
        0o600
    );
    fs::write(&file, "damaged").expect("written");
    let compiled_line = compilation(dir, &[]);
    assert_eq!(
        compiled_line,
        "compiled; the cached file was rejected: it is not a compiled component of this daemon"
    );
    assert_eq!(compilation(dir, &[]), "from the cache");
}

#[test]
fn cache_that_other_users_can_write_to_is_rejected() {
    let folder = folder();
    let dir = folder.path();
    fs::create_dir(dir.join("open")).expect("made");
    fs::set_permissions(dir.join("open"), Permissions::from_mode(0o777)).expect("allowed");
    let output = plugin(dir, &["check", "events.wasm", "--cache-dir", "open"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("--cache-dir open") && error.contains("accessible to other users"),
        "{error}"
    );
    assert!(fs::read_dir(dir.join("open/compiled")).is_ok_and(|mut it| it.next().is_none()));

    // A default cache directory with wrong permissions is reported and not used.
    assert_eq!(compilation(dir, &[]), "compiled");
    fs::set_permissions(dir.join("xdg/transom/plugins"), Permissions::from_mode(0o777)).expect("allowed");
    let output = plugin(dir, &["check", "events.wasm"]);
    let error = text(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert!(
        error.contains("are not cached") && error.contains("chmod go="),
        "{error}"
    );
    assert_eq!(compilation(dir, &[]), "compiled");
}
