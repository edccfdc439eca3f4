//! Tests that every store must pass.
//!
//! A store's own tests call [`run`]; a broken guarantee causes a panic that names it. Every case
//! uses only its own keys under `conformance/`, which must be empty at the start.
#![allow(clippy::unwrap_used, clippy::panic, clippy::missing_panics_doc)] // A test suite may panic.

mod bounds;
mod leases;
mod watches;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use crate::{Batch, Error, Expect, Store};

/// Runs every case, one after the other.
pub async fn run(store: Arc<dyn Store>) {
    let store = &store;
    reads_what_was_put(store).await;
    compares_before_it_changes(store).await;
    versions_are_never_used_again(store).await;
    deletes(store).await;
    scans_in_order_and_within_the_prefix(store).await;
    batches_are_atomic(store).await;
    a_batch_sees_its_own_earlier_changes(store).await;
    one_of_many_concurrent_writers_wins(store).await;
    concurrent_commits_are_all_applied(store).await;
    stores_unusual_keys_and_values(store).await;
    bounds::run(store).await;
    leases::run(store).await;
    watches::run(store).await;
}

fn conflict<T: std::fmt::Debug>(result: Result<T, Error>, key: &str, found: Option<u64>) {
    match result {
        Err(Error::Conflict { key: at, found: is }) => {
            assert_eq!((at.as_str(), is), (key, found), "key and version of the conflict");
        }
        other => panic!("expected a conflict on {key}, got {other:?}"),
    }
}

async fn keys(store: &Arc<dyn Store>, prefix: &str) -> Vec<String> {
    store
        .scan(prefix)
        .await
        .unwrap()
        .into_iter()
        .map(|entry| entry.key)
        .collect()
}

async fn reads_what_was_put(store: &Arc<dyn Store>) {
    let key = "conformance/read/a";
    assert_eq!(store.get(key).await.unwrap(), None, "the key was never put");
    let first = store
        .put(key, Bytes::from_static(b"one"), Expect::Any)
        .await
        .unwrap();
    assert!(first > 0, "version 0 is for deletes");
    let entry = store.get(key).await.unwrap().unwrap();
    assert_eq!(
        (entry.key.as_str(), entry.value.as_ref(), entry.version),
        (key, b"one".as_slice(), first)
    );
    let second = store
        .put(key, Bytes::from_static(b"two"), Expect::Any)
        .await
        .unwrap();
    assert!(second > first, "versions increase");
    let entry = store.get(key).await.unwrap().unwrap();
    assert_eq!((entry.value.as_ref(), entry.version), (b"two".as_slice(), second));
}

async fn compares_before_it_changes(store: &Arc<dyn Store>) {
    let key = "conformance/compare/a";
    conflict(store.put(key, Bytes::new(), Expect::Version(1)).await, key, None);
    let first = store
        .put(key, Bytes::from_static(b"1"), Expect::Absent)
        .await
        .unwrap();
    conflict(
        store.put(key, Bytes::from_static(b"x"), Expect::Absent).await,
        key,
        Some(first),
    );
    let second = store
        .put(key, Bytes::from_static(b"2"), Expect::Version(first))
        .await
        .unwrap();
    conflict(
        store
            .put(key, Bytes::from_static(b"x"), Expect::Version(first))
            .await,
        key,
        Some(second),
    );
    conflict(store.delete(key, Expect::Version(first)).await, key, Some(second));
    conflict(store.delete(key, Expect::Absent).await, key, Some(second));
    assert_eq!(
        store.get(key).await.unwrap().unwrap().value.as_ref(),
        b"2",
        "a refused change leaves no trace"
    );
    store.delete(key, Expect::Version(second)).await.unwrap();
    conflict(store.delete(key, Expect::Version(second)).await, key, None);
}

async fn versions_are_never_used_again(store: &Arc<dyn Store>) {
    let (key, other) = ("conformance/again/a", "conformance/again/b");
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        seen.insert(
            store
                .put(key, Bytes::from_static(b"same"), Expect::Absent)
                .await
                .unwrap(),
        );
        seen.insert(
            store
                .put(other, Bytes::from_static(b"same"), Expect::Any)
                .await
                .unwrap(),
        );
        store.delete(key, Expect::Any).await.unwrap();
    }
    assert_eq!(
        seen.len(),
        6,
        "a key that was deleted and made again, or another key, never gets an old version"
    );
}

async fn deletes(store: &Arc<dyn Store>) {
    let key = "conformance/delete/a";
    store.delete(key, Expect::Any).await.unwrap();
    store.delete(key, Expect::Absent).await.unwrap();
    store
        .put(key, Bytes::from_static(b"x"), Expect::Any)
        .await
        .unwrap();
    assert_eq!(
        store.commit(Batch::new().delete(key, Expect::Any)).await.unwrap(),
        [0]
    );
    assert_eq!(store.get(key).await.unwrap(), None);
    assert!(keys(store, "conformance/delete/").await.is_empty());
}

