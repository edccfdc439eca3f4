//! The pending tasks, in the order in which they are matched, and why they are pending.
//!
//! All of them are matched with the same offers in one pass, which may take several rounds and
//! includes tasks that are submitted meanwhile. After a pass that was cut short, the next one
//! continues at the cut, so that tasks behind others that do not fit are not starved.
//!
//! Higher priorities are matched first, and tasks of equal priority in the order of submission. To
//! prevent starvation, tasks that are pending for [`STARVATION_AGE`] are matched first, oldest
//! first, in one of [`AGING_PASS_INTERVAL`] passes.

mod buckets;
mod snapshot;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use jiff::{SignedDuration, Timestamp};
use tracing::Span;
use transom_cluster::TaskId;
use transom_common::trace;

use crate::{Reason, RunSpec, TaskRequest, UnusedOffer};
use buckets::{Bucket, Buckets, Queued, SpecBuckets};

pub use snapshot::{PendingSnapshot, PendingSpec};

/// Maximum tasks of a batch. A run spec with more of them has several batches, so that no call of the
/// matcher has more, and a round has time for other tasks between them.
const MAX_BATCH_TASKS: usize = 256;
/// If a task is starved, one of this many passes with launches is ordered by age.
const AGING_PASS_INTERVAL: u32 = 4;
/// Maximum rounds that are traced for one task.
const MAX_TRACED_ROUNDS: u32 = 32;
/// Maximum traced tasks that one round is linked with.
const MAX_LINKS: usize = 16;
/// A task of a lower priority counts as starved after this time.
const STARVATION_AGE: SignedDuration = SignedDuration::from_mins(1);

/// A position in the queue; the lowest one is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueuePosition {
    priority: Reverse<i32>,
    number: u64,
}

/// The queue. Tasks that share a specification and a priority are matched together, at the position
/// of the first, up to [`MAX_BATCH_TASKS`] at once.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    buckets: Buckets,
    /// The delayed tasks, in the order of their earliest launches.
    by_not_before: BTreeSet<(Timestamp, TaskId)>,
    next: u64,
    /// The number of the current pass, counted from 1.
    pass: u64,
    /// The position at which the next pass continues, if the last round was cut short.
    cut_at: Option<QueuePosition>,
    /// Whether this pass is ordered by age.
    oldest_first: bool,
    /// Passes with launches since the last pass by age.
    passes_by_priority: u32,
}

/// The batches of a round that are left: the first task of the next batch of each bucket.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    next: BTreeMap<Turn, Arc<Queued>>,
}

impl Ready {
    pub(crate) fn is_empty(&self) -> bool {
        self.next.is_empty()
    }

    /// The run specs of these batches; one with several priorities is listed for each.
    pub(crate) fn specs(&self) -> impl Iterator<Item = &Arc<RunSpec>> {
        self.next.values().map(|first| &first.request().spec)
    }
}

/// The order of batches in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    /// Run specs for which the matcher fails do not delay the others.
    is_failing: bool,
    part: u8,
    position: QueuePosition,
}

/// Instances of one run spec that are matched together.
#[derive(Debug)]
pub(crate) struct TaskBatch {
    pub(crate) spec: Arc<RunSpec>,
    /// Requested tasks or groups.
    pub(crate) ids: Vec<TaskId>,
    /// The first task.
    first: Arc<Queued>,
    /// The bucket's numbers from here on are not part of it.
    end: u64,
}

/// Why tasks of a run spec were not placed in a round.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MatchFailure {
    pub(crate) reasons: BTreeMap<Reason, u32>,
    pub(crate) constraints: BTreeMap<u32, u32>,
    pub(crate) message: Option<String>,
    pub(crate) offers: u32,
    pub(crate) refused_offers: u32,
}

impl Queue {
    /// Adds a task, or replaces the request of a pending one.
    pub(crate) fn push(&mut self, request: TaskRequest, now: Timestamp) {
        let known = self.buckets.tasks.get(&request.id);
        if let Some(not_before) = known.and_then(|known| known.request().not_before) {
            self.by_not_before.remove(&(not_before, request.id.clone()));
        }
        if let Some(not_before) = request.not_before.filter(|at| *at > now) {
            self.by_not_before.insert((not_before, request.id.clone()));
        }
        let queued = match known {
            Some(known) => known.replaced_by(request),
            None => Queued::new(request, now, self.next),
        };
        self.next = self.next.max(queued.number + 1);
        self.buckets.insert(queued, now);
    }

    pub(crate) fn remove(&mut self, task: &TaskId) -> Option<Arc<Queued>> {
        let queued = self.buckets.remove(task)?;
        if let Some(not_before) = queued.request().not_before {
            self.by_not_before.remove(&(not_before, task.clone()));
        }
        Some(queued)
    }

