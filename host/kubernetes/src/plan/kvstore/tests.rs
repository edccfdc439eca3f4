//! Tables of etcd clusters and the expected steps.

use super::super::tests::{POLICY, at, goal, member, observed};
use super::super::{Observed, Plan, next_steps};
use super::*;

/// A running, healthy, voting member.
fn voter(number: u32) -> Member {
    Member {
        healthy: Some(true),
        voter: true,
        etcd: Some(etcd(number)),
        ..member(number)
    }
}

fn etcd(number: u32) -> u64 {
    100 + u64::from(number)
}

fn sick(number: u32) -> Member {
    Member {
        healthy: Some(false),
        ..voter(number)
    }
}

fn learner(number: u32) -> Member {
    Member {
        healthy: Some(false),
        voter: false,
        ..voter(number)
    }
}

fn old(member: Member) -> Member {
    Member { old: true, ..member }
}

/// The member, about to end and still running.
fn ending(member: Member) -> Member {
    Member {
        leaving: true,
        ..member
    }
}

fn in_condition(condition: Condition, member: Member) -> Member {
    Member { condition, ..member }
}

fn kvstore(voters: usize) -> Kvstore {
    Kvstore {
        voters,
        ..Kvstore::default()
    }
}

fn absent(numbers: &[u32]) -> Vec<Absent> {
    let hosts = numbers.iter().map(|number| Absent {
        number: *number,
        host: format!("host{number}"),
        ended: true,
    });
    hosts.collect()
}

fn plan(wanted: u32, kvstore: Kvstore, members: Vec<Member>) -> Plan {
    plan_at(100, wanted, kvstore, members)
}

fn plan_at(second: i64, wanted: u32, kvstore: Kvstore, members: Vec<Member>) -> Plan {
    let seen = Observed {
        kvstore: Some(kvstore),
        ..observed(members, vec![], vec![])
    };
    next_steps(&goal(wanted, 0, 0), &seen, &POLICY, at(second))
}

fn launch(number: u32, start: Start) -> Step {
    Step::LaunchMember { number, start }
}

fn dismiss(number: u32) -> Step {
    Step::Dismiss { etcd: etcd(number) }
}

fn end(number: u32, reason: RemovalReason) -> Step {
    Step::Remove {
        kind: Kind::Datastore,
        number,
        reason,
    }
}

/// A name, the situation (wanted count, etcd cluster, members), and the expected plan: the steps, and a
/// part of the reason why other steps wait.
type Case = (&'static str, u32, Kvstore, Vec<Member>, Vec<Step>, &'static str);

fn check(cases: Vec<Case>) {
    for (name, wanted, kvstore, members, steps, reason) in cases {
        let plan = plan(wanted, kvstore, members);
        assert_eq!(plan.steps, steps, "{name}: {plan:?}");
        let says = plan.waiting.iter().any(|(_, text)| text.contains(reason));
        assert!(reason.is_empty() || says, "{name}: {:?}", plan.waiting);
    }
}

#[test]
fn members_start_one_after_the_other() {
    let starting = || in_condition(Condition::Staging, learner(0));
    check(vec![
        ("nothing", 3, kvstore(0), vec![], vec![launch(0, Start::New)], ""),
        (
            "first starts",
            3,
            kvstore(0),
            vec![starting()],
            vec![],
            "first member of the kvstore does not answer",
        ),
        (
            "first votes",
            3,
            kvstore(1),
            vec![voter(0)],
            vec![launch(1, Start::Join)],
            "",
        ),
        (
            "second catches up",
            3,
            kvstore(1),
            vec![voter(0), learner(1)],
            vec![],
            "member 1 is joining",
        ),
        (
            "second votes",
            3,
            kvstore(2),
            vec![voter(0), voter(1)],
            vec![launch(2, Start::Join)],
            "",
        ),
        (
            "complete",
            3,
            kvstore(3),
            vec![voter(0), voter(1), voter(2)],
            vec![],
            "",
        ),
        (
            "one is sick",
            5,
            kvstore(3),
            vec![voter(0), voter(1), sick(2)],
            vec![],
            "joins the kvstore when member 2 is healthy",
        ),
        // The single member has no port for other members.
        (
            "one of the former form",
            3,
            kvstore(1),
            vec![old(voter(0))],
            vec![end(0, RemovalReason::Changed)],
            "",
        ),
        // A member that joined now could not reach it.
        (
            "the former form ends",
            3,
            kvstore(1),
            vec![ending(old(voter(0)))],
            vec![],
            "",
        ),
    ]);
}

