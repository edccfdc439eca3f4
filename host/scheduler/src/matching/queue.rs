//! The pending tasks, in the order in which they are matched, and why they are pending.
//!
//! All of them are matched with the same offers in one pass, which may take several rounds and
//! includes tasks that are submitted meanwhile. After a pass that was cut short, the next one
//! continues at the cut, so that tasks behind others that do not fit are not starved.
//!
//! Higher priorities are matched first, and tasks of equal priority in the order of submission. To
//! prevent starvation, tasks that are pending for [`STARVATION_AGE`] are matched first, oldest
//! first, in one of [`AGING_PASS_INTERVAL`] passes.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tracing::Span;
use transom_cluster::TaskId;
use transom_common::trace;

use crate::{PendingTask, Reason, Reasons, RunSpec, TaskRequest, UnusedOffer};

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
const STARVATION_AGE: Duration = Duration::from_mins(1);

/// A position in the queue; the lowest one is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueuePosition {
    priority: Reverse<i32>,
    number: u64,
}

#[derive(Debug)]
struct Queued {
    request: TaskRequest,
    since: Timestamp,
    position: QueuePosition,
    /// The last pass in which it was matched.
    last_pass: u64,
    /// Number of rounds that are in its trace.
    traced_rounds: u32,
}

/// The queue. Tasks that share a specification and a priority are matched together, at the position
/// of the first, up to [`MAX_BATCH_TASKS`] at once.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    tasks: HashMap<TaskId, Queued>,
    order: BTreeMap<QueuePosition, TaskId>,
    /// The tasks with an earliest launch, in its order.
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
    specs: HashMap<String, SpecStats>,
}

impl Queued {
    fn is_starved(&self, now: Timestamp) -> bool {
        let pending_time = Duration::try_from(now.duration_since(self.since)).unwrap_or_default();
        pending_time >= STARVATION_AGE && is_ready(&self.request, now)
    }
}

/// Statistics that are kept for a run spec while any of its tasks is pending.
#[derive(Debug, Default)]
struct SpecStats {
    tasks: usize,
    /// `None` before the first round.
    reasons: Option<Arc<Reasons>>,
    last_used_at: Option<Timestamp>,
    /// The last pass in which not all tasks of a batch were placed, and its specification.
    unplaced: Option<(u64, Arc<RunSpec>)>,
}

