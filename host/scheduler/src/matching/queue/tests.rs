//! The order of pending tasks, and their reasons.

use std::cell::Cell;

use super::*;
use crate::PendingTask;
use crate::testing::{spec, task_request};

thread_local! {
    /// How often a pending request was looked at.
    pub(super) static VISITS: Cell<usize> = const { Cell::new(0) };
}

impl Queue {
    /// The batches that are left in this pass.
    pub(crate) fn batches(&mut self, now: Timestamp) -> Vec<TaskBatch> {
        let mut ready = self.ready(now, |_| false);
        std::iter::from_fn(|| self.next_batch(&mut ready, now)).collect()
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn batches_share_a_spec_and_keep_their_position() {
    let (a, b) = (Arc::new(spec("/a")), Arc::new(spec("/b")));
    let mut queue = Queue::default();
    for (id, spec) in [("1", &a), ("2", &b), ("3", &a)] {
        queue.push(task_request(id, spec), at(1));
    }
    let mut later = task_request("4", &b);
    later.not_before = Some(at(10));
    queue.push(later, at(1));
    let names = |batches: Vec<TaskBatch>| -> Vec<(String, Vec<String>)> {
        let ids = |batch: &TaskBatch| batch.ids.iter().map(ToString::to_string).collect();
        batches
            .iter()
            .map(|batch| (batch.spec.id.clone(), ids(batch)))
            .collect()
    };
    let strings = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let expected = [
        ("/a".to_owned(), strings(&["1", "3"])),
        ("/b".to_owned(), strings(&["2"])),
    ];
    assert_eq!(names(queue.batches(at(9))), expected);
    assert_eq!(queue.next_ready(at(9)), Some(at(10)));
    assert_eq!(names(queue.batches(at(10)))[1].1, strings(&["2", "4"]));
    assert_eq!(queue.next_ready(at(10)), None);
    queue.remove(&"1".into());
    assert_eq!(
        names(queue.batches(at(9)))[0],
        ("/b".to_owned(), strings(&["2", "4"]))
    );
}

#[test]
fn pass_matches_each_task_once_and_continues_at_the_cut() {
    let mut queue = Queue::default();
    for id in ["a", "b", "c", "d"] {
        queue.push(task_request(id, &Arc::new(spec(id))), at(1));
    }
    let names = |queue: &mut Queue| -> String {
        let batches = queue.batches(at(2)).into_iter();
        batches.map(|batch| batch.spec.id.clone()).collect()
    };
    let try_one = |queue: &mut Queue| {
        let batch = queue.batches(at(2)).remove(0);
        queue.mark_matched(&batch);
    };
    assert_eq!(names(&mut queue), "abcd");
    queue.begin_pass(at(2));
    try_one(&mut queue);
    try_one(&mut queue);
    assert_eq!(names(&mut queue), "cd", "each task is matched once");
    queue.push(task_request("e", &Arc::new(spec("e"))), at(2));
    queue.push(task_request("a", &Arc::new(spec("A"))), at(2));
    assert_eq!(
        names(&mut queue),
        "Acde",
        "tasks submitted meanwhile are matched too"
    );
    try_one(&mut queue);
    let cut = queue.batches(at(2)).remove(0);
    queue.continue_at(Some(cut.first.position()));

    queue.begin_pass(at(2));
    assert_eq!(names(&mut queue), "cdeAb", "all tasks, beginning at the cut");
    while !queue.batches(at(2)).is_empty() {
        try_one(&mut queue);
    }
    queue.continue_at(None);
    queue.begin_pass(at(2));
    assert_eq!(names(&mut queue), "Abcde", "in submission order again");
}

#[test]
fn reasons_are_kept_until_the_last_task_of_the_run_spec_is_gone() {
    let a = Arc::new(spec("/a"));
    let mut queue = Queue::default();
    queue.push(task_request("1", &a), at(1));
    let mut later = task_request("2", &a);
    later.not_before = Some(at(10));
    queue.push(later, at(2));
    let last = |waiting: &PendingTask| waiting.reasons.last.clone();
    let only = |reason| BTreeMap::from([(reason, 1)]);

    let waiting = queue.snapshot(None, at(5)).to_vec();
    assert_eq!(
        (last(&waiting[0]), last(&waiting[1])),
        (only(Reason::NoOffers), only(Reason::Backoff))
    );
    for _ in 0..2 {
        let reasons = BTreeMap::from([(Reason::InsufficientCpus, 3)]);
        queue.record_failure(
            "/a",
            MatchFailure {
                reasons,
                offers: 4,
                refused_offers: 3,
                ..MatchFailure::default()
            },
        );
    }
    let waiting = queue.snapshot(None, at(5)).to_vec();
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
                .to_vec()
                .iter()
                .all(|waiting| last(waiting) == only(standing))
        );
    }

