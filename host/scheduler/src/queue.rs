//! What is wanted and has no place yet, in the order in which it is served, and why it waits.
//!
//! All that waits is put to the same offers, in one pass. A pass may take several rounds, and what is wanted meanwhile
//! belongs to it too. One that was cut short is followed by one that begins where it was cut, so that nobody waits for
//! ever behind others who find no place.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use transom_cluster::TaskId;

use crate::{Reason, Reasons, RunSpec, Waiting, Wanted};

#[derive(Debug)]
struct Queued {
    wanted: Wanted,
    since: Timestamp,
    turn: u64,
    /// The last pass in which a place was looked for.
    tried_in: u64,
}

/// The queue. First come, first served; tasks that share a specification are served together, at the turn of
/// the first.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    tasks: HashMap<TaskId, Queued>,
    turns: BTreeMap<u64, TaskId>,
    next: u64,
    /// Counted from 1.
    pass: u64,
    /// Whose turn it was when the last round was cut short; 0 if it was not.
    cut_at: u64,
    specs: HashMap<String, Known>,
}

/// What is kept of a run spec while any of its tasks waits.
#[derive(Debug, Default)]
struct Known {
    tasks: usize,
    /// `None` before the first round.
    reasons: Option<Arc<Reasons>>,
}

/// Instances of one run spec, to be placed together.
#[derive(Debug)]
pub(crate) struct Lot {
    pub(crate) spec: Arc<RunSpec>,
    /// What is wanted: tasks, or groups.
    pub(crate) ids: Vec<TaskId>,
    /// The first one's.
    turn: u64,
}

/// How one run spec fared in a round.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Finding {
    pub(crate) reasons: BTreeMap<Reason, u32>,
    pub(crate) conditions: BTreeMap<u32, u32>,
    pub(crate) message: Option<String>,
    pub(crate) offers: u32,
    pub(crate) refused_offers: u32,
}

impl Queue {
    /// Adds a task, or replaces what is wanted of one that waits.
    pub(crate) fn push(&mut self, wanted: Wanted, now: Timestamp) {
        let id = wanted.id.clone();
        self.specs.entry(wanted.spec.id.clone()).or_default().tasks += 1;
        if let Some(queued) = self.tasks.get_mut(&id) {
            let before = std::mem::replace(&mut queued.wanted, wanted);
            queued.tried_in = 0;
            self.let_go(&before.spec.id);
            return;
        }
        self.turns.insert(self.next, id.clone());
        self.tasks.insert(
            id,
            Queued {
                wanted,
                since: now,
                turn: self.next,
                tried_in: 0,
            },
        );
        self.next += 1;
    }

