//! Behaviour when the server is unavailable, slow, unsuitable or wrong.

use super::*;

/// Retries a write until it succeeds, as users of the store do.
async fn recovered(store: &Arc<dyn Store>, key: &str) -> u64 {
    let start = Instant::now();
    loop {
        match store.put(key, "again".into(), Expect::Any).await {
            Ok(version) => return version,
            Err(Error::Unavailable { .. }) if start.elapsed() < WAIT_TIMEOUT => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(other) => panic!("{}", error_text(&other)),
        }
    }
}

fn unavailable<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(error @ Error::Unavailable { .. }) => error_text(&error),
        other => panic!("expected Unavailable, got {other:?}"),
    }
}

#[tokio::test]
async fn store_opens_before_the_server_is_available() {
    let mut server = RedisServer::durable().with_password();
    server.reserve_port();
    let store = open(&server).await;
    let mut watch = store.watch("").await.unwrap();
    let message = unavailable(store.get("a").await);
    assert!(
        message.contains("cannot read") && message.contains(&server.address().to_string()),
        "{message}"
    );
    unavailable(store.scan("").await);
    unavailable(store.put("a", "x".into(), Expect::Any).await);
    unavailable(store.acquire("l", "a", Duration::from_secs(1)).await);
    server.start();
    recovered(&store, "a").await;
    assert_eq!(
        watch.next().await,
        Some(Notice::Lagged),
        "nobody knows what was before"
    );
}

#[tokio::test]
async fn store_recovers_when_the_server_restarts() {
    let mut server = start_redis();
    let store = open(&server).await;
    let first = store.put("a", "1".into(), Expect::Absent).await.unwrap();
    let lease = store.acquire("l", "me", Duration::from_hours(1)).await.unwrap();
    let mut watch = store.watch("").await.unwrap();
    server.stop();
    unavailable(store.get("a").await);
    server.start();
    let after_restart = recovered(&store, "b").await;
    assert!(after_restart > first);
    assert_eq!(
        store.get("a").await.unwrap().unwrap().version,
        first,
        "it was on disk"
    );
    let lease = store.renew(&lease).await.unwrap();
    let batch = Batch::new().put("a", "2", Expect::Version(first));
    store.commit(batch.fenced("l", lease.fencing)).await.unwrap();
    while watch.next().await.unwrap() != Notice::Lagged {}
}

#[tokio::test]
async fn numbers_are_not_reused_after_the_server_lost_its_data() {
    let mut server = RedisServer::in_memory().with_password();
    server.start();
    let store = open(&server).await;
    let version = store.put("a", "1".into(), Expect::Absent).await.unwrap();
    let lease = store.acquire("l", "one", Duration::from_hours(1)).await.unwrap();
    server.stop();
    server.start();
    let later = recovered(&store, "b").await;
    assert_eq!(store.get("a").await.unwrap(), None, "the data was lost");
    assert!(later > version, "{later} after {version}");
    let next = store.acquire("l", "two", Duration::from_hours(1)).await.unwrap();
    assert!(next.fencing > lease.fencing, "{next:?} after {lease:?}");
    let late = Batch::new().put("a", "2", Expect::Any);
    let rejected = store.commit(late.fenced("l", lease.fencing)).await;
    assert!(matches!(rejected, Err(Error::Fenced { .. })), "{rejected:?}");
}

#[tokio::test]
async fn call_to_a_hanging_server_fails_within_the_timeout() {
    let server = start_redis();
    let store = Config {
        call_timeout: Duration::from_millis(300),
        connect_timeout: Duration::from_millis(300),
        ..config(&server)
    };
    let store = store.open().await.unwrap();
    store.put("a", "1".into(), Expect::Absent).await.unwrap();
    let mut watch = store.watch("").await.unwrap();
    server.command(&["CLIENT", "PAUSE", "3000", "ALL"]).await;
    let paused = Instant::now();
    let message = unavailable(store.get("a").await);
    assert!(
        paused.elapsed() < Duration::from_millis(1500),
        "{:?}",
        paused.elapsed()
    );
    assert!(message.contains("did not answer within 300ms"), "{message}");
    let before = Instant::now();
    unavailable(store.put("b", "x".into(), Expect::Any).await);
    assert!(
        before.elapsed() < Duration::from_millis(1500),
        "{:?}",
        before.elapsed()
    );
    recovered(&store, "c").await;
    assert!(paused.elapsed() >= Duration::from_secs(2), "it was frozen");
    while watch.next().await.unwrap() != Notice::Lagged {}
}

/// A hanging server still accepts requests: whether a commit without a reply will be applied is
/// unknown. It is applied as a whole or not at all, and once.
#[tokio::test]
async fn commit_to_a_frozen_server_is_applied_once_or_never() {
    let server = start_redis();
    let store = Config {
        call_timeout: Duration::from_millis(300),
        connect_timeout: Duration::from_millis(300),
        ..config(&server)
    };
    let store = store.open().await.unwrap();
    let first = store.put("a", "1".into(), Expect::Absent).await.unwrap();
    server.freeze();
    let batch = Batch::new()
        .put("a", "2", Expect::Version(first))
        .put("b", "2", Expect::Absent);
    unavailable(store.commit(batch).await);
    // Reads for a second, also over connections that never receive a reply.
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        unavailable(store.get("a").await);
    }
    server.thaw();
    recovered(&store, "c").await;
    let (a, b) = (
        store.get("a").await.unwrap().unwrap(),
        store.get("b").await.unwrap(),
    );
    match b {
        Some(b) => assert_eq!((a.value, b.value), ("2".into(), "2".into())),
        None => assert_eq!((a.version, a.value), (first, "1".into())),
    }
}