    queue.remove(&"1".into());
    assert_eq!(queue.snapshot(None, at(10)).to_vec()[0].reasons.rounds, 2);
    queue.remove(&"2".into());
    queue.record_failure("/a", MatchFailure::default());
    queue.push(task_request("3", &a), at(5));
    assert_eq!(queue.snapshot(None, at(5)).to_vec()[0].reasons.rounds, 0);
}

/// Run specs and ids of the batches, in the order in which they are matched.
fn served(queue: &mut Queue, now: i64) -> Vec<String> {
    let batches = queue.batches(at(now));
    let ids = |batch: &TaskBatch| {
        batch
            .ids
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("+")
    };
    batches.iter().map(ids).collect()
}

fn of_priority(id: &str, spec: &Arc<RunSpec>, priority: i32) -> TaskRequest {
    TaskRequest {
        priority,
        ..task_request(id, spec)
    }
}

#[test]
fn higher_priorities_come_first_and_equal_ones_in_submission_order() {
    let (a, b) = (Arc::new(spec("/a")), Arc::new(spec("/b")));
    let mut queue = Queue::default();
    for (id, spec, priority) in [
        ("1", &a, 0),
        ("2", &b, 5),
        ("3", &a, 5),
        ("4", &b, -1),
        ("5", &a, 0),
        ("6", &b, 5),
        ("7", &a, i32::MAX),
        ("8", &a, i32::MIN),
    ] {
        queue.push(of_priority(id, spec, priority), at(1));
    }
    // Tasks of equal priority that share a run spec are matched together.
    assert_eq!(served(&mut queue, 2), ["7", "2+6", "3", "1+5", "4", "8"]);
    // Readers see the same order.
    let waiting = queue.snapshot(None, at(2)).to_vec();
    let order: String = waiting.iter().map(|waiting| waiting.task.as_str()).collect();
    assert_eq!(order, "72361548");
    // A task that is submitted again with another priority keeps its age among the tasks of that
    // priority.
    queue.push(of_priority("1", &a, 5), at(2));
    assert_eq!(served(&mut queue, 2), ["7", "1+3", "2+6", "5", "4", "8"]);
    queue.remove(&"1".into());
    queue.remove(&"7".into());
    assert_eq!(served(&mut queue, 2), ["2+6", "3", "5", "4", "8"]);
}

#[test]
fn new_tasks_of_a_higher_priority_precede_the_cut() {
    let mut queue = Queue::default();
    for (id, priority) in [("a", 1), ("b", 0), ("c", 0)] {
        queue.push(of_priority(id, &Arc::new(spec(id)), priority), at(1));
    }
    queue.begin_pass(at(2));
    let batches = queue.batches(at(2));
    queue.mark_matched(&batches[0]);
    queue.mark_matched(&batches[1]);
    queue.continue_at(Some(batches[2].first.position()));
    queue.push(of_priority("d", &Arc::new(spec("d")), 2), at(2));
    queue.push(of_priority("e", &Arc::new(spec("e")), 0), at(2));
    queue.begin_pass(at(2));
    assert_eq!(served(&mut queue, 2), ["d", "c", "e", "a", "b"]);
}

