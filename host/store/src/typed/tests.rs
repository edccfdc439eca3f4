use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use serde::Deserialize;

use super::*;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    text: String,
}

fn note(text: &str) -> Note {
    Note {
        text: text.to_owned(),
    }
}

/// An embedded store that records the sizes of batches, and hangs on request.
#[derive(Debug)]
struct RecordingStore {
    inner: Arc<dyn Store>,
    sizes: Mutex<Vec<usize>>,
    hangs: AtomicBool,
    _dir: tempfile::TempDir,
}

impl RecordingStore {
    async fn new() -> Arc<Self> {
        let dir = tempfile::tempdir().unwrap();
        let inner = crate::open(&format!("file:{}", dir.path().display()))
            .await
            .unwrap();
        Arc::new(Self {
            inner,
            sizes: Mutex::default(),
            hangs: AtomicBool::new(false),
            _dir: dir,
        })
    }

    async fn hang_if_requested(&self) {
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Store for RecordingStore {
    async fn get(&self, key: &str) -> crate::Result<Option<Entry>> {
        self.hang_if_requested().await;
        self.inner.get(key).await
    }

    async fn scan(&self, prefix: &str) -> crate::Result<Vec<Entry>> {
        self.hang_if_requested().await;
        self.inner.scan(prefix).await
    }

    async fn commit(&self, batch: Batch) -> crate::Result<Vec<u64>> {
        self.hang_if_requested().await;
        self.sizes.lock().unwrap().push(batch.changes().len());
        self.inner.commit(batch).await
    }
}

#[tokio::test]
async fn records_are_loaded_as_they_were_put() {
    let store = RecordingStore::new().await;
    let notes = TypedStore::new(store.clone(), "fw");
    let all = ["b", "a"].map(|key| (format!("notes/{key}"), note(key)));
    notes.put_all(all).await.unwrap();
    TypedStore::new(store, "fw2")
        .put_all([("notes/c".to_owned(), note("c"))])
        .await
        .unwrap();
    let loaded = notes.load_all::<Note>("notes/").await.unwrap();
    let loaded: Vec<_> = loaded
        .into_iter()
        .map(|stored| (stored.key, stored.value.text))
        .collect();
    assert_eq!(
        loaded,
        [("notes/a", "a"), ("notes/b", "b")].map(|(key, text)| (key.to_owned(), text.to_owned()))
    );
    notes
        .delete_all(["notes/a".to_owned(), "notes/absent".to_owned()])
        .await
        .unwrap();
    assert_eq!(notes.get::<Note>("notes/a").await.unwrap(), None);
    let remaining = notes.get::<Note>("notes/b").await.unwrap().unwrap();
    assert_eq!(remaining.value, note("b"));
}

#[tokio::test]
async fn changes_are_applied_as_a_whole_or_not_at_all() {
    let notes = TypedStore::new(RecordingStore::new().await, "fw");
    let mut changes = Changes::default();
    changes.put("a", &note("1"), Expect::Absent).unwrap();
    let versions = notes.commit(changes).await.unwrap();
    let mut changes = Changes::default();
    changes.put("b", &note("2"), Expect::Absent).unwrap();
    changes.put("a", &note("2"), Expect::Absent).unwrap();
    let error = notes.commit(changes).await.unwrap_err();
    assert!(error.is_conflict(), "{error}");
    assert_eq!(notes.get::<Note>("b").await.unwrap(), None);
    let stored = notes.get::<Note>("a").await.unwrap().unwrap();
    assert_eq!((stored.value, stored.version), (note("1"), versions[0]));
    assert_eq!(notes.commit(Changes::default()).await.unwrap(), Vec::<u64>::new());
}

#[tokio::test]
async fn many_records_are_split_into_batches_by_count_and_size() {
    let store = RecordingStore::new().await;
    let notes = TypedStore::new(store.clone(), "fw");
    let keys = || (0..2500).map(|number| format!("notes/{number}"));
    notes.put_all(keys().map(|key| (key, note("x")))).await.unwrap();
    notes.delete_all(keys()).await.unwrap();
    let large = "x".repeat(MAX_CHUNK_BYTES / 2 - 100);
    let large = ["a", "b", "c"].map(|key| (key.to_owned(), note(&large)));
    notes.put_all(large).await.unwrap();
    assert_eq!(
        *store.sizes.lock().unwrap(),
        [1000, 1000, 500, 1000, 1000, 500, 2, 1]
    );
}

#[tokio::test]
async fn damaged_record_is_an_error_with_its_key() {
    let store = RecordingStore::new().await;
    store.put("fw/notes/a", "{".into(), Expect::Any).await.unwrap();
    let notes = TypedStore::new(store, "fw");
    for error in [
        notes.load_all::<Note>("notes/").await.unwrap_err(),
        notes.get::<Note>("notes/a").await.unwrap_err(),
    ] {
        assert!(
            matches!(&error, Error::Record { key, .. } if key == "fw/notes/a"),
            "{error}"
        );
    }
    notes.put_all([("notes/b".to_owned(), note("b"))]).await.unwrap();
    let (records, errors) = notes.load_valid::<Note>("notes/").await.unwrap();
    assert_eq!((records.len(), &records[0].value), (1, &note("b")));
    assert!(
        matches!(&errors[..], [Error::Record { key, .. }] if key == "fw/notes/a"),
        "{errors:?}"
    );
}

#[tokio::test]
async fn every_call_of_a_hanging_store_ends_with_a_timeout() {
    let store = RecordingStore::new().await;
    let timeout = Duration::from_millis(20);
    let notes = TypedStore::new(store.clone(), "fw").with_timeout(timeout);
    store.hangs.store(true, Ordering::SeqCst);
    for error in [
        notes.load_all::<Note>("notes/").await.unwrap_err(),
        notes.load_valid::<Note>("notes/").await.unwrap_err(),
        notes.get::<Note>("a").await.unwrap_err(),
        notes.put_all([("a".to_owned(), note("1"))]).await.unwrap_err(),
        notes.delete_all(["a".to_owned()]).await.unwrap_err(),
        notes.next_term().await.unwrap_err(),
    ] {
        assert!(
            matches!(error, Error::Timeout { timeout: after } if after == timeout),
            "{error}"
        );
    }
    // The store responds again, on a busy machine not within 20 ms.
    store.hangs.store(false, Ordering::SeqCst);
    let notes = TypedStore::new(store, "fw");
    notes.put_all([("a".to_owned(), note("1"))]).await.unwrap();
    assert_eq!(notes.get::<Note>("a").await.unwrap().unwrap().value, note("1"));
}

#[tokio::test]
async fn term_numbers_count_from_one_for_each_prefix() {
    let store = RecordingStore::new().await;
    let (one, other) = (
        TypedStore::new(store.clone(), "one"),
        TypedStore::new(store, "other"),
    );
    assert_eq!(one.next_term().await.unwrap(), 1);
    assert_eq!(one.next_term().await.unwrap(), 2);
    assert_eq!(other.next_term().await.unwrap(), 1);
}

#[test]
fn records_of_a_newer_daemon_are_neither_decoded_nor_damaged() {
    let entry = |value: &str| Entry {
        key: "apps/specs/web".to_owned(),
        value: Bytes::copy_from_slice(value.as_bytes()),
        version: 1,
    };
    for (value, newer) in [
        (r#"{"a": 1}"#, None),
        (r#"{"a": 1, "record_version": 1}"#, None),
        (r#"{"a": 1, "record_version": 2}"#, Some(2)),
        (r#"{"record_version": 7, "b": []}"#, Some(7)),
        // The text at another place is not the version of the record.
        (r#"{"a": "record_version", "env": {"record_version": 9}}"#, None),
        (r#"["record_version"]"#, None),
    ] {
        let found = decode::<serde_json::Value>(&entry(value));
        match (found, newer) {
            (Ok(_), None) => {}
            (Err(error @ Error::Newer { .. }), Some(version)) => {
                let text = error.to_string();
                for expected in [
                    "`apps/specs/web`",
                    &format!("version {version}"),
                    "up to 1",
                    "restore a backup",
                ] {
                    assert!(text.contains(expected), "{text}");
                }
            }
            (other, _) => panic!("{value}: {other:?}"),
        }
    }
}