async fn scans_in_order_and_within_the_prefix(store: &Arc<dyn Store>) {
    let batch = ["p/b", "p/a", "p/a/1", "p/\u{e9}", "p", "p0", "o/z", "q"]
        .into_iter()
        .fold(Batch::new(), |batch, key| {
            batch.put(format!("conformance/scan/{key}"), key, Expect::Absent)
        });
    store.commit(batch).await.unwrap();
    let expected = ["p/a", "p/a/1", "p/b", "p/\u{e9}"].map(|key| format!("conformance/scan/{key}"));
    assert_eq!(
        keys(store, "conformance/scan/p/").await,
        expected,
        "byte order, nothing from outside"
    );
    assert_eq!(keys(store, "conformance/scan/").await.len(), 8);
    assert!(keys(store, "conformance/scan/none").await.is_empty());
    for entry in store.scan("conformance/scan/p/").await.unwrap() {
        assert_eq!(
            store.get(&entry.key).await.unwrap().unwrap(),
            entry,
            "scan and get agree"
        );
    }
}

async fn batches_are_atomic(store: &Arc<dyn Store>) {
    let key = |name: &str| format!("conformance/batch/{name}");
    assert!(
        store.commit(Batch::new()).await.unwrap().is_empty(),
        "an empty batch is no error"
    );
    let versions = store
        .commit(
            Batch::new()
                .put(key("a"), "1", Expect::Absent)
                .put(key("b"), "2", Expect::Absent)
                .delete(key("c"), Expect::Any),
        )
        .await
        .unwrap();
    assert_eq!(versions.len(), 3);
    assert_eq!(store.get(&key("a")).await.unwrap().unwrap().version, versions[0]);
    assert_eq!(store.get(&key("b")).await.unwrap().unwrap().version, versions[1]);
    assert_eq!(versions[2], 0);
    let rejected = Batch::new()
        .put(key("a"), "x", Expect::Any)
        .delete(key("b"), Expect::Any)
        .put(key("d"), "x", Expect::Version(7));
    conflict(store.commit(rejected).await, &key("d"), None);
    assert_eq!(store.get(&key("a")).await.unwrap().unwrap().value.as_ref(), b"1");
    assert_eq!(keys(store, "conformance/batch/").await, [key("a"), key("b")]);
}

async fn a_batch_sees_its_own_earlier_changes(store: &Arc<dyn Store>) {
    let key = "conformance/self/a";
    let batch = Batch::new()
        .put(key, "1", Expect::Absent)
        .delete(key, Expect::Any)
        .put(key, "2", Expect::Absent);
    let versions = store.commit(batch).await.unwrap();
    assert!(versions[0] > 0 && versions[1] == 0 && versions[2] > versions[0]);
    let entry = store.get(key).await.unwrap().unwrap();
    assert_eq!(
        (entry.value.as_ref(), entry.version),
        (b"2".as_slice(), versions[2])
    );
    let twice = Batch::new()
        .put(key, "3", Expect::Any)
        .put(key, "4", Expect::Absent);
    assert!(matches!(store.commit(twice).await, Err(Error::Conflict { .. })));
    assert_eq!(store.get(key).await.unwrap().unwrap(), entry);
}

async fn one_of_many_concurrent_writers_wins(store: &Arc<dyn Store>) {
    let key = "conformance/race/counter";
    let mut version = store
        .put(key, Bytes::from_static(b"start"), Expect::Absent)
        .await
        .unwrap();
    for _ in 0..5 {
        let racers: Vec<_> = (0..16)
            .map(|racer| {
                let store = Arc::clone(store);
                tokio::spawn(async move {
                    store
                        .put(key, Bytes::from(format!("{racer}")), Expect::Version(version))
                        .await
                })
            })
            .collect();
        let mut winners = Vec::new();
        for racer in racers {
            match racer.await.unwrap() {
                Ok(won) => winners.push(won),
                Err(Error::Conflict { found: Some(_), .. }) => {}
                Err(other) => panic!("expected a conflict after a lost race, got {other:?}"),
            }
        }
        assert_eq!(winners.len(), 1, "exactly one compare-and-set wins");
        version = winners[0];
    }
}

async fn concurrent_commits_are_all_applied(store: &Arc<dyn Store>) {
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let mut versions = Vec::new();
                for n in 0..25 {
                    let key = format!("conformance/many/{writer}/{n:02}");
                    versions.push(
                        store
                            .put(&key, Bytes::from(key.clone()), Expect::Absent)
                            .await
                            .unwrap(),
                    );
                    assert_eq!(
                        store.get(&key).await.unwrap().unwrap().value,
                        key,
                        "a writer reads its own write"
                    );
                }
                versions
            })
        })
        .collect();
    let mut versions = BTreeSet::new();
    for writer in writers {
        versions.extend(writer.await.unwrap());
    }
    assert_eq!(versions.len(), 200, "versions are unique");
    assert_eq!(keys(store, "conformance/many/").await.len(), 200);
}

async fn stores_unusual_keys_and_values(store: &Arc<dyn Store>) {
    let big = Bytes::from(vec![0xA5; 3 << 20]);
    let cases = [
        ("conformance/odd/".to_owned(), Bytes::new()),
        (
            "conformance/odd/\u{0} \n\u{10FFFF}".to_owned(),
            Bytes::from_static(&[0, 255, 10, 0]),
        ),
        (
            format!("conformance/odd/{}", "k".repeat(2000)),
            Bytes::from_static(b"long key"),
        ),
        ("conformance/odd/big".to_owned(), big),
    ];
    for (key, value) in &cases {
        store.put(key, value.clone(), Expect::Absent).await.unwrap();
    }
    for (key, value) in &cases {
        assert_eq!(&store.get(key).await.unwrap().unwrap().value, value);
    }
    assert_eq!(store.scan("conformance/odd/").await.unwrap().len(), cases.len());
}
