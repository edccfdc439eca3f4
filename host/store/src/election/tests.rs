use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::file::FileStore;
use crate::{Batch, Cause, Entry, Expect, Result};

const TTL: Duration = Duration::from_millis(300);
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// A store that can be switched off.
#[derive(Debug)]
struct SwitchableStore {
    store: FileStore,
    is_down: AtomicBool,
}

impl SwitchableStore {
    fn check(&self) -> Result<()> {
        if self.is_down.load(Ordering::SeqCst) {
            let source: Cause = "switched off".into();
            return Err(Error::Unavailable {
                what: "answer",
                source,
            });
        }
        Ok(())
    }
}

#[async_trait]
impl Store for SwitchableStore {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        self.store.get(key).await
    }

    async fn scan(&self, prefix: &str) -> Result<Vec<Entry>> {
        self.store.scan(prefix).await
    }

    async fn commit(&self, batch: Batch) -> Result<Vec<u64>> {
        self.check()?;
        self.store.commit(batch).await
    }

    async fn acquire(&self, name: &str, holder: &str, ttl: Duration) -> Result<Lease> {
        self.check()?;
        self.store.acquire(name, holder, ttl).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Lease> {
        self.check()?;
        self.store.renew(lease).await
    }

    async fn release(&self, lease: &Lease) -> Result<()> {
        self.check()?;
        self.store.release(lease).await
    }
}

struct Site {
    store: Arc<SwitchableStore>,
    _dir: tempfile::TempDir,
}

impl Site {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = SwitchableStore {
            store: FileStore::open(dir.path().to_owned()).await.unwrap(),
            is_down: AtomicBool::new(false),
        };
        Self {
            store: Arc::new(store),
            _dir: dir,
        }
    }

    fn candidate(&self, address: &str) -> Election {
        Election::new(self.store.clone(), "fw/leader", address, TTL)
    }

    fn set_down(&self, is_down: bool) {
        self.store.is_down.store(is_down, Ordering::SeqCst);
    }
}

async fn finish_in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT_TIMEOUT, what).await.unwrap()
}

/// The fencing number of a term.
fn fencing(term: &Term) -> u64 {
    term.validity.0.load().fencing
}

#[tokio::test]
async fn one_candidate_is_elected_and_the_next_when_it_resigns() {
    let site = Site::new().await;
    let (mut a, mut b) = (site.candidate("a:1"), site.candidate("b:2"));
    let (seen_by_a, mut seen_by_b) = (a.leadership(), b.leadership());
    let first = finish_in_time(a.campaign()).await;
    assert_eq!(*seen_by_a.borrow(), Leadership::Leader);

    let second = tokio::spawn(async move { b.campaign().await });
    finish_in_time(seen_by_b.wait_for(|leadership| *leadership == Leadership::Follower("a:1".to_owned())))
        .await
        .unwrap();
    // Waits longer than the lease lasts, so that it has to be renewed.
    tokio::time::sleep(TTL * 2).await;
    assert!(!second.is_finished());
    assert!(!first.ended().is_cancelled() && first.lease_term().remaining() > Duration::ZERO);

    let (number, lease_term, fenced) = (fencing(&first), first.lease_term(), first.fenced_store());
    fenced.put("fw/x", Bytes::from("1"), Expect::Any).await.unwrap();
    first.resign().await;
    let second = finish_in_time(second).await.unwrap();
    assert!(fencing(&second) > number);
    assert_eq!(*seen_by_b.borrow(), Leadership::Leader);
    assert_eq!(*seen_by_a.borrow(), Leadership::Unknown);
    let rejected = fenced.put("fw/x", Bytes::from("2"), Expect::Any).await;
    assert!(matches!(rejected, Err(Error::Fenced { .. })), "{rejected:?}");
    // The remaining time of a resigned term no longer matters, but it does not grow either.
    assert!(lease_term.remaining() <= TTL);
    second
        .fenced_store()
        .put("fw/x", Bytes::from("3"), Expect::Any)
        .await
        .unwrap();
}

