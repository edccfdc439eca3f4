//! Admissions are recorded, and operators can roll back to records.

use std::{path::Path, sync::Arc};

use tempfile::TempDir;
use transom_plugin_host::{AdmissionOutcome, Change, CommandError, Config, Durability, probe::Outcome};
use transom_store::Store;

use crate::support::{Site, TIMEOUT, custom, logged};

fn marked(mark: &str) -> String {
    format!(
        "world = \"check-probe\"\n[grants]\nnetwork = [\"10.0.0.0/8:80\"]\n[limits]\nmemory = \"16MiB\"\n\
         [config]\nmark = \"{mark}\"\n"
    )
}

async fn mark(site: &Site, name: &str) -> String {
    let Ok(Outcome::Custom(json)) = site.probe(name, "{}", None).await else {
        panic!("no report")
    };
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    json["mark"].as_str().unwrap().to_owned()
}

async fn site_with_three_versions(name: &str, change: impl FnOnce(&mut Config)) -> Site {
    let first = marked("v1");
    let site = Site::with_config(&[("tests/faulty-probe", name, Some(&first))], change).await;
    for version in ["v2", "v3"] {
        let change = site.replace("tests/faulty-probe", name, &marked(version)).await;
        assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    }
    site
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_rolls_back_and_forth() {
    let site = site_with_three_versions("odd", |_| ()).await;
    let change = site.plugins.rollback("odd", None, "an\noperator").await.unwrap();
    assert!(matches!(change, Change::RolledBack { .. }), "{change:?}");
    assert_eq!(mark(&site, "odd").await, "v2");
    assert_eq!(
        site.plugins.rescan().await,
        [],
        "the files in the directory are ignored"
    );
    for (record, expected) in [(1, "v1"), (3, "v3"), (2, "v2")] {
        site.plugins.rollback("odd", Some(record), "x").await.unwrap();
        assert_eq!(mark(&site, "odd").await, expected, "record {record}");
    }
    let (records, durability) = site.plugins.history("odd");
    assert_eq!(durability, Durability::Memory);
    let sequences: Vec<u64> = records.iter().map(|it| it.sequence).collect();
    assert_eq!(sequences, [7, 6, 5, 4, 3, 2, 1], "newest first");
    let (back, first) = (&records[3], &records[6]);
    assert_eq!(
        (back.outcome, back.by.as_str()),
        (AdmissionOutcome::RolledBack, "an operator")
    );
    assert_eq!(
        (first.outcome, first.by.as_str()),
        (AdmissionOutcome::Admitted, "directory")
    );
    assert_eq!(first.world.as_deref(), Some("check-probe"));
    assert_eq!(first.digest, site.status("odd").digest);
    assert_eq!(first.imports, ["transom:plugin/log"]);
    assert_eq!(first.grants["network"], serde_json::json!(["10.0.0.0/8:80"]));
    assert_eq!(first.limits["memory"], serde_json::json!(16 << 20));
    assert_ne!(first.config, records[5].config);
    assert!(first.files.is_some());

    for (name, record, error) in [
        ("none", None, CommandError::Unknown { name: "none".into() }),
        (
            "odd",
            Some(99),
            CommandError::NoRecord {
                name: "odd".into(),
                record: 99,
            },
        ),
    ] {
        assert_eq!(site.plugins.rollback(name, record, "x").await, Err(error));
    }
    let change = site.replace("tests/faulty-probe", "odd", &marked("v4")).await;
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    assert_eq!(mark(&site, "odd").await, "v4");
    let plugins = site.plugins.clone();
    site.stop().await;
    assert_eq!(
        plugins.rollback("odd", None, "x").await,
        Err(CommandError::Stopped)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejections_and_removals_are_recorded() {
    let site = Site::with(&[("tests/faulty-probe", "odd", Some(&marked("v1")))]).await;
    assert_eq!(
        site.plugins.rollback("odd", None, "x").await,
        Err(CommandError::NothingBefore { name: "odd".into() })
    );
    site.replace("tests/faulty-probe", "odd", "world = \"event-filter\"")
        .await;
    site.change_files(|| std::fs::remove_file(site.dir.path().join("odd.wasm")).unwrap())
        .await;
    let (records, _) = site.plugins.history("odd");
    let outcomes: Vec<AdmissionOutcome> = records.iter().map(|it| it.outcome).collect();
    assert_eq!(
        outcomes,
        [
            AdmissionOutcome::Removed,
            AdmissionOutcome::Rejected,
            AdmissionOutcome::Admitted
        ]
    );
    let reason = records[1].reason.as_deref().unwrap();
    assert!(reason.contains("does not export"), "{reason}");
    site.stop().await;
}

async fn store(dir: &TempDir) -> Arc<dyn Store> {
    let server = format!("file:{}", dir.path().display());
    transom_store::open(&server).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollback_survives_a_restart_with_a_store() {
    let state = TempDir::new().unwrap();
    let store = store(&state).await;
    let with_store = |config: &mut Config| {
        config.store = Some(Arc::clone(&store));
        config.prefix = "a/b".to_owned();
    };
    let site = site_with_three_versions("odd", with_store).await;
    site.plugins.rollback("odd", Some(1), "x").await.unwrap();
    let (before, durability) = site.plugins.history("odd");
    assert_eq!((before.len(), durability), (4, Durability::Store));
    let keys: Vec<String> = store
        .scan("a/b/plugins/odd/")
        .await
        .unwrap()
        .into_iter()
        .map(|entry| entry.key)
        .collect();
    assert_eq!(keys.len(), 4);
    assert_eq!(keys[0], "a/b/plugins/odd/00000000000000000001");

    // The directory contains v3, and the records say that v1 serves.
    let site = site.restart(|_| (), with_store).await;
    assert_eq!(mark(&site, "odd").await, "v1");
    assert_eq!(site.plugins.history("odd").0, before, "a restart adds no record");
    assert_eq!(
        site.metric("transom_plugins_compiled_cache_total{result=\"hit\"}"),
        1
    );
    assert_eq!(
        site.metric("transom_plugins_compiled_cache_total{result=\"miss\"}"),
        0
    );
    let change = site.replace("tests/faulty-probe", "odd", &marked("v4")).await;
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    site.plugins.rollback("odd", Some(2), "x").await.unwrap();

    // If the stored files of that version are missing, the files in the directory serve, and the
    // log has the reason.
    let lose = |dir: &Path| std::fs::remove_dir_all(dir.join(".transom/manifests")).unwrap();
    let site = site.restart(lose, with_store).await;
    assert_eq!(mark(&site, "odd").await, "v4");
    assert!(logged(&[
        "plugin=\"odd\"",
        "cannot restore the version",
        "are missing"
    ]));
    let result = site.plugins.rollback("odd", Some(2), "x").await;
    assert!(
        matches!(result, Err(CommandError::NotKept { record: 2, .. })),
        "{result:?}"
    );
    assert_eq!(mark(&site, "odd").await, "v4");
    site.stop().await;
}

/// Without a private directory, rollbacks are impossible, and components are compiled again at each
/// start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollback_without_private_directory_fails() {
    let nothing = |config: &mut Config| config.private = None;
    let site = site_with_three_versions("odd", nothing).await;
    let found = site.plugins.rollback("odd", None, "x").await;
    assert!(
        matches!(&found, Err(CommandError::NotKept { message, .. }) if message.contains("no private directory")),
        "{found:?}"
    );
    assert!(!site.dir.path().join(".transom").exists());
    let site = site.restart(|_| (), nothing).await;
    assert_eq!(mark(&site, "odd").await, "v3");
    assert_eq!(site.plugins.history("odd").0.len(), 1);
    assert_eq!(
        site.metric("transom_plugins_compiled_cache_total{result=\"hit\"}"),
        0
    );
    site.stop().await;
}

/// A corrupt file in the private directory is compiled again and logged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn corrupt_cache_does_not_prevent_admission() {
    let site = Site::with(&[("tests/faulty-probe", "odd", Some(&marked("v1")))]).await;
    let spoil = |dir: &Path| {
        for entry in std::fs::read_dir(dir.join(".transom/compiled")).unwrap() {
            let path = entry.unwrap().path();
            let mut content = std::fs::read(&path).unwrap();
            let middle = content.len() / 2;
            content[middle] ^= 0x40;
            std::fs::write(&path, content).unwrap();
        }
    };
    let site = site.restart(spoil, |_| ()).await;
    assert_eq!(
        site.metric("transom_plugins_compiled_cache_total{result=\"rejected\"}"),
        1
    );
    assert!(logged(&[
        &site.dir.path().display().to_string(),
        "its content does not match its digest"
    ]));
    let look = tokio::time::timeout(TIMEOUT, site.probe("odd", "{}", None))
        .await
        .unwrap();
    assert_eq!(look, Ok(custom(r#"{"mark": "v1", "attempt": 1}"#)));
    site.stop().await;
}