    /// The trace span of a round with these tasks: a child of the first traced task's span, linked
    /// with some others. When a task does not fit, only its first rounds have a span.
    pub(crate) fn round_span(&self, batch: &TaskBatch) -> Span {
        if !trace::is_on() {
            return Span::none();
        }
        let mut trace_contexts = Vec::new();
        for id in &batch.ids {
            if trace_contexts.len() >= MAX_LINKS {
                break;
            }
            if let Some(queued) = self.buckets.tasks.get(id)
                && queued.request().trace.is_recorded()
                && queued.traced_rounds.fetch_add(1, Ordering::Relaxed) < MAX_TRACED_ROUNDS
            {
                trace_contexts.push(queued.request().trace.clone());
            }
        }
        let Some((first, others)) = trace_contexts.split_first() else {
            return Span::none();
        };
        let span = first.child(|| {
            tracing::info_span!(
                target: trace::TARGET,
                "match",
                run_spec = batch.spec.id,
                tasks = batch.ids.len(),
                placed = tracing::field::Empty,
                trace_id = tracing::field::Empty,
            )
        });
        for context in others {
            context.link(&span);
        }
        span
    }

    pub(crate) fn get(&self, task: &TaskId) -> Option<&TaskRequest> {
        self.buckets.tasks.get(task).map(|queued| queued.request())
    }

    /// The keys of the reservations of these requests.
    pub(crate) fn reservation_keys(&self, tasks: &[TaskId]) -> Vec<(TaskId, String)> {
        let found_requests = tasks.iter().filter_map(|task| self.get(task));
        found_requests
            .map(|request| (request.id.clone(), request.reservation_key().to_owned()))
            .collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.buckets.tasks.len()
    }

    /// Begins a pass over other offers.
    pub(crate) fn begin_pass(&mut self, now: Timestamp) {
        self.pass += 1;
        self.oldest_first = self.passes_by_priority + 1 >= AGING_PASS_INTERVAL && self.has_starved(now);
    }

    /// Whether a task is starved behind others of a higher priority.
    fn has_starved(&self, now: Timestamp) -> bool {
        let priority = |bucket: &Bucket| bucket.first().map(|queued| queued.request().priority);
        let highest = self.buckets.all().filter_map(priority).max();
        // The first task of a bucket is the oldest.
        let starved = |bucket: &Bucket| {
            let first = bucket.ready.get_min();
            priority(bucket) < highest && first.is_some_and(|(_, queued)| queued.is_starved(now))
        };
        self.buckets.all().any(starved)
    }

    /// Records that this pass launched something.
    pub(crate) fn launched(&mut self) {
        self.passes_by_priority = if self.oldest_first {
            0
        } else {
            self.passes_by_priority.saturating_add(1)
        };
    }

    /// Makes the next round begin at this position, even if it belongs to another pass; with the
    /// first batch if `None`.
    pub(crate) fn continue_at(&mut self, position: Option<QueuePosition>) {
        self.cut_at = position;
    }

    /// Records that the batch was matched.
    pub(crate) fn mark_matched(&mut self, batch: &TaskBatch) {
        if let Some(bucket) = self.buckets.bucket_mut(batch.first.request()) {
            bucket.mark_matched(self.pass, batch.end);
        }
    }

    /// Records that not all tasks of the batch were placed.
    pub(crate) fn mark_unplaced(&mut self, batch: &TaskBatch) {
        self.buckets.mark_unplaced(&batch.spec, self.pass, self.next);
    }

    /// Whether a task of this run spec is pending.
    pub(crate) fn contains_spec(&self, run_spec: &str) -> bool {
        self.buckets.specs.contains_key(run_spec)
    }

    /// The batches of ready tasks that were not matched in this pass.
    pub(crate) fn ready(&mut self, now: Timestamp, is_failing: impl Fn(&str) -> bool) -> Ready {
        self.end_delays(now);
        let mut ready = Ready::default();
        for (run_spec, buckets) in &self.buckets.specs {
            let is_failing = is_failing(run_spec);
            for bucket in buckets.buckets() {
                let next = bucket.next(self.pass);
                if let Some(next) = next.filter(|next| !buckets.is_unplaced(&next.request().spec, self.pass))
                {
                    let turn = self.turn((buckets, bucket), next, is_failing, now);
                    ready.next.insert(turn, Arc::clone(next));
                }
            }
        }
        ready
    }

    /// When a batch that begins with this task is matched. In a pass by age, starved tasks come
    /// first, oldest first, followed by the others by priority. In other passes the batches for which
    /// the last round had no time come first, but behind new ones of a higher priority.
    fn turn(
        &self,
        (buckets, bucket): (&SpecBuckets, &Bucket),
        first: &Queued,
        is_failing: bool,
        now: Timestamp,
    ) -> Turn {
        let mut position = first.position();
        let part = if self.oldest_first {
            let is_aged = first.is_starved(now);
            if is_aged {
                position.priority = Reverse(i32::MAX);
            }
            u8::from(!is_aged)
        } else {
            match self.cut_at {
                Some(cut) if position < cut => {
                    let is_urgent = buckets.is_new(first, bucket) && position.priority < cut.priority;
                    if is_urgent { 0 } else { 2 }
                }
                _ => 1,
            }
        };
        Turn {
            is_failing,
            part,
            position,
        }
    }

