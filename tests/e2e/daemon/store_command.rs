//! `transom store`: a site moves between all kinds of store without a restarted task, and its backup is
//! restored.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use transom_store::transfer::{Holds, KEY, Progress, Snapshot, read_dump, write};
use transom_store::{Batch, Expect};
use transom_testkit::redis::RedisServer;
use transom_testkit::zookeeper::Ensemble;
use transom_tests::process::binary;
use transom_tests::upgrade::{StoredSite, fixtures};

/// What `transom store` with these arguments prints as JSON, if it succeeds; otherwise its exit code and its
/// error.
fn store(arguments: &[&str]) -> Result<Value, (i32, String)> {
    let output = Command::new(binary())
        .arg("store")
        .args(arguments)
        .args(["--output", "json"])
        .output()
        .expect("transom");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(0) => Ok(serde_json::from_slice(&output.stdout).expect("JSON")),
        code => Err((code.expect("an exit code"), error)),
    }
}

fn rejected(arguments: &[&str], code: i32, part: &str) {
    let error = store(arguments).expect_err(part);
    assert!(
        error.0 == code && error.1.contains(part),
        "{arguments:?}: {error:?}"
    );
}

/// The framework ids by name, the ids of all tasks, and the number of launches of each task.
#[derive(Debug, PartialEq)]
struct Running {
    frameworks: BTreeMap<String, Value>,
    tasks: Vec<String>,
    launches: BTreeMap<String, usize>,
}

