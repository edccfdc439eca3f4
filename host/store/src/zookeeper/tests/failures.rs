//! Servers and sessions that fail while daemons write.

use std::time::Instant;

use rand::Rng;
use rand::rngs::StdRng;
use transom_testkit::zookeeper::{CLIENTS, Ensemble};

use super::*;
use crate::histories::{self, recovered};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_survives_a_restart_and_calls_fail_meanwhile() {
    let mut server = ZooKeeper::start().await;
    let store = open(&server.address());
    let first = store.put("a", "1".into(), Expect::Absent).await.unwrap();
    let lease = store.acquire("l", "me", Duration::from_hours(1)).await.unwrap();
    server.stop().await;
    let began = Instant::now();
    let rejected = store.get("a").await;
    assert!(matches!(rejected, Err(Error::Unavailable { .. })), "{rejected:?}");
    // After the first failures there is no wait.
    while !matches!(store.get("a").await, Err(Error::Unavailable { source, .. }) if source.to_string().contains("no server"))
    {
        assert!(began.elapsed() < Duration::from_secs(20));
    }
    server.start_again().await;
    recovered(&store).await;
    assert_eq!(store.get("a").await.unwrap().unwrap().version, first);
    let lease = store.renew(&lease).await.unwrap();
    let batch = Batch::new().put("a", "2", Expect::Version(first));
    store.commit(batch.fenced("l", lease.fencing)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_are_not_reused_after_the_ensemble_lost_its_data() {
    let mut server = ZooKeeper::start().await;
    let store = open(&server.address());
    let version = store.put("a", "1".into(), Expect::Absent).await.unwrap();
    let lease = store.acquire("l", "one", Duration::from_hours(1)).await.unwrap();
    server.stop().await;
    server.delete_data();
    server.start_again().await;
    // Another daemon finds nothing and creates a new store. The first one must not write to it what it knows.
    let other = open(&server.address());
    recovered(&other).await;
    assert!(other.put("b", "1".into(), Expect::Absent).await.unwrap() > version);
    let next = other.acquire("l", "two", Duration::from_hours(1)).await.unwrap();
    assert!(next.fencing > lease.fencing);
    let late = Batch::new().put("a", "2", Expect::Any).fenced("l", lease.fencing);
    let rejected = store.commit(late).await;
    assert!(rejected.is_err(), "{rejected:?}");
    eventually("the first daemon sees the new state", || async {
        match store.get("a").await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_fail_at_once_while_the_quorum_is_lost() {
    let mut ensemble = Ensemble::start().await;
    let store = open(&ensemble.address());
    store.put("a", "1".into(), Expect::Absent).await.unwrap();
    for server in [0, 1] {
        ensemble.kill(server).await;
    }
    let began = Instant::now();
    let rejected = store.get("a").await;
    assert!(matches!(rejected, Err(Error::Unavailable { .. })), "{rejected:?}");
    // Callers wait for the first failures only.
    eventually("calls fail at once", || async {
        let called = Instant::now();
        match store.put("a", "2".into(), Expect::Any).await {
            Err(Error::Unavailable { .. }) if called.elapsed() < Duration::from_millis(100) => Ok(()),
            other => Err(format!("{other:?} after {:?}", called.elapsed())),
        }
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    ensemble.start_again(0);
    recovered(&store).await;
    let found = store.get("a").await.unwrap().unwrap();
    store
        .put("a", "3".into(), Expect::Version(found.version))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_of_the_leading_server_stops_that_server_only() {
    let ensemble = Ensemble::start().await;
    let store = open(&ensemble.address());
    let first = store.put("a", "1".into(), Expect::Absent).await.unwrap();
    let leader = ensemble.leader().await;
    ensemble.fill_disk(leader);
    recovered(&store).await;
    assert_ne!(ensemble.leader().await, leader);
    // The write that made it fail may have been accepted before.
    recovered(&store).await;
    store.put("a", "2".into(), Expect::Version(first)).await.unwrap();
}

/// Three daemons on an ensemble whose servers are killed, paused and cut off, and whose quorum is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_are_kept_in_order_whatever_fails() {
    let mut ensemble = Ensemble::start().await;
    let stores: Vec<Arc<dyn Store>> = (0..3).map(|_| open(&ensemble.address())).collect();
    let observer = Arc::clone(&stores[0]);
    histories::run(stores, &observer, false, async |rng| {
        fail(&mut ensemble, rng).await
    })
    .await;
}

/// Lets something fail. The sleeps are how long it lasts.
async fn fail(ensemble: &mut Ensemble, rng: &mut StdRng) -> String {
    let leader = ensemble.leader().await;
    let follower = (leader + 1) % 3;
    let lasts = Duration::from_millis(rng.random_range(500..6_000));
    let name = match rng.random_range(0..9) {
        0 => {
            ensemble.kill(leader).await;
            tokio::time::sleep(lasts).await;
            ensemble.start_again(leader);
            "killed leader"
        }
        1 => {
            // Longer than the time after which its followers leave it.
            ensemble.pause(leader);
            tokio::time::sleep(lasts.max(Duration::from_secs(4))).await;
            ensemble.resume(leader);
            "paused leader"
        }
        2 => {
            ensemble.kill(leader).await;
            ensemble.kill(follower).await;
            tokio::time::sleep(lasts).await;
            ensemble.start_again(leader);
            ensemble.start_again(follower);
            "lost quorum"
        }
        3 => {
            for server in 0..3 {
                ensemble.kill(server).await;
            }
            for server in 0..3 {
                ensemble.start_again(server);
            }
            "restarted ensemble"
        }
        4 => {
            // What the leader sends arrives nowhere; it hears the others.
            for other in [follower, (leader + 2) % 3] {
                ensemble.cut(leader, other);
            }
            tokio::time::sleep(lasts.max(Duration::from_secs(4))).await;
            ensemble.heal();
            "leader that is not heard"
        }
        5 => {
            for other in [follower, (leader + 2) % 3] {
                ensemble.cut(leader, other);
                ensemble.cut(other, leader);
            }
            tokio::time::sleep(lasts).await;
            ensemble.heal();
            "leader cut off"
        }
        6 => {
            // Calls arrive, and their answers do not.
            for server in 0..3 {
                ensemble.cut(server, CLIENTS);
            }
            tokio::time::sleep(lasts).await;
            ensemble.heal();
            "lost answers"
        }
        7 => {
            ensemble.fill_disk(leader);
            tokio::time::sleep(lasts).await;
            ensemble.kill(leader).await;
            ensemble.start_again(leader);
            "leader with a full disk"
        }
        _ => {
            ensemble.kill(follower).await;
            tokio::time::sleep(lasts).await;
            ensemble.start_again(follower);
            "killed follower"
        }
    };
    name.to_owned()
}
