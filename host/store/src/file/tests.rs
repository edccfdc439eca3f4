#![allow(clippy::unwrap_used, clippy::panic)] // Tests may panic.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::{Batch, Error, Expect, Store, conformance, file::FileStore, open};

fn address(dir: &tempfile::TempDir) -> String {
    format!("file:{}", dir.path().join("deep/store").display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_store_passes_the_conformance_suite() {
    let dir = tempfile::tempdir().unwrap();
    conformance::run(open(&address(&dir)).await.unwrap()).await;
}

#[tokio::test]
async fn entries_and_versions_are_kept_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&address(&dir)).await.unwrap();
    let version = store
        .put("a", Bytes::from_static(b"1"), Expect::Absent)
        .await
        .unwrap();
    store.delete("a", Expect::Version(version)).await.unwrap();
    let version = store
        .put("b", Bytes::from_static(b"2"), Expect::Absent)
        .await
        .unwrap();
    drop(store);

    let store = open(&address(&dir)).await.unwrap();
    assert_eq!(store.get("a").await.unwrap(), None);
    assert_eq!(store.get("b").await.unwrap().unwrap().version, version);
    assert!(store.put("a", Bytes::new(), Expect::Absent).await.unwrap() > version);
}

#[tokio::test]
async fn second_open_fails_as_locked_until_the_store_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(&address(&dir)).await.unwrap();
    let rejected = open(&address(&dir)).await.unwrap_err();
    assert!(
        matches!(&rejected, Error::Locked { path } if path.ends_with("deep/store")),
        "{rejected:?}"
    );
    assert!(
        rejected.to_string().contains("in use by another process"),
        "{rejected}"
    );
    drop(first);
    open(&address(&dir)).await.unwrap();
}

/// A lease ends with the process that held the store, but its number is never granted again.
#[tokio::test]
async fn fencing_numbers_continue_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&address(&dir)).await.unwrap();
    let hour = Duration::from_hours(1);
    let before = store.acquire("l", "a", hour).await.unwrap();
    drop(store);

    let store = open(&address(&dir)).await.unwrap();
    let late = Batch::new()
        .put("k", "x", Expect::Any)
        .fenced("l", before.fencing);
    let rejected = store.commit(late).await;
    assert!(
        matches!(rejected, Err(Error::Fenced { current: None, .. })),
        "{rejected:?}"
    );
    let after = store.acquire("l", "b", hour).await.unwrap();
    assert!(after.fencing > before.fencing);
    assert_eq!(store.get("k").await.unwrap(), None);
}

#[tokio::test]
async fn a_watch_ends_with_its_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&address(&dir)).await.unwrap();
    let mut watch = store.watch("").await.unwrap();
    store.put("a", "1".into(), Expect::Any).await.unwrap();
    drop(store);
    assert!(matches!(watch.next().await, Some(crate::Notice::Changed { .. })));
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn open_rejects_a_file_that_is_not_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let text = "no database at all\n".repeat(1000);
    std::fs::write(dir.path().join("store.redb"), &text).unwrap();
    let rejected = FileStore::open(dir.path().to_owned()).await.unwrap_err();
    assert!(matches!(&rejected, Error::Corrupt { .. }), "{rejected:?}");
    assert_eq!(
        std::fs::read_to_string(dir.path().join("store.redb")).unwrap(),
        text,
        "it is left as it was"
    );
}

#[tokio::test]
async fn open_rejects_a_directory_it_cannot_create() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let rejected = FileStore::open(dir.path().join("file/below")).await.unwrap_err();
    assert!(matches!(&rejected, Error::Unavailable { .. }), "{rejected:?}");
}

#[tokio::test]
async fn batches_submitted_before_the_drop_are_committed() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = open(&address(&dir)).await.unwrap();
    let commit = |n: u32| store.commit(Batch::new().put(format!("{n:03}"), "x", Expect::Absent));
    // Each future is polled once: the batch is submitted, but not awaited.
    let handed = (0..100).map(commit).map(futures_poll_once).collect::<Vec<_>>();
    for future in handed {
        future.await;
    }
    drop(store);
    assert_eq!(
        open(&address(&dir)).await.unwrap().scan("").await.unwrap().len(),
        100
    );
}

/// Polls a future once and drops it.
async fn futures_poll_once(future: impl Future) {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        let _ = future.as_mut().poll(context);
        std::task::Poll::Ready(())
    })
    .await;
}