#[test]
fn a_lost_member_leaves_etcd_before_another_one_joins() {
    let two = || vec![voter(0), voter(2)];
    let lost = |dismissing, silent_since| Kvstore {
        stale: vec![etcd(1)],
        absent: absent(&[1]),
        dismissing,
        silent_since,
        ..kvstore(3)
    };
    let leaving = in_condition(Condition::Killing, ending(voter(1)));
    let wait = "joins the kvstore when a lost one has left it";
    check(vec![
        ("ended", 3, lost(false, None), two(), vec![dismiss(1)], wait),
        ("being dismissed", 3, lost(true, None), two(), vec![], wait),
        ("left", 3, kvstore(2), two(), vec![launch(1, Start::Join)], ""),
        (
            "being killed",
            3,
            kvstore(3),
            vec![voter(0), leaving, voter(2)],
            vec![dismiss(1)],
            "",
        ),
    ]);
    let silent = plan(3, lost(false, Some(at(90))), two());
    assert!(!silent.steps.contains(&dismiss(1)), "{silent:?}");
}

#[test]
fn without_a_quorum_no_member_is_replaced_and_ended_members_return_to_their_data() {
    let lost = |numbers: &[u32]| Kvstore {
        stale: numbers.iter().map(|number| etcd(*number)).collect(),
        absent: absent(numbers),
        ..kvstore(3)
    };
    let requested = || {
        let mut kvstore = lost(&[1]);
        kvstore.absent[0].ended = false;
        kvstore
    };
    let back = |numbers: &[u32]| {
        numbers
            .iter()
            .map(|number| launch(*number, Start::Return))
            .collect()
    };
    let waits = || in_condition(Condition::Scheduled, voter(1));
    let away = || in_condition(Condition::Unreachable, voter(1));
    let reason = "no quorum (healthy: 1 of 3 members, needed: 2, running: 1); no member is moved";
    let sick_reason = "no quorum (healthy: 1 of 3 members, needed: 2, running: 3); no member is moved";
    check(vec![
        (
            "two ended",
            3,
            lost(&[1, 2]),
            vec![voter(0)],
            back(&[1, 2]),
            reason,
        ),
        (
            "all ended",
            3,
            lost(&[0, 1, 2]),
            vec![],
            back(&[0, 1, 2]),
            "member 2 has its data on host2 and starts there",
        ),
        (
            "fewer wanted",
            1,
            lost(&[1, 2]),
            vec![voter(0)],
            back(&[1, 2]),
            reason,
        ),
        (
            "a changed one",
            3,
            kvstore(3),
            vec![old(voter(0)), sick(1), sick(2)],
            vec![],
            sick_reason,
        ),
        (
            "a changed one that is of no use",
            3,
            kvstore(3),
            vec![voter(0), old(sick(1)), sick(2)],
            // It may be unhealthy only temporarily.
            vec![],
            sick_reason,
        ),
        (
            "surplus",
            1,
            kvstore(3),
            vec![voter(0), sick(1), sick(2)],
            vec![],
            "when the others have the quorum",
        ),
        (
            "requested surplus",
            1,
            requested(),
            vec![voter(0), waits(), sick(2)],
            vec![],
            "member 1 has its data on host1 and starts there; start that agent again",
        ),
        (
            "unreachable",
            3,
            requested(),
            vec![voter(0), away(), sick(2)],
            vec![],
            "member 1 has its data on host1",
        ),
        (
            "stopped",
            0,
            kvstore(3),
            vec![voter(0), sick(1), sick(2)],
            vec![end(2, RemovalReason::Surplus)],
            "",
        ),
    ]);
}

#[test]
fn a_member_that_waits_for_its_host_is_abandoned_when_the_others_have_the_quorum() {
    let waiting = || {
        let kvstore = Kvstore {
            absent: vec![Absent {
                ended: false,
                ..absent(&[2]).remove(0)
            }],
            ..kvstore(3)
        };
        let waits = in_condition(Condition::Scheduled, voter(2));
        (kvstore, vec![voter(0), voter(1), waits])
    };
    let (seen, members) = waiting();
    let early = plan_at(600, 3, seen, members);
    assert_eq!((early.steps, early.recheck_at), (vec![], Some(at(602))));
    let (seen, members) = waiting();
    let late = plan_at(602, 3, seen, members);
    assert_eq!(late.steps, [end(2, RemovalReason::NotReady)]);
}