    pub(crate) fn remove(&mut self, task: &TaskId) -> Option<Wanted> {
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

    pub(crate) fn get(&self, task: &TaskId) -> Option<&Wanted> {
        self.tasks.get(task).map(|queued| &queued.wanted)
    }

    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// There are other offers.
    pub(crate) fn begin_pass(&mut self) {
        self.pass += 1;
    }

    /// Whoever is tried next, also if it is in another pass, it begins with this lot; with the first one if there is
    /// none.
    pub(crate) fn go_on_with(&mut self, lot: Option<&Lot>) {
        self.cut_at = lot.map_or(0, |lot| lot.turn);
    }

    /// A place was looked for.
    pub(crate) fn tried(&mut self, lot: &Lot) {
        for id in &lot.ids {
            if let Some(queued) = self.tasks.get_mut(id) {
                queued.tried_in = self.pass;
            }
        }
    }

    /// Those that may be launched now and have not been tried in this pass.
    pub(crate) fn ready(&self, now: Timestamp) -> Vec<Lot> {
        let mut lots: Vec<Lot> = Vec::new();
        let mut known: HashMap<*const RunSpec, usize> = HashMap::new();
        let untried = |queued: &&Queued| queued.tried_in != self.pass || self.pass == 0;
        for queued in self
            .in_turn()
            .filter(untried)
            .filter(|queued| is_ready(&queued.wanted, now))
        {
            let spec = &queued.wanted.spec;
            let at = *known.entry(Arc::as_ptr(spec)).or_insert_with(|| {
                lots.push(Lot {
                    spec: Arc::clone(spec),
                    ids: Vec::new(),
                    turn: queued.turn,
                });
                lots.len() - 1
            });
            lots[at].ids.push(queued.wanted.id.clone());
        }
        let before_the_cut = lots.partition_point(|lot| lot.turn < self.cut_at);
        lots.rotate_left(before_the_cut);
        lots
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
    pub(crate) fn note(&mut self, run_spec: &str, finding: Finding) {
        let Some(known) = self.specs.get_mut(run_spec) else {
            return;
        };
        let reasons = Arc::make_mut(known.reasons.get_or_insert_default());
        for (reason, count) in &finding.reasons {
            *reasons.total.entry(*reason).or_default() += u64::from(*count);
        }
        reasons.total_offers += u64::from(finding.offers);
        reasons.total_refused_offers += u64::from(finding.refused_offers);
        reasons.rounds += 1;
        reasons.last = finding.reasons;
        reasons.last_offers = finding.offers;
        reasons.last_conditions = finding.conditions;
        reasons.message = finding.message;
    }

    /// Everything that waits, for readers; `standing` is what keeps all of it from being launched now.
    pub(crate) fn snapshot(&self, standing: Option<Reason>, now: Timestamp) -> Vec<Waiting> {
        let mut shared: HashMap<(&str, Option<Reason>), Arc<Reasons>> = HashMap::new();
        let mut waiting = Vec::with_capacity(self.tasks.len());
        for queued in self.in_turn() {
            let spec = &queued.wanted.spec;
            let over = standing.or_else(|| self.overriding(queued, now));
            let reasons = shared
                .entry((&spec.id, over))
                .or_insert_with(|| self.reasons_with(&spec.id, over));
            waiting.push(Waiting {
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

    fn in_turn(&self) -> impl Iterator<Item = &Queued> {
        self.turns.values().filter_map(|task| self.tasks.get(task))
    }
}

fn is_ready(wanted: &Wanted, now: Timestamp) -> bool {
    wanted.not_before.is_none_or(|at| at <= now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{spec, wanted};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn lots_share_a_spec_and_keep_their_turn() {
        let (a, b) = (Arc::new(spec("/a")), Arc::new(spec("/b")));
        let mut queue = Queue::default();
        for (id, spec) in [("1", &a), ("2", &b), ("3", &a)] {
            queue.push(wanted(id, spec), at(1));
        }
        let mut later = wanted("4", &b);
        later.not_before = Some(at(10));
        queue.push(later, at(1));
        let names = |lots: Vec<Lot>| -> Vec<(String, Vec<String>)> {
            let ids = |lot: &Lot| lot.ids.iter().map(ToString::to_string).collect();
            lots.iter().map(|lot| (lot.spec.id.clone(), ids(lot))).collect()
        };
        let strings = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let expected = [
            ("/a".to_owned(), strings(&["1", "3"])),
            ("/b".to_owned(), strings(&["2"])),
        ];
        assert_eq!(names(queue.ready(at(9))), expected);
        assert_eq!(queue.next_ready(at(9)), Some(at(10)));
        assert_eq!(names(queue.ready(at(10)))[1].1, strings(&["2", "4"]));
        assert_eq!(queue.next_ready(at(10)), None);
        queue.remove(&"1".into());
        assert_eq!(names(queue.ready(at(9)))[0], ("/b".to_owned(), strings(&["2"])));
    }

    #[test]
    fn a_pass_tries_everything_once_and_goes_on_where_the_last_one_was_cut() {
        let mut queue = Queue::default();
        for id in ["a", "b", "c", "d"] {
            queue.push(wanted(id, &Arc::new(spec(id))), at(1));
        }
        let names = |queue: &Queue| -> String {
            let lots = queue.ready(at(2)).into_iter();
            lots.map(|lot| lot.spec.id.clone()).collect()
        };
        let try_one = |queue: &mut Queue| {
            let lot = queue.ready(at(2)).remove(0);
            queue.tried(&lot);
        };
        assert_eq!(names(&queue), "abcd");
        queue.begin_pass();
        try_one(&mut queue);
        try_one(&mut queue);
        assert_eq!(names(&queue), "cd", "each once");
        queue.push(wanted("e", &Arc::new(spec("e"))), at(2));
        queue.push(wanted("a", &Arc::new(spec("A"))), at(2));
        assert_eq!(names(&queue), "Acde", "what is wanted meanwhile is tried too");
        try_one(&mut queue);
        let cut = queue.ready(at(2)).remove(0);
        queue.go_on_with(Some(&cut));

        queue.begin_pass();
        assert_eq!(names(&queue), "cdeAb", "all, but those that were left first");
        while !queue.ready(at(2)).is_empty() {
            try_one(&mut queue);
        }
        queue.go_on_with(None);
        queue.begin_pass();
        assert_eq!(names(&queue), "Abcde", "in turn again");
    }

    #[test]
    fn reasons_belong_to_the_run_spec_until_its_last_task_is_gone() {
        let a = Arc::new(spec("/a"));
        let mut queue = Queue::default();
        queue.push(wanted("1", &a), at(1));
        let mut later = wanted("2", &a);
        later.not_before = Some(at(10));
        queue.push(later, at(2));
        let last = |waiting: &Waiting| waiting.reasons.last.clone();
        let only = |reason| BTreeMap::from([(reason, 1)]);

        let waiting = queue.snapshot(None, at(5));
        assert_eq!(
            (last(&waiting[0]), last(&waiting[1])),
            (only(Reason::NoOffers), only(Reason::Backoff))
        );
        for _ in 0..2 {
            let reasons = BTreeMap::from([(Reason::InsufficientCpus, 3)]);
            queue.note(
                "/a",
                Finding {
                    reasons,
                    offers: 4,
                    refused_offers: 3,
                    ..Finding::default()
                },
            );
        }
        let waiting = queue.snapshot(None, at(5));
        assert_eq!(last(&waiting[0]), BTreeMap::from([(Reason::InsufficientCpus, 3)]));
        assert_eq!(last(&waiting[1]), only(Reason::Backoff));
        let reasons = &waiting[1].reasons;
        assert_eq!(
            (reasons.rounds, reasons.total_offers, reasons.total_refused_offers),
            (2, 8, 6)
        );
        assert_eq!(reasons.total, BTreeMap::from([(Reason::InsufficientCpus, 6)]));
        for standing in [Reason::Disconnected, Reason::StoreUnavailable] {
            assert!(
                queue
                    .snapshot(Some(standing), at(5))
                    .iter()
                    .all(|waiting| last(waiting) == only(standing))
            );
        }

        queue.remove(&"1".into());
        assert_eq!(queue.snapshot(None, at(10))[0].reasons.rounds, 2);
        queue.remove(&"2".into());
        queue.note("/a", Finding::default());
        queue.push(wanted("3", &a), at(5));
        assert_eq!(queue.snapshot(None, at(5))[0].reasons.rounds, 0);
    }
}
