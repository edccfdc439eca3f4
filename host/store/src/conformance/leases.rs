//! One holder at a time, increasing fencing numbers, and rejected batches of earlier holders.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::{Batch, Error, Expect, Fenced, Lease, Store};

/// Longer than the duration of any case.
const LONG_TTL: Duration = Duration::from_mins(10);
/// A lease that expires soon.
const SHORT_TTL: Duration = Duration::from_millis(200);

pub(super) async fn run(store: &Arc<dyn Store>) {
    is_held_by_one(store).await;
    is_released(store).await;
    expires_without_renewal(store).await;
    stays_held_while_renewed(store).await;
    can_be_acquired_again_by_its_holder(store).await;
    fences_batches(store).await;
    fences_a_whole_view(store).await;
    is_granted_to_one_of_many_candidates(store).await;
}

fn fenced<T: std::fmt::Debug>(result: Result<T, Error>, of: &Lease, now: Option<u64>) {
    match result {
        Err(Error::Fenced {
            lease,
            fencing,
            current,
        }) => assert_eq!((lease, fencing, current), (of.name.clone(), of.fencing, now)),
        other => panic!("number {}: expected Fenced, got {other:?}", of.fencing),
    }
}

async fn is_held_by_one(store: &Arc<dyn Store>) {
    let name = "conformance/one";
    assert_eq!(store.lease(name).await.unwrap(), None);
    let started = Instant::now();
    let lease = store.acquire(name, "a", LONG_TTL).await.unwrap();
    assert_eq!(
        (lease.name.as_str(), lease.holder.as_str(), lease.ttl),
        (name, "a", LONG_TTL)
    );
    assert!(lease.fencing > 0);
    assert!(started + LONG_TTL <= lease.expires && lease.remaining() <= LONG_TTL);
    match store.acquire(name, "b", LONG_TTL).await {
        Err(Error::Held {
            lease,
            holder,
            remaining,
        }) => {
            assert_eq!((lease.as_str(), holder.as_str()), (name, "a"));
            assert!(remaining > LONG_TTL / 2 && remaining <= LONG_TTL, "{remaining:?}");
        }
        other => panic!("expected Held, got {other:?}"),
    }
    let seen = store.lease(name).await.unwrap().unwrap();
    assert_eq!((seen.holder.as_str(), seen.fencing), ("a", lease.fencing));
    assert!(seen.remaining() > LONG_TTL / 2);
    let other = store.acquire("conformance/other", "b", LONG_TTL).await.unwrap();
    assert!(other.fencing > lease.fencing, "the leases are independent");
}

async fn is_released(store: &Arc<dyn Store>) {
    let name = "conformance/back";
    let first = store.acquire(name, "a", LONG_TTL).await.unwrap();
    store.release(&first).await.unwrap();
    assert_eq!(store.lease(name).await.unwrap(), None);
    fenced(store.renew(&first).await, &first, None);
    let second = store.acquire(name, "b", LONG_TTL).await.unwrap();
    assert!(second.fencing > first.fencing);
    store.release(&first).await.unwrap();
    fenced(store.renew(&first).await, &first, Some(second.fencing));
    let seen = store.lease(name).await.unwrap().unwrap();
    assert_eq!(seen.fencing, second.fencing, "an old number releases nothing");
}