#[test]
fn members_leave_one_at_a_time_and_keep_the_quorum() {
    let three = || vec![voter(0), voter(1), voter(2)];
    let silent = |since| Kvstore {
        silent_since: Some(at(since)),
        ..kvstore(3)
    };
    let left = Member {
        voter: false,
        etcd: None,
        ..voter(2)
    };
    check(vec![
        ("the last one first", 1, kvstore(3), three(), vec![dismiss(2)], ""),
        (
            "it has left",
            1,
            kvstore(2),
            vec![voter(0), voter(1), left],
            vec![end(2, RemovalReason::Surplus)],
            "",
        ),
        (
            "the next one",
            1,
            kvstore(2),
            vec![voter(0), voter(1)],
            vec![dismiss(1)],
            "",
        ),
        (
            "a sick one first",
            1,
            kvstore(3),
            vec![voter(0), sick(1), voter(2)],
            vec![dismiss(1)],
            "",
        ),
        (
            "the quorum needs it",
            1,
            kvstore(3),
            vec![sick(0), sick(1), voter(2)],
            vec![],
            "have the quorum without it",
        ),
        (
            "the last member",
            0,
            kvstore(1),
            vec![voter(0)],
            vec![end(0, RemovalReason::Surplus)],
            "",
        ),
        (
            "the API is silent",
            1,
            silent(50),
            three(),
            vec![],
            "whose API does not answer",
        ),
    ]);
    let late = plan_at(350, 1, silent(50), three());
    assert_eq!(
        late.steps,
        [end(2, RemovalReason::Surplus)],
        "two of three voters remain healthy"
    );
    let one_ends = vec![voter(0), voter(1), ending(voter(2))];
    let next = plan_at(350, 1, silent(50), one_ends);
    assert_eq!(next.steps, [], "only one of three voters would remain healthy");
}

#[test]
fn changed_members_are_replaced_one_by_one_while_all_are_healthy() {
    let all_old = || vec![old(voter(0)), old(voter(1)), old(voter(2))];
    let mut one_starts = all_old();
    one_starts[0] = learner(0);
    let mut one_is_sick = all_old();
    one_is_sick[1] = Member {
        unready_since: Some(at(99)),
        ..sick(1)
    };
    let away = |since| Member {
        unready_since: Some(at(since)),
        ..sick(1)
    };
    check(vec![
        ("the oldest", 3, kvstore(3), all_old(), vec![dismiss(0)], ""),
        ("one joins", 3, kvstore(2), one_starts, vec![], "waits until"),
        ("one is sick", 3, kvstore(3), one_is_sick, vec![], "waits until"),
        (
            "sick for a moment",
            3,
            kvstore(3),
            vec![voter(0), away(50), voter(2)],
            vec![],
            "",
        ),
    ]);
    let late = plan_at(650, 3, kvstore(3), vec![voter(0), away(50), voter(2)]);
    assert_eq!(late.steps, [dismiss(1)]);
}

#[test]
fn servers_start_with_the_quorum_and_when_members_have_joined() {
    let starts = |kvstore: Kvstore, members: Vec<Member>| {
        let seen = Observed {
            kvstore: Some(kvstore),
            nodes: None,
            ..observed(members, vec![], vec![])
        };
        let plan = next_steps(&goal(3, 1, 0), &seen, &POLICY, at(10));
        let server = |step: &Step| {
            matches!(
                step,
                Step::Launch {
                    kind: Kind::Server,
                    ..
                }
            )
        };
        plan.steps.iter().any(server)
    };
    assert!(starts(kvstore(3), vec![voter(0), voter(1), sick(2)]));
    assert!(!starts(kvstore(3), vec![voter(0), sick(1), sick(2)]));
    assert!(!starts(kvstore(2), vec![voter(0), voter(1), learner(2)]));
    let slow = Member {
        since: at(-50),
        ..learner(2)
    };
    assert!(
        starts(kvstore(2), vec![voter(0), voter(1), slow]),
        "one that is slow holds up nothing"
    );
}
