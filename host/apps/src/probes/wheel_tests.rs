//! The schedule, with a clock that the tests control.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::json;

use super::*;
use crate::ids::SpecId;
use crate::testing::app;

/// A task and a version of its probe.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Task(u32, u32);

impl Subject for Task {
    fn is_same(&self, other: &Self) -> bool {
        self == other
    }
}

fn instance() -> InstanceId {
    InstanceId::new(&SpecId::parse("/a").unwrap())
}

/// A check every ten seconds from the start of the clock.
fn wanted(task: Task, lane: Lane) -> ProbeToSchedule<Task> {
    let app = app(&json!({
        "id": "/a", "cmd": "sleep 1",
        "check": {"tcp": {"port": 1}, "intervalSeconds": 10, "timeoutSeconds": 1, "delaySeconds": 0},
    }));
    ProbeToSchedule {
        times: Times::of_check(app.check.as_ref().unwrap(), &format!("task {}", task.0), 0),
        subject: task,
        lane,
    }
}

fn tasks(starts: &[Start<Task>]) -> Vec<u32> {
    starts.iter().map(|start| start.subject.0).collect()
}

#[test]
fn no_more_than_the_limit_of_a_lane_is_under_way() {
    let mut wheel = Wheel::new(2, 3);
    for task in 0..10 {
        let lane = if task < 5 { Lane::Checks } else { Lane::Health };
        wheel.set(
            &instance(),
            vec![wanted(Task(task, 0), lane)],
            Occasion::TaskRuns,
            0,
        );
    }
    assert_eq!(wheel.len(), 10);
    let first = wheel.start(0);
    assert_eq!(tasks(&first), [0, 1, 5, 6, 7]);
    assert!(wheel.start(100).is_empty(), "every place is taken");
    wheel.ended(first[0].id, Lane::Checks, AttemptEnd::Failed, 200);
    let next = wheel.start(250);
    assert_eq!(tasks(&next), [2], "the probe that was due first is next");
    assert_eq!(next[0].late, 250);
    wheel.ended(first[2].id, Lane::Health, AttemptEnd::Failed, 300);
    assert_eq!(tasks(&wheel.start(300)), [8]);
}

#[test]
fn probe_with_a_running_attempt_is_not_started_again() {
    let mut wheel = Wheel::new(10, 10);
    wheel.set(
        &instance(),
        vec![wanted(Task(1, 0), Lane::Checks)],
        Occasion::TaskRuns,
        0,
    );
    let start = wheel.start(0).remove(0);
    assert!(wheel.start(25_000).is_empty());
    assert_eq!(wheel.next_due(), None);
    let found = AttemptEnd::Completed(Outcome::Tcp(true));
    assert_eq!(wheel.ended(start.id, start.lane, found, 25_000), Some(Task(1, 0)));
    let due = wheel.next_due().unwrap();
    assert!((25_001..=35_000).contains(&due), "{due}");
    assert!(wheel.start(due - 1).is_empty());
    let again = wheel.start(due).remove(0);
    assert_eq!((again.late, again.previous), (0, Some(Outcome::Tcp(true))));
}

#[test]
fn changed_probe_replaces_the_old_one_and_others_continue() {
    let mut wheel = Wheel::new(1, 10);
    let id = instance();
    let both = |version| {
        vec![
            wanted(Task(1, version), Lane::Checks),
            wanted(Task(2, 0), Lane::Health),
        ]
    };
    wheel.set(&id, both(0), Occasion::TaskRuns, 0);
    let started = wheel.start(0);
    assert_eq!(tasks(&started), [1, 2]);
    wheel.ended(started[1].id, Lane::Health, AttemptEnd::Failed, 10);

    wheel.set(&id, both(1), Occasion::Changed, 20);
    assert!(!wheel.contains(started[0].id) && wheel.contains(started[1].id));
    assert_eq!(wheel.removed_running(), 1);
    assert!(
        wheel.start(20).is_empty(),
        "the running attempt of the replaced probe still takes the place"
    );
    let old = wheel.ended(started[0].id, Lane::Checks, AttemptEnd::Failed, 30);
    assert_eq!(
        (old, wheel.removed_running()),
        (None, 0),
        "the result of a removed probe is dropped"
    );
    let next = wheel.start(30);
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].subject, Task(1, 1));

    wheel.set(&id, Vec::new(), Occasion::TaskRuns, 40);
    wheel.ended(next[0].id, Lane::Checks, AttemptEnd::Failed, 50);
    assert_eq!((wheel.len(), wheel.next_due()), (0, None));
    assert!(wheel.start(1_000_000).is_empty());
}

#[test]
fn removed_probe_that_waits_for_a_place_is_not_started() {
    let mut wheel = Wheel::new(1, 1);
    let (first, second) = (instance(), instance());
    wheel.set(
        &first,
        vec![wanted(Task(1, 0), Lane::Checks)],
        Occasion::TaskRuns,
        0,
    );
    wheel.set(
        &second,
        vec![wanted(Task(2, 0), Lane::Checks)],
        Occasion::TaskRuns,
        0,
    );
    let started = wheel.start(0).remove(0);
    wheel.set(&second, Vec::new(), Occasion::TaskRuns, 1);
    wheel.ended(started.id, started.lane, AttemptEnd::Failed, 2);
    assert!(wheel.start(2).is_empty());
}

#[test]
fn probe_of_a_failed_component_is_repeated_when_it_is_replaced() {
    let mut wheel = Wheel::new(10, 10);
    for task in 1..=3 {
        wheel.set(
            &instance(),
            vec![wanted(Task(task, 0), Lane::Checks)],
            Occasion::TaskRuns,
            0,
        );
    }
    let started = wheel.start(0);
    for (start, ended) in started.iter().zip([
        AttemptEnd::PluginFailed,
        AttemptEnd::Failed,
        AttemptEnd::PluginFailed,
    ]) {
        wheel.ended(start.id, start.lane, ended, 10);
    }
    let other_plugin = |_: ProbeId, task: &Task| task.0 != 3;
    assert_eq!(wheel.retry_failed(other_plugin, 20), [Task(1, 0)]);
    assert_eq!(tasks(&wheel.start(20)), [1]);
    assert!(wheel.retry_failed(other_plugin, 30).is_empty());
}
