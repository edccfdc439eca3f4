//! Tables of situations and the expected steps.

use std::slice::from_ref;

use super::*;

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

pub(super) const POLICY: Policy = Policy {
    node_timeout: Duration::from_mins(10),
    drain_timeout: Duration::from_mins(5),
    grace: Duration::from_secs(30),
};

/// A task that runs since the second `number`.
pub(super) fn member(number: u32) -> Member {
    Member {
        number,
        task: String::new(),
        condition: Condition::Running,
        since: at(i64::from(number)),
        healthy: None,
        leaving: false,
        old: false,
        drain: Drain::NotStarted,
        chosen: false,
        unready_since: None,
        serving: false,
        voter: false,
        etcd: None,
    }
}

pub(super) fn goal(datastore: u32, server: u32, agent: u32) -> Goal {
    Goal {
        counts: PerKind {
            datastore,
            server,
            agent,
        },
        cordoned: false,
        paused: false,
    }
}

/// Members by kind, and a ready node for each server and agent.
pub(super) fn observed(datastore: Vec<Member>, server: Vec<Member>, agent: Vec<Member>) -> Observed {
    let mut members = PerKind {
        datastore,
        server,
        agent,
    };
    let mut nodes = Vec::new();
    for kind in Kind::ALL {
        for member in members.of_mut(kind) {
            member.task = format!("{kind}-{}", member.number);
            let has_node = kind != Kind::Datastore && member.condition == Condition::Running;
            nodes.extend(has_node.then(|| Node {
                name: format!("node-{}", member.task),
                task: Some(member.task.clone()),
                ready: true,
                cordoned: false,
                leaving: false,
            }));
        }
    }
    Observed {
        members,
        nodes: Some(nodes),
        ..Observed::default()
    }
}

fn settled(agents: u32) -> Observed {
    observed(
        vec![member(0)],
        vec![member(0)],
        (0..agents).map(member).collect(),
    )
}

fn plan(goal: &Goal, observed: &Observed) -> Plan {
    next_steps(goal, observed, &POLICY, at(100))
}

fn steps(goal: &Goal, observed: &Observed) -> Vec<Step> {
    plan(goal, observed).steps
}

fn launch(kind: Kind, number: u32) -> Step {
    Step::Launch { kind, number }
}

fn remove(kind: Kind, number: u32, reason: RemovalReason) -> Step {
    Step::Remove { kind, number, reason }
}

fn remove_node(node: &str) -> Step {
    Step::RemoveNode(node.to_owned())
}

#[test]
fn datastore_servers_and_agents_start_one_after_the_other() {
    let goal = goal(1, 2, 2);
    let nothing = Observed::default();
    assert_eq!(steps(&goal, &nothing), [launch(Kind::Datastore, 0)]);

    let staging = Member {
        condition: Condition::Staging,
        ..member(0)
    };
    let mut seen = observed(vec![staging], vec![], vec![]);
    seen.nodes = None;
    assert_eq!(steps(&goal, &seen), []);

    let unhealthy = Member {
        healthy: Some(false),
        ..member(0)
    };
    seen.members.datastore = vec![unhealthy];
    assert_eq!(steps(&goal, &seen), []);

    seen.members.datastore = vec![member(0)];
    assert_eq!(
        steps(&goal, &seen),
        [launch(Kind::Server, 0)],
        "the first server alone"
    );

    seen.members.server = vec![member(0)];
    let waiting = plan(&goal, &seen);
    assert_eq!(waiting.steps, []);
    let kinds: Vec<Kind> = waiting.waiting.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [Kind::Server, Kind::Agent]);

    let seen = observed(vec![member(0)], vec![member(0)], vec![]);
    let expected = [
        launch(Kind::Server, 1),
        launch(Kind::Agent, 0),
        launch(Kind::Agent, 1),
    ];
    assert_eq!(steps(&goal, &seen), expected);
}

