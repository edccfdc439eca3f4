//! Situations of a datastore without an etcd cluster, and the expected steps.

use super::super::tests::{POLICY, at, goal, member, observed};
use super::super::{Condition, Observed, RemovalReason, Step, next_steps};
use super::*;

fn unreachable(old: bool) -> Member {
    Member {
        condition: Condition::Unreachable,
        old,
        ..member(0)
    }
}

#[test]
fn an_unreachable_datastore_is_not_replaced_even_if_its_configuration_has_changed() {
    for old in [false, true] {
        let seen = observed(vec![unreachable(old)], vec![member(0)], vec![]);
        let plan = next_steps(&goal(1, 1, 0), &seen, &POLICY, at(100_000));
        assert_eq!(plan.steps, [], "{old}");
        let reason =
            "the agent of datastore 0 is unreachable; the datastore waits for it, because its data are there";
        assert_eq!(plan.waiting[0], (Kind::Datastore, reason.to_owned()));
        assert!(!plan.settled);
    }
}

#[test]
fn an_unreachable_datastore_ends_when_it_is_scaled_to_0() {
    let seen = observed(vec![unreachable(false)], vec![member(0)], vec![]);
    let plan = next_steps(&goal(0, 1, 0), &seen, &POLICY, at(100));
    let end = Step::Remove {
        kind: Kind::Datastore,
        number: 0,
        reason: RemovalReason::Surplus,
    };
    assert_eq!(plan.steps, [end]);
}

#[test]
fn servers_are_not_replaced_while_the_datastore_is_away() {
    let mut seen = observed(vec![unreachable(false)], vec![member(0)], vec![]);
    seen.nodes = None;
    seen.silent_since = Some(at(20));
    let steps = |seen: &Observed, now: i64| next_steps(&goal(1, 1, 0), seen, &POLICY, at(now)).steps;
    assert_eq!(steps(&seen, 5_000), []);
    // Its return gives them the whole time again.
    seen.members.datastore = vec![Member {
        since: at(5_000),
        ..member(0)
    }];
    assert_eq!(steps(&seen, 5_599), []);
    let end = Step::Remove {
        kind: Kind::Server,
        number: 0,
        reason: RemovalReason::NotReady,
    };
    assert_eq!(steps(&seen, 5_600), [end]);
}
