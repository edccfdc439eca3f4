//! The upgrade promise: a daemon serves what the previous minor version has stored, and rejects
//! what a newer one has written.
//!
//! The data in `tests/fixtures/upgrade` was written by real daemons. With `TRANSOM_UPDATE=1` these
//! tests write the data of the version under test (`docs/upgrade.md` has the command).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use transom_testkit::redis::RedisServer;
use transom_tests::process::{Transom, binary};
use transom_tests::upgrade::{StoredSite, fixtures};

/// The minor version whose data is read: the current one, until the next minor version begins.
const PREVIOUS: &str = "0.1";

fn is_update() -> bool {
    std::env::var_os("TRANSOM_UPDATE").is_some()
}

/// Runs a shell command with the paths as `$0` and `$1`.
fn shell(script: &str, first: &Path, second: &Path) {
    let status = Command::new("sh")
        .args(["-euc", script])
        .args([first, second])
        .status();
    assert!(status.expect("sh").success(), "{script}");
}

/// The history of a plugin still contains the versions that the previous daemon admitted.
async fn check_history(stored: &StoredSite) {
    let history = stored.history("events").await;
    let admitted = history.iter().filter(|outcome| *outcome == "admitted").count();
    assert!(admitted >= 2, "{history:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_embedded_store_of_the_previous_version_is_served() {
    let mut stored = StoredSite::new();
    let archive = fixtures(PREVIOUS).join("store.tar.gz");
    let address = format!("file:{}", stored.store().display());
    if is_update() {
        stored.start(&address);
        stored.create_records().await;
        let dir = stored.stop();
        fs::create_dir_all(fixtures(PREVIOUS)).expect("made");
        shell("tar -C \"$0\" -c store | gzip -9n > \"$1\"", dir.path(), &archive);
        return;
    }
    shell("tar -C \"$0\" -xzf \"$1\"", stored.dir.path(), &archive);
    stored.start(&address);
    stored.wait_until_served().await;
    check_history(&stored).await;
    stored.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_of_the_previous_version_is_served() {
    let dump = fixtures(PREVIOUS).join("redis.rdb");
    let mut stored = StoredSite::new();
    if is_update() {
        let redis = RedisServer::in_memory().started();
        stored.start(&redis.address().to_string());
        stored.create_records().await;
        stored.stop();
        fs::create_dir_all(fixtures(PREVIOUS)).expect("made");
        redis.dump(&dump).await;
        return;
    }
    let redis = RedisServer::in_memory().with_dump(&dump).started();
    stored.start(&redis.address().to_string());
    stored.wait_until_served().await;
    check_history(&stored).await;
    stored.stop();
}

/// One key of each kind of record in the dump. The kind is the folder of the key.
async fn records_by_kind(redis: &RedisServer) -> BTreeMap<String, (String, Value)> {
    let mut kinds = BTreeMap::new();
    let mut keys = redis.texts(&["KEYS", "*"]).await;
    keys.sort();
    // The store's own keys and the leases are not records.
    keys.retain(|key| !key.starts_with("transom:") && !key.ends_with(":lease"));
    for key in keys {
        let value = redis.texts(&["GET", &key]).await.concat();
        // Numbers and texts, such as the framework id, have no format that could change.
        let Ok(record @ Value::Object(_)) = serde_json::from_str(&value) else {
            continue;
        };
        let folder = key.rsplit_once('/').map_or(key.as_str(), |(folder, _)| folder);
        kinds.entry(folder.to_owned()).or_insert((key, record));
    }
    kinds
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_a_newer_version_are_rejected_by_name() {
    let dump = fixtures(PREVIOUS).join("redis.rdb");
    let found = records_by_kind(&RedisServer::in_memory().with_dump(&dump).started()).await;
    assert!(found.len() > 5, "{found:?}");
    let stored = StoredSite::new();
    for (key, mut record) in found.into_values() {
        let redis = RedisServer::in_memory().with_dump(&dump).started();
        record["record_version"] = 2.into();
        let newer = record.to_string();
        redis.command(&["SET", &key, &newer]).await;
        let expected = format!("record `{key}` in the store has version 2");
        let line = stored
            .start_until_line(&redis.address().to_string(), &expected)
            .await;
        for expected in ["reads versions up to 1", "restore a backup"] {
            assert!(line.contains(expected), "{line}");
        }
        assert_eq!(redis.texts(&["GET", &key]).await, [newer], "{key} has changed");
    }
    stored.stop();
}

#[test]
fn settings_of_a_newer_version_are_rejected_before_their_keys() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("transom.toml");
    fs::write(&file, "settings_version = 2\n[newer]\nkey = 1\n").expect("written");
    let mut daemon = Transom::start(dir.path(), ["serve", "--config", "transom.toml"]);
    let status = daemon.wait();
    assert_eq!(status.code(), Some(2), "{}", daemon.output());
    let output = daemon.output();
    for expected in [
        "settings_version",
        "version 2 of the settings",
        "reads version 1",
        "a newer transom",
    ] {
        assert!(output.contains(expected), "{expected}: {output}");
    }
    fs::write(&file, "settings_version = 1\n").expect("written");
    let mut check = Command::new(binary());
    check.args(["config", "check", "--config"]).arg(&file);
    assert!(check.output().expect("transom").status.success());
}