#[test]
fn servers_do_not_wait_for_a_datastore_outside_of_the_framework() {
    let seen = Observed::default();
    assert_eq!(steps(&goal(0, 1, 0), &seen), [launch(Kind::Server, 0)]);
}

#[test]
fn a_settled_cluster_needs_no_steps() {
    let plan = plan(&goal(1, 1, 3), &settled(3));
    assert!(
        plan.settled && plan.steps.is_empty() && plan.waiting.is_empty(),
        "{plan:?}"
    );
}

#[test]
fn the_youngest_agents_are_drained_and_removed_and_pending_ones_come_first() {
    let goal = goal(1, 1, 1);
    let mut seen = settled(3);
    let drain = |number| Step::Drain {
        number,
        node: format!("node-agent-{number}"),
    };
    assert_eq!(steps(&goal, &seen), [drain(2), drain(1)]);

    seen.members.agent[2].drain = Drain::UnderWay;
    seen.members.agent[1].drain = Drain::Done;
    let expected = [
        remove_node("node-agent-1"),
        remove(Kind::Agent, 1, RemovalReason::Surplus),
    ];
    assert_eq!(steps(&goal, &seen), expected);

    let (mut seen, two) = (
        settled(2),
        Goal {
            counts: PerKind {
                agent: 2,
                ..goal.counts
            },
            ..goal
        },
    );
    let pending = Member {
        condition: Condition::Scheduled,
        task: "agent-2".to_owned(),
        ..member(2)
    };
    seen.members.agent.push(pending);
    assert_eq!(
        steps(&two, &seen),
        [remove(Kind::Agent, 2, RemovalReason::Surplus)]
    );
}

#[test]
fn an_agent_that_the_autoscaler_has_chosen_leaves_before_younger_ones() {
    let mut seen = settled(3);
    seen.members.agent[0].chosen = true;
    let drain = Step::Drain {
        number: 0,
        node: "node-agent-0".to_owned(),
    };
    assert_eq!(steps(&goal(1, 1, 2), &seen), [drain]);
}

#[test]
fn a_node_that_is_not_ready_is_not_drained() {
    let mut seen = settled(1);
    seen.nodes.as_mut().unwrap()[1].ready = false;
    let expected = [
        remove_node("node-agent-0"),
        remove(Kind::Agent, 0, RemovalReason::Surplus),
    ];
    assert_eq!(steps(&goal(1, 1, 0), &seen), expected);
}

#[test]
fn a_drain_is_cancelled_when_the_agent_stays() {
    let mut seen = settled(2);
    for drain in [Drain::Done, Drain::Failed] {
        seen.members.agent[1].drain = drain;
        let expected = [Step::CancelDrain {
            number: 1,
            node: "node-agent-1".to_owned(),
        }];
        assert_eq!(steps(&goal(1, 1, 2), &seen), expected);
    }
}

#[test]
fn a_stopped_cluster_ends_from_the_agents_to_the_datastore_without_draining() {
    let goal = goal(0, 0, 0);
    let seen = settled(2);
    let expected = [
        remove(Kind::Agent, 1, RemovalReason::Surplus),
        remove(Kind::Agent, 0, RemovalReason::Surplus),
    ];
    assert_eq!(steps(&goal, &seen), expected);
    let seen = settled(0);
    assert_eq!(
        steps(&goal, &seen),
        [remove(Kind::Server, 0, RemovalReason::Surplus)]
    );
    let seen = observed(vec![member(0)], vec![], vec![]);
    assert_eq!(
        steps(&goal, &seen),
        [remove(Kind::Datastore, 0, RemovalReason::Surplus)]
    );
    let mut leaving = settled(0);
    leaving.members.server[0].leaving = true;
    assert_eq!(steps(&goal, &leaving), [], "the datastore ends after the server");
}