    /// The run spec and the position of the next batch.
    pub(crate) fn peek(&self, ready: &mut Ready) -> Option<(Arc<RunSpec>, QueuePosition)> {
        loop {
            let first = ready.next.first_entry()?;
            let spec = Arc::clone(&first.get().request().spec);
            let buckets = self.buckets.specs.get(spec.id.as_str());
            if buckets.is_some_and(|buckets| !buckets.is_unplaced(&spec, self.pass)) {
                return Some((spec, first.get().position()));
            }
            first.remove();
        }
    }

    /// The next batch.
    pub(crate) fn next_batch(&self, ready: &mut Ready, now: Timestamp) -> Option<TaskBatch> {
        let (spec, _) = self.peek(ready)?;
        let (turn, first) = ready.next.pop_first()?;
        let buckets = self.buckets.specs.get(spec.id.as_str())?;
        let bucket = buckets.bucket_of(first.request())?;
        let is_aged = self.oldest_first && first.is_starved(now);
        let mut tasks = bucket
            .ready
            .range(first.number..)
            .map(|(_, queued)| queued)
            .peekable();
        let mut batch = TaskBatch {
            spec,
            ids: Vec::new(),
            end: first.number + 1,
            first,
        };
        let most = if buckets.is_tried_first(bucket, &batch.first, self.pass) {
            1
        } else {
            MAX_BATCH_TASKS
        };
        while batch.ids.len() < most
            && let Some(queued) = tasks.next_if(|queued| !is_aged || queued.is_starved(now))
        {
            batch.ids.push(queued.request().id.clone());
            batch.end = queued.number + 1;
        }
        if let Some(next) = tasks.peek() {
            let turn = self.turn((buckets, bucket), next, turn.is_failing, now);
            ready.next.insert(turn, Arc::clone(next));
        }
        Some(batch)
    }

    pub(crate) fn has_ready(&self, now: Timestamp) -> bool {
        let first = self.by_not_before.first();
        self.by_not_before.len() < self.len() || first.is_some_and(|(at, _)| *at <= now)
    }

    /// The allocation roles of the tasks that are ready; `None` if any of them accepts every role.
    pub(crate) fn demanded_roles(&mut self, now: Timestamp) -> Option<BTreeSet<String>> {
        self.end_delays(now);
        let ready = self.buckets.all().filter_map(|bucket| bucket.ready.get_min());
        let roles: Option<BTreeSet<&String>> = ready
            .map(|(_, queued)| queued.request().spec.role.as_ref())
            .collect();
        Some(roles?.into_iter().cloned().collect())
    }

    /// The time at which the next backoff ends.
    pub(crate) fn next_ready(&mut self, now: Timestamp) -> Option<Timestamp> {
        self.end_delays(now);
        self.by_not_before.first().map(|(at, _)| *at)
    }

    fn end_delays(&mut self, now: Timestamp) {
        while self.by_not_before.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, task)) = self.by_not_before.pop_first() {
                self.buckets.end_delay(&task);
            }
        }
    }

    /// Records why a run spec's tasks were not placed.
    pub(crate) fn record_failure(&mut self, run_spec: &str, failure: MatchFailure) {
        let Some(stats) = self.buckets.specs.get_mut(run_spec) else {
            return;
        };
        let reasons = Arc::make_mut(stats.reasons.get_or_insert_default());
        for (reason, count) in &failure.reasons {
            *reasons.total.entry(*reason).or_default() += u64::from(*count);
        }
        reasons.total_offers += u64::from(failure.offers);
        reasons.total_refused_offers += u64::from(failure.refused_offers);
        reasons.rounds += 1;
        reasons.last = failure.reasons;
        reasons.last_offers = failure.offers;
        reasons.last_constraints = failure.constraints;
        reasons.message = failure.message;
    }

    /// Records some offers that were not used for a run spec.
    pub(crate) fn record_unused_offers(
        &mut self,
        run_spec: &str,
        unused: Vec<Arc<UnusedOffer>>,
        now: Timestamp,
    ) {
        let Some(stats) = self.buckets.specs.get_mut(run_spec) else {
            return;
        };
        if let Some(reasons) = &mut stats.reasons {
            let reasons = Arc::make_mut(reasons);
            reasons.last_used_at = stats.last_used_at;
            reasons.last_unused_at = Some(now)
                .filter(|_| !unused.is_empty())
                .or(reasons.last_unused_at);
            reasons.unused_offers = unused;
        }
    }

    /// Records that some tasks of a run spec were launched.
    pub(crate) fn record_used(&mut self, run_spec: &str, now: Timestamp) {
        if let Some(stats) = self.buckets.specs.get_mut(run_spec) {
            stats.last_used_at = Some(now);
        }
    }

    /// All pending tasks, for readers. `blocked_by` is a reason that blocks all of them.
    pub(crate) fn snapshot(&self, blocked_by: Option<Reason>, taken_at: Timestamp) -> PendingSnapshot {
        PendingSnapshot {
            buckets: self.buckets.clone(),
            blocked_by,
            taken_at,
        }
    }
}

fn is_ready(request: &TaskRequest, now: Timestamp) -> bool {
    request.not_before.is_none_or(|at| at <= now)
}
