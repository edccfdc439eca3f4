//! The snapshot for readers: the newest run of every job, the feed of changes in order, and the
//! active jobs.
//!
//! All of it is one immutable value behind an `ArcSwap`, so that a reader never waits and sees all
//! parts of one change, or none. The maps are persistent ([`imbl`]): a change copies only the path
//! to it, so its cost grows with the logarithm of the number of jobs. Only the core writes.

use std::cmp::Reverse;
use std::ops::Bound;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use imbl::{HashMap, OrdMap};
use jiff::Timestamp;
use tokio::sync::watch;
use transom_cluster::TaskId;
use transom_common::HostPort;

use crate::ids::{ChangeSeq, JobId};
use crate::job_state::JobState;
use crate::model::Spec;

/// The reason of a run that ended because it was pending for longer than its `max_wait`. It was
/// never launched, so that a client can queue the job again.
pub(crate) const MAX_WAIT: &str = "MaxWait";

/// A job's newest run, as clients see it.
#[derive(Clone, Debug)]
pub(crate) struct JobView {
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
    /// The reason of the last status, or [`MAX_WAIT`].
    pub(crate) reason: Option<Arc<str>>,
    /// The response of a look-up.
    pub(crate) answer: Bytes,
    /// The agent with its sandbox: host and port. `None` before the launch.
    pub(crate) agent: Option<Arc<HostPort>>,
}

impl JobView {
    /// The approximate memory of its texts.
    pub(crate) fn bytes(&self) -> usize {
        self.answer.len() + self.message.as_ref().map_or(0, |text| text.len())
    }
}

/// A job that has not ended.
#[derive(Debug)]
pub(crate) struct ActiveJob {
    pub(crate) id: JobId,
    pub(crate) queued_at: Timestamp,
    pub(crate) spec: Arc<Spec>,
}

impl ActiveJob {
    fn position(&self) -> Position {
        (Reverse(self.spec.priority), self.queued_at, self.id.clone())
    }
}

/// Pending jobs are matched in this order: highest priority first, then oldest first.
type Position = (Reverse<i32>, Timestamp, JobId);

/// A pending job and the id of its run.
pub(crate) type PendingJob = (TaskId, Arc<ActiveJob>);

/// All pending jobs in the order in which they are matched. Clones are cheap.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingJobs(OrdMap<Position, PendingJob>);