#[test]
fn numbers_of_leaving_tasks_are_not_used_again() {
    let mut seen = settled(2);
    seen.members.agent[0].leaving = true;
    assert_eq!(steps(&goal(1, 1, 2), &seen), [launch(Kind::Agent, 2)]);
}

#[test]
fn failing_tasks_are_launched_after_their_backoff() {
    let mut seen = settled(0);
    seen.backoff.agent = Some(at(130));
    let plan = plan(&goal(1, 1, 1), &seen);
    assert_eq!((plan.steps, plan.recheck_at), (vec![], Some(at(130))));
    seen.backoff.agent = Some(at(100));
    assert_eq!(steps(&goal(1, 1, 1), &seen), [launch(Kind::Agent, 0)]);
}

#[test]
fn nodes_without_a_task_are_removed() {
    let mut seen = settled(1);
    let orphan = |name: &str, task: Option<&str>, leaving| Node {
        name: name.to_owned(),
        task: task.map(str::to_owned),
        ready: true,
        cordoned: false,
        leaving,
    };
    let nodes = seen.nodes.as_mut().unwrap();
    nodes.push(orphan("ended", Some("agent-9"), false));
    nodes.push(orphan("being-removed", Some("agent-8"), true));
    nodes.push(orphan("foreign", None, false));
    assert_eq!(steps(&goal(1, 1, 1), &seen), [remove_node("ended")]);
}

#[test]
fn agents_are_cordoned_on_request_and_servers_are_not() {
    let goal = Goal {
        cordoned: true,
        ..goal(1, 1, 2)
    };
    let mut seen = settled(2);
    seen.nodes.as_mut().unwrap()[1].cordoned = true;
    let expected = [Step::Cordon {
        node: "node-agent-1".to_owned(),
        cordoned: true,
    }];
    assert_eq!(steps(&goal, &seen), expected);
}

#[test]
fn a_node_is_replaced_only_after_the_node_timeout() {
    let goal = goal(1, 1, 2);
    let mut seen = settled(2);
    seen.nodes
        .as_mut()
        .unwrap()
        .retain(|node| node.name != "node-agent-1");
    seen.members.agent[1].unready_since = Some(at(50));
    let waiting = plan(&goal, &seen);
    assert_eq!((waiting.steps, waiting.recheck_at), (vec![], Some(at(650))));
    let late = next_steps(&goal, &seen, &POLICY, at(650));
    assert_eq!(late.steps, [remove(Kind::Agent, 1, RemovalReason::NotReady)]);

    // While the API does not answer, the state of the node is unknown.
    let silent = Observed {
        nodes: None,
        silent_since: Some(at(600)),
        ..seen
    };
    assert_eq!(next_steps(&goal, &silent, &POLICY, at(650)).steps, []);
}

#[test]
fn nodes_that_exceed_the_node_timeout_are_replaced_one_after_the_other() {
    let goal = goal(1, 1, 2);
    let mut seen = settled(2);
    seen.nodes.as_mut().unwrap().truncate(1);
    for agent in &mut seen.members.agent {
        agent.unready_since = Some(at(50));
    }
    let late = next_steps(&goal, &seen, &POLICY, at(700));
    assert_eq!(late.steps, [remove(Kind::Agent, 0, RemovalReason::NotReady)]);
    seen.members.agent[0].leaving = true;
    let next = next_steps(&goal, &seen, &POLICY, at(700));
    assert_eq!(next.steps, [launch(Kind::Agent, 2)]);

    // The second one waits for the replacement of the first one, at most for the node timeout.
    let replacement = Member {
        number: 2,
        task: "agent-2".to_owned(),
        condition: Condition::Staging,
        since: at(700),
        ..member(2)
    };
    seen.members.agent[0] = replacement;
    let waiting = next_steps(&goal, &seen, &POLICY, at(701));
    assert_eq!((waiting.steps, waiting.recheck_at), (vec![], Some(at(1300))));
    assert!(waiting.waiting[0].1.contains("agent 1"), "{:?}", waiting.waiting);
    let late = next_steps(&goal, &seen, &POLICY, at(1300));
    assert_eq!(late.steps, [remove(Kind::Agent, 1, RemovalReason::NotReady)]);
}

