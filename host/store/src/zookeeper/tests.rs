#![allow(clippy::unwrap_used, clippy::panic)] // Tests may panic.

mod deletions;
mod failures;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use transom_testkit::eventually;
use transom_testkit::zookeeper::ZooKeeper;

use super::*;
use crate::{Expect, Notice, conformance};

const ROOT: &str = "/transom/store";

fn settings(servers: &str) -> Settings {
    Settings {
        servers: servers.to_owned(),
        root: ROOT.to_owned(),
        digest: Some("transom:secret".to_owned()),
        world_access: false,
        tls: None,
        connect_timeout: Duration::from_secs(1),
    }
}

fn open(servers: &str) -> Arc<dyn Store> {
    Arc::new(ZooKeeperStore::open(settings(servers), Duration::from_secs(5)))
}

/// Text that a compression does not shorten much.
fn filling(length: usize) -> Bytes {
    use rand::Rng;
    let mut rng = rand::rng();
    (0..length).map(|_| rng.random_range(b' '..b'~')).collect()
}

/// A session of the store's user.
async fn client(server: &ZooKeeper) -> zookeeper_client::Client {
    let client = zookeeper_client::Client::connector().with_auth("digest", b"transom:secret");
    client.connect(&server.address()).await.unwrap()
}

/// The names of the nodes below one of the store.
async fn nodes(server: &ZooKeeper, folder: &str) -> Vec<String> {
    let client = client(server).await;
    client.list_children(&format!("{ROOT}/{folder}")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeeper_store_passes_the_conformance_suite() {
    let server = ZooKeeper::start().await;
    conformance::run(open(&server.address())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemons_see_each_others_writes_at_once() {
    let server = ZooKeeper::start().await;
    let [one, two] = [(); 2].map(|()| open(&server.address()));
    let mut watch = two.watch("a").await.unwrap();
    // The first session reports what it does not know.
    two.get("a").await.unwrap();
    let mut last = 0;
    for number in 0..50 {
        let (writer, reader) = if number % 2 == 0 {
            (&one, &two)
        } else {
            (&two, &one)
        };
        let expect = if last == 0 {
            Expect::Absent
        } else {
            Expect::Version(last)
        };
        last = writer.put("a", number.to_string().into(), expect).await.unwrap();
        assert_eq!(reader.get("a").await.unwrap().unwrap().version, last);
    }
    let last = Notice::Changed {
        key: "a".to_owned(),
        version: Some(last),
    };
    while watch.next().await.unwrap() != last {}
    let held = one.acquire("l", "one", Duration::from_mins(1)).await.unwrap();
    assert!(matches!(
        two.acquire("l", "two", Duration::from_mins(1)).await,
        Err(Error::Held { .. })
    ));
    one.release(&held).await.unwrap();
    two.acquire("l", "two", Duration::from_mins(1)).await.unwrap();
}

/// Batches and values larger than a request of ZooKeeper.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_batches_are_atomic_and_leave_nothing() {
    let server = ZooKeeper::start().await;
    let (one, two) = (open(&server.address()), open(&server.address()));
    let value = filling(3 << 20);
    let batch = Batch::new().put("large/a", value.clone(), Expect::Absent).put(
        "large/b",
        value.clone(),
        Expect::Absent,
    );
    let versions = one.commit(batch.clone()).await.unwrap();
    let rejected = two.commit(batch).await;
    assert!(matches!(rejected, Err(Error::Conflict { .. })), "{rejected:?}");
    let found = two.scan("large/").await.unwrap();
    assert_eq!(
        found.iter().map(|entry| entry.version).collect::<Vec<_>>(),
        versions
    );
    assert!(found.iter().all(|entry| entry.value == value));
    // The log is longer than the last snapshot, so that there is another one; then its entries go.
    for number in 0..5 {
        one.put(&format!("more/{number}"), "x".into(), Expect::Any)
            .await
            .unwrap();
    }
    eventually("only the snapshot is left", || async {
        let [snapshots, staged] = [nodes(&server, "snapshots").await, nodes(&server, "staged").await];
        if snapshots.len() == 1 && staged.is_empty() {
            return Ok(());
        }
        Err(format!("{snapshots:?} {staged:?}"))
    })
    .await;
    drop((one, two));
    let later = open(&server.address());
    assert_eq!(later.scan("large/").await.unwrap(), found);
    assert_eq!(later.scan("more/").await.unwrap().len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshot_and_log_give_the_same_state_to_a_new_daemon() {
    let server = ZooKeeper::start().await;
    let (one, follower) = (open(&server.address()), open(&server.address()));
    follower.get("a").await.unwrap();
    let value = filling(50_000);
    for number in 0..200 {
        let key = format!("k/{}", number % 70);
        let batch = Batch::new().put(key, value.slice(number..), Expect::Any);
        let batch = batch.delete(format!("k/{}", (number * 7) % 70), Expect::Any);
        one.commit(batch).await.unwrap();
    }
    eventually("there is a snapshot", || async {
        let snapshots = nodes(&server, "snapshots").await;
        let log = nodes(&server, "log").await;
        if snapshots.len() == 1 && log.len() < 150 {
            return Ok(());
        }
        Err(format!("{} snapshots, {} entries", snapshots.len(), log.len()))
    })
    .await;
    let expected = one.scan("").await.unwrap();
    assert!(!expected.is_empty());
    for store in [follower, open(&server.address())] {
        assert_eq!(store.scan("").await.unwrap(), expected);
    }
    let last = expected.iter().map(|entry| entry.version).max().unwrap();
    let next = open(&server.address())
        .put("k", "x".into(), Expect::Any)
        .await
        .unwrap();
    assert!(next > last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writes_are_few_transactions() {
    let server = ZooKeeper::start().await;
    let store = open(&server.address());
    store.put("a", "x".into(), Expect::Any).await.unwrap();
    let before = nodes(&server, "log").await.len();
    let writes = (0..1000).map(|number| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            // The load is what is tested: a write each millisecond.
            tokio::time::sleep(Duration::from_millis(number)).await;
            store
                .put(&format!("k/{number}"), "x".into(), Expect::Absent)
                .await
        })
    });
    for write in writes.collect::<Vec<_>>() {
        write.await.unwrap().unwrap();
    }
    let entries = nodes(&server, "log").await.len() - before;
    assert!((5..100).contains(&entries), "{entries} entries for 1000 writes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_is_neither_read_nor_created_without_the_right_credentials() {
    let server = ZooKeeper::start().await;
    let one = open(&server.address());
    one.put("a", "x".into(), Expect::Any).await.unwrap();
    let other = Settings {
        digest: Some("transom:wrong".to_owned()),
        ..settings(&server.address())
    };
    let other = ZooKeeperStore::open(other, Duration::from_secs(3));
    let Err(Error::Unavailable { source, .. }) = other.get("a").await else {
        panic!("it reads with a wrong password");
    };
    let text = source.to_string();
    assert!(text.contains("denies access to /transom/store"), "{text}");

    let open_to_all = Settings {
        root: "/transom/open".to_owned(),
        digest: None,
        world_access: true,
        ..settings(&server.address())
    };
    let store = ZooKeeperStore::open(open_to_all.clone(), Duration::from_secs(3));
    // Below a node of another user nothing can be created.
    assert!(store.put("a", "x".into(), Expect::Any).await.is_err());
    let root = "/open".to_owned();
    let open_to_all = Settings { root, ..open_to_all };
    let store = ZooKeeperStore::open(open_to_all.clone(), Duration::from_secs(3));
    store.put("a", "x".into(), Expect::Any).await.unwrap();
    let careful = Settings {
        world_access: false,
        ..open_to_all
    };
    let careful = ZooKeeperStore::open(careful, Duration::from_secs(3));
    let Err(Error::Unavailable { source, .. }) = careful.get("a").await else {
        panic!("it reads what anyone can change");
    };
    assert!(source.to_string().contains("world:anyone"), "{source}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_encrypted_and_servers_verified() {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
    let server = ZooKeeper::start_with_tls(&certificate.pem(), &key.serialize_pem()).await;
    let secure = |host: &str, authorities: &str| Settings {
        servers: format!("{host}:{}", server.secure_port()),
        tls: Some(crate::Tls {
            verify: true,
            authorities: Some(authorities.as_bytes().to_vec()),
        }),
        ..settings("")
    };
    let store = ZooKeeperStore::open(secure("localhost", &certificate.pem()), Duration::from_secs(5));
    let version = store.put("a", "x".into(), Expect::Absent).await.unwrap();
    assert_eq!(store.get("a").await.unwrap().unwrap().version, version);

    let other_key = rcgen::KeyPair::generate().unwrap();
    let other = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let other = other.self_signed(&other_key).unwrap();
    for refused in [
        secure("localhost", &other.pem()),
        secure("127.0.0.1", &certificate.pem()),
    ] {
        let store = ZooKeeperStore::open(refused, Duration::from_secs(4));
        let rejected = store.get("a").await;
        assert!(matches!(rejected, Err(Error::Unavailable { .. })), "{rejected:?}");
    }
}