#[tokio::test]
async fn term_ends_with_its_lease_in_an_outage_and_can_be_won_again() {
    let site = Site::new().await;
    let mut a = site.candidate("a:1");
    let leadership = a.leadership();
    let term = finish_in_time(a.campaign()).await;
    let lease_term = term.lease_term();
    site.set_down(true);
    assert!(
        lease_term.remaining() > Duration::ZERO,
        "an outage shorter than the lease ends nothing"
    );
    finish_in_time(term.ended().cancelled()).await;
    assert_eq!(lease_term.remaining(), Duration::ZERO);
    assert_eq!(*leadership.borrow(), Leadership::StoreUnavailable);
    let number = fencing(&term);
    drop(term);

    let reelected = tokio::spawn(async move { a.campaign().await });
    site.set_down(false);
    let reelected = finish_in_time(reelected).await.unwrap();
    assert!(fencing(&reelected) > number);
    assert_eq!(*leadership.borrow(), Leadership::Leader);
    assert_eq!(
        lease_term.remaining(),
        Duration::ZERO,
        "an earlier term does not come back with a later one"
    );
}

#[tokio::test]
async fn standby_reports_the_store_outage_and_afterwards_the_leader() {
    let site = Site::new().await;
    let (mut a, mut b) = (
        Election::new(site.store.clone(), "fw/leader", "a:1", Duration::from_secs(30)),
        site.candidate("b:2"),
    );
    let mut leadership = b.leadership();
    let _term = finish_in_time(a.campaign()).await;
    site.set_down(true);
    let waiting = tokio::spawn(async move { b.campaign().await });
    finish_in_time(leadership.wait_for(|leadership| *leadership == Leadership::StoreUnavailable))
        .await
        .unwrap();
    site.set_down(false);
    finish_in_time(leadership.wait_for(|leadership| *leadership == Leadership::Follower("a:1".to_owned())))
        .await
        .unwrap();
    waiting.abort();
}

#[tokio::test]
async fn an_outage_shorter_than_the_lease_is_survived() {
    let site = Site::new().await;
    let mut a = Election::new(site.store.clone(), "fw/leader", "a:1", Duration::from_secs(2));
    let term = finish_in_time(a.campaign()).await;
    let lease_term = term.lease_term();
    site.set_down(true);
    // A renewal has failed when less is left than at the time of the first attempt.
    while lease_term.remaining() > Duration::from_millis(1200) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    site.set_down(false);
    while lease_term.remaining() < Duration::from_millis(1500) {
        assert!(!term.ended().is_cancelled());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// As after `kill -9`: a process must not forward requests to itself.
#[tokio::test]
async fn candidate_waits_for_the_lease_of_an_earlier_process_at_its_address() {
    let site = Site::new().await;
    let (mut earlier, mut later) = (site.candidate("a:1"), site.candidate("a:1"));
    let mut leadership = later.leadership();
    let term = finish_in_time(earlier.campaign()).await;
    leadership.borrow_and_update();
    let later = tokio::spawn(async move { later.campaign().await });
    // Dropping the term stops the renewals, but the lease lasts until it expires.
    drop(term);
    finish_in_time(leadership.wait_for(|leadership| *leadership != Leadership::Unknown))
        .await
        .unwrap();
    assert_eq!(*leadership.borrow(), Leadership::Leader);
    finish_in_time(later).await.unwrap();
}

#[tokio::test]
async fn a_term_that_is_dropped_is_over() {
    let site = Site::new().await;
    let (mut a, mut b) = (site.candidate("a:1"), site.candidate("b:2"));
    let term = finish_in_time(a.campaign()).await;
    let (ended, leadership) = (term.ended().clone(), a.leadership());
    drop(term);
    assert!(ended.is_cancelled());
    assert_eq!(*leadership.borrow(), Leadership::Unknown);
    finish_in_time(b.campaign()).await;
}

#[tokio::test]
async fn process_with_a_store_of_its_own_leads_although_it_cannot_renew_its_lease() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(FileStore::open(dir.path().to_owned()).await.unwrap());
    let mut alone = Election::new(Arc::clone(&store), "fw/leader", "a:1", TTL);
    let term = finish_in_time(alone.campaign()).await;
    // As on a machine that gives the process no time: nothing is renewed.
    term.renewer.abort();
    tokio::time::sleep(TTL * 2).await;
    assert!(!term.ended().is_cancelled() && term.lease_term().remaining() > TTL);
    let fenced = term.fenced_store();
    fenced.put("fw/x", Bytes::from("1"), Expect::Any).await.unwrap();
    // A later term of the same candidate does not wait for the earlier one.
    let number = fencing(&term);
    drop(term);
    assert!(fencing(&finish_in_time(alone.campaign()).await) > number);
}