#[test]
fn a_running_agent_is_removed_when_the_api_answers_or_after_the_drain_timeout() {
    let goal = goal(1, 1, 1);
    let mut seen = settled(2);
    seen.nodes = None;
    seen.silent_since = Some(at(50));
    let waiting = plan(&goal, &seen);
    assert_eq!((waiting.steps, waiting.recheck_at), (vec![], Some(at(350))));
    assert!(waiting.waiting[0].1.contains("agent 1"), "{:?}", waiting.waiting);
    let late = next_steps(&goal, &seen, &POLICY, at(350));
    assert_eq!(late.steps, [remove(Kind::Agent, 1, RemovalReason::Surplus)]);

    seen.members.agent[1].condition = Condition::Staging;
    assert_eq!(
        steps(&goal, &seen),
        [remove(Kind::Agent, 1, RemovalReason::Surplus)]
    );
}

#[test]
fn a_failed_drain_is_tried_again() {
    let goal = goal(1, 1, 1);
    let mut seen = settled(2);
    seen.members.agent[1].drain = Drain::Failed;
    let drain = Step::Drain {
        number: 1,
        node: "node-agent-1".to_owned(),
    };
    assert_eq!(steps(&goal, &seen), [drain]);
    // A node that is not ready is removed without a drain.
    seen.nodes.as_mut().unwrap()[2].ready = false;
    let expected = [
        remove_node("node-agent-1"),
        remove(Kind::Agent, 1, RemovalReason::Surplus),
    ];
    assert_eq!(steps(&goal, &seen), expected);
}

#[test]
fn a_change_that_waits_for_a_task_to_end_has_a_reason() {
    let mut seen = settled(2);
    seen.members.agent[0].leaving = true;
    seen.members.agent[1].old = true;
    let plan = plan(&goal(1, 1, 1), &seen);
    assert_eq!(plan.steps, []);
    assert!(plan.waiting[0].1.contains("until a leaving agent"), "{plan:?}");
}

#[test]
fn a_server_whose_api_does_not_answer_for_the_node_timeout_is_replaced() {
    let goal = goal(1, 1, 1);
    let mut seen = settled(1);
    seen.nodes = None;
    seen.silent_since = Some(at(20));
    assert_eq!(plan(&goal, &seen).steps, []);
    let late = next_steps(&goal, &seen, &POLICY, at(620));
    assert_eq!(late.steps, [remove(Kind::Server, 0, RemovalReason::NotReady)]);
}

#[test]
fn changed_tasks_are_replaced_one_by_one_and_only_while_all_are_ready() {
    let goal = goal(1, 1, 2);
    let mut seen = settled(2);
    for agent in &mut seen.members.agent {
        agent.old = true;
    }
    let drain = Step::Drain {
        number: 0,
        node: "node-agent-0".to_owned(),
    };
    assert_eq!(steps(&goal, &seen), [drain]);
    seen.members.agent[0].drain = Drain::UnderWay;
    assert_eq!(steps(&goal, &seen), []);
    seen.members.agent[0].drain = Drain::Done;
    let expected = [
        remove_node("node-agent-0"),
        remove(Kind::Agent, 0, RemovalReason::Changed),
    ];
    assert_eq!(steps(&goal, &seen), expected);

    // The replacement is not ready: the change halts.
    let mut seen = settled(2);
    seen.members.agent[1].old = true;
    seen.nodes
        .as_mut()
        .unwrap()
        .retain(|node| node.name != "node-agent-0");
    let halted = plan(&goal, &seen);
    assert_eq!(halted.steps, []);
    assert!(
        halted.waiting[0].1.ends_with("; agent 0 is not ready"),
        "{:?}",
        halted.waiting
    );
}

