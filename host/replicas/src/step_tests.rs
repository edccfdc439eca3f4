//! Every condition with every input.

use std::time::Duration;

use transom_cluster::v1::{TaskState, TaskStatus};

use super::*;

const CONDITIONS: &[Condition] = &[
    Condition::Scheduled,
    Condition::Provisioned,
    Condition::Staging,
    Condition::Starting,
    Condition::Running,
    Condition::Unreachable,
    Condition::UnreachableInactive,
    Condition::Killing,
    Condition::Killed,
    Condition::Finished,
    Condition::Failed,
    Condition::Error,
    Condition::Gone,
    Condition::Dropped,
    Condition::Unknown,
];

const STATES: &[TaskState] = &[
    TaskState::Staging,
    TaskState::Starting,
    TaskState::Running,
    TaskState::Killing,
    TaskState::Finished,
    TaskState::Failed,
    TaskState::Killed,
    TaskState::Error,
    TaskState::Dropped,
    TaskState::Unreachable,
    TaskState::Gone,
    TaskState::GoneByOperator,
    TaskState::Unknown,
];

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A replica of version 1 in this condition since second 100.
fn replica(condition: Condition) -> Replica<u32> {
    let unreachable = matches!(condition, Condition::Unreachable | Condition::UnreachableInactive);
    Replica {
        incarnation: 3,
        condition,
        unreachable_since: unreachable.then(|| at(100)),
        ..Replica::new(1, at(100))
    }
}

fn policy() -> Policy<u32> {
    Policy {
        version: 2,
        unreachable: UnreachableStrategy::Enabled {
            inactive_after: Duration::from_secs(10),
            expunge_after: Duration::from_secs(30),
        },
        launch_timeout: Duration::from_hours(3),
        replace: true,
        resident: false,
    }
}

fn view<'a>(state: &'a TaskState, status: &'a TaskStatus) -> TaskView<'a> {
    TaskView {
        state,
        status: Some(status),
        terminal: state.is_terminal(),
        started_at: None,
        updated_at: at(200),
        killing: false,
        restarting: false,
    }
}

#[test]
fn update_sets_the_condition_to_that_of_the_task() {
    let status = TaskStatus::default();
    for &condition in CONDITIONS {
        for state in STATES {
            let before = replica(condition);
            let observed = Condition::of(state, None, None);
            let input = Input::Updated(view(state, &status));
            let (after, effects) = step(&before, input, &policy(), at(200));
            let after = after.unwrap();
            let name = format!("{condition:?} {state}");

            let stays_inactive =
                condition == Condition::UnreachableInactive && observed == Condition::Unreachable;
            let changed = observed != condition && !stays_inactive;
            let reported = if stays_inactive { condition } else { observed };
            let mut expected = Vec::new();
            if changed {
                expected.push(Effect::Changed(observed));
            }
            if observed.is_terminal() {
                expected.push(Effect::Ended {
                    incarnation: 3,
                    condition: observed,
                    restarting: false,
                });
                expected.push(Effect::Launch {
                    after_failure: observed.is_failure(),
                });
                assert_eq!(
                    after,
                    Replica {
                        incarnation: 4,
                        ..Replica::new(2, at(200))
                    },
                    "{name}"
                );
            } else {
                assert_eq!(after.condition, reported, "{name}");
                assert_eq!((after.version, after.incarnation), (1, 3), "{name}");
                assert_eq!(after.since, if changed { at(200) } else { at(100) }, "{name}");
                let lost = after.unreachable_since;
                assert_eq!(lost.is_some(), observed == Condition::Unreachable, "{name}");
            }
            assert_eq!(effects, expected, "{name}");
        }
    }
}

#[test]
fn ended_task_is_not_replaced_when_the_replica_is_not_wanted() {
    let status = TaskStatus::default();
    let input = Input::Updated(view(&TaskState::Killed, &status));
    let running = replica(Condition::Running);
    let decommissioned = Replica {
        goal: Goal::Decommissioned,
        ..running.clone()
    };
    let deleted = Policy {
        replace: false,
        ..policy()
    };
    for (replica, policy) in [(&decommissioned, &policy()), (&running, &deleted)] {
        let (after, effects) = step(replica, input, policy, at(200));
        assert_eq!(after, None);
        let ended = Effect::Ended {
            incarnation: 3,
            condition: Condition::Killed,
            restarting: false,
        };
        assert_eq!(effects, [Effect::Changed(Condition::Killed), ended]);
    }
}

