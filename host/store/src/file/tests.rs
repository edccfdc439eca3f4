#![allow(clippy::unwrap_used, clippy::panic)] // Tests may panic.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use redb::backends::InMemoryBackend;
use redb::{Database, StorageBackend};
use tokio::sync::{mpsc, oneshot};

use super::large_batches::{Commit, LargeBatches, MAX_WAITING_BATCHES};
use super::writer::{Request, Writer};
use crate::leases::Leases;
use crate::watch::Feed;
use crate::{Batch, Entry, Error, Expect, Store, conformance, file::FileStore, open};

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

/// The number of keys of the large batches in these tests.
const KEYS: u32 = 5000;

/// Puts many keys.
fn large_batch(value: &'static str) -> Batch {
    let puts = (0..KEYS).map(|n| format!("large/{n:04}"));
    puts.fold(Batch::new(), |batch, key| batch.put(key, value, Expect::Any))
}

#[tokio::test]
async fn small_batches_and_leases_do_not_wait_for_a_large_batch() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&address(&dir)).await.unwrap();
    let ended = Mutex::new(Vec::new());
    let large = async {
        store.commit(large_batch("1")).await.unwrap();
        ended.lock().unwrap().push("large");
    };
    let small = async {
        store.put("small", "1".into(), Expect::Absent).await.unwrap();
        store.acquire("l", "a", Duration::from_mins(1)).await.unwrap();
        ended.lock().unwrap().push("small");
    };
    // The large batch is submitted first.
    tokio::join!(biased; large, small);
    assert_eq!(*ended.lock().unwrap(), ["small", "large"]);
}

#[tokio::test]
async fn a_change_of_a_key_in_a_large_batch_follows_the_batch() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&address(&dir)).await.unwrap();
    let puts = ["2", "3"].map(|value| store.put("large/0007", value.into(), Expect::Any));
    let [second, third] = puts;
    let (large, second, third) = tokio::join!(biased; store.commit(large_batch("1")), second, third);
    assert!(large.unwrap()[7] < second.unwrap());
    let found = store.get("large/0007").await.unwrap().unwrap();
    assert_eq!((found.value.as_ref(), found.version), (&b"3"[..], third.unwrap()));
    assert_eq!(store.scan("large/").await.unwrap()[7], found);
}

/// The writer of a store without its thread.
fn writer(dir: &Path) -> Writer {
    let (database, has_journal) = super::open_database(dir).unwrap();
    Writer {
        database: Arc::new(database),
        leases: Leases::new(0),
        feed: Feed::default(),
        large: LargeBatches::new(has_journal),
    }
}

/// What a store has after a restart.
async fn reopened(dir: &Path) -> Vec<Entry> {
    let store = FileStore::open(dir.to_owned()).await.unwrap();
    let entries = store.scan("large/").await.unwrap();
    for entry in [entries.first(), entries.last()].into_iter().flatten() {
        assert_eq!(store.get(&entry.key).await.unwrap().as_ref(), Some(entry));
    }
    entries
}

/// The process is killed after any of the transactions that a large batch needs. Afterwards the store
/// has all its changes or none; all if its caller was told.
#[tokio::test]
async fn a_large_batch_is_atomic_over_a_kill() {
    let mut committed_runs = Vec::new();
    for transactions in 0.. {
        let dir = tempfile::tempdir().unwrap();
        let before = {
            let store = FileStore::open(dir.path().to_owned()).await.unwrap();
            store.commit(large_batch("before")).await.unwrap();
            store.scan("large/").await.unwrap()
        };
        let mut killed = writer(dir.path());
        let (reply, mut answer) = oneshot::channel();
        let batch = (0..KEYS).fold(Batch::new(), |batch, n| match n % 2 {
            0 => batch.put(format!("large/{n:04}"), "after", Expect::Any),
            _ => batch.delete(format!("large/{n:04}"), Expect::Any),
        });
        assert!(killed.admit(Request::Commit(Commit { batch, reply })).is_none());
        for _ in 0..transactions {
            assert!(killed.write(&mut Vec::new()));
        }
        let is_idle = killed.large.is_idle();
        drop(killed);
        let found = reopened(dir.path()).await;
        match answer.try_recv() {
            Ok(versions) => {
                let versions = versions.unwrap();
                assert!(versions[0] > before.last().unwrap().version);
                let kept = versions.iter().filter(|version| **version > 0);
                assert!(found.iter().map(|entry| entry.version).eq(kept.copied()));
                assert!(found.iter().all(|entry| entry.value.as_ref() == b"after"));
            }
            Err(_) => assert_eq!(found, before),
        }
        committed_runs.push(found != before);
        if is_idle {
            break;
        }
    }
    assert!(committed_runs.is_sorted());
    let rejected = committed_runs.iter().filter(|committed| !**committed).count();
    let counts = (rejected, committed_runs.len() - rejected);
    assert_eq!(counts, (5, 7), "five transactions write the batch, six move it");
}

