//! What is wanted and has no place yet, in the order in which it is served, and why it waits.
//!
//! All that waits is put to the same offers, in one pass. A pass may take several rounds, and what is wanted meanwhile
//! belongs to it too. One that was cut short is followed by one that begins where it was cut, so that nobody waits for
//! ever behind others who find no place.
//!
//! Higher priorities are served first, and those of one priority in the order in which they were wanted. So that nobody
//! waits for ever behind a stream of higher ones either, those who have waited for [`STARVATION_AGE`] are first in one pass in
//! [`AGING_PASS_INTERVAL`], by age alone.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use transom_cluster::TaskId;

use crate::{PendingTask, Reason, Reasons, RunSpec, TaskRequest};

/// Passes that launched something, of which one goes by age if somebody needs it.
const AGING_PASS_INTERVAL: u32 = 4;
/// How long one of a lower priority waits before that.
const STARVATION_AGE: Duration = Duration::from_mins(1);

/// A place in the queue; what comes first is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueuePosition {
    priority: Reverse<i32>,
    number: u64,
}

#[derive(Debug)]
struct Queued {
    wanted: TaskRequest,
    since: Timestamp,
    turn: QueuePosition,
    /// The last pass in which a place was looked for.
    last_pass: u64,
}

/// The queue. Tasks that share a specification and a priority are served together, at the turn of the first.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    tasks: HashMap<TaskId, Queued>,
    turns: BTreeMap<QueuePosition, TaskId>,
    next: u64,
    /// Counted from 1.
    pass: u64,
    /// Whose turn it was when the last round was cut short.
    cut_at: Option<QueuePosition>,
    /// This pass goes by age alone.
    oldest_first: bool,
    /// Passes that launched something since the last one by age that did.
    passes_by_priority: u32,
    specs: HashMap<String, SpecStats>,
}

impl Queued {
    fn is_starved(&self, now: Timestamp) -> bool {
        let waited = Duration::try_from(now.duration_since(self.since)).unwrap_or_default();
        waited >= STARVATION_AGE && is_ready(&self.wanted, now)
    }
}

/// What is kept of a run spec while any of its tasks waits.
#[derive(Debug, Default)]
struct SpecStats {
    tasks: usize,
    /// `None` before the first round.
    reasons: Option<Arc<Reasons>>,
}

/// Instances of one run spec, to be placed together.
#[derive(Debug)]
pub(crate) struct TaskBatch {
    pub(crate) spec: Arc<RunSpec>,
    /// What is wanted: tasks, or groups.
    pub(crate) ids: Vec<TaskId>,
    /// The first one's.
    turn: QueuePosition,
    /// A place has been looked for before, in another pass, for one of them.
    tried: bool,
}

/// How one run spec fared in a round.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct MatchFailure {
    pub(crate) reasons: BTreeMap<Reason, u32>,
    pub(crate) constraints: BTreeMap<u32, u32>,
    pub(crate) message: Option<String>,
    pub(crate) offers: u32,
    pub(crate) refused_offers: u32,
}

impl Queue {
    /// Adds a task, or replaces what is wanted of one that waits.
    pub(crate) fn push(&mut self, wanted: TaskRequest, now: Timestamp) {
        let id = wanted.id.clone();
        self.specs.entry(wanted.spec.id.clone()).or_default().tasks += 1;
        let priority = Reverse(wanted.priority);
        if let Some(queued) = self.tasks.get_mut(&id) {
            let before = std::mem::replace(&mut queued.wanted, wanted);
            queued.last_pass = 0;
            self.turns.remove(&queued.turn);
            queued.turn.priority = priority;
            self.turns.insert(queued.turn, id);
            self.let_go(&before.spec.id);
            return;
        }
        let turn = QueuePosition {
            priority,
            number: self.next,
        };
        self.turns.insert(turn, id.clone());
        self.tasks.insert(
            id,
            Queued {
                wanted,
                since: now,
                turn,
                last_pass: 0,
            },
        );
        self.next += 1;
    }

    pub(crate) fn remove(&mut self, task: &TaskId) -> Option<TaskRequest> {
        let queued = self.tasks.remove(task)?;
        self.turns.remove(&queued.turn);
        self.let_go(&queued.wanted.spec.id);
        Some(queued.wanted)
    }

    fn let_go(&mut self, run_spec: &str) {
        if let Some(known) = self.specs.get_mut(run_spec) {
            known.tasks -= 1;
            if known.tasks == 0 {
                self.specs.remove(run_spec);
            }
        }
    }

    pub(crate) fn get(&self, task: &TaskId) -> Option<&TaskRequest> {
        self.tasks.get(task).map(|queued| &queued.wanted)
    }

    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// There are other offers.
    pub(crate) fn begin_pass(&mut self, now: Timestamp) {
        self.pass += 1;
        self.oldest_first = self.passes_by_priority + 1 >= AGING_PASS_INTERVAL && self.has_starved(now);
    }

    /// Whether somebody waits for long, and others go before who need not have come before.
    fn has_starved(&self, now: Timestamp) -> bool {
        let first = self.turns.first_key_value().map(|(turn, _)| turn.priority);
        let last = self.turns.last_key_value().map(|(turn, _)| turn.priority);
        let starved = |queued: &Queued| Some(queued.turn.priority) != first && queued.is_starved(now);
        first != last && self.tasks.values().any(starved)
    }

    /// Something was launched in this pass.
    pub(crate) fn launched(&mut self) {
        self.passes_by_priority = if self.oldest_first {
            0
        } else {
            self.passes_by_priority.saturating_add(1)
        };
    }