/// Acquires a lease that is about to expire.
async fn acquired_after(store: &Arc<dyn Store>, before: &Lease, holder: &str) -> Lease {
    loop {
        match store.acquire(&before.name, holder, LONG_TTL).await {
            Ok(lease) => {
                assert_eq!(before.remaining(), Duration::ZERO, "it was granted too early");
                return lease;
            }
            Err(Error::Held { remaining, .. }) => {
                assert!(remaining <= before.ttl, "{remaining:?}");
                tokio::time::sleep(remaining.max(Duration::from_millis(1))).await;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

async fn expires_without_renewal(store: &Arc<dyn Store>) {
    let first = store.acquire("conformance/out", "a", SHORT_TTL).await.unwrap();
    let second = acquired_after(store, &first, "b").await;
    assert!(second.fencing > first.fencing);
    fenced(store.renew(&first).await, &first, Some(second.fencing));

    let short = store.acquire("conformance/gone", "a", SHORT_TTL).await.unwrap();
    while store.lease(&short.name).await.unwrap().is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fenced(store.renew(&short).await, &short, None);
    let batch = Batch::new().put("conformance/lease/gone", "x", Expect::Any);
    fenced(
        store.commit(batch.fenced(&short.name, short.fencing)).await,
        &short,
        None,
    );
    assert_eq!(store.get("conformance/lease/gone").await.unwrap(), None);
}

async fn stays_held_while_renewed(store: &Arc<dyn Store>) {
    let first = store.acquire("conformance/on", "a", SHORT_TTL * 3).await.unwrap();
    let mut lease = first.clone();
    while first.remaining() > Duration::ZERO {
        lease = store.renew(&lease).await.unwrap();
        assert_eq!(lease.fencing, first.fencing, "a renewal keeps the number");
        tokio::time::sleep(SHORT_TTL / 4).await;
    }
    assert!(lease.expires > first.expires);
    let rejected = store.acquire(&lease.name, "b", LONG_TTL).await;
    assert!(matches!(rejected, Err(Error::Held { .. })), "{rejected:?}");
}

async fn can_be_acquired_again_by_its_holder(store: &Arc<dyn Store>) {
    let name = "conformance/again";
    let first = store.acquire(name, "a", LONG_TTL).await.unwrap();
    let second = store.acquire(name, "a", LONG_TTL).await.unwrap();
    assert!(second.fencing > first.fencing);
    fenced(store.renew(&first).await, &first, Some(second.fencing));
    store.renew(&second).await.unwrap();
}

async fn fences_batches(store: &Arc<dyn Store>) {
    let (key, other) = ("conformance/lease/a", "conformance/lease/b");
    let put = |lease: &Lease| {
        let value = lease.fencing.to_string();
        Batch::new()
            .put(key, value.clone(), Expect::Any)
            .put(other, value, Expect::Any)
            .fenced(&lease.name, lease.fencing)
    };
    let first = store.acquire("conformance/fence", "a", LONG_TTL).await.unwrap();
    let versions = store.commit(put(&first)).await.unwrap();
    store.release(&first).await.unwrap();
    fenced(store.commit(put(&first)).await, &first, None);
    let second = store.acquire("conformance/fence", "b", LONG_TTL).await.unwrap();
    fenced(store.commit(put(&first)).await, &first, Some(second.fencing));
    for (key, version) in [key, other].into_iter().zip(versions) {
        let entry = store.get(key).await.unwrap().unwrap();
        assert_eq!(
            (entry.version, entry.value),
            (version, first.fencing.to_string().into())
        );
    }
    // The fence is checked before the conditions, and an outdated fence is enough to reject the
    // batch.
    let conflicting = put(&first).put(key, "x", Expect::Absent);
    fenced(store.commit(conflicting).await, &first, Some(second.fencing));
    let only = Batch::new().fenced(&first.name, first.fencing);
    fenced(store.commit(only).await, &first, Some(second.fencing));
    // All fences must hold.
    let third = store.acquire("conformance/fence/3", "b", LONG_TTL).await.unwrap();
    store
        .commit(put(&second).fenced(&third.name, third.fencing))
        .await
        .unwrap();
    store.release(&third).await.unwrap();
    fenced(
        store
            .commit(put(&second).fenced(&third.name, third.fencing))
            .await,
        &third,
        None,
    );
    let renewed = store.renew(&second).await.unwrap();
    store.commit(put(&renewed)).await.unwrap();
}

async fn fences_a_whole_view(store: &Arc<dyn Store>) {
    let key = "conformance/lease/view";
    let lease = store.acquire("conformance/view", "a", LONG_TTL).await.unwrap();
    let view = Fenced::new(Arc::clone(store), &lease);
    let version = view.put(key, "x".into(), Expect::Absent).await.unwrap();
    assert_eq!(view.get(key).await.unwrap().unwrap().version, version);
    store.release(&lease).await.unwrap();
    fenced(view.delete(key, Expect::Any).await, &lease, None);
    assert_eq!(view.get(key).await.unwrap().unwrap().version, version);
}

async fn is_granted_to_one_of_many_candidates(store: &Arc<dyn Store>) {
    let mut last = 0;
    for _ in 0..5 {
        let racers: Vec<_> = (0..16)
            .map(|racer| {
                let store = Arc::clone(store);
                tokio::spawn(async move {
                    store
                        .acquire("conformance/race", &racer.to_string(), LONG_TTL)
                        .await
                })
            })
            .collect();
        let mut won = Vec::new();
        for racer in racers {
            match racer.await.unwrap() {
                Ok(lease) => won.push(lease),
                Err(Error::Held { .. }) => {}
                Err(other) => panic!("expected Held after a lost race, got {other:?}"),
            }
        }
        assert_eq!(won.len(), 1, "exactly one candidate holds the lease");
        assert!(won[0].fencing > last);
        last = won[0].fencing;
        store.release(&won[0]).await.unwrap();
    }
}