#[test]
fn a_changed_task_that_is_broken_does_not_wait_for_the_others() {
    let goal = goal(1, 1, 1);
    let mut seen = settled(1);
    seen.nodes = None;
    seen.members.server[0].old = true;
    seen.silent_since = Some(at(80));
    assert_eq!(
        steps(&goal, &seen),
        [],
        "within the grace period it is not broken"
    );
    let late = next_steps(&goal, &seen, &POLICY, at(110));
    assert_eq!(late.steps, [remove(Kind::Server, 0, RemovalReason::Changed)]);

    let mut seen = settled(2);
    seen.nodes.as_mut().unwrap()[1].ready = false;
    seen.members.agent[0].unready_since = Some(at(20));
    seen.members.agent[0].old = true;
    let expected = [
        remove_node("node-agent-0"),
        remove(Kind::Agent, 0, RemovalReason::Changed),
    ];
    let two = Goal {
        counts: PerKind {
            agent: 2,
            ..goal.counts
        },
        ..goal
    };
    assert_eq!(steps(&two, &seen), expected);
}

#[test]
fn changed_kinds_are_replaced_from_the_datastore_to_the_agents() {
    let goal = goal(1, 1, 1);
    let mut seen = settled(1);
    for kind in Kind::ALL {
        seen.members.of_mut(kind)[0].old = true;
    }
    for (kind, expected) in [
        (
            Kind::Datastore,
            remove(Kind::Datastore, 0, RemovalReason::Changed),
        ),
        (Kind::Server, remove(Kind::Server, 0, RemovalReason::Changed)),
        (
            Kind::Agent,
            Step::Drain {
                number: 0,
                node: "node-agent-0".to_owned(),
            },
        ),
    ] {
        assert_eq!(steps(&goal, &seen), [expected]);
        seen.members.of_mut(kind)[0].old = false;
    }
    assert_eq!(steps(&goal, &seen), []);
}

#[test]
fn a_changed_task_that_waits_for_an_offer_is_replaced_immediately() {
    let mut seen = settled(1);
    let pending = Member {
        condition: Condition::Scheduled,
        old: true,
        task: "agent-1".to_owned(),
        ..member(1)
    };
    seen.members.agent.push(pending);
    let expected = [remove(Kind::Agent, 1, RemovalReason::Changed)];
    assert_eq!(steps(&goal(1, 1, 2), &seen), expected);
}

#[test]
fn a_change_does_not_wait_for_nodes_that_were_never_ready() {
    let mut seen = observed(
        vec![member(0)],
        vec![Member {
            old: true,
            ..member(0)
        }],
        vec![member(0), member(1), member(2)],
    );
    let end = remove(Kind::Server, 0, RemovalReason::Changed);
    let remove_node = |seen: &mut Observed, task: &str| {
        let nodes = seen.nodes.as_mut().unwrap();
        nodes.retain(|node| node.task.as_deref() != Some(task));
    };
    remove_node(&mut seen, "agent-1");
    let of = |seen: &Observed| plan(&goal(1, 1, 3), seen);
    for ready_before in [None, Some(3), Some(4)] {
        seen.ready_before.agent = ready_before;
        let halted = of(&seen);
        assert_eq!(halted.steps, [], "{ready_before:?}");
        assert!(halted.halted.unwrap().ends_with("; agent 1 is not ready"));
    }
    // One agent was never ready.
    seen.ready_before.agent = Some(2);
    assert_eq!(of(&seen).steps, from_ref(&end));
    assert_eq!(of(&seen).halted, None);
    remove_node(&mut seen, "agent-2");
    assert_eq!(of(&seen).steps, [], "a node that was ready is waited for");
    seen.ready_before.agent = Some(0);
    assert_eq!(of(&seen).steps, [end]);
}