#[cfg(test)]
thread_local! {
    /// How many pending jobs this thread has gone through.
    pub(crate) static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn visited<T>(job: T) -> T {
    #[cfg(test)]
    VISITED.with(|count| count.set(count.get() + 1));
    job
}

impl PendingJobs {
    /// The jobs, for answers that are written while they are sent.
    pub(crate) fn into_jobs(self) -> impl Iterator<Item = PendingJob> + Send + use<> {
        let mut last: Option<Position> = None;
        std::iter::from_fn(move || {
            let after = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let (position, job) = self.0.range::<_, Position>((after, Bound::Unbounded)).next()?;
            last = Some(position.clone());
            Some(visited(job.clone()))
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// One immutable state of the index.
#[derive(Clone, Debug, Default)]
struct Jobs {
    newest: HashMap<JobId, Arc<JobView>>,
    changes: OrdMap<ChangeSeq, Arc<JobView>>,
    /// All pending and running jobs by task id.
    active: HashMap<TaskId, Arc<ActiveJob>>,
    /// Those of them that are not launched.
    pending: PendingJobs,
    /// The sequence number of the last change, which may have been deleted.
    last: ChangeSeq,
}

/// The published index.
pub(crate) struct JobIndex {
    jobs: ArcSwap<Jobs>,
    last: watch::Sender<ChangeSeq>,
}

/// A page of changes.
#[derive(Debug)]
pub(crate) struct Page {
    /// At most one for each job.
    pub(crate) changes: Vec<Arc<JobView>>,
    /// The value of `since` for the next page.
    pub(crate) next: ChangeSeq,
    /// Whether `since` lies beyond the last change, so that it must be from another store. The page
    /// then begins with the first change again.
    pub(crate) reset: bool,
}

impl JobIndex {
    pub(crate) fn new() -> Self {
        Self {
            jobs: ArcSwap::default(),
            last: watch::Sender::new(ChangeSeq::default()),
        }
    }

    pub(crate) fn get(&self, id: &JobId) -> Option<Arc<JobView>> {
        self.jobs.load().newest.get(id).cloned()
    }

    /// The active job whose pending or launched task has this id.
    pub(crate) fn active(&self, task: &TaskId) -> Option<Arc<ActiveJob>> {
        self.jobs.load().active.get(task).cloned()
    }

    /// All pending jobs.
    pub(crate) fn pending(&self) -> PendingJobs {
        self.jobs.load().pending.clone()
    }

    /// The number of pending jobs, and the job's newest run if it is one of them.
    pub(crate) fn pending_job(&self, id: &JobId) -> (usize, Option<PendingJob>) {
        let jobs = self.jobs.load();
        let job = jobs.newest.get(id).and_then(|view| jobs.active.get(&view.task));
        let pending = job.and_then(|job| jobs.pending.0.get(&job.position()));
        (jobs.pending.len(), pending.cloned())
    }

    /// Shows a run, which is the newest of its job.
    pub(crate) fn put(&self, view: JobView) {
        self.change(|jobs| jobs.put(view));
    }

    /// Shows an active run, which is the newest of its job.
    pub(crate) fn admit(&self, view: JobView, job: ActiveJob) {
        self.change(|jobs| {
            let job = Arc::new(job);
            let pending = (view.task.clone(), Arc::clone(&job));
            jobs.pending.0.insert(job.position(), pending);
            jobs.active.insert(view.task.clone(), job);
            jobs.put(view);
        });
    }

    /// Removes a run from the pending jobs.
    pub(crate) fn launched(&self, task: &TaskId) {
        self.change(|jobs| jobs.remove_pending(task));
    }

    /// Shows a run, unless its job has a newer one.
    pub(crate) fn update(&self, view: JobView) {
        self.change(|jobs| jobs.update(view));
    }

    /// Shows a run that has ended, unless its job has a newer one, and removes it from the active
    /// jobs.
    pub(crate) fn end(&self, view: JobView) {
        self.change(|jobs| {
            jobs.remove_pending(&view.task);
            jobs.active.remove(&view.task);
            jobs.update(view);
        });
    }

    /// Removes a run, unless the job has a newer one.
    pub(crate) fn remove(&self, id: &JobId, task: &TaskId) {
        let is_newest = self.get(id).is_some_and(|view| view.task == *task);
        if is_newest {
            self.change(|jobs| {
                if let Some(before) = jobs.newest.remove(id) {
                    jobs.changes.remove(&before.changed);
                }
            });
        }
    }

    /// Removes everything, at the start of a term. `floor` becomes the last sequence number,
    /// because the change with the greatest number may have been deleted.
    pub(crate) fn clear(&self, floor: ChangeSeq) {
        self.change(|jobs| {
            *jobs = Jobs {
                last: floor,
                ..Jobs::default()
            };
        });
    }

    /// At most `limit` changes after `since`.
    pub(crate) fn since(&self, since: ChangeSeq, limit: usize) -> Page {
        let jobs = self.jobs.load();
        let reset = since > jobs.last;
        let from = if reset { ChangeSeq::default() } else { since };
        let after = (Bound::Excluded(from), Bound::Unbounded);
        let changes: Vec<Arc<JobView>> = jobs
            .changes
            .range(after)
            .take(limit)
            .map(|(_, view)| Arc::clone(view))
            .collect();
        let next = match changes.last() {
            Some(view) if changes.len() == limit => view.changed,
            _ => jobs.last,
        };
        Page { changes, next, reset }
    }

    /// Notifies of every change from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<ChangeSeq> {
        self.last.subscribe()
    }

    /// The number of jobs.
    pub(crate) fn len(&self) -> usize {
        self.jobs.load().newest.len()
    }

    /// Publishes the next state, then notifies.
    fn change(&self, change: impl FnOnce(&mut Jobs)) {
        let mut jobs = Jobs::clone(&self.jobs.load());
        change(&mut jobs);
        let now = jobs.last;
        self.jobs.store(Arc::new(jobs));
        self.last
            .send_if_modified(|last| std::mem::replace(last, now) != now);
    }
}

impl Jobs {
    fn remove_pending(&mut self, task: &TaskId) {
        let Some(job) = self.active.get(task) else { return };
        let position = job.position();
        // Only its own entry: an older run of the job may have been queued at the same time.
        if self
            .pending
            .0
            .get(&position)
            .is_some_and(|(pending, _)| pending == task)
        {
            self.pending.0.remove(&position);
        }
    }

    fn update(&mut self, view: JobView) {
        let newest = self.newest.get(&view.id);
        if newest.is_none_or(|newest| newest.task == view.task) {
            self.put(view);
        }
    }

    fn put(&mut self, view: JobView) {
        let view = Arc::new(view);
        self.last = self.last.max(view.changed);
        if let Some(before) = self.newest.insert(view.id.clone(), Arc::clone(&view)) {
            self.changes.remove(&before.changed);
        }
        self.changes.insert(view.changed, view);
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
    use serde_json::json;

    use super::*;
    use crate::Settings;
    use crate::model;

    fn view(id: &str, task: &str, changed: u64, state: JobState) -> JobView {
        JobView {
            id: JobId::parse(id).unwrap(),
            task: task.into(),
            request_key: None,
            changed: ChangeSeq(changed),
            at: Timestamp::UNIX_EPOCH,
            state,
            message: None,
            reason: None,
            answer: Bytes::new(),
            agent: None,
        }
    }

    fn changed_jobs(page: &Page) -> Vec<(&str, u64)> {
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
        assert_eq!(changed_jobs(&page), [("b", 2), ("a", 3)]);
        assert_eq!((page.next, page.reset), (ChangeSeq(3), false));
        assert_eq!(changed_jobs(&index.since(ChangeSeq(2), 10)), [("a", 3)]);
        assert!(index.since(ChangeSeq(3), 10).changes.is_empty());
        // Reads one change per page.
        let page = index.since(ChangeSeq(0), 1);
        assert_eq!((changed_jobs(&page), page.next), (vec![("b", 2)], ChangeSeq(2)));
        assert_eq!(changed_jobs(&index.since(page.next, 1)), [("a", 3)]);
    }

    #[test]
    fn newer_run_replaces_an_older_one() {
        let index = JobIndex::new();
        let id = JobId::parse("a").unwrap();
        index.put(view("a", "a", 1, JobState::Finished));
        index.put(view("a", "a.2", 2, JobState::Staging));
        assert_eq!(index.get(&id).unwrap().state, JobState::Staging);
        assert_eq!(changed_jobs(&index.since(ChangeSeq(0), 10)), [("a", 2)]);
        // Removing the older run keeps the newer one.
        index.remove(&id, &"a".into());
        assert_eq!(index.len(), 1);
        index.remove(&id, &"a.2".into());
        assert!(index.get(&id).is_none() && index.len() == 0);
    }

    #[test]
    fn pending_jobs_are_ordered_and_end_with_their_launch_or_end() {
        let index = JobIndex::new();
        let admit = |id: &str, task: &str, priority: i32, queued: i64| {
            let spec = json!({"command": ["true"], "image": "a", "priority": priority});
            let spec = model::read(spec.as_object().unwrap(), &Settings::default());
            let job = ActiveJob {
                id: JobId::parse(id).unwrap(),
                queued_at: Timestamp::from_second(queued).unwrap(),
                spec: spec.unwrap().unwrap().spec.into(),
            };
            index.admit(view(id, task, queued as u64, JobState::Staging), job);
        };
        let listed = || {
            let pending = index.pending();
            let count = pending.len();
            let tasks: Vec<String> = pending.into_jobs().map(|(task, _)| task.to_string()).collect();
            assert_eq!(tasks.len(), count);
            tasks
        };
        admit("a", "a", 0, 1);
        admit("b", "b", 0, 2);
        admit("c", "c", 1, 3);
        assert_eq!(listed(), ["c", "a", "b"]);
        index.launched(&"a".into());
        assert_eq!(listed(), ["c", "b"]);
        let (count, job) = index.pending_job(&JobId::parse("a").unwrap());
        assert!(count == 2 && job.is_none() && index.active(&"a".into()).is_some());
        index.end(view("b", "b", 4, JobState::Killed));
        assert_eq!(listed(), ["c"]);
        // The newer run of a job is pending, also after the end of the older one.
        admit("a", "a.2", 0, 5);
        index.end(view("a", "a", 6, JobState::Finished));
        assert_eq!(listed(), ["c", "a.2"]);
        let (_, job) = index.pending_job(&JobId::parse("a").unwrap());
        assert_eq!(job.map(|(task, _)| task), Some("a.2".into()));
    }

    #[test]
    fn unknown_position_resets_the_feed() {
        let index = JobIndex::new();
        index.clear(ChangeSeq(4));
        index.put(view("a", "a", 5, JobState::Staging));
        let page = index.since(ChangeSeq(99), 10);
        assert!(page.reset);
        assert_eq!((changed_jobs(&page), page.next), (vec![("a", 5)], ChangeSeq(5)));
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
