//! The snapshot for readers: the newest run of every job, and the feed of changes in order.
//!
//! A look-up reads an immutable map and never waits; a change copies one of many maps, so its cost
//! does not depend on the number of jobs. The feed is under a lock for as long as it takes to copy
//! a page.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};

use arc_swap::ArcSwap;
use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::watch;
use transom_cluster::TaskId;
use transom_common::HostPort;

use crate::ids::{ChangeSeq, JobId};
use crate::job_state::JobState;

/// Number of maps; a change copies one of them.
const SHARDS: usize = 1024;

/// A job's newest run, as clients see it.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) id: JobId,
    /// The Mesos task id of the run.
    pub(crate) task: TaskId,
    /// The key of the request that queued this run, if the client gave one.
    pub(crate) request_key: Option<Arc<str>>,
    /// The sequence number of the last change of state.
    pub(crate) changed: ChangeSeq,
    pub(crate) at: Timestamp,
    pub(crate) state: JobState,
    /// The message of the last status, or of this daemon.
    pub(crate) message: Option<Arc<str>>,
    /// The response of a look-up.
    pub(crate) answer: Bytes,
    /// The agent with its sandbox: host and port. `None` before the launch.
    pub(crate) agent: Option<Arc<HostPort>>,
}

type Shard = HashMap<JobId, Arc<View>>;

/// See the module.
pub(crate) struct JobIndex {
    shards: Vec<ArcSwap<Shard>>,
    change_feed: RwLock<BTreeMap<ChangeSeq, Arc<View>>>,
    last: watch::Sender<ChangeSeq>,
}

/// A page of changes.
#[derive(Debug)]
pub(crate) struct Page {
    /// At most one for each job.
    pub(crate) changes: Vec<Arc<View>>,
    /// Where the next page begins.
    pub(crate) next: ChangeSeq,
    /// `since` lies beyond the last change, so it is of another store: the page begins with the
    /// first change again.
    pub(crate) reset: bool,
}

impl JobIndex {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| ArcSwap::default()).collect(),
            change_feed: RwLock::default(),
            last: watch::Sender::new(ChangeSeq::default()),
        }
    }

    pub(crate) fn get(&self, id: &JobId) -> Option<Arc<View>> {
        self.shard(id).load().get(id).cloned()
    }

    /// Replaces the view of a job.
    pub(crate) fn put(&self, view: View) {
        let view = Arc::new(view);
        let id = view.id.clone();
        let before = self.change(&id, |shard| shard.insert(id.clone(), Arc::clone(&view)));
        let mut change_feed = self.change_feed.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = before {
            change_feed.remove(&before.changed);
        }
        let changed = view.changed;
        change_feed.insert(changed, view);
        drop(change_feed);
        self.last
            .send_if_modified(|last| std::mem::replace(last, changed.max(*last)) < changed);
    }

    /// Removes a run, unless the job has a newer one.
    pub(crate) fn remove(&self, id: &JobId, task: &TaskId) {
        let shown = self.get(id).is_some_and(|view| view.task == *task);
        if !shown {
            return;
        }
        if let Some(before) = self.change(id, |shard| shard.remove(id)) {
            let mut change_feed = self.change_feed.write().unwrap_or_else(PoisonError::into_inner);
            change_feed.remove(&before.changed);
        }
    }

    /// Removes everything.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            shard.store(Arc::default());
        }
        let mut change_feed = self.change_feed.write().unwrap_or_else(PoisonError::into_inner);
        change_feed.clear();
    }

    /// No change has a lower sequence number: the last change may have been deleted.
    pub(crate) fn set_floor(&self, number: ChangeSeq) {
        self.last.send_replace(number);
    }

    /// At most `limit` changes after `since`.
    pub(crate) fn since(&self, since: ChangeSeq, limit: usize) -> Page {
        let change_feed = self.change_feed.read().unwrap_or_else(PoisonError::into_inner);
        let last = *self.last.borrow();
        let reset = since > last;
        let from = if reset { ChangeSeq::default() } else { since };
        let after = (Bound::Excluded(from), Bound::Unbounded);
        let changes: Vec<Arc<View>> = change_feed
            .range(after)
            .take(limit)
            .map(|(_, view)| Arc::clone(view))
            .collect();
        let next = match changes.last() {
            Some(view) if changes.len() == limit => view.changed,
            _ => last,
        };
        Page { changes, next, reset }
    }

    /// Notifies of every change from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<ChangeSeq> {
        self.last.subscribe()
    }

    /// The number of jobs.
    pub(crate) fn len(&self) -> usize {
        self.change_feed
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Only the core writes, so nothing is lost between reading and writing.
    fn change(&self, id: &JobId, change: impl FnOnce(&mut Shard) -> Option<Arc<View>>) -> Option<Arc<View>> {
        let shard = self.shard(id);
        let mut next = Shard::clone(&shard.load());
        let before = change(&mut next);
        shard.store(Arc::new(next));
        before
    }

    fn shard(&self, id: &JobId) -> &ArcSwap<Shard> {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        &self.shards[(hasher.finish() % SHARDS as u64) as usize]
    }
}

