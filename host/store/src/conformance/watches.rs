//! A watch reports every change in order, or reports that some are missing.

use std::sync::Arc;
use std::time::Duration;

use crate::{Batch, Entry, Expect, Notice, Store, Watch};

/// The timeout of a notice; only a broken store reaches it.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn run(store: &Arc<dyn Store>) {
    tells_what_changed(store).await;
    tells_every_watcher(store).await;
    a_follower_ends_with_the_contents_of_the_store(store).await;
}

async fn next(watch: &mut Watch) -> Notice {
    tokio::time::timeout(WAIT_TIMEOUT, watch.next())
        .await
        .unwrap()
        .unwrap()
}

/// Opens a watch, and consumes the notices that a new connection causes.
async fn settled(store: &Arc<dyn Store>, prefix: &str) -> Watch {
    let mut watch = store.watch(prefix).await.unwrap();
    let key = format!("{prefix}settled");
    let put = store.put(&key, "".into(), Expect::Any).await.unwrap();
    while next(&mut watch).await != changed(&key, put) {}
    watch
}

fn changed(key: &str, version: u64) -> Notice {
    Notice::Changed {
        key: key.to_owned(),
        version: (version != 0).then_some(version),
    }
}

async fn tells_what_changed(store: &Arc<dyn Store>) {
    let key = |name: &str| format!("conformance/watch/{name}");
    let mut watch = settled(store, "conformance/watch/").await;
    let (a, unusual) = (key("a"), key("b \n\u{0}\u{10FFFF}"));
    let batch = Batch::new()
        .put(&a, "1", Expect::Absent)
        .put("conformance/elsewhere", "x", Expect::Any)
        .put(&unusual, "1", Expect::Absent);
    let versions = store.commit(batch).await.unwrap();
    let rejected = Batch::new()
        .put(key("c"), "x", Expect::Any)
        .put(&a, "x", Expect::Absent);
    store.commit(rejected).await.unwrap_err();
    let second = store
        .commit(
            Batch::new()
                .delete(&a, Expect::Any)
                .put(&unusual, "2", Expect::Any),
        )
        .await
        .unwrap();
    for expected in [
        changed(&a, versions[0]),
        changed(&unusual, versions[2]),
        changed(&a, 0),
        changed(&unusual, second[1]),
    ] {
        assert_eq!(next(&mut watch).await, expected);
    }
}

async fn tells_every_watcher(store: &Arc<dyn Store>) {
    let mut watches = vec![
        settled(store, "conformance/all/").await,
        settled(store, "conformance/all/").await,
    ];
    drop(watches.pop());
    watches.push(settled(store, "conformance/all/a").await);
    let key = "conformance/all/a/1";
    let version = store.put(key, "x".into(), Expect::Any).await.unwrap();
    for watch in &mut watches {
        // The first watch has also received the notices that follow the start of the others.
        while next(watch).await != changed(key, version) {}
    }
}

/// Many writers and a follower that watches, scans, applies notices, and scans again after a lag:
/// in the end it has exactly the contents of the store.
async fn a_follower_ends_with_the_contents_of_the_store(store: &Arc<dyn Store>) {
    let prefix = "conformance/follow/";
    let mut watch = store.watch(prefix).await.unwrap();
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                for n in 0..200 {
                    let key = format!("{prefix}{writer}/{}", n % 7);
                    if n % 5 == 4 {
                        store.delete(&key, Expect::Any).await.unwrap();
                    } else {
                        store.put(&key, n.to_string().into(), Expect::Any).await.unwrap();
                    }
                }
            })
        })
        .collect();
    let versions = |entries: Vec<Entry>| entries.into_iter().map(|entry| (entry.key, entry.version));
    let mut follower: std::collections::BTreeMap<_, _> =
        versions(store.scan(prefix).await.unwrap()).collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let end = format!("{prefix}end");
    let last = store.put(&end, "".into(), Expect::Any).await.unwrap();
    while follower.get(&end) != Some(&last) {
        match next(&mut watch).await {
            Notice::Lagged => follower = versions(store.scan(prefix).await.unwrap()).collect(),
            Notice::Changed { key, version: None } => drop(follower.remove(&key)),
            Notice::Changed {
                key,
                version: Some(version),
            } => drop(follower.insert(key, version)),
        }
    }
    let stored: std::collections::BTreeMap<_, _> = versions(store.scan(prefix).await.unwrap()).collect();
    assert_eq!(follower, stored);
}
