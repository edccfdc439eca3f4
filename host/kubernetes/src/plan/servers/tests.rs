//! Situations of the server that clients use, and the expected steps.

use super::super::tests::{POLICY, at, goal, member, observed};
use super::super::{Condition, Observed, Plan, next_steps, nodes_by_task};
use super::*;

/// The server whose client configuration is served.
fn serving(number: u32) -> Member {
    Member {
        serving: true,
        ..member(number)
    }
}

fn old(member: Member) -> Member {
    Member { old: true, ..member }
}

fn servers(servers: Vec<Member>) -> Observed {
    observed(vec![member(0)], servers, vec![])
}

fn plan(wanted: u32, observed: &Observed) -> Plan {
    next_steps(&goal(1, wanted, 0), observed, &POLICY, at(1000))
}

fn remove(number: u32, reason: RemovalReason) -> Step {
    let kind = Kind::Server;
    Step::Remove { kind, number, reason }
}

#[test]
fn the_server_that_clients_use_is_replaced_last_and_after_a_hand_over() {
    let both = servers(vec![old(serving(0)), old(member(1))]);
    assert_eq!(
        plan(2, &both).steps,
        [remove(1, RemovalReason::Changed)],
        "the other server, although it is younger"
    );

    let last = servers(vec![old(serving(0)), member(2)]);
    let handed = plan(2, &last);
    assert_eq!(handed.steps, [Step::HandOver { number: 2 }]);
    let reason = "server 0 ends when the client configuration of server 2 is served";
    assert_eq!(handed.waiting, [(Kind::Server, reason.to_owned())]);

    let after = servers(vec![old(member(0)), serving(2)]);
    assert_eq!(plan(2, &after).steps, [remove(0, RemovalReason::Changed)]);
}

#[test]
fn clients_are_handed_over_to_a_server_that_stays() {
    let three = servers(vec![old(serving(0)), old(member(1)), member(2)]);
    assert_eq!(plan(3, &three).steps, [remove(1, RemovalReason::Changed)]);
    let successor = |observed: &Observed| {
        let goal = goal(1, 3, 0);
        let planner = Planner {
            goal: &goal,
            observed,
            policy: &POLICY,
            now: at(1000),
            nodes: nodes_by_task(observed),
            plan: Plan::default(),
        };
        planner.successor(&observed.members.server[0])
    };
    assert_eq!(
        successor(&three),
        Some(2),
        "not the server that is replaced as well"
    );

    let staging = Member {
        condition: Condition::Staging,
        ..member(1)
    };
    let leaving = Member {
        leaving: true,
        ..member(2)
    };
    assert_eq!(successor(&servers(vec![old(serving(0)), staging, leaving])), None);
}

#[test]
fn a_server_waits_for_the_hand_over_at_most_the_drain_timeout() {
    let mut seen = servers(vec![old(serving(0)), member(1)]);
    seen.hand_over_since = Some(at(701));
    let waiting = plan(2, &seen);
    assert_eq!(waiting.steps, [Step::HandOver { number: 1 }]);
    assert_eq!(waiting.recheck_at, Some(at(1001)));
    seen.hand_over_since = Some(at(700));
    assert_eq!(plan(2, &seen).steps, [remove(0, RemovalReason::Changed)]);
}

#[test]
fn a_server_that_is_alone_or_does_not_answer_is_replaced_without_a_hand_over() {
    let alone = servers(vec![old(serving(0))]);
    assert_eq!(plan(1, &alone).steps, [remove(0, RemovalReason::Changed)]);
    let silent = Member {
        unready_since: Some(at(0)),
        ..old(serving(0))
    };
    let mut seen = servers(vec![silent, member(1)]);
    for node in seen.nodes.iter_mut().flatten() {
        node.ready = node.name != "node-server-0";
    }
    assert_eq!(plan(2, &seen).steps, [remove(0, RemovalReason::NotReady)]);
}

#[test]
fn the_server_that_clients_use_is_not_removed_as_surplus() {
    let seen = servers(vec![member(0), member(1), serving(2)]);
    assert_eq!(
        plan(1, &seen).steps,
        [
            remove(1, RemovalReason::Surplus),
            remove(0, RemovalReason::Surplus)
        ]
    );
    assert_eq!(
        plan(0, &seen).steps.len(),
        3,
        "all servers end without a hand-over"
    );
}
