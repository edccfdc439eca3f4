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
    passes_left: watch::Sender<Option<usize>>,
    held_commits: watch::Sender<usize>,
    commit_order: Arc<Mutex<()>>,
}

impl HeldStore {
    /// A store that passes all commits until [`HeldStore::hold_after`] is called.
    pub fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            passes_left: watch::Sender::new(None),
            held_commits: watch::Sender::new(0),
            commit_order: Arc::default(),
        })
    }

    /// Passes the next `commits` commits and holds all later ones.
    pub fn hold_after(&self, commits: usize) {
        self.held_commits.send_replace(0);
        self.passes_left.send_replace(Some(commits));
    }

    /// Commits everything that was held, and passes later commits.
    pub fn release(&self) {
        self.passes_left.send_replace(None);
    }

    /// Waits until a commit is held.
    pub async fn wait_until_held(&self) {
        let mut held_commits = self.held_commits.subscribe();
        let is_held = held_commits.wait_for(|held_commits| *held_commits > 0);
        tokio::time::timeout(WAIT_TIMEOUT, is_held)
            .await
            .unwrap()
            .unwrap();
    }

    /// Counts a commit, and returns whether it passes.
    fn count_pass(&self) -> bool {
        let mut passes = true;
        self.passes_left.send_modify(|passes_left| match passes_left {
            Some(0) => passes = false,
            Some(count) => *count -= 1,
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
        let passes = self.count_pass();
        let (inner, commit_order) = (Arc::clone(&self.inner), Arc::clone(&self.commit_order));
        let mut passes_left = self.passes_left.subscribe();
        if !passes {
            self.held_commits.send_modify(|held_commits| *held_commits += 1);
        }
        // Spawned, so that the commit continues if the caller drops its future.
        let commit = tokio::spawn(async move {
            let _commit_order = commit_order.lock().await;
            if !passes {
                passes_left.wait_for(Option::is_none).await.unwrap();
            }
            inner.commit(batch).await
        });
        commit.await.unwrap()
    }

    async fn watch(&self, prefix: &str) -> Result<Watch> {
        self.inner.watch(prefix).await
    }
}