#[test]
fn tasks_of_low_priority_are_not_starved() {
    let mut queue = Queue::default();
    queue.push(of_priority("low", &Arc::new(spec("low")), 0), at(0));
    queue.push(of_priority("older", &Arc::new(spec("older")), 1), at(0));
    let mut next = 0;
    // Each pass has room for one task, and a new one of a high priority arrives before each.
    let mut pass = |queue: &mut Queue, now: i64| {
        next += 1;
        let id = format!("high{next}");
        queue.push(of_priority(&id, &Arc::new(spec(&id)), 9), at(now));
        queue.begin_pass(at(now));
        let first = served(queue, now).remove(0);
        queue.remove(&first.as_str().into());
        queue.launched();
        first
    };
    let early: Vec<String> = (0..10).map(|_| pass(&mut queue, 59)).collect();
    assert!(early.iter().all(|id| id.starts_with("high")), "{early:?}");
    // From one minute on, at most one pass in four is ordered by age.
    let late: Vec<String> = (0..9).map(|_| pass(&mut queue, 60)).collect();
    let low = |id: &String| !id.starts_with("high");
    assert_eq!(late.iter().position(low), Some(0), "{late:?}");
    assert_eq!(late.iter().filter(|id| low(id)).count(), 2, "{late:?}");
    assert_eq!(late[0], "low", "the oldest task first: {late:?}");
    assert_eq!(late[4], "older", "{late:?}");
}

#[test]
fn batches_are_bounded_and_stop_after_one_that_was_not_placed() {
    let (wide, other) = (Arc::new(spec("/wide")), Arc::new(spec("/other")));
    let mut queue = Queue::default();
    for n in 0..600 {
        queue.push(task_request(&format!("w{n}"), &wide), at(1));
    }
    queue.push(task_request("o", &other), at(1));
    queue.begin_pass(at(1));
    let batches = queue.batches(at(1));
    let sizes: Vec<usize> = batches.iter().map(|batch| batch.ids.len()).collect();
    assert_eq!(sizes, [256, 256, 88, 1]);
    let mut left = queue.ready(at(1), |_| false);
    let first = queue.next_batch(&mut left, at(1)).unwrap();
    queue.mark_unplaced(&first);
    let next = queue.peek(&mut left).unwrap();
    assert_eq!(next.0.id, "/other", "in the same round");
    assert_eq!(served(&mut queue, 1), ["o"], "in the next round");
    // Another version of the run spec may fit.
    queue.push(task_request("w0", &Arc::new(spec("/wide"))), at(1));
    assert_eq!(served(&mut queue, 1), ["w0", "o"]);
    queue.begin_pass(at(2));
    let sizes: Vec<usize> = queue.batches(at(2)).iter().map(|batch| batch.ids.len()).collect();
    assert_eq!(
        sizes,
        [1, 1, 256, 256, 86, 1],
        "one of those that did not fit is tried first"
    );
}

#[test]
fn ends_of_backoffs_follow_requests_that_are_replaced_or_removed() {
    let a = Arc::new(spec("/a"));
    let later = |id: &str, second: i64| TaskRequest {
        not_before: Some(at(second)),
        ..task_request(id, &a)
    };
    let mut queue = Queue::default();
    queue.push(later("1", 10), at(1));
    queue.push(later("2", 20), at(1));
    assert_eq!(
        (queue.has_ready(at(5)), queue.next_ready(at(5))),
        (false, Some(at(10)))
    );
    queue.push(later("1", 30), at(1));
    assert_eq!(
        (queue.has_ready(at(15)), queue.next_ready(at(15))),
        (false, Some(at(20)))
    );
    assert!(queue.has_ready(at(20)));
    assert_eq!(queue.next_ready(at(20)), Some(at(30)));
    assert!(queue.has_ready(at(20)));
    queue.remove(&"2".into());
    assert!(!queue.has_ready(at(20)));
    queue.push(task_request("1", &a), at(1));
    assert_eq!((queue.has_ready(at(20)), queue.next_ready(at(20))), (true, None));
    queue.remove(&"1".into());
    assert!(!queue.has_ready(at(40)));
}

/// A queue with this number of pending tasks of one run spec, and one of another.
fn long_queue(tasks: usize) -> Queue {
    let (wide, other) = (Arc::new(spec("/wide")), Arc::new(spec("/other")));
    let mut queue = Queue::default();
    for n in 0..tasks {
        queue.push(task_request(&format!("w{n}"), &wide), at(1));
    }
    let mut late = task_request("late", &wide);
    late.not_before = Some(at(90));
    queue.push(late, at(1));
    queue.push(of_priority("o", &other, -1), at(80));
    queue
}

