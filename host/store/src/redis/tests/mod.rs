#![allow(clippy::unwrap_used, clippy::panic)] // Tests may panic.

mod failover;
mod failures;

use std::collections::BTreeSet;
use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use transom_testkit::redis::{PASSWORD, RedisServer};

use super::scan::{self, PageLimits};
use crate::config::Backend;
use crate::{Batch, Config, Error, Expect, Notice, Store, Tls, conformance};

/// The timeout of a recovery; only a lasting failure reaches it.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// A server that keeps its data over a restart.
fn start_redis() -> RedisServer {
    RedisServer::durable().with_password().started()
}

fn config(server: &RedisServer) -> Config {
    Config {
        password: Some(PASSWORD.into()),
        ..Config::new(server.address().to_string())
    }
}

async fn open(server: &RedisServer) -> Arc<dyn Store> {
    config(server).open().await.unwrap()
}

/// The concrete type, for functions that the trait does not have.
fn redis_store(server: &RedisServer) -> super::RedisStore {
    let Ok(Backend::Redis(servers)) = config(server).backend() else {
        panic!("{} is no Redis", server.address());
    };
    let (call, connect) = (Duration::from_secs(5), Duration::from_secs(2));
    super::RedisStore::open(*servers, call, connect).unwrap()
}

/// An error with all its causes.
fn error_text(error: &Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    message
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_store_passes_the_conformance_suite() {
    let server = start_redis();
    let mut config = config(&server);
    config.database = Some(3);
    conformance::run(config.open().await.unwrap()).await;
}

/// A certificate for this host, its key, and the authority that issued it.
fn certificate() -> (String, String, String) {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer = rcgen::CertifiedIssuer::self_signed(authority, authority_key).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = leaf.signed_by(&key, &issuer).unwrap();
    (certificate.pem(), key.serialize_pem(), issuer.pem())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_certificate_is_verified_unless_switched_off() {
    let (certificate, key, authority) = certificate();
    let server = RedisServer::durable()
        .with_password()
        .with_tls(&certificate, &key)
        .started();
    let with = |verify: bool, authorities: Option<&str>| {
        let authorities = authorities.map(|pem| pem.as_bytes().to_vec());
        let tls = Some(Tls { verify, authorities });
        Config {
            tls,
            ..config(&server)
        }
    };
    let store = with(true, Some(&authority)).open().await.unwrap();
    conformance::run(store).await;

    // Verification is off, by a setting and by the URL.
    let unchecked = Config {
        password: Some(PASSWORD.into()),
        ..Config::new(format!("rediss://{}/#insecure", server.address()))
    };
    for config in [with(false, None), unchecked] {
        let store = config.open().await.unwrap();
        assert!(store.get("conformance/follow/end").await.unwrap().is_some());
    }

    // An unknown authority, and no TLS at all.
    let other_authority = self::certificate().2;
    for config in [
        with(true, None),
        with(true, Some(&other_authority)),
        config(&server),
    ] {
        let rejected = config.open().await.unwrap().get("a").await.unwrap_err();
        assert!(matches!(rejected, Error::Unavailable { .. }), "{rejected:?}");
    }
    let rejected = with(true, Some("no certificate")).open().await.unwrap_err();
    assert!(
        matches!(&rejected, Error::Unsupported { reason, .. } if reason.contains("no PEM certificate")),
        "{rejected:?}"
    );
}

#[tokio::test]
async fn databases_share_no_entries_notices_or_leases() {
    let server = start_redis();
    let in_database = |n: u16| {
        let password = PASSWORD
            .replace('%', "%25")
            .replace(' ', "%20")
            .replace('@', "%40");
        let password = password.replace('/', "%2F").replace(':', "%3A");
        Config::new(format!("redis://:{password}@{}/{n}", server.address()))
    };
    let (one, two) = (
        in_database(1).open().await.unwrap(),
        in_database(2).open().await.unwrap(),
    );
    one.put("a", "1".into(), Expect::Absent).await.unwrap();
    assert_eq!(two.get("a").await.unwrap(), None);
    let mut watch = two.watch("").await.unwrap();
    one.put("a", "2".into(), Expect::Any).await.unwrap();
    let version = two.put("b", "2".into(), Expect::Any).await.unwrap();
    let first = watch.next().await.unwrap();
    assert!(
        matches!(&first, Notice::Changed { key, version: Some(found) } if key == "b" && *found == version),
        "{first:?}"
    );
    let hour = Duration::from_hours(1);
    one.acquire("l", "one", hour).await.unwrap();
    two.acquire("l", "two", hour).await.unwrap();
}

/// Two daemons at one store: each sees, is notified of, and respects the changes of the other.
#[tokio::test]
async fn two_daemons_share_entries_notices_and_leases() {
    let server = start_redis();
    let (one, two) = (open(&server).await, open(&server).await);
    let mut watch = two.watch("").await.unwrap();
    two.get("a").await.unwrap();
    let version = one.put("a", "1".into(), Expect::Absent).await.unwrap();
    let expected = Notice::Changed {
        key: "a".to_owned(),
        version: Some(version),
    };
    while watch.next().await.unwrap() != expected {}
    let rejected = two.put("a", "2".into(), Expect::Absent).await.unwrap_err();
    assert!(matches!(rejected, Error::Conflict { found: Some(found), .. } if found == version));
    let lease = one.acquire("l", "one", Duration::from_hours(1)).await.unwrap();
    let rejected = two
        .acquire("l", "two", Duration::from_hours(1))
        .await
        .unwrap_err();
    assert!(matches!(rejected, Error::Held { holder, .. } if holder == "one"));
    one.release(&lease).await.unwrap();
    two.acquire("l", "two", Duration::from_hours(1)).await.unwrap();
    let late = Batch::new().put("a", "3", Expect::Any).fenced("l", lease.fencing);
    let rejected = one.commit(late).await.unwrap_err();
    assert!(matches!(rejected, Error::Fenced { current: Some(now), .. } if now > lease.fencing));
    assert_eq!(two.get("a").await.unwrap().unwrap().version, version);
}

/// A writer puts the same value under twenty keys in each batch, and puts and deletes another key.
/// Every scan, in much smaller pages, must find a single value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scan_of_many_pages_is_consistent() {
    let server = start_redis();
    let store = Arc::new(redis_store(&server));
    let put_all = |n: u32| {
        let batch = (0..20).fold(Batch::new(), |batch, key| {
            batch.put(format!("s/{key:02}"), n.to_string(), Expect::Any)
        });
        let repeated_key = format!("s/{:02}x", n % 20);
        let earlier = format!("s/{:02}x", (n + 19) % 20);
        batch
            .put(repeated_key, n.to_string(), Expect::Any)
            .delete(earlier, Expect::Any)
    };
    store.commit(put_all(0)).await.unwrap();
    store.put("t", "outside".into(), Expect::Any).await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (store, done) = (Arc::clone(&store), Arc::clone(&done));
        async move {
            let mut n = 0;
            while !done.load(Ordering::Relaxed) {
                n += 1;
                store.commit(put_all(n)).await.unwrap();
            }
        }
    });
    let mut seen = BTreeSet::new();
    let start = Instant::now();
    for n in 0.. {
        if n >= 200 && seen.len() > 10 {
            break;
        }
        assert!(
            start.elapsed() < WAIT_TIMEOUT,
            "the writer wrote during the scans"
        );
        let page = PageLimits {
            entries: 1 + n % 7,
            bytes: 1 + n % 50,
        };
        let entries = scan::scan(&store, "s/", page).await.unwrap();
        assert_eq!(entries.len(), 21, "a snapshot has 21 keys");
        assert!(entries.is_sorted_by(|a, b| a.key < b.key));
        let values: BTreeSet<Bytes> = entries.into_iter().map(|entry| entry.value).collect();
        assert_eq!(values.len(), 1, "a snapshot has one value: {values:?}");
        seen.extend(values);
    }
    done.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    let big = PageLimits {
        entries: 4,
        bytes: 1 << 20,
    };
    assert_eq!(
        scan::scan(&store, "", big).await.unwrap().len(),
        22,
        "without a writer"
    );
}

#[tokio::test]
async fn watchers_of_a_huge_batch_get_lagged() {
    let server = start_redis();
    let store = open(&server).await;
    store.get("a").await.unwrap();
    let mut watch = store.watch("k").await.unwrap();
    let batch = (0..400).fold(Batch::new(), |batch, n| {
        batch.put(format!("k{n:04}{}", "k".repeat(4000)), "", Expect::Any)
    });
    store.commit(batch).await.unwrap();
    let version = store.put("k", "".into(), Expect::Any).await.unwrap();
    let mut notices = Vec::new();
    loop {
        match watch.next().await.unwrap() {
            Notice::Changed {
                key,
                version: Some(changed),
            } if key == "k" && changed == version => break,
            notice => notices.push(notice),
        }
    }
    assert_eq!(notices, [Notice::Lagged]);
}
