//! Stores of later and earlier formats, and unfinished copies.

use super::*;

#[tokio::test]
async fn daemon_rejects_a_later_format_and_an_incomplete_copy() {
    for (record, expected) in [
        (json!({"format": 2, "more": {}}), "have format 2"),
        (
            json!({"format": 1, "copied_from": "Marathon fw", "incomplete": true}),
            "a part of the records of Marathon fw",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let store = opened(&dir).await;
        let text = record.to_string();
        store.put("apps/format", text.into(), Expect::Any).await.unwrap();
        let error = format::check(&TypedStore::new(Arc::clone(&store), "apps"))
            .await
            .unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(transom_framework::ServiceError::is_permanent(&error));
        assert!(Backup::of_store(store, "apps").await.is_err());
    }
}

/// The fixture `tests/fixtures/store-1.json` was written by a daemon from before stores had a
/// format.
#[tokio::test]
async fn store_of_the_first_daemons_is_read_and_gets_its_format() {
    let text = include_str!("../../../tests/fixtures/store-1.json");
    let raw: BTreeMap<String, Value> = serde_json::from_str(text).unwrap();
    assert!(!raw.contains_key("format") && raw.contains_key("term"));
    let dir = tempfile::tempdir().unwrap();
    let store = opened(&dir).await;
    let batch = raw.iter().fold(Batch::new(), |batch, (key, value)| {
        let value = match (key.as_str(), value) {
            ("framework-id", Value::String(text)) => text.clone(),
            (_, value) => value.to_string(),
        };
        batch.put(format!("apps/{key}"), value, Expect::Absent)
    });
    store.commit(batch).await.unwrap();
    let typed = TypedStore::new(Arc::clone(&store), "apps");
    assert_eq!(format::check(&typed).await.unwrap(), None);
    let loaded = Repository::new(typed).counts().await.unwrap();
    assert!(
        loaded.iter().all(|count| *count > 0),
        "specs, groups, deployments and changes: {loaded:?}"
    );
    let backup = Backup::of_store(Arc::clone(&store), "apps").await.unwrap();
    let tasks = || raw.keys().filter(|key| key.starts_with("tasks/"));
    assert!(tasks().count() > 0);
    assert!(
        backup
            .carried()
            .iter()
            .any(|one| one.kind == "pod" && one.tasks > 0)
    );
    // The service accepts these records too.
    drop(store);
    let scheduler = ScriptedScheduler::new(agent());
    for task in tasks() {
        scheduler.take_over(serde_json::from_value(raw[task].clone()).unwrap());
    }
    let world = World::with(crate::Config::default(), scheduler, Components::new(), dir).await;
    let apps = world.get("/v2/apps").await;
    assert!(!apps["apps"].as_array().unwrap().is_empty(), "{apps}");
    assert_eq!(world.scheduler.launches(), 0);
    let (_, _, dir) = world.stop().await;
    let typed = TypedStore::new(opened(&dir).await, "apps");
    assert_eq!(format::check(&typed).await.unwrap().unwrap().format, 1);
}