    /// Whoever is tried next, also if it is in another pass, it begins with this batch; with the first one if there is
    /// none.
    pub(crate) fn go_on_with(&mut self, batch: Option<&TaskBatch>) {
        self.cut_at = batch.map(|batch| batch.turn);
    }

    /// A place was looked for.
    pub(crate) fn tried(&mut self, batch: &TaskBatch) {
        for id in &batch.ids {
            if let Some(queued) = self.tasks.get_mut(id) {
                queued.last_pass = self.pass;
            }
        }
    }

    /// Those that may be launched now and have not been tried in this pass.
    pub(crate) fn ready(&self, now: Timestamp) -> Vec<TaskBatch> {
        let mut batches: Vec<TaskBatch> = Vec::new();
        let mut known: HashMap<(*const RunSpec, Option<Reverse<i32>>), usize> = HashMap::new();
        let untried = |queued: &&Queued| queued.last_pass != self.pass || self.pass == 0;
        for queued in self
            .in_order(now)
            .into_iter()
            .filter(untried)
            .filter(|queued| is_ready(&queued.wanted, now))
        {
            let spec = &queued.wanted.spec;
            let aged = self.oldest_first && queued.is_starved(now);
            let class = (!aged).then_some(queued.turn.priority);
            let at = *known.entry((Arc::as_ptr(spec), class)).or_insert_with(|| {
                batches.push(TaskBatch {
                    spec: Arc::clone(spec),
                    ids: Vec::new(),
                    turn: queued.turn,
                    tried: false,
                });
                batches.len() - 1
            });
            batches[at].ids.push(queued.wanted.id.clone());
            batches[at].tried |= queued.last_pass != 0;
        }
        self.go_on(&mut batches);
        batches
    }

    /// Puts those first that the last round had no time for, but for the ones of a higher priority that are new.
    fn go_on(&self, batches: &mut [TaskBatch]) {
        let Some(cut) = self.cut_at.filter(|_| !self.oldest_first) else {
            return;
        };
        let before_the_cut = batches.partition_point(|batch| batch.turn < cut);
        let is_urgent = |batch: &TaskBatch| !batch.tried && batch.turn.priority < cut.priority;
        // Stable, so that each part stays in order.
        batches[..before_the_cut].sort_by_key(|batch| !is_urgent(batch));
        let urgent = batches[..before_the_cut].partition_point(is_urgent);
        batches[urgent..].rotate_left(before_the_cut - urgent);
    }

    pub(crate) fn has_ready(&self, now: Timestamp) -> bool {
        self.tasks.values().any(|queued| is_ready(&queued.wanted, now))
    }

    /// When the next backoff ends.
    pub(crate) fn next_ready(&self, now: Timestamp) -> Option<Timestamp> {
        self.tasks
            .values()
            .filter_map(|queued| queued.wanted.not_before)
            .filter(|at| *at > now)
            .min()
    }

    /// Notes how a run spec's tasks fared.
    pub(crate) fn note(&mut self, run_spec: &str, failure: MatchFailure) {
        let Some(known) = self.specs.get_mut(run_spec) else {
            return;
        };
        let reasons = Arc::make_mut(known.reasons.get_or_insert_default());
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

    /// Everything that waits, for readers; `standing` is what keeps all of it from being launched now.
    pub(crate) fn snapshot(&self, standing: Option<Reason>, now: Timestamp) -> Vec<PendingTask> {
        let mut shared: HashMap<(&str, Option<Reason>), Arc<Reasons>> = HashMap::new();
        let mut waiting = Vec::with_capacity(self.tasks.len());
        for queued in self.in_turn() {
            let spec = &queued.wanted.spec;
            let over = standing.or_else(|| self.overriding(queued, now));
            let reasons = shared
                .entry((&spec.id, over))
                .or_insert_with(|| self.reasons_with(&spec.id, over));
            waiting.push(PendingTask {
                task: queued.wanted.id.clone(),
                run_spec: spec.id.clone(),
                version: spec.version.clone(),
                since: queued.since,
                not_before: queued.wanted.not_before,
                reasons: Arc::clone(reasons),
            });
        }
        waiting
    }

    /// What stands above the last round's findings at this moment.
    fn overriding(&self, queued: &Queued, now: Timestamp) -> Option<Reason> {
        if !is_ready(&queued.wanted, now) {
            Some(Reason::Backoff)
        } else if self.reasons(&queued.wanted.spec.id).is_none() {
            Some(Reason::NoOffers)
        } else {
            None
        }
    }

    fn reasons(&self, run_spec: &str) -> Option<&Arc<Reasons>> {
        self.specs.get(run_spec)?.reasons.as_ref()
    }

    fn reasons_with(&self, run_spec: &str, over: Option<Reason>) -> Arc<Reasons> {
        let known = self.reasons(run_spec).cloned().unwrap_or_default();
        let Some(over) = over else { return known };
        Arc::new(Reasons {
            last: BTreeMap::from([(over, 1)]),
            ..Reasons::clone(&known)
        })
    }

    /// As they are served in this pass. If it goes by age: first those who have waited for long, the others as always.
    fn in_order(&self, now: Timestamp) -> Vec<&Queued> {
        let mut all: Vec<&Queued> = self.in_turn().collect();
        if self.oldest_first {
            // Stable: the others stay as they stood.
            all.sort_by_key(|queued| {
                let aged = queued.is_starved(now);
                (!aged, if aged { queued.turn.number } else { 0 })
            });
        }
        all
    }

    fn in_turn(&self) -> impl Iterator<Item = &Queued> {
        self.turns.values().filter_map(|task| self.tasks.get(task))
    }
}

fn is_ready(wanted: &TaskRequest, now: Timestamp) -> bool {
    wanted.not_before.is_none_or(|at| at <= now)
}
