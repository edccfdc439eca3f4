//! The pending tasks for readers. A snapshot shares the buckets with the queue, and computes what a
//! reader asks for.

use std::sync::Arc;

use jiff::Timestamp;
use transom_cluster::TaskId;

use super::Queue;
use super::buckets::{Bucket, Buckets, Queued, SpecBuckets};
use crate::{PendingTask, Reason, Reasons, RunSpec, TaskRequest};

/// The pending tasks at one time, and why they are pending.
#[derive(Clone, Debug, Default)]
pub struct PendingSnapshot {
    pub(super) buckets: Buckets,
    /// A reason that blocks all of them.
    pub(super) blocked_by: Option<Reason>,
    pub(super) taken_at: Timestamp,
}

impl PendingSnapshot {
    /// A snapshot of these requests, with the times of their submission, which are pending for the
    /// same reasons; for tests of services.
    pub fn of(requests: impl IntoIterator<Item = (TaskRequest, Timestamp)>, reasons: &Arc<Reasons>) -> Self {
        let (mut queue, mut taken_at) = (Queue::default(), Timestamp::UNIX_EPOCH);
        for (request, since) in requests {
            let run_spec = request.spec.id.clone();
            queue.push(request, since);
            if let Some(spec) = queue.buckets.specs.get_mut(run_spec.as_str()) {
                spec.reasons = Some(Arc::clone(reasons));
            }
            taken_at = taken_at.max(since);
        }
        queue.snapshot(None, taken_at)
    }

    /// The number of pending tasks.
    pub fn len(&self) -> usize {
        self.buckets.tasks.len()
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.buckets.tasks.is_empty()
    }

    /// A pending task.
    pub fn get(&self, task: &TaskId) -> Option<PendingTask> {
        self.buckets
            .tasks
            .get(task)
            .and_then(|queued| self.described(queued))
    }

    /// All pending tasks, in the order in which they are matched. This visits each; see
    /// [`PendingSnapshot::specs`] for what does not.
    pub fn to_vec(&self) -> Vec<PendingTask> {
        let mut all: Vec<&Arc<Queued>> = self.buckets.tasks.values().collect();
        all.sort_unstable_by_key(|queued| queued.position());
        all.into_iter()
            .filter_map(|queued| self.described(queued))
            .collect()
    }

    /// The run specs with pending tasks, by their ids.
    pub fn specs(&self) -> impl Iterator<Item = PendingSpec<'_>> {
        let specs = self.buckets.specs.iter();
        specs.filter_map(|(run_spec, buckets)| self.spec_of(run_spec, buckets))
    }

    /// The pending tasks of one run spec.
    pub fn spec(&self, run_spec: &str) -> Option<PendingSpec<'_>> {
        let (run_spec, buckets) = self.buckets.specs.get_key_value(run_spec)?;
        self.spec_of(run_spec, buckets)
    }

    fn spec_of<'a>(&'a self, run_spec: &'a str, buckets: &'a SpecBuckets) -> Option<PendingSpec<'a>> {
        Some(PendingSpec {
            run_spec,
            buckets,
            first: buckets.first()?,
            snapshot: self,
        })
    }

    fn described(&self, queued: &Queued) -> Option<PendingTask> {
        let spec = &queued.request().spec;
        Some(PendingTask {
            task: queued.request().id.clone(),
            run_spec: spec.id.clone(),
            version: spec.version.clone(),
            since: queued.since,
            not_before: queued.request().not_before,
            reasons: self.reasons(self.buckets.specs.get(spec.id.as_str())?, queued),
        })
    }

    fn reasons(&self, buckets: &SpecBuckets, queued: &Queued) -> Arc<Reasons> {
        buckets.reasons_of(queued.request(), self.blocked_by, self.taken_at)
    }
}

/// The pending tasks of one run spec. Nothing but [`PendingSpec::not_before`] visits each of them.
#[derive(Clone, Copy, Debug)]
pub struct PendingSpec<'a> {
    /// [`RunSpec::id`](crate::RunSpec::id).
    pub run_spec: &'a str,
    buckets: &'a SpecBuckets,
    first: &'a Queued,
    snapshot: &'a PendingSnapshot,
}

impl PendingSpec<'_> {
    /// The run spec of the one that is matched first.
    pub fn spec(&self) -> &Arc<RunSpec> {
        &self.first.request().spec
    }

    /// The number of them.
    pub fn tasks(&self) -> usize {
        self.buckets.buckets().map(Bucket::len).sum()
    }

    /// When the first of them was submitted.
    pub fn since(&self) -> Timestamp {
        let first = self.buckets.buckets().filter_map(Bucket::first);
        first.map(|queued| queued.since).min().unwrap_or(self.first.since)
    }

    /// The last of the earliest launches that lie in the future.
    pub fn not_before(&self) -> Option<Timestamp> {
        let delayed = self.buckets.buckets().flat_map(|bucket| bucket.delayed.values());
        delayed.filter_map(|queued| queued.request().not_before).max()
    }

    /// Why the one that is matched first is pending.
    pub fn reasons(&self) -> Arc<Reasons> {
        self.snapshot.reasons(self.buckets, self.first)
    }

    /// Why they are pending, with the number of tasks that share the reasons.
    pub fn all_reasons(&self) -> impl Iterator<Item = (usize, Arc<Reasons>)> {
        let parts = self
            .buckets
            .buckets()
            .flat_map(|bucket| [&bucket.ready, &bucket.delayed]);
        parts.filter_map(|part| {
            let (_, first) = part.get_min()?;
            Some((part.len(), self.snapshot.reasons(self.buckets, first)))
        })
    }
}