/// Instances of one run spec that are matched together.
#[derive(Debug)]
pub(crate) struct TaskBatch {
    pub(crate) spec: Arc<RunSpec>,
    /// Requested tasks or groups.
    pub(crate) ids: Vec<TaskId>,
    /// The first task's position.
    position: QueuePosition,
    /// Whether one of them was matched in an earlier pass.
    was_matched: bool,
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
        let id = request.id.clone();
        if let Some(not_before) = request.not_before {
            self.by_not_before.insert((not_before, id.clone()));
        }
        self.specs.entry(request.spec.id.clone()).or_default().tasks += 1;
        let priority = Reverse(request.priority);
        if let Some(queued) = self.tasks.get_mut(&id) {
            let not_before = request.not_before;
            let replaced = std::mem::replace(&mut queued.request, request);
            if let Some(replaced) = replaced.not_before.filter(|at| Some(*at) != not_before) {
                self.by_not_before.remove(&(replaced, id.clone()));
            }
            queued.last_pass = 0;
            self.order.remove(&queued.position);
            queued.position.priority = priority;
            self.order.insert(queued.position, id);
            self.release_spec(&replaced.spec.id);
            return;
        }
        let position = QueuePosition {
            priority,
            number: self.next,
        };
        self.order.insert(position, id.clone());
        self.tasks.insert(
            id,
            Queued {
                request,
                since: now,
                position,
                last_pass: 0,
                traced_rounds: 0,
            },
        );
        self.next += 1;
    }

    pub(crate) fn remove(&mut self, task: &TaskId) -> Option<TaskRequest> {
        let queued = self.tasks.remove(task)?;
        self.order.remove(&queued.position);
        if let Some(not_before) = queued.request.not_before {
            self.by_not_before.remove(&(not_before, task.clone()));
        }
        self.release_spec(&queued.request.spec.id);
        Some(queued.request)
    }

    fn release_spec(&mut self, run_spec: &str) {
        if let Some(stats) = self.specs.get_mut(run_spec) {
            stats.tasks -= 1;
            if stats.tasks == 0 {
                self.specs.remove(run_spec);
            }
        }
    }

    /// The trace span of a round with these tasks: a child of the first traced task's span, linked
    /// with some others. When a task does not fit, only its first rounds have a span.
    pub(crate) fn round_span(&mut self, batch: &TaskBatch) -> Span {
        if !trace::is_on() {
            return Span::none();
        }
        let mut trace_contexts = Vec::new();
        for id in &batch.ids {
            if trace_contexts.len() >= MAX_LINKS {
                break;
            }
            if let Some(queued) = self.tasks.get_mut(id)
                && queued.request.trace.is_recorded()
                && queued.traced_rounds < MAX_TRACED_ROUNDS
            {
                queued.traced_rounds += 1;
                trace_contexts.push(queued.request.trace.clone());
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
        self.tasks.get(task).map(|queued| &queued.request)
    }

    /// The keys of the reservations of these requests.
    pub(crate) fn reservation_keys(&self, tasks: &[TaskId]) -> Vec<(TaskId, String)> {
        let found_requests = tasks.iter().filter_map(|task| self.get(task));
        found_requests
            .map(|request| (request.id.clone(), request.reservation_key().to_owned()))
            .collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Begins a pass over other offers.
    pub(crate) fn begin_pass(&mut self, now: Timestamp) {
        self.pass += 1;
        self.oldest_first = self.passes_by_priority + 1 >= AGING_PASS_INTERVAL && self.has_starved(now);
    }

    /// Whether a task is starved behind others of a higher priority.
    fn has_starved(&self, now: Timestamp) -> bool {
        let first = self
            .order
            .first_key_value()
            .map(|(position, _)| position.priority);
        let last = self.order.last_key_value().map(|(position, _)| position.priority);
        let starved = |queued: &Queued| Some(queued.position.priority) != first && queued.is_starved(now);
        first != last && self.tasks.values().any(starved)
    }

    /// Records that this pass launched something.
    pub(crate) fn launched(&mut self) {
        self.passes_by_priority = if self.oldest_first {
            0
        } else {
            self.passes_by_priority.saturating_add(1)
        };
    }

    /// Makes the next round begin with this batch, even if it belongs to another pass; with the
    /// first batch if `None`.
    pub(crate) fn continue_with(&mut self, batch: Option<&TaskBatch>) {
        self.cut_at = batch.map(|batch| batch.position);
    }

    /// Records that the batch was matched.
    pub(crate) fn mark_matched(&mut self, batch: &TaskBatch) {
        for id in &batch.ids {
            if let Some(queued) = self.tasks.get_mut(id) {
                queued.last_pass = self.pass;
            }
        }
    }

    /// Records that not all tasks of the batch were placed.
    pub(crate) fn mark_unplaced(&mut self, batch: &TaskBatch) {
        if let Some(stats) = self.specs.get_mut(&batch.spec.id) {
            stats.unplaced = Some((self.pass, Arc::clone(&batch.spec)));
        }
    }

    /// Whether the batch may be placed in this pass. If not all tasks of an earlier batch of the same
    /// specification were placed, no more will be: there are only fewer resources. That does not hold
    /// for volumes, because each task may have its own reservation.
    pub(crate) fn may_place(&self, batch: &TaskBatch) -> bool {
        let stats = self.specs.get(&batch.spec.id);
        let unplaced = stats.and_then(|stats| stats.unplaced.as_ref());
        let is_same =
            |(pass, spec): &(u64, Arc<RunSpec>)| *pass == self.pass && Arc::ptr_eq(spec, &batch.spec);
        !batch.spec.volumes.is_empty() || !unplaced.is_some_and(is_same)
    }

    /// Whether a task of this run spec is pending.
    pub(crate) fn contains_spec(&self, run_spec: &str) -> bool {
        self.specs.contains_key(run_spec)
    }

    /// The ready tasks that were not matched in this pass.
    pub(crate) fn ready(&self, now: Timestamp) -> Vec<TaskBatch> {
        let mut batches: Vec<TaskBatch> = Vec::new();
        let mut batch_indices: HashMap<(*const RunSpec, Option<Reverse<i32>>), usize> = HashMap::new();
        let unmatched = |queued: &&Queued| queued.last_pass != self.pass || self.pass == 0;
        for queued in self
            .in_pass_order(now)
            .into_iter()
            .filter(unmatched)
            .filter(|queued| is_ready(&queued.request, now))
        {
            let spec = &queued.request.spec;
            let aged = self.oldest_first && queued.is_starved(now);
            let class = (!aged).then_some(queued.position.priority);
            let index = batch_indices
                .entry((Arc::as_ptr(spec), class))
                .or_insert(usize::MAX);
            if batches
                .get(*index)
                .is_none_or(|batch| batch.ids.len() == MAX_BATCH_TASKS)
            {
                *index = batches.len();
                batches.push(TaskBatch {
                    spec: Arc::clone(spec),
                    ids: Vec::new(),
                    position: queued.position,
                    was_matched: false,
                });
            }
            let index = *index;
            batches[index].ids.push(queued.request.id.clone());
            batches[index].was_matched |= queued.last_pass != 0;
        }
        self.continue_at_cut(&mut batches);
        batches
    }

    /// Moves the batches for which the last round had no time to the front, but behind new ones of
    /// a higher priority.
    fn continue_at_cut(&self, batches: &mut [TaskBatch]) {
        let Some(cut) = self.cut_at.filter(|_| !self.oldest_first) else {
            return;
        };
        let before_cut = batches.partition_point(|batch| batch.position < cut);
        let is_urgent = |batch: &TaskBatch| !batch.was_matched && batch.position.priority < cut.priority;
        // The sort is stable, so each part keeps its order.
        batches[..before_cut].sort_by_key(|batch| !is_urgent(batch));
        let urgent = batches[..before_cut].partition_point(is_urgent);
        batches[urgent..].rotate_left(before_cut - urgent);
    }

    pub(crate) fn has_ready(&self, now: Timestamp) -> bool {
        let first = self.by_not_before.first();
        self.by_not_before.len() < self.tasks.len() || first.is_some_and(|(at, _)| *at <= now)
    }

    /// The allocation roles of the tasks that are ready; `None` if any of them accepts every role.
    pub(crate) fn demanded_roles(&self, now: Timestamp) -> Option<BTreeSet<String>> {
        let ready = self
            .tasks
            .values()
            .filter(|queued| is_ready(&queued.request, now));
        let roles: Option<BTreeSet<&String>> =
            ready.map(|queued| queued.request.spec.role.as_ref()).collect();
        Some(roles?.into_iter().cloned().collect())
    }

    /// The time at which the next backoff ends.
    pub(crate) fn next_ready(&mut self, now: Timestamp) -> Option<Timestamp> {
        // Backoffs that have ended are not looked at again.
        while self.by_not_before.first().is_some_and(|(at, _)| *at <= now) {
            self.by_not_before.pop_first();
        }
        self.by_not_before.first().map(|(at, _)| *at)
    }

    /// Records why a run spec's tasks were not placed.
    pub(crate) fn record_failure(&mut self, run_spec: &str, failure: MatchFailure) {
        let Some(stats) = self.specs.get_mut(run_spec) else {
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
        let Some(stats) = self.specs.get_mut(run_spec) else {
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
        if let Some(stats) = self.specs.get_mut(run_spec) {
            stats.last_used_at = Some(now);
        }
    }

    /// All pending tasks, for readers. `blocked_by` is a reason that blocks all of them.
    pub(crate) fn snapshot(&self, blocked_by: Option<Reason>, now: Timestamp) -> Vec<PendingTask> {
        let mut shared: HashMap<(&str, Option<Reason>), Arc<Reasons>> = HashMap::new();
        let mut waiting = Vec::with_capacity(self.tasks.len());
        for queued in self.in_priority_order() {
            let spec = &queued.request.spec;
            let override_reason = blocked_by.or_else(|| self.overriding_reason(queued, now));
            let reasons = shared
                .entry((&spec.id, override_reason))
                .or_insert_with(|| self.reasons_with(&spec.id, override_reason));
            waiting.push(PendingTask {
                task: queued.request.id.clone(),
                run_spec: spec.id.clone(),
                version: spec.version.clone(),
                since: queued.since,
                not_before: queued.request.not_before,
                reasons: Arc::clone(reasons),
            });
        }
        waiting
    }

    /// A reason that takes precedence over those of the last round.
    fn overriding_reason(&self, queued: &Queued, now: Timestamp) -> Option<Reason> {
        if !is_ready(&queued.request, now) {
            Some(Reason::Backoff)
        } else if self.reasons(&queued.request.spec.id).is_none() {
            Some(Reason::NoOffers)
        } else {
            None
        }
    }

    fn reasons(&self, run_spec: &str) -> Option<&Arc<Reasons>> {
        self.specs.get(run_spec)?.reasons.as_ref()
    }

    fn reasons_with(&self, run_spec: &str, override_reason: Option<Reason>) -> Arc<Reasons> {
        let reasons = self.reasons(run_spec).cloned().unwrap_or_default();
        let Some(override_reason) = override_reason else {
            return reasons;
        };
        Arc::new(Reasons {
            last: BTreeMap::from([(override_reason, 1)]),
            ..Reasons::clone(&reasons)
        })
    }

    /// The tasks in the order of this pass. In a pass by age, starved tasks come first, oldest
    /// first, followed by the others by priority.
    fn in_pass_order(&self, now: Timestamp) -> Vec<&Queued> {
        let mut all: Vec<&Queued> = self.in_priority_order().collect();
        if self.oldest_first {
            // A stable sort keeps the order of the others.
            all.sort_by_key(|queued| {
                let aged = queued.is_starved(now);
                (!aged, if aged { queued.position.number } else { 0 })
            });
        }
        all
    }

    fn in_priority_order(&self) -> impl Iterator<Item = &Queued> {
        self.order.values().filter_map(|task| self.tasks.get(task))
    }
}

fn is_ready(request: &TaskRequest, now: Timestamp) -> bool {
    request.not_before.is_none_or(|at| at <= now)
}