/// A task that is killed is no failure, unless its agent killed it because of its health check.
#[test]
fn task_killed_by_the_check_of_its_agent_is_a_failure() {
    let with_health = |healthy, reason: Option<&str>| TaskStatus {
        healthy,
        reason: reason.map(str::to_owned),
        ..TaskStatus::default()
    };
    let mut statuses = [
        (with_health(None, None), false, false),
        (with_health(Some(true), None), false, false),
        (with_health(Some(false), None), false, true),
        (with_health(Some(false), None), true, false),
        (
            with_health(Some(false), Some("REASON_AGENT_DRAINING")),
            false,
            false,
        ),
    ];
    for (status, killing, expected) in &mut statuses {
        let view = TaskView {
            killing: *killing,
            ..view(&TaskState::Killed, status)
        };
        let (_, effects) = step(
            &replica(Condition::Killing),
            Input::Updated(view),
            &policy(),
            at(200),
        );
        let launch = Effect::Launch {
            after_failure: *expected,
        };
        assert_eq!(effects.last(), Some(&launch), "{status:?} {killing}");
    }
}

#[test]
fn end_of_a_restarting_task_is_never_a_failure() {
    let status = TaskStatus::default();
    let running = replica(Condition::Running);
    let (killed, effects) = step(&running, Input::Restart, &policy(), at(150));
    assert_eq!(effects, [Effect::Kill { incarnation: 3 }]);
    let killed = killed.unwrap();
    assert!(killed.restarting && killed.is_wanted());
    for state in STATES
        .iter()
        .filter(|state| Condition::of(state, None, None).is_terminal())
    {
        let input = Input::Updated(view(state, &status));
        let (next, effects) = step(&killed, input, &policy(), at(200));
        let next = next.unwrap();
        assert_eq!((next.incarnation, next.restarting), (4, false), "{state}");
        let launch = Effect::Launch { after_failure: false };
        assert_eq!(effects.last(), Some(&launch), "{state}");
    }
}

#[test]
fn launch_changes_only_a_scheduled_replica() {
    let status = TaskStatus::default();
    for &condition in CONDITIONS {
        let task = TaskView {
            status: None,
            ..view(&TaskState::Staging, &status)
        };
        let before = replica(condition);
        let (after, effects) = step(&before, Input::Launched(task), &policy(), at(200));
        if condition == Condition::Scheduled {
            assert_eq!(after.unwrap().condition, Condition::Provisioned);
            assert_eq!(effects, [Effect::Changed(Condition::Provisioned)]);
        } else {
            assert_eq!((after, effects), (Some(before), vec![]), "{condition:?}");
        }
    }
}

#[test]
fn decommissioned_replica_remains_until_its_task_has_ended() {
    for &condition in CONDITIONS {
        let (after, effects) = step(&replica(condition), Input::Decommission, &policy(), at(200));
        assert_eq!(effects, [Effect::Kill { incarnation: 3 }], "{condition:?}");
        if condition == Condition::Scheduled || condition.is_unreachable() {
            assert_eq!(after, None);
        } else {
            let after = after.unwrap();
            assert_eq!(after.goal, Goal::Decommissioned, "{condition:?}");
            assert_eq!(after.condition, condition);
        }
    }
}

#[test]
fn killed_replica_on_an_unreachable_agent_is_given_up() {
    let status = TaskStatus::default();
    let lost = Input::Updated(view(&TaskState::Unreachable, &status));
    let launch = Effect::Launch { after_failure: false };
    let changed = Effect::Changed(Condition::Unreachable);
    let decommissioned = step(
        &replica(Condition::Running),
        Input::Decommission,
        &policy(),
        at(150),
    )
    .0;
    let (after, effects) = step(&decommissioned.unwrap(), lost, &policy(), at(200));
    assert_eq!((after, effects), (None, vec![changed]));

    let restarted = step(&replica(Condition::Running), Input::Restart, &policy(), at(150)).0;
    let (after, effects) = step(&restarted.unwrap(), lost, &policy(), at(200));
    assert_eq!(effects, [changed, launch]);
    let after = after.unwrap();
    assert_eq!((after.incarnation, after.condition), (4, Condition::Scheduled));

    for condition in [Condition::Unreachable, Condition::UnreachableInactive] {
        let (after, effects) = step(&replica(condition), Input::Restart, &policy(), at(200));
        assert_eq!(
            effects,
            [Effect::Kill { incarnation: 3 }, launch],
            "{condition:?}"
        );
        let after = after.unwrap();
        assert_eq!((after.incarnation, after.restarting), (4, false), "{condition:?}");
    }
}