impl std::fmt::Debug for JobIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobIndex")
            .field("jobs", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(id: &str, task: &str, changed: u64, state: JobState) -> View {
        View {
            id: JobId::parse(id).unwrap(),
            task: task.into(),
            request_key: None,
            changed: ChangeSeq(changed),
            at: Timestamp::UNIX_EPOCH,
            state,
            message: None,
            answer: Bytes::new(),
            agent: None,
        }
    }

    fn told(page: &Page) -> Vec<(&str, u64)> {
        page.changes
            .iter()
            .map(|view| (view.id.as_str(), view.changed.0))
            .collect()
    }

    #[test]
    fn feed_lists_each_job_once_with_its_last_state() {
        let index = JobIndex::new();
        index.put(view("a", "a", 1, JobState::Staging));
        index.put(view("b", "b", 2, JobState::Staging));
        index.put(view("a", "a", 3, JobState::Running));
        let page = index.since(ChangeSeq(0), 10);
        assert_eq!(told(&page), [("b", 2), ("a", 3)]);
        assert_eq!((page.next, page.reset), (ChangeSeq(3), false));
        assert_eq!(told(&index.since(ChangeSeq(2), 10)), [("a", 3)]);
        assert!(index.since(ChangeSeq(3), 10).changes.is_empty());
        // A page at a time.
        let page = index.since(ChangeSeq(0), 1);
        assert_eq!((told(&page), page.next), (vec![("b", 2)], ChangeSeq(2)));
        assert_eq!(told(&index.since(page.next, 1)), [("a", 3)]);
    }

    #[test]
    fn newer_run_replaces_an_older_one() {
        let index = JobIndex::new();
        let id = JobId::parse("a").unwrap();
        index.put(view("a", "a", 1, JobState::Finished));
        index.put(view("a", "a.2", 2, JobState::Staging));
        assert_eq!(index.get(&id).unwrap().state, JobState::Staging);
        assert_eq!(told(&index.since(ChangeSeq(0), 10)), [("a", 2)]);
        // Removing the older run keeps the newer one.
        index.remove(&id, &"a".into());
        assert_eq!(index.len(), 1);
        index.remove(&id, &"a.2".into());
        assert!(index.get(&id).is_none() && index.len() == 0);
    }

    #[test]
    fn unknown_position_resets_the_feed() {
        let index = JobIndex::new();
        index.set_floor(ChangeSeq(4));
        index.put(view("a", "a", 5, JobState::Staging));
        let page = index.since(ChangeSeq(99), 10);
        assert!(page.reset);
        assert_eq!((told(&page), page.next), (vec![("a", 5)], ChangeSeq(5)));
    }

    #[tokio::test]
    async fn changes_are_notified_immediately() {
        let index = JobIndex::new();
        let mut watch = index.watch();
        index.put(view("a", "a", 1, JobState::Staging));
        watch.changed().await.unwrap();
        assert_eq!(*watch.borrow(), ChangeSeq(1));
    }
}