impl Running {
    /// `server`: the store, beside its daemon or without one.
    fn on(site: &StoredSite, server: &str) -> Self {
        let report = store(&["check", "--store", server]).expect("no damage");
        let frameworks = report["frameworks"].as_array().expect("frameworks").iter();
        let frameworks = frameworks.map(|one| {
            (
                one["name"].as_str().unwrap().to_owned(),
                one["framework_id"].clone(),
            )
        });
        let dump = site.dir.path().join("tasks.jsonl");
        store(&["dump", "--store", server, "--to", dump.to_str().unwrap()]).expect("a dump");
        let (_, snapshot) = read_dump(fs::File::open(&dump).unwrap()).unwrap();
        fs::remove_file(dump).unwrap();
        let keys = snapshot.entries().iter().map(|entry| entry.key.clone());
        Self {
            frameworks: frameworks.collect(),
            tasks: keys.filter(|key| key.contains("/tasks/")).collect(),
            launches: site.launches(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_moves_between_all_kinds_of_store_without_a_restarted_task() {
    let (ensemble, redis) = (Ensemble::start().await, RedisServer::in_memory().started());
    let mut site = StoredSite::new();
    let file = format!("file:{}", site.store().display());
    let zookeeper = format!("zk://site:secret@{}/transom", ensemble.address());
    let redis = redis.address().to_string();
    let other = format!("file:{}", site.dir.path().join("other").display());

    site.start(&file);
    site.create_records().await;
    rejected(
        &["copy", "--from", &file, "--to", &zookeeper],
        3,
        "a daemon runs on this store: stop it first",
    );
    site.stop_daemon();
    let before = Running::on(&site, &file);
    assert_eq!(before.frameworks.len(), 3, "{before:?}");
    assert!(before.tasks.len() >= 5, "{before:?}");

    let copied = store(&["copy", "--from", &file, "--to", &zookeeper]).expect("a copy");
    assert!(!copied.to_string().contains("secret"), "{copied}");
    rejected(
        &["copy", "--from", &file, "--to", &zookeeper],
        1,
        "use an empty store",
    );
    site.start(&zookeeper);
    site.wait_until_served().await;
    assert_eq!(Running::on(&site, &zookeeper), before);
    let report = store(&["check", "--store", &zookeeper]).expect("no damage");
    let leaders = report["frameworks"].as_array().unwrap().iter();
    assert!(
        leaders.map(|one| &one["leader"]).all(Value::is_string),
        "{report}"
    );
    rejected(
        &["copy", "--from", &zookeeper, "--to", &redis],
        1,
        "a daemon leads on this store",
    );
    site.stop_daemon();

    store(&["copy", "--from", &zookeeper, "--to", &redis]).expect("a copy");
    store(&["copy", "--from", &redis, "--to", &other]).expect("a copy");
    assert_eq!(Running::on(&site, &other), before);
    site.start(&other);
    site.wait_until_served().await;
    site.stop_daemon();
    assert_eq!(Running::on(&site, &other), before);
    site.stop();
}

/// A new folder with the store of an earlier daemon, in which all kinds of records are, and its address.
fn stored() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut tar = Command::new("tar");
    tar.arg("-C")
        .arg(dir.path())
        .arg("-xzf")
        .arg(fixtures("0.1").join("store.tar.gz"));
    assert!(tar.status().expect("tar").success());
    let address = format!("file:{}", dir.path().join("store").display());
    (dir, address)
}

#[test]
fn a_dump_is_restored_and_checked() {
    let (dir, server) = stored();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (dump, again) = (path("dump.jsonl.gz"), path("again.jsonl"));
    let restored = format!("file:{}", path("restored"));
    let report = store(&["check", "--store", &server]).expect("no damage");
    let services = report["frameworks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["service"].clone());
    let services: Vec<Value> = services.collect();
    assert_eq!(services, ["workflow", "kubernetes", "apps"]);
    assert_eq!(report["unknown"], Value::Array(Vec::new()), "{report}");

    let dumped = store(&["dump", "--store", &server, "--to", &dump]).expect("a dump");
    assert_eq!(dumped["entries"], report["entries"]);
    assert_eq!(fs::metadata(&dump).unwrap().permissions().mode() & 0o777, 0o600);
    rejected(&["dump", "--store", &server, "--to", &dump], 3, "cannot create");
    let whole = fs::read(&dump).unwrap();
    fs::write(&again, &whole[..whole.len() / 2]).unwrap();
    rejected(&["restore", "--from", &again, "--store", &restored], 1, "line ");
    assert!(
        !Path::new(&path("restored")).exists(),
        "a damaged dump creates no store"
    );
    fs::remove_file(&again).unwrap();

    let written = store(&["restore", "--from", &dump, "--store", &restored]).expect("a restore");
    assert_eq!(written["digest"], dumped["digest"]);
    rejected(
        &["restore", "--from", &dump, "--store", &restored],
        1,
        "use an empty store",
    );
    let mut of_restored = store(&["check", "--config", &restored]).expect("no damage");
    of_restored["server"] = report["server"].clone();
    assert_eq!(of_restored, report);
    rejected(
        &["check", "--store", &format!("file:{}", path("missing"))],
        3,
        "there is no store",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unfinished_copy_is_rejected_until_it_is_continued() {
    let (dir, server) = stored();
    let target = format!("file:{}", dir.path().join("target").display());
    let source = transom_store::open(&server).await.unwrap();
    let snapshot = Snapshot::of_store(&*source).await.unwrap();
    drop(source);
    let holds = Holds::acquire(transom_store::open(&target).await.unwrap(), [])
        .await
        .unwrap();
    write(&snapshot, &server, &holds, |_| {}).await.unwrap();
    holds.release().await;

    let site = StoredSite::new();
    let line = site.start_until_line(&target, "unfinished copy").await;
    assert!(line.contains("repeat the same `transom store copy`"), "{line}");
    site.stop();
    rejected(&["check", "--store", &target], 1, "unfinished copy");
    rejected(
        &["dump", "--store", &target, "--to", "/dev/null"],
        1,
        "unfinished copy",
    );
    // The source has changed since.
    let changed = transom_store::open(&server).await.unwrap();
    let key = snapshot.entries()[0].key.clone();
    changed.delete(&key, Expect::Any).await.unwrap();
    drop(changed);
    let copy = ["copy", "--from", &server, "--to", &target];
    rejected(&copy, 1, "--restart");
    store(&[&copy[..], &["--restart"]].concat()).expect("a copy");
    store(&["check", "--store", &target]).expect("no damage");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_copy_continues() {
    // The copy writes about a hundred batches.
    const MORE: usize = 100_000;
    let (_dir, server) = stored();
    let source = transom_store::open(&server).await.unwrap();
    for first in (0..MORE).step_by(1_000) {
        let numbers = first..first + 1_000;
        let batch = numbers.fold(Batch::new(), |batch, number| {
            batch.put(format!("strange/{number:06}"), "1", Expect::Any)
        });
        source.commit(batch).await.unwrap();
    }
    drop(source);
    let redis = RedisServer::durable().started();
    let target = redis.address().to_string();
    let copy = ["copy", "--from", &server, "--to", &target];
    let mut killed = Command::new(binary())
        .arg("store")
        .args(copy)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("transom");
    let opened = transom_store::open(&target).await.unwrap();
    while opened.get(KEY).await.unwrap().is_none() {
        assert!(killed.try_wait().unwrap().is_none(), "the copy ended");
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let entry = opened.get(KEY).await.unwrap().expect("an unfinished copy");
    let progress: Progress = serde_json::from_slice(&entry.value).unwrap();
    assert!(progress.copied > 0 && progress.copied < progress.contents.entries);
    rejected(&["check", "--store", &target], 1, "unfinished copy");
    let busy = store(&copy).expect_err("the killed one still holds its lease");
    assert!(busy.1.contains("another command"), "{busy:?}");
    let is_held = async || {
        let lease = opened.lease(KEY).await.unwrap();
        lease.is_some_and(|lease| !lease.remaining().is_zero())
    };
    while is_held().await {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let copied = store(&copy).expect("a copy");
    assert_eq!(opened.get(KEY).await.unwrap(), None);
    let mut report = store(&["check", "--store", &target]).expect("no damage");
    let expected = store(&["check", "--store", &server]).expect("no damage");
    report["server"] = expected["server"].clone();
    assert_eq!(report, expected);
    assert_eq!(copied["entries"], report["entries"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_records_are_reported() {
    let (_dir, server) = stored();
    let opened = transom_store::open(&server).await.unwrap();
    let opened: Arc<dyn transom_store::Store> = opened;
    let keys = opened.scan("").await.unwrap().into_iter().map(|entry| entry.key);
    let task = keys.into_iter().find(|key| key.contains("/tasks/")).unwrap();
    for (key, value) in [(task.as_str(), "{}"), ("strange/x", "1")] {
        opened.put(key, value.into(), Expect::Any).await.unwrap();
    }
    drop(opened);
    rejected(&["check", "--store", &server], 1, "1 record cannot be used");
    let output = Command::new(binary())
        .args(["store", "check", "--store", &server])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    for part in [
        task.as_str(),
        "missing field",
        "strange/x",
        "1 of them damaged or newer, 1 unknown",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