#[test]
fn time_changes_only_unreachable_replicas() {
    let disabled = Policy {
        unreachable: UnreachableStrategy::Disabled,
        ..policy()
    };
    for &condition in CONDITIONS {
        for (policy, now) in [
            (&policy(), 109),
            (&policy(), 110),
            (&policy(), 420),
            (&disabled, 9_999),
        ] {
            let before = replica(condition);
            let found = step(&before, Input::Tick, policy, at(now));
            let enabled = policy.unreachable != UnreachableStrategy::Disabled;
            let expected = match condition {
                Condition::Unreachable if enabled && now >= 110 => (
                    Some(Replica {
                        condition: Condition::UnreachableInactive,
                        since: at(now),
                        ..before
                    }),
                    vec![Effect::Changed(Condition::UnreachableInactive)],
                ),
                Condition::UnreachableInactive if enabled && now >= 420 => {
                    (None, vec![Effect::Kill { incarnation: 3 }])
                }
                _ => (Some(before), vec![]),
            };
            assert_eq!(found, expected, "{condition:?} at {now}");
        }
    }
}

#[test]
fn task_that_does_not_start_in_time_is_killed_once_and_replaced() {
    let policy = Policy {
        launch_timeout: Duration::from_mins(5),
        ..policy()
    };
    for &condition in CONDITIONS {
        let before = replica(condition);
        let (early, effects) = step(&before, Input::Tick, &policy, at(399));
        if condition.is_launching() {
            assert_eq!(
                (early.as_ref(), &effects[..]),
                (Some(&before), &[][..]),
                "{condition:?}"
            );
        }
        let (late, effects) = step(&before, Input::Tick, &policy, at(400));
        let killed =
            effects == [Effect::Kill { incarnation: 3 }] && late.as_ref().is_some_and(|it| it.restarting);
        assert_eq!(killed, condition.is_launching(), "{condition:?}");
        if let Some(late) = late.filter(|_| killed) {
            let (again, effects) = step(&late, Input::Tick, &policy, at(500));
            assert_eq!((again, effects), (Some(late), vec![]), "{condition:?}");
        }
    }
}

#[test]
fn inactive_replica_that_returns_counts_from_the_second_loss() {
    let status = TaskStatus::default();
    let running = Input::Updated(view(&TaskState::Running, &status));
    let lost = Input::Updated(view(&TaskState::Unreachable, &status));
    let inactive = replica(Condition::UnreachableInactive);
    let (returned, _) = step(&inactive, running, &policy(), at(200));
    let (lost, _) = step(&returned.unwrap(), lost, &policy(), at(300));
    let lost = lost.unwrap();
    assert_eq!(lost.unreachable_since, Some(at(300)));
    let (waits, _) = step(&lost, Input::Tick, &policy(), at(309));
    assert_eq!(waits, Some(lost));
}

#[test]
fn task_on_a_drained_agent_is_replaced_before_it_has_ended() {
    let draining = TaskStatus {
        reason: Some("REASON_AGENT_DRAINING".to_owned()),
        ..TaskStatus::default()
    };
    let plain = TaskStatus::default();
    let bound = Policy {
        resident: true,
        ..policy()
    };
    let restarting = Replica {
        restarting: true,
        ..replica(Condition::Running)
    };
    for (replica, status, policy, wanted) in [
        (replica(Condition::Running), &draining, policy(), false),
        (replica(Condition::Running), &plain, policy(), true),
        // A resident replica stays wanted: its next task waits for the same agent.
        (replica(Condition::Running), &draining, bound, true),
        (restarting, &draining, policy(), true),
    ] {
        let task = TaskView {
            state: &TaskState::Killing,
            status: Some(status),
            terminal: false,
            started_at: Some(at(100)),
            updated_at: at(200),
            killing: false,
            restarting: false,
        };
        let (after, effects) = step(&replica, Input::Updated(task), &policy, at(200));
        let after = after.unwrap();
        assert_eq!(after.is_wanted(), wanted, "{replica:?} {status:?}");
        assert_eq!(effects, [Effect::Changed(Condition::Killing)]);
        // A replica that is rebuilt after a restart of the daemon has the same goal. The service
        // corrects the goal of a resident one from its reservation.
        let rebuilt = Replica::of_task(1, 3, &task);
        assert_eq!(rebuilt.is_wanted(), status.reason.is_none());
    }
}
