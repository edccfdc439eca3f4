//! The pending requests in buckets: a bucket has those of one run spec and one priority, in the order of
//! submission.
//!
//! Matching visits buckets, and of each bucket only the requests that it tries. The maps are persistent,
//! so a snapshot for readers shares them, and the next change copies a few of their nodes.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use imbl::OrdMap;
use jiff::Timestamp;
use transom_cluster::TaskId;

use super::{QueuePosition, STARVATION_AGE, is_ready};
use crate::{Reason, Reasons, RunSpec, TaskRequest};

#[derive(Debug)]
pub(crate) struct Queued {
    request: TaskRequest,
    pub(super) since: Timestamp,
    /// Its number in the order of submission.
    pub(super) number: u64,
    /// Number of rounds that are in its trace.
    pub(super) traced_rounds: AtomicU32,
}

impl Queued {
    pub(super) fn new(request: TaskRequest, since: Timestamp, number: u64) -> Self {
        Self {
            request,
            since,
            number,
            traced_rounds: AtomicU32::default(),
        }
    }

    /// The same task with another request. It keeps its age.
    pub(super) fn replaced_by(&self, request: TaskRequest) -> Self {
        Self {
            traced_rounds: self.traced_rounds.load(Ordering::Relaxed).into(),
            ..Self::new(request, self.since, self.number)
        }
    }

    pub(crate) fn request(&self) -> &TaskRequest {
        #[cfg(test)]
        super::tests::VISITS.set(super::tests::VISITS.get() + 1);
        &self.request
    }

    pub(super) fn position(&self) -> QueuePosition {
        QueuePosition {
            priority: Reverse(self.request().priority),
            number: self.number,
        }
    }

    pub(super) fn is_starved(&self, now: Timestamp) -> bool {
        now.duration_since(self.since) >= STARVATION_AGE
    }
}

/// Identifies a bucket among those of its run spec id. The bucket's requests keep the specification, so
/// that no other one gets its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BucketKey {
    priority: Reverse<i32>,
    spec: usize,
}

impl BucketKey {
    fn of(request: &TaskRequest) -> Self {
        Self {
            priority: Reverse(request.priority),
            spec: Arc::as_ptr(&request.spec).addr(),
        }
    }
}

/// Requests of one run spec and one priority by their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Bucket {
    pub(super) ready: OrdMap<u64, Arc<Queued>>,
    /// Requests before their earliest launch.
    pub(super) delayed: OrdMap<u64, Arc<Queued>>,
    /// In this pass, the requests with lower numbers than this were matched.
    pass: u64,
    matched_below: u64,
    /// In some pass, the requests with lower numbers than this were matched.
    known_below: u64,
}

impl Bucket {
    /// The first request that was not matched in this pass.
    pub(super) fn next(&self, pass: u64) -> Option<&Arc<Queued>> {
        let from = if self.pass == pass { self.matched_below } else { 0 };
        self.ready.range(from..).next().map(|(_, queued)| queued)
    }

    fn add(&mut self, queued: Arc<Queued>, is_ready: bool) {
        if is_ready {
            // It is matched in this pass even if later ones were.
            self.matched_below = self.matched_below.min(queued.number);
            self.ready.insert(queued.number, queued);
        } else {
            self.delayed.insert(queued.number, queued);
        }
    }

    pub(super) fn mark_matched(&mut self, pass: u64, below: u64) {
        (self.pass, self.matched_below) = (pass, below);
        self.known_below = self.known_below.max(below);
    }

    pub(super) fn len(&self) -> usize {
        self.ready.len() + self.delayed.len()
    }

    /// The request with the lowest number.
    pub(super) fn first(&self) -> Option<&Arc<Queued>> {
        let first = |map: &'_ OrdMap<u64, Arc<Queued>>| map.get_min().map(|(number, _)| *number);
        match (first(&self.ready), first(&self.delayed)) {
            (Some(ready), Some(delayed)) if delayed < ready => self.delayed.get(&delayed),
            (Some(ready), _) => self.ready.get(&ready),
            (None, Some(delayed)) => self.delayed.get(&delayed),
            (None, None) => None,
        }
    }
}

/// The buckets of a run spec id, and statistics that are kept while it has any.
#[derive(Clone, Debug, Default)]
pub(super) struct SpecBuckets {
    buckets: OrdMap<BucketKey, Bucket>,
    /// `None` before the first round.
    pub(super) reasons: Option<Arc<Reasons>>,
    pub(super) last_used_at: Option<Timestamp>,
    unplaced: Option<Unplaced>,
}

/// The last batch of which not all tasks were placed.
#[derive(Clone, Debug)]
struct Unplaced {
    pass: u64,
    spec: Arc<RunSpec>,
    /// Requests with lower numbers were in the queue.
    below: u64,
}