#[tokio::test]
async fn closed_connection_is_reopened() {
    let server = start_redis();
    let store = open(&server).await;
    store.put("a", "1".into(), Expect::Absent).await.unwrap();
    let mut watch = store.watch("").await.unwrap();
    server.command(&["CLIENT", "KILL", "SKIPME", "yes"]).await;
    assert_eq!(
        tokio::time::timeout(WAIT_TIMEOUT, watch.next()).await.unwrap(),
        Some(Notice::Lagged)
    );
    let version = store.put("b", "1".into(), Expect::Absent).await.unwrap();
    let expected = Notice::Changed {
        key: "b".to_owned(),
        version: Some(version),
    };
    assert_eq!(watch.next().await, Some(expected));
    server.command(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(store.get("b").await.unwrap().unwrap().version, version);
}

#[tokio::test]
async fn wrong_password_is_reported_but_not_shown() {
    let server = start_redis();
    let mut config = config(&server);
    config.password = Some("hunter2".into());
    let message = unavailable(config.clone().open().await.unwrap().get("a").await);
    assert!(
        message.to_lowercase().contains("auth") || message.contains("WRONGPASS"),
        "{message}"
    );
    assert!(!message.contains("hunter2"), "{message}");
    config.password = None;
    let message = unavailable(config.clone().open().await.unwrap().get("a").await);
    assert!(message.contains("NOAUTH"), "{message}");
}

#[tokio::test]
async fn writes_fail_while_the_server_is_a_replica() {
    let server = start_redis();
    let store = open(&server).await;
    store.put("a", "1".into(), Expect::Absent).await.unwrap();
    let unused_addr = {
        std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
    };
    let port = unused_addr.port().to_string();
    server.command(&["REPLICAOF", "127.0.0.1", &port]).await;
    let start = Instant::now();
    loop {
        let message = unavailable(store.put("a", "2".into(), Expect::Any).await);
        if message.contains("is a replica") {
            break;
        }
        assert!(start.elapsed() < WAIT_TIMEOUT, "{message}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.command(&["REPLICAOF", "NO", "ONE"]).await;
    recovered(&store, "a").await;
}

#[tokio::test]
async fn damage_by_other_clients_is_reported_and_rejects_whole_batches() {
    let server = start_redis();
    let store = open(&server).await;
    for key in ["a", "b", "c"] {
        store.put(key, "1".into(), Expect::Absent).await.unwrap();
    }
    server.command(&["DEL", "a"]).await;
    server.command(&["HSET", "transom:versions", "b", "one"]).await;
    for (result, place) in [
        (store.get("a").await.map(drop), "a"),
        (store.get("b").await.map(drop), "b"),
        (store.scan("a").await.map(drop), "a"),
        (store.scan("").await.map(drop), "a"),
    ] {
        assert!(
            matches!(&result, Err(Error::Corrupt { place: found, .. }) if found == place),
            "{result:?}"
        );
    }
    assert!(store.get("c").await.unwrap().is_some());

    // A key of another type causes the whole batch to be rejected before any write.
    server.command(&["DEL", "transom:index"]).await;
    server.command(&["SET", "transom:index", "not ours"]).await;
    let batch = Batch::new().put("c", "2", Expect::Any).put("d", "2", Expect::Any);
    let message = unavailable(store.commit(batch).await);
    assert!(message.contains("WRONGTYPE"), "{message}");
    assert_eq!(store.get("c").await.unwrap().unwrap().value, "1");
    assert_eq!(store.get("d").await.unwrap(), None);
}

#[tokio::test]
async fn a_server_without_memory_rejects_whole_batches() {
    let server = start_redis();
    let store = open(&server).await;
    store.put("a", "1".into(), Expect::Absent).await.unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let batch = Batch::new().put("a", "2", Expect::Any).put("b", "2", Expect::Any);
    let message = unavailable(store.commit(batch).await);
    assert!(message.contains("OOM"), "{message}");
    assert_eq!(store.get("a").await.unwrap().unwrap().value, "1");
    assert_eq!(store.get("b").await.unwrap(), None);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    store.put("a", "2".into(), Expect::Any).await.unwrap();
}

#[tokio::test]
async fn a_watch_ends_with_its_store() {
    let server = start_redis();
    let store = open(&server).await;
    let mut watch = store.watch("").await.unwrap();
    store.put("a", "1".into(), Expect::Any).await.unwrap();
    drop(store);
    let all = async { while watch.next().await.is_some() {} };
    tokio::time::timeout(WAIT_TIMEOUT, all).await.unwrap();
}
