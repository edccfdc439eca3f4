//! Values above a limit are rejected as a whole, values at the limit are accepted.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::limits::{MAX_BATCH, MAX_CHANGES, MAX_HOLDER, MAX_KEY, MAX_LEASE_NAME, MAX_TTL, MAX_VALUE};
use crate::{Batch, Error, Expect, Store};

pub(super) async fn run(store: &Arc<dyn Store>) {
    keys_and_values(store).await;
    batches(store).await;
    leases(store).await;
}

fn too_large<T: std::fmt::Debug>(result: Result<T, Error>, what: &str) {
    match result {
        Err(Error::TooLarge { size, limit, .. }) => assert!(size > limit, "{what}: {size} > {limit}"),
        other => panic!("{what}: expected TooLarge, got {other:?}"),
    }
}

async fn keys_and_values(store: &Arc<dyn Store>) {
    let key = |length: usize| {
        let start = "conformance/bounds/";
        format!("{start}{}", "k".repeat(length - start.len()))
    };
    let (fits, large) = (key(MAX_KEY), key(MAX_KEY + 1));
    let value = Bytes::from(vec![7; MAX_VALUE + 1]);
    store.put(&fits, value.slice(1..), Expect::Absent).await.unwrap();
    assert_eq!(store.get(&fits).await.unwrap().unwrap().value, value.slice(1..));
    assert_eq!(store.scan(&fits).await.unwrap().len(), 1);
    store.delete(&fits, Expect::Any).await.unwrap();

    too_large(store.put(&large, Bytes::new(), Expect::Any).await, "a key");
    too_large(store.delete(&large, Expect::Any).await, "a key to delete");
    too_large(store.get(&large).await, "a key to read");
    too_large(store.scan(&large).await, "a prefix");
    too_large(store.watch(&large).await, "a prefix to watch");
    let rejected = Batch::new()
        .put(&fits, "x", Expect::Any)
        .put("conformance/bounds/b", value, Expect::Any);
    too_large(store.commit(rejected).await, "a value");
    assert!(store.scan("conformance/bounds/").await.unwrap().is_empty());
}

async fn batches(store: &Arc<dyn Store>) {
    let batch = |changes: usize| {
        (0..changes).fold(Batch::new(), |batch, n| {
            batch.put(format!("conformance/bounds/{n:05}"), "", Expect::Absent)
        })
    };
    too_large(store.commit(batch(MAX_CHANGES + 1)).await, "a batch's changes");
    let versions = store.commit(batch(10_000)).await.unwrap();
    assert_eq!(versions.len(), 10_000);
    let entries = store.scan("conformance/bounds/").await.unwrap();
    assert!(entries.iter().map(|entry| entry.version).eq(versions));
    assert!(entries.is_sorted_by(|a, b| a.key < b.key));
    let deletions = entries.into_iter().fold(Batch::new(), |batch, entry| {
        batch.delete(entry.key, Expect::Version(entry.version))
    });
    store.commit(deletions).await.unwrap();
    assert!(store.scan("conformance/bounds/").await.unwrap().is_empty());

    let value = Bytes::from(vec![7; MAX_VALUE]);
    let heavy = (0..=MAX_BATCH / MAX_VALUE).fold(Batch::new(), |batch, n| {
        batch.put(format!("conformance/bounds/{n}"), value.clone(), Expect::Any)
    });
    too_large(store.commit(heavy).await, "a batch's bytes");
}

async fn leases(store: &Arc<dyn Store>) {
    let second = Duration::from_secs(1);
    let (name, holder) = ("n".repeat(MAX_LEASE_NAME), "h".repeat(MAX_HOLDER));
    let lease = store.acquire(&name, &holder, second).await.unwrap();
    store.release(&lease).await.unwrap();
    let (long_name, long_holder) = (format!("{name}n"), format!("{holder}h"));
    too_large(store.acquire(&long_name, "a", second).await, "a lease's name");
    too_large(store.acquire("a", &long_holder, second).await, "a holder");
    too_large(store.lease(&long_name).await, "a lease's name to look at");
    let fenced = Batch::new().fenced(&long_name, 1);
    too_large(store.commit(fenced).await, "a lease's name in a fence");
    for ttl in [Duration::ZERO, MAX_TTL + second] {
        let rejected = store.acquire("conformance/bounds", "a", ttl).await;
        assert!(
            matches!(rejected, Err(Error::TimeToLive { ttl: found }) if found == ttl),
            "{rejected:?}"
        );
    }
}