#[tokio::test]
async fn a_rejected_large_batch_changes_nothing_and_the_next_one_is_committed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&address(&dir)).await.unwrap();
    let conflict = large_batch("1").put("last", "1", Expect::Version(7));
    let fenced = large_batch("2").fenced("l", 7);
    let (conflict, fenced, accepted) = tokio::join!(
        biased;
        store.commit(conflict),
        store.commit(fenced),
        store.commit(large_batch("3"))
    );
    assert!(matches!(conflict, Err(Error::Conflict { .. })), "{conflict:?}");
    assert!(matches!(fenced, Err(Error::Fenced { .. })), "{fenced:?}");
    let versions = accepted.unwrap();
    assert_eq!((versions[0], versions.len()), (1, KEYS as usize));
    let found = store.scan("").await.unwrap();
    assert_eq!(found.len(), KEYS as usize);
    assert!(found.iter().all(|entry| entry.value.as_ref() == b"3"));
}

/// Large batches that wait are bounded: the writer leaves further requests in its channel.
#[tokio::test]
async fn requests_wait_while_too_many_large_batches_wait() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path());
    let (requests, mut waiting) = mpsc::channel(MAX_WAITING_BATCHES + 2);
    for _ in 0..MAX_WAITING_BATCHES + 2 {
        let (reply, _) = oneshot::channel();
        let batch = large_batch("1");
        let request = Request::Commit(Commit { batch, reply });
        assert!(requests.try_send(request).is_ok());
    }
    let mut group = Vec::new();
    writer.receive(&mut waiting, &mut group);
    assert_eq!((group.len(), waiting.len()), (0, 2));
    let mut transactions = 0;
    while !writer.large.has_room() {
        assert!(writer.write(&mut group));
        transactions += 1;
    }
    assert_eq!(transactions, 5, "the first is committed");
    writer.receive(&mut waiting, &mut group);
    assert_eq!(waiting.len(), 1);
}

/// A disk in memory. It fails while the switch is on.
#[derive(Debug)]
struct FailingDisk(InMemoryBackend, Arc<AtomicBool>);

impl FailingDisk {
    fn check(&self) -> std::io::Result<()> {
        if self.1.load(Ordering::Relaxed) {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl StorageBackend for FailingDisk {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.check()?;
        self.0.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.check()?;
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.check()?;
        self.0.write(offset, data)
    }
}

/// The callers of all waiting batches are told when the disk is full; the thread waits for the next
/// request, and ends with its channel.
#[test]
fn large_batches_fail_when_the_disk_is_full() {
    let is_full = Arc::new(AtomicBool::new(false));
    let disk = FailingDisk(InMemoryBackend::new(), Arc::clone(&is_full));
    let database = Database::builder().create_with_backend(disk).unwrap();
    assert!(!super::table::create(&database).unwrap());
    let mut writer = Writer {
        database: Arc::new(database),
        leases: Leases::new(0),
        feed: Feed::default(),
        large: LargeBatches::new(false),
    };
    let (requests, waiting) = mpsc::channel(1);
    let mut answers = Vec::new();
    for _ in 0..2 {
        let (reply, answer) = oneshot::channel();
        let batch = large_batch("1");
        assert!(writer.admit(Request::Commit(Commit { batch, reply })).is_none());
        answers.push(answer);
    }
    assert!(writer.write(&mut Vec::new()), "the first part is written");
    is_full.store(true, Ordering::Relaxed);
    let thread = std::thread::spawn(|| writer.run(waiting));
    for answer in answers {
        let failed = answer.blocking_recv().unwrap();
        assert!(matches!(failed, Err(Error::Unavailable { .. })), "{failed:?}");
    }
    drop(requests);
    thread.join().unwrap();
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
