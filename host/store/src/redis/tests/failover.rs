//! A Redis whose primary fails, with replicas and Sentinels.

use rand::Rng;
use rand::rngs::StdRng;
use transom_testkit::eventually;
use transom_testkit::redis::Sentinels;

use super::*;
use crate::histories::{self, recovered};

fn of_sentinels(address: String) -> Config {
    Config {
        password: Some(Sentinels::PASSWORD.into()),
        sentinel_password: Some(Sentinels::SENTINEL_PASSWORD.into()),
        ..Config::new(address)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_with_sentinels_passes_the_conformance_suite() {
    let group = Sentinels::start().await;
    conformance::run(of_sentinels(group.address()).open().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover_keeps_what_was_acknowledged_and_voids_leases() {
    let mut group = Sentinels::start().await;
    let store = of_sentinels(group.address()).open().await.unwrap();
    let version = store.put("a", "1".into(), Expect::Absent).await.unwrap();
    let ttl = Duration::from_secs(4);
    let lease = store.acquire("l", "one", ttl).await.unwrap();
    let primary = group.primary().await;
    group.server(primary).stop();
    recovered(&store).await;
    assert_ne!(group.primary().await, primary);
    assert_eq!(store.get("a").await.unwrap().unwrap().version, version);
    let fenced = store.renew(&lease).await;
    assert!(matches!(fenced, Err(Error::Fenced { .. })), "{fenced:?}");
    let late = Batch::new().put("a", "2", Expect::Any).fenced("l", lease.fencing);
    let rejected = store.commit(late).await;
    assert!(matches!(rejected, Err(Error::Fenced { .. })), "{rejected:?}");
    // No other holder is granted a lease that the former primary may have granted, which one it was or not.
    for name in ["l", "m"] {
        let held = store.acquire(name, "two", ttl).await;
        assert!(
            matches!(held, Err(Error::Held { remaining, .. }) if remaining <= ttl),
            "{held:?}"
        );
    }
    eventually("another holder is granted the lease", || async {
        match store.acquire("l", "two", ttl).await {
            Ok(next) if next.fencing > lease.fencing => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert!(lease.remaining().is_zero());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn primary_without_replicas_answers_nothing() {
    let group = Sentinels::start().await;
    let primary = group.primary().await;
    // As behind a load balancer: one address, which does not follow a failover.
    let pinned = Config {
        password: Some(Sentinels::PASSWORD.into()),
        replicas: Some(1),
        ..Config::new(group.direct_address(primary).to_string())
    };
    let pinned = pinned.open().await.unwrap();
    // The primary has just been started, and without Sentinels the number of its replicas is unknown.
    recovered(&pinned).await;
    let first = pinned.put("a", "1".into(), Expect::Absent).await.unwrap();
    let follower = of_sentinels(group.address()).open().await.unwrap();
    group.cut(primary);
    recovered(&follower).await;
    let second = follower
        .put("a", "2".into(), Expect::Version(first))
        .await
        .unwrap();
    for (what, answer) in [
        ("a read", pinned.get("a").await.map(drop)),
        (
            "a write",
            pinned.put("b", "1".into(), Expect::Any).await.map(drop),
        ),
        (
            "a lease",
            pinned.acquire("l", "one", Duration::from_secs(5)).await.map(drop),
        ),
    ] {
        assert!(
            matches!(answer, Err(Error::Unavailable { .. })),
            "{what}: {answer:?}"
        );
    }
    let message = error_text(&pinned.get("a").await.unwrap_err());
    assert!(message.contains("0 of 1 replicas confirmed"), "{message}");
    group.heal();
    assert_eq!(follower.get("a").await.unwrap().unwrap().version, second);
    assert_eq!(follower.get("b").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsuitable_servers_are_rejected_with_the_reason() {
    let group = Sentinels::start().await;
    let alone = Config {
        replicas: Some(3),
        ..of_sentinels(group.address())
    };
    let unknown = of_sentinels(group.address().replace("/transom", "/other"));
    let locked_out = Config {
        sentinel_password: None,
        ..of_sentinels(group.address())
    };
    let cluster = RedisServer::of_cluster().started();
    let cluster = Config::new(cluster.address().to_string());
    for (config, part) in [
        (alone, "2 of 3 replicas confirmed"),
        (unknown, "No such master with that name"),
        (locked_out, "NOAUTH"),
        (cluster, "belongs to a Redis Cluster"),
    ] {
        let message = error_text(&config.open().await.unwrap().get("a").await.unwrap_err());
        assert!(message.contains(part), "{message}");
    }
}

/// Three daemons while servers and Sentinels are killed, paused and cut off. One daemon always talks to
/// the same server.
async fn history(replicas: u32) {
    let mut group = Sentinels::start().await;
    let config = Config {
        replicas: Some(replicas),
        ..of_sentinels(group.address())
    };
    let observer = config.clone().open().await.unwrap();
    let other = config.clone().open().await.unwrap();
    let pinned = Config {
        server: group.direct_address(0).to_string(),
        sentinel_password: None,
        ..config
    };
    let stores = vec![Arc::clone(&observer), other, pinned.open().await.unwrap()];
    histories::run(stores, &observer, replicas < 2, async |rng| {
        fail(&mut group, rng).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_are_kept_in_order_if_all_replicas_confirm_them() {
    history(2).await;
}

/// Writes can be lost by two failures at a time (`docs/decisions/redis-failover.md`).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_daemon_holds_the_lease_if_one_replica_confirms_it() {
    history(1).await;
}

/// Lets something fail. The sleeps are how long it lasts.
async fn fail(group: &mut Sentinels, rng: &mut StdRng) -> String {
    let primary = group.primary().await;
    let replica = (primary + 1) % 3;
    let lasts = Duration::from_millis(rng.random_range(500..6_000));
    let name = match rng.random_range(0..7) {
        0 => {
            group.server(primary).stop();
            tokio::time::sleep(lasts).await;
            group.server(primary).start();
            "killed primary"
        }
        1 => {
            group.server(primary).freeze();
            tokio::time::sleep(lasts).await;
            group.server(primary).thaw();
            "paused primary"
        }
        2 => {
            group.cut(primary);
            tokio::time::sleep(lasts.max(Duration::from_secs(4))).await;
            group.heal();
            "primary cut off"
        }
        3 => {
            group.server(replica).stop();
            tokio::time::sleep(lasts).await;
            group.server(replica).start();
            "killed replica"
        }
        4 => {
            let sentinel = rng.random_range(0..3);
            group.sentinel(sentinel).stop();
            group.server(primary).stop();
            tokio::time::sleep(lasts).await;
            group.server(primary).start();
            group.sentinel(sentinel).start();
            "killed primary and a Sentinel"
        }
        5 => {
            for server in 0..3 {
                group.server(server).stop();
            }
            for server in 0..3 {
                group.server(server).start();
            }
            "restarted all servers"
        }
        _ => {
            group.server(primary).stop();
            group.server(primary).start();
            "restarted primary"
        }
    };
    name.to_owned()
}