/// The tasks that are looked at in a pass in which the tasks of the first run spec do not fit.
fn visits_in_a_pass(queue: &mut Queue) -> usize {
    VISITS.take();
    // In the fourth pass, starved tasks are looked for.
    for _ in 0..3 {
        queue.launched();
    }
    queue.begin_pass(at(100));
    let mut ready = queue.ready(at(100), |_| false);
    assert_eq!(ready.specs().count(), 2);
    let first = queue.next_batch(&mut ready, at(100)).unwrap();
    queue.mark_matched(&first);
    queue.mark_unplaced(&first);
    let second = queue.next_batch(&mut ready, at(100)).unwrap();
    assert_eq!(second.ids, [TaskId::from("o")]);
    queue.mark_matched(&second);
    queue.remove(&"o".into());
    assert!(queue.has_ready(at(100)) && queue.next_ready(at(100)).is_none());
    assert_eq!(queue.demanded_roles(at(100)), None);
    let snapshot = queue.snapshot(None, at(100));
    let wide = snapshot.spec("/wide").unwrap();
    assert_eq!((wide.since(), wide.not_before()), (at(1), None));
    assert_eq!(wide.tasks(), snapshot.len());
    assert!(snapshot.get(&"late".into()).is_some());
    VISITS.take()
}

#[test]
fn pass_does_not_look_at_all_pending_tasks() {
    let [few, many] = [1_000, 20_000].map(|tasks| visits_in_a_pass(&mut long_queue(tasks)));
    assert!(many <= few + 10 && many < 600, "{few} and {many} visits");
    // The next pass tries one of those that did not fit.
    let mut queue = long_queue(1_000);
    visits_in_a_pass(&mut queue);
    queue.push(of_priority("o", &Arc::new(spec("/other")), -1), at(80));
    let again = visits_in_a_pass(&mut queue);
    assert!(again < 50, "{again} visits");
}

/// The entries that are copied by a few changes while a reader has a snapshot: each copy of an entry
/// counts as an owner of its task.
fn copies_for_a_reader(tasks: usize) -> usize {
    let mut queue = long_queue(tasks);
    let owners = |snapshot: &PendingSnapshot| -> usize {
        let tasks = snapshot.buckets.tasks.values();
        tasks.map(Arc::strong_count).sum()
    };
    let snapshot = queue.snapshot(None, at(2));
    let before = owners(&snapshot);
    assert_eq!(before, 2 * (tasks + 2));
    queue.push(task_request("new", &Arc::new(spec("/new"))), at(2));
    queue.remove(&"o".into());
    queue.remove(&"w7".into());
    assert_eq!(queue.snapshot(None, at(2)).len(), tasks + 1);
    assert!(snapshot.get(&"w7".into()).is_some() && snapshot.get(&"new".into()).is_none());
    owners(&snapshot) - before
}

#[test]
fn snapshot_shares_pending_tasks_with_the_queue() {
    let [few, many] = [1_000, 20_000].map(copies_for_a_reader);
    assert!(
        0 < few && many <= 2 * few && many < 500,
        "{few} and {many} copies"
    );
}

#[test]
fn task_that_is_submitted_again_is_matched_again_in_the_same_pass() {
    let a = Arc::new(spec("/a"));
    let mut queue = Queue::default();
    for id in ["1", "2", "3"] {
        queue.push(task_request(id, &a), at(1));
    }
    let mut later = task_request("4", &a);
    later.not_before = Some(at(5));
    queue.push(later, at(1));
    queue.push(task_request("5", &a), at(1));
    queue.begin_pass(at(2));
    let batch = queue.batches(at(2)).remove(0);
    queue.mark_matched(&batch);
    assert!(served(&mut queue, 2).is_empty());
    // The end of a delay is in time too.
    assert_eq!(served(&mut queue, 5), ["4+5"]);
    let batch = queue.batches(at(5)).remove(0);
    queue.mark_matched(&batch);
    queue.push(task_request("3", &a), at(5));
    assert_eq!(served(&mut queue, 5), ["3+4+5"]);
}