impl SpecBuckets {
    /// The buckets by priority.
    pub(super) fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.buckets.values()
    }

    pub(super) fn bucket_of(&self, request: &TaskRequest) -> Option<&Bucket> {
        self.buckets.get(&BucketKey::of(request))
    }

    /// The request that is matched first.
    pub(super) fn first(&self) -> Option<&Arc<Queued>> {
        let (best, _) = self.buckets.get_min()?;
        let of_best = self
            .buckets
            .iter()
            .take_while(|(key, _)| key.priority == best.priority);
        of_best
            .filter_map(|(_, bucket)| bucket.first())
            .min_by_key(|queued| queued.number)
    }

    /// Whether no more tasks of the specification are placed in this pass, because not all tasks of
    /// an earlier batch were: there are only fewer resources. That does not hold for volumes,
    /// because each task may have its own reservation.
    pub(super) fn is_unplaced(&self, spec: &Arc<RunSpec>, pass: u64) -> bool {
        let unplaced = self.unplaced.as_ref();
        let is_same = |unplaced: &Unplaced| unplaced.pass == pass && Arc::ptr_eq(&unplaced.spec, spec);
        spec.volumes.is_empty() && unplaced.is_some_and(is_same)
    }

    /// Whether this task of a bucket is tried before the others in this pass: an earlier pass did not
    /// place all of them, and mostly nothing has changed since.
    pub(super) fn is_tried_first(&self, bucket: &Bucket, task: &Arc<Queued>, pass: u64) -> bool {
        let spec = &task.request().spec;
        let unplaced = self.unplaced.as_ref();
        let is_earlier = |unplaced: &Unplaced| unplaced.pass != pass && Arc::ptr_eq(&unplaced.spec, spec);
        let is_first = || bucket.next(pass).is_some_and(|first| Arc::ptr_eq(first, task));
        bucket.pass != pass && unplaced.is_some_and(is_earlier) && is_first()
    }

    /// Whether a request of this bucket was never matched.
    pub(super) fn is_new(&self, queued: &Queued, bucket: &Bucket) -> bool {
        let spec = &queued.request().spec;
        let unplaced = self.unplaced.as_ref();
        let unplaced = unplaced.filter(|unplaced| Arc::ptr_eq(&unplaced.spec, spec));
        queued.number
            >= unplaced
                .map_or(0, |unplaced| unplaced.below)
                .max(bucket.known_below)
    }

    /// The reasons of a request; `blocked_by` is a reason that blocks all of them.
    pub(super) fn reasons_of(
        &self,
        request: &TaskRequest,
        blocked_by: Option<Reason>,
        now: Timestamp,
    ) -> Arc<Reasons> {
        let override_reason = blocked_by
            .or_else(|| (!is_ready(request, now)).then_some(Reason::Backoff))
            .or_else(|| self.reasons.is_none().then_some(Reason::NoOffers));
        let reasons = self.reasons.clone().unwrap_or_default();
        let Some(override_reason) = override_reason else {
            return reasons;
        };
        Arc::new(Reasons {
            last: [(override_reason, 1)].into(),
            ..Arc::unwrap_or_clone(reasons)
        })
    }
}

/// All pending requests. A clone shares them.
#[derive(Clone, Debug, Default)]
pub(super) struct Buckets {
    pub(super) tasks: OrdMap<TaskId, Arc<Queued>>,
    /// By run spec id.
    pub(super) specs: OrdMap<Arc<str>, SpecBuckets>,
}

impl Buckets {
    /// Adds a request, in place of the one with its id.
    pub(super) fn insert(&mut self, queued: Queued, now: Timestamp) {
        let queued = Arc::new(queued);
        let request = queued.request();
        let replaced = self.tasks.insert(request.id.clone(), Arc::clone(&queued));
        if let Some(bucket) = replaced
            .as_ref()
            .and_then(|replaced| self.bucket_mut(replaced.request()))
        {
            bucket.ready.remove(&queued.number);
            bucket.delayed.remove(&queued.number);
        }
        let buckets = self.specs.entry(Arc::from(request.spec.id.as_str())).or_default();
        let bucket = buckets.buckets.entry(BucketKey::of(request)).or_default();
        bucket.add(Arc::clone(&queued), is_ready(request, now));
        // Only now, so that the statistics of the run spec stay.
        if let Some(replaced) = replaced {
            self.drop_if_empty(replaced.request());
        }
    }

    pub(super) fn remove(&mut self, task: &TaskId) -> Option<Arc<Queued>> {
        let queued = self.tasks.remove(task)?;
        if let Some(bucket) = self.bucket_mut(queued.request()) {
            bucket.ready.remove(&queued.number);
            bucket.delayed.remove(&queued.number);
        }
        self.drop_if_empty(queued.request());
        Some(queued)
    }

    /// Makes a delayed request ready.
    pub(super) fn end_delay(&mut self, task: &TaskId) {
        let Some(queued) = self.tasks.get(task).cloned() else {
            return;
        };
        if let Some(bucket) = self.bucket_mut(queued.request()) {
            bucket.delayed.remove(&queued.number);
            bucket.add(queued, true);
        }
    }

    pub(super) fn bucket_mut(&mut self, request: &TaskRequest) -> Option<&mut Bucket> {
        let spec = self.specs.get_mut(request.spec.id.as_str())?;
        spec.buckets.get_mut(&BucketKey::of(request))
    }

    fn drop_if_empty(&mut self, request: &TaskRequest) {
        let (id, key) = (request.spec.id.as_str(), BucketKey::of(request));
        let Some(spec) = self.specs.get_mut(id) else {
            return;
        };
        if spec.buckets.get(&key).is_some_and(|bucket| bucket.len() == 0) {
            spec.buckets.remove(&key);
        }
        if spec.buckets.is_empty() {
            self.specs.remove(id);
        }
    }

    /// Records that not all tasks of a batch of this specification were placed in this pass. `next`
    /// is the number of the next request.
    pub(super) fn mark_unplaced(&mut self, spec: &Arc<RunSpec>, pass: u64, next: u64) {
        if let Some(buckets) = self.specs.get_mut(spec.id.as_str()) {
            buckets.unplaced = Some(Unplaced {
                pass,
                spec: Arc::clone(spec),
                below: next,
            });
        }
    }

    /// All buckets.
    pub(super) fn all(&self) -> impl Iterator<Item = &Bucket> {
        self.specs.values().flat_map(SpecBuckets::buckets)
    }
}
