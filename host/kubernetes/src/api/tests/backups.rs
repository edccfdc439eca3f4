//! `/datastore/backups` with a real directory and a scripted core.

use std::io::Write;
use std::path::Path;

use http::Method;
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::site::{Answer, Site, running};
use crate::backup::delivery::Entry;
use crate::backup::directory::Directory;
use crate::backup::{Manifest, Operation, OperationKind, Outcome, Phase};
use crate::core::command::Rejection;
use crate::settings::Engine;

const BACKUPS: &str = "/api/fw/v0/datastore/backups";

/// A leader with a backup called `fw-1`.
fn site(folder: &Path) -> (Site, Directory) {
    let directory = Directory::new(folder, "fw");
    let mut file = directory.receive().unwrap();
    file.write_all(b"data").unwrap();
    let manifest = Manifest {
        name: "fw-1".to_owned(),
        framework: "fw".to_owned(),
        engine: Engine::Sql,
        version: "v1.31.5".to_owned(),
        created: Timestamp::from_second(0).unwrap(),
        size: 4,
        sha256: format!("{:x}", Sha256::digest("data")),
        token: None,
    };
    directory.finish(&manifest).unwrap();
    let site = Site::with_backups(directory.clone());
    site.views.publish(running());
    (site, directory)
}

fn operation(kind: OperationKind, backup: &str) -> Operation {
    let timeout = std::time::Duration::from_mins(1);
    Operation::new(kind, backup.to_owned(), Timestamp::now(), timeout)
}

fn states(answer: &Answer) -> Vec<(String, String)> {
    let document = answer.json();
    let backups = document["backups"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    backups
        .map(|backup| (text(&backup["name"]), text(&backup["state"])))
        .collect()
}

#[tokio::test]
async fn complete_running_and_failed_backups_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let (site, _) = site(folder.path());
    let mut view = running();
    view.backup.operation = Some(operation(OperationKind::Backup, "fw-3"));
    view.backup.last_backup = Some(Outcome {
        backup: "fw-2".to_owned(),
        ended: Timestamp::now(),
        problem: Some("why".to_owned()),
    });
    site.views.publish(view);
    let expected = [("fw-1", "complete"), ("fw-2", "failed"), ("fw-3", "running")];
    let expected = expected.map(|(name, state)| (name.to_owned(), state.to_owned()));
    let list = site.get(BACKUPS).await;
    assert_eq!(states(&list), expected);
    assert_eq!(list.json()["operation"]["phase"], "dump");
    assert!(list.json()["operation"].get("token").is_none());
    let one = site.get(&format!("{BACKUPS}/fw-1")).await.json();
    assert_eq!((&one["size"], &one["engine"]), (&4.into(), &"sql".into()));
    let failed = site.get(&format!("{BACKUPS}/fw-2")).await.json();
    assert_eq!(failed["reason"], "why");
    let path = format!("{BACKUPS}/fw-4");
    site.get(&path).await.is_error(&path, 404);
    let explained = site.get("/api/fw/v0/explain").await.json();
    assert_eq!(explained["operation"]["backup"], "fw-3");
    let status = site.get("/api/fw/v0/status/fw").await.json();
    assert!(status["Operation"].as_str().unwrap().contains("fw-3"), "{status}");
}

#[tokio::test]
async fn operations_are_accepted_or_rejected_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (site, directory) = site(folder.path());
    let created = site.ask(Method::POST, BACKUPS).await;
    assert_eq!(
        (created.status.as_u16(), created.text.as_str()),
        (202, "{\"name\":\"fw-1\"}")
    );
    let restore = format!("{BACKUPS}/fw-1/restore");
    let restored = site.ask(Method::POST, &restore).await;
    assert_eq!(restored.status, 202, "{restored:?}");
    assert_eq!(site.received_commands(), ["back up", "restore fw-1"]);
    for (rejection, status) in [
        (Rejection::OperationUnderWay("x".to_owned()), 409),
        (Rejection::DatastoreNotHealthy, 409),
        (Rejection::DatastoreOutside, 422),
        (Rejection::NoBackupDirectory, 422),
        (
            Rejection::OtherEngine {
                backup: "sql",
                datastore: "kvstore",
            },
            422,
        ),
    ] {
        site.reject(rejection);
        site.ask(Method::POST, &restore).await.is_error(&restore, status);
    }
    site.received_commands();

    // The core gets no request for a backup that cannot be restored.
    let unknown = format!("{BACKUPS}/..%2Ffw-1/restore");
    site.ask(Method::POST, &unknown).await.is_error(&unknown, 404);
    for data in ["dat", "dada"] {
        std::fs::write(directory.data_path("fw-1"), data).unwrap();
        let rejected = site.ask(Method::POST, &restore).await;
        rejected.is_error(&restore, 422);
        assert!(rejected.text.contains("damaged"), "{rejected:?}");
    }
    let mut view = running();
    view.backup.operation = Some(operation(OperationKind::Restore, "fw-1"));
    site.views.publish(view);
    let one = format!("{BACKUPS}/fw-1");
    site.ask(Method::DELETE, &one).await.is_error(&one, 409);
    site.views.publish(running());
    assert_eq!(site.ask(Method::DELETE, &one).await.status, 200);
    assert_eq!(states(&site.get(BACKUPS).await), []);
    assert_eq!(site.received_commands(), [""; 0]);
}

#[tokio::test]
async fn backup_is_rejected_if_the_directory_cannot_be_written() {
    let site = Site::with_backups(Directory::new(Path::new("/proc/backups"), "fw"));
    let rejected = site.ask(Method::POST, BACKUPS).await;
    rejected.is_error(BACKUPS, 507);
    assert!(rejected.text.contains("/proc/backups"), "{rejected:?}");
    assert_eq!(site.received_commands(), [""; 0]);

    let site = Site::start();
    let restore = format!("{BACKUPS}/fw-1/restore");
    site.ask(Method::POST, &restore).await.is_error(&restore, 422);
}

#[tokio::test]
async fn fetcher_gets_the_backup_that_is_being_restored() {
    let folder = tempfile::tempdir().unwrap();
    let (site, directory) = site(folder.path());
    let entry = Entry {
        sha256: "d".to_owned(),
        token: "t".to_owned(),
        file: directory.data_path("fw-1"),
    };
    let path = entry.path();
    site.get(&path).await.is_error(&path, 404);
    site.delivery.set(Some(entry));
    let received_commands = site.get(&path).await;
    assert_eq!(
        (
            received_commands.text.as_str(),
            received_commands.header("content-length")
        ),
        ("data", Some("4"))
    );
    site.get("/backup/d/x").await.is_error("/backup/d/x", 404);
    directory.delete("fw-1").unwrap();
    site.get(&path).await.is_error(&path, 404);
}

#[tokio::test]
async fn restore_that_is_stuck_is_described() {
    let site = Site::start();
    let mut view = running();
    view.backup.operation = Some(Operation {
        phase: Phase::Held,
        problem: Some("why".to_owned()),
        ..operation(OperationKind::Restore, "fw-1")
    });
    site.views.publish(view);
    let operation = site.get(BACKUPS).await.json()["operation"].clone();
    assert_eq!(
        (&operation["phase"], &operation["reason"]),
        (&"held".into(), &"why".into())
    );
    assert!(
        operation["text"].as_str().unwrap().contains("stay stopped"),
        "{operation}"
    );
}
