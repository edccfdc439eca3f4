//! The order of pending tasks, and their reasons.

use super::*;
use crate::testing::{spec, task_request};

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
    assert_eq!(names(queue.ready(at(9))), expected);
    assert_eq!(queue.next_ready(at(9)), Some(at(10)));
    assert_eq!(names(queue.ready(at(10)))[1].1, strings(&["2", "4"]));
    assert_eq!(queue.next_ready(at(10)), None);
    queue.remove(&"1".into());
    assert_eq!(names(queue.ready(at(9)))[0], ("/b".to_owned(), strings(&["2"])));
}

#[test]
fn pass_matches_each_task_once_and_continues_at_the_cut() {
    let mut queue = Queue::default();
    for id in ["a", "b", "c", "d"] {
        queue.push(task_request(id, &Arc::new(spec(id))), at(1));
    }
    let names = |queue: &Queue| -> String {
        let batches = queue.ready(at(2)).into_iter();
        batches.map(|batch| batch.spec.id.clone()).collect()
    };
    let try_one = |queue: &mut Queue| {
        let batch = queue.ready(at(2)).remove(0);
        queue.mark_matched(&batch);
    };
    assert_eq!(names(&queue), "abcd");
    queue.begin_pass(at(2));
    try_one(&mut queue);
    try_one(&mut queue);
    assert_eq!(names(&queue), "cd", "each task is matched once");
    queue.push(task_request("e", &Arc::new(spec("e"))), at(2));
    queue.push(task_request("a", &Arc::new(spec("A"))), at(2));
    assert_eq!(names(&queue), "Acde", "tasks submitted meanwhile are matched too");
    try_one(&mut queue);
    let cut = queue.ready(at(2)).remove(0);
    queue.continue_with(Some(&cut));

    queue.begin_pass(at(2));
    assert_eq!(names(&queue), "cdeAb", "all tasks, beginning at the cut");
    while !queue.ready(at(2)).is_empty() {
        try_one(&mut queue);
    }
    queue.continue_with(None);
    queue.begin_pass(at(2));
    assert_eq!(names(&queue), "Abcde", "in submission order again");
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

    let waiting = queue.snapshot(None, at(5));
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
    queue.record_failure("/a", MatchFailure::default());
    queue.push(task_request("3", &a), at(5));
    assert_eq!(queue.snapshot(None, at(5))[0].reasons.rounds, 0);
}

/// Run specs and ids of the batches, in the order in which they are matched.
fn served(queue: &Queue, now: i64) -> Vec<String> {
    let batches = queue.ready(at(now));
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
    assert_eq!(served(&queue, 2), ["7", "2+6", "3", "1+5", "4", "8"]);
    // Readers see the same order.
    let waiting = queue.snapshot(None, at(2));
    let order: String = waiting.iter().map(|waiting| waiting.task.as_str()).collect();
    assert_eq!(order, "72361548");
    // A task that is submitted again with another priority keeps its age among the tasks of that
    // priority.
    queue.push(of_priority("1", &a, 5), at(2));
    assert_eq!(served(&queue, 2), ["7", "1+3", "2+6", "5", "4", "8"]);
    queue.remove(&"1".into());
    queue.remove(&"7".into());
    assert_eq!(served(&queue, 2), ["2+6", "3", "5", "4", "8"]);
}

#[test]
fn new_tasks_of_a_higher_priority_precede_the_cut() {
    let mut queue = Queue::default();
    for (id, priority) in [("a", 1), ("b", 0), ("c", 0)] {
        queue.push(of_priority(id, &Arc::new(spec(id)), priority), at(1));
    }
    queue.begin_pass(at(2));
    let batches = queue.ready(at(2));
    queue.mark_matched(&batches[0]);
    queue.mark_matched(&batches[1]);
    queue.continue_with(Some(&batches[2]));
    queue.push(of_priority("d", &Arc::new(spec("d")), 2), at(2));
    queue.push(of_priority("e", &Arc::new(spec("e")), 0), at(2));
    queue.begin_pass(at(2));
    assert_eq!(served(&queue, 2), ["d", "c", "e", "a", "b"]);
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
    let batches = queue.ready(at(1));
    let sizes: Vec<usize> = batches.iter().map(|batch| batch.ids.len()).collect();
    assert_eq!(sizes, [256, 256, 88, 1]);
    assert!(batches.iter().all(|batch| queue.may_place(batch)));
    queue.mark_unplaced(&batches[0]);
    let may_place: Vec<bool> = batches.iter().map(|batch| queue.may_place(batch)).collect();
    assert_eq!(may_place, [false, false, false, true]);
    // Another version of the run spec may fit.
    queue.push(task_request("w0", &Arc::new(spec("/wide"))), at(1));
    assert!(queue.may_place(&queue.ready(at(1))[0]));
    queue.begin_pass(at(2));
    assert!(queue.ready(at(2)).iter().all(|batch| queue.may_place(batch)));
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
