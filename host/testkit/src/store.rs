//! A store that behaves like one on a stuck disk.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{Mutex, watch};
use transom_store::{Batch, Entry, Result, Store, Watch};

use crate::WAIT_TIMEOUT;

/// A store that does not commit while the test holds it. Like a stuck disk, it commits everything
/// later, in order, even if the caller no longer waits.
#[derive(Debug)]
pub struct HeldStore {
    inner: Arc<dyn Store>,
    /// Number of commits that still pass; `None`: all of them.
    passing: watch::Sender<Option<usize>>,
    waiting: watch::Sender<usize>,
    turn: Arc<Mutex<()>>,
}

impl HeldStore {
    /// A store that passes all commits until [`HeldStore::hold_after`] is called.
    pub fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            passing: watch::Sender::new(None),
            waiting: watch::Sender::new(0),
            turn: Arc::default(),
        })
    }

    /// Passes the next `commits` commits and holds all later ones.
    pub fn hold_after(&self, commits: usize) {
        self.waiting.send_replace(0);
        self.passing.send_replace(Some(commits));
    }

    /// Commits everything that was held, and passes later commits.
    pub fn release(&self) {
        self.passing.send_replace(None);
    }

    /// Waits until a commit is held.
    pub async fn until_held(&self) {
        let mut waiting = self.waiting.subscribe();
        let held = waiting.wait_for(|waiting| *waiting > 0);
        tokio::time::timeout(WAIT_TIMEOUT, held).await.unwrap().unwrap();
    }

    /// Counts a commit, and returns whether it passes.
    fn pass(&self) -> bool {
        let mut passes = true;
        self.passing.send_modify(|passing| match passing {
            Some(0) => passes = false,
            Some(left) => *left -= 1,
            None => {}
        });
        passes
    }
}

#[async_trait]
impl Store for HeldStore {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        self.inner.get(key).await
    }

    async fn scan(&self, prefix: &str) -> Result<Vec<Entry>> {
        self.inner.scan(prefix).await
    }

    async fn commit(&self, batch: Batch) -> Result<Vec<u64>> {
        let passes = self.pass();
        let (inner, turn) = (Arc::clone(&self.inner), Arc::clone(&self.turn));
        let mut passing = self.passing.subscribe();
        if !passes {
            self.waiting.send_modify(|waiting| *waiting += 1);
        }
        // Spawned, so that the commit continues if the caller drops its future.
        let commit = tokio::spawn(async move {
            let _turn = turn.lock().await;
            if !passes {
                passing.wait_for(Option::is_none).await.unwrap();
            }
            inner.commit(batch).await
        });
        commit.await.unwrap()
    }

    async fn watch(&self, prefix: &str) -> Result<Watch> {
        self.inner.watch(prefix).await
    }
}
