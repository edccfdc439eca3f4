//! An agent set as the scheduler uses it: it is loaded once and updated, evaluates candidates, places
//! several instances in one call, and selects instances to kill.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "tests fail by panicking"
)]

use attributes::Attributes;
use attributes::agents::Agents;
use transom_sdk::matcher::{Agent, AgentSet, Candidate, Constraint, Matcher, Value, Verdict};
use transom_sdk::testing::{agent, constraint, logs, plugin, task};

fn empty_agent_set(home_region: Option<&str>) -> Agents {
    plugin::<Attributes>("{}")
        .unwrap()
        .agent_set(home_region.map(str::to_owned))
}

/// Six agents, two in each of three racks: 1 and 2 in r1, 3 and 4 in r2, 5 and 6 in r3.
fn agents_in_racks() -> Agents {
    let mut agent_set = empty_agent_set(None);
    let in_rack = |handle: u32| {
        let rack = Value::Text(format!("r{}", handle.div_ceil(2)));
        agent(handle, &format!("h{handle}"), &[("rack", rack)])
    };
    agent_set.update((1..=6).map(in_rack).collect(), Vec::new());
    agent_set
}

/// Candidates from handles and capacities.
fn to_candidates(capacities: &[(u32, u32)]) -> Vec<Candidate> {
    capacities
        .iter()
        .map(|(agent, capacity)| Candidate {
            agent: *agent,
            capacity: *capacity,
        })
        .collect()
}

const ALL_AGENTS: [(u32, u32); 6] = [(1, 10), (2, 10), (3, 10), (4, 10), (5, 10), (6, 10)];

#[test]
fn kills_are_selected_from_the_fullest_groups_in_the_hosts_order() {
    let mut agent_set = agents_in_racks();
    for (constraints, placed, count, expected) in [
        // The first two are from r1, which has three; then r1, r2 and r3 have one each.
        (&[("rack", "GROUP_BY")][..], &[5, 1, 2, 3, 1][..], 2, &[1, 2][..]),
        (&[("rack", "GROUP_BY")], &[5, 1, 2, 3, 1], 3, &[1, 2, 0]),
        (&[("rack", "GROUP_BY")], &[1, 2, 1], 9, &[0, 1, 2]),
        // An unknown agent is in no group.
        (&[("rack", "GROUP_BY")], &[77, 1, 3], 1, &[1]),
        (
            &[("rack", "GROUP_BY"), ("@hostname", "GROUP_BY")],
            &[1, 2, 2, 3, 3],
            1,
            &[1],
        ),
        // Without `GROUP_BY` the host selects.
        (&[("rack", "CLUSTER")], &[1, 2, 1], 1, &[]),
        (&[], &[1, 2, 1], 1, &[]),
    ] {
        let constraints = constraints
            .iter()
            .map(|(field, operator)| constraint(field, operator, None))
            .collect();
        let task = task(placed.len() as u32 - count.min(2), constraints, placed.to_vec());
        assert_eq!(
            agent_set.select_kills(&task, count),
            expected,
            "{placed:?} less {count}"
        );
    }
}

/// Field and operator, operand, the task's instances, placed agents, candidates, instances to place,
/// expected agents.
type PlaceCase<'a> = (
    &'a str,
    Option<&'a str>,
    u32,
    &'a [u32],
    &'a [(u32, u32)],
    u32,
    &'a [u32],
);

#[test]
fn place_chooses_agents_as_if_placing_instances_one_by_one() {
    let cases: [PlaceCase; 14] = [
        ("@hostname UNIQUE", None, 4, &[2], &ALL_AGENTS, 4, &[1, 3, 4, 5]),
        (
            "@hostname UNIQUE",
            None,
            9,
            &[],
            &ALL_AGENTS,
            9,
            &[1, 2, 3, 4, 5, 6],
        ),
        ("rack UNIQUE", None, 9, &[3], &ALL_AGENTS, 9, &[1, 5]),
        (
            "@hostname MAX_PER",
            Some("2"),
            9,
            &[1],
            &ALL_AGENTS,
            4,
            &[1, 2, 2, 3],
        ),
        (
            "rack CLUSTER",
            None,
            4,
            &[],
            &[(4, 1), (1, 9), (3, 2)],
            4,
            &[4, 3, 3],
        ),
        ("rack CLUSTER", None, 4, &[5], &ALL_AGENTS, 2, &[5, 5]),
        ("rack CLUSTER", Some("r2"), 4, &[], &ALL_AGENTS, 2, &[3, 3]),
        (
            "rack LIKE",
            Some("r[13]"),
            4,
            &[],
            &one_instance_each(),
            9,
            &[1, 2, 5, 6],
        ),
        // Five instances in two groups: 3 and 2, and none in a third group.
        (
            "rack GROUP_BY",
            Some("2"),
            5,
            &[],
            &ALL_AGENTS,
            5,
            &[1, 3, 1, 3, 1],
        ),
        ("rack GROUP_BY", Some("2"), 5, &[5, 6], &ALL_AGENTS, 5, &[1, 1, 1]),
        // Without a number of groups, all three racks are groups.
        ("rack GROUP_BY", None, 6, &[], &ALL_AGENTS, 6, &[1, 3, 5, 1, 3, 5]),
        (
            "rack GROUP_BY",
            None,
            7,
            &[1],
            &ALL_AGENTS,
            6,
            &[3, 5, 1, 3, 5, 1],
        ),
        // Rack r3 has no candidate, but its share is not given to other racks.
        ("rack GROUP_BY", None, 6, &[], &[(1, 9), (3, 9)], 6, &[1, 3, 1, 3]),
        ("rack GROUP_BY", None, 0, &[], &ALL_AGENTS, 0, &[]),
    ];
    for (field_and_operator, operand, instances, placed, candidates, count, expected) in cases {
        let (field, operator) = field_and_operator.split_once(' ').unwrap();
        let task = task(
            instances,
            vec![constraint(field, operator, operand)],
            placed.to_vec(),
        );
        let mut agent_set = agents_in_racks();
        let chosen = agent_set.place(&task, &to_candidates(candidates), count);
        assert_eq!(
            chosen, expected,
            "{field_and_operator} {operand:?}, {instances} instances, {placed:?} placed"
        );

        // Placing one after the other has the same result: each chosen agent is accepted by `evaluate`
        // when those before it are placed.
        let mut task = task;
        for handle in chosen {
            let verdicts = agent_set.evaluate(&task, &to_candidates(&[(handle, 1)]));
            assert_eq!(
                verdicts,
                [Verdict::Fits],
                "{field_and_operator} {operand:?}: {handle} after {:?}",
                task.placed
            );
            task.placed.push(handle);
        }
    }
}

fn one_instance_each() -> [(u32, u32); 6] {
    ALL_AGENTS.map(|(agent, _)| (agent, 1))
}

const NONE: [u32; 0] = [];

/// Places as many instances as the task has on the six agents except the `removed` ones. `ending` is
/// the task's extension of that name.
fn place_instances(
    field_and_operator: &str,
    operand: Option<&str>,
    instances: u32,
    placed: &[u32],
    ending: &str,
    removed: &[u32],
) -> Vec<u32> {
    let (field, operator) = field_and_operator.split_once(' ').unwrap();
    let mut task = task(
        instances,
        vec![constraint(field, operator, operand)],
        placed.to_vec(),
    );
    if !ending.is_empty() {
        task.extensions = vec![("ending".to_owned(), ending.to_owned())];
    }
    let mut agent_set = agents_in_racks();
    agent_set.update(Vec::new(), removed.to_vec());
    let remaining: Vec<_> = ALL_AGENTS
        .into_iter()
        .filter(|(agent, _)| !removed.contains(agent))
        .collect();
    agent_set.place(&task, &to_candidates(&remaining), instances)
}

#[test]
fn share_of_a_removed_agent_goes_to_other_agents() {
    // Rack r3 and the instances there are lost: only the agents of the other racks count.
    let removed = [5, 6];
    assert_eq!(
        place_instances("rack GROUP_BY", None, 3, &[1, 3], "", &removed),
        [1]
    );
    assert_eq!(
        place_instances("rack GROUP_BY", None, 6, &[1, 3], "", &removed),
        [1, 3, 1, 3]
    );
    assert_eq!(
        place_instances("@hostname GROUP_BY", None, 4, &[1, 2, 3], "", &removed),
        [4]
    );
    assert_eq!(
        place_instances("rack MAX_PER", Some("2"), 3, &[1, 3], "", &removed),
        [1, 3]
    );
    assert_eq!(
        place_instances("rack MAX_PER", Some("1"), 3, &[1, 3], "", &removed),
        NONE
    );
    assert_eq!(
        place_instances("@hostname UNIQUE", None, 3, &[1, 3], "", &removed),
        [2, 4]
    );
    assert_eq!(
        place_instances("rack UNIQUE", None, 3, &[1, 3], "", &removed),
        NONE
    );
    // A configured number of groups is not reduced.
    assert_eq!(
        place_instances("rack GROUP_BY", Some("3"), 3, &[1, 3], "", &removed),
        NONE
    );
}

#[test]
fn ending_instance_counts_for_unique_and_not_for_spread() {
    for operand in [None, Some("3")] {
        assert_eq!(
            place_instances("rack GROUP_BY", operand, 3, &[1, 3, 5], "", &[]),
            NONE
        );
        assert_eq!(
            place_instances("rack GROUP_BY", operand, 3, &[1, 3, 5], "5", &[]),
            [5]
        );
        assert_eq!(
            place_instances("rack GROUP_BY", operand, 4, &[1, 1, 3, 5], "1 5", &[]),
            [5, 1]
        );
    }
    assert_eq!(
        place_instances("rack UNIQUE", None, 3, &[1, 3, 5], "5", &[]),
        NONE
    );
    assert_eq!(
        place_instances("rack MAX_PER", Some("1"), 3, &[1, 3, 5], "5", &[]),
        NONE
    );
    assert_eq!(place_instances("rack CLUSTER", None, 2, &[5], "5", &[]), [5, 5]);
    // Handles of agents without an instance and invalid entries are ignored.
    assert_eq!(
        place_instances("rack GROUP_BY", None, 3, &[1, 3, 5], "2 x -1", &[]),
        NONE
    );
}

#[test]
fn without_constraints_order_and_capacity_decide() {
    let chosen = agents_in_racks().place(
        &task(9, Vec::new(), Vec::new()),
        &to_candidates(&[(6, 2), (1, 0), (2, 3)]),
        4,
    );
    assert_eq!(chosen, [6, 6, 2, 2]);
}

#[test]
fn group_by_counts_only_groups_that_the_task_can_use() {
    // The first constraint excludes r3, so r1 and r2 get three of the six instances each.
    let constraints = vec![
        constraint("rack", "UNLIKE", Some("r3")),
        constraint("rack", "GROUP_BY", None),
    ];
    let chosen = agents_in_racks().place(&task(6, constraints, Vec::new()), &to_candidates(&ALL_AGENTS), 6);
    assert_eq!(chosen, [1, 3, 1, 3, 1, 3]);
}

#[test]
fn verdict_names_the_first_rejecting_constraint() {
    let constraints = vec![
        constraint("@hostname", "LIKE", Some("h.*")),
        constraint("rack", "IS", Some("r2")),
        constraint("@hostname", "UNIQUE", None),
    ];
    let verdicts =
        agents_in_racks().evaluate(&task(3, constraints, vec![3]), &to_candidates(&ALL_AGENTS[..4]));
    assert_eq!(
        verdicts,
        [
            Verdict::Refused(1),
            Verdict::Refused(1),
            Verdict::Refused(2),
            Verdict::Fits
        ]
    );
}

#[test]
fn invalid_constraint_rejects_every_agent() {
    let constraints = vec![constraint("rack", "LIKE", Some("*"))];
    let task = task(1, constraints, Vec::new());
    assert_eq!(
        agents_in_racks().evaluate(&task, &to_candidates(&ALL_AGENTS[..1])),
        [Verdict::Refused(0)]
    );
    assert!(
        agents_in_racks()
            .place(&task, &to_candidates(&ALL_AGENTS), 3)
            .is_empty()
    );
}

#[test]
fn expressions_and_constraints_work_in_one_task() {
    let constraints = vec![
        Constraint::Expression("rack:r1".to_owned()),
        constraint("@hostname", "UNIQUE", None),
    ];
    let chosen = agents_in_racks().place(&task(3, constraints, Vec::new()), &to_candidates(&ALL_AGENTS), 3);
    assert_eq!(chosen, [1, 2]);
}

#[test]
fn memory_for_the_orders_of_attributes_is_bounded() {
    let mut agent_set = empty_agent_set(None);
    let text = |value: &str| Value::Text(value.to_owned());
    // All 5,040 orders of seven attributes, one after the other, on the same agent.
    for order in 0..5040 {
        let mut names = vec!["a", "b", "c", "d", "e", "f", "g"];
        let mut remainder = order;
        let mut attributes = Vec::new();
        while !names.is_empty() {
            let name = names.remove(remainder % names.len());
            remainder /= names.len() + 1;
            attributes.push((name, text(name)));
        }
        agent_set.update(vec![agent(1, "h1", &attributes)], Vec::new());
    }
    assert!(
        agent_set.field_lists().len() < 2000,
        "{}",
        agent_set.field_lists().len()
    );
    let constraints = ["a", "g"].map(|name| constraint(name, "IS", Some(name)));
    let task = task(1, constraints.to_vec(), Vec::new());
    assert_eq!(
        agent_set.evaluate(&task, &to_candidates(&[(1, 1)])),
        [Verdict::Fits]
    );
}

#[test]
fn updates_replace_and_remove_agents() {
    let mut agent_set = agents_in_racks();
    let task = task(1, vec![constraint("rack", "IS", Some("r9"))], Vec::new());
    agent_set.update(
        vec![agent(1, "h1", &[("rack", Value::Text("r9".to_owned()))])],
        vec![2],
    );
    let verdicts = agent_set.evaluate(&task, &to_candidates(&ALL_AGENTS[..3]));
    assert_eq!(
        verdicts,
        [Verdict::Fits, Verdict::Refused(1), Verdict::Refused(0)],
        "changed, unknown, unchanged"
    );
    assert!(logs().iter().any(|(_, line)| line.contains("agent 2")));
}

#[test]
fn a_task_stays_in_the_home_region_unless_it_names_one() {
    let agent_in = |handle: u32, region: Option<&str>, zone: Option<&str>| Agent {
        region: region.map(str::to_owned),
        zone: zone.map(str::to_owned),
        ..agent(handle, &format!("h{handle}"), &[])
    };
    let agents = || {
        vec![
            agent_in(1, Some("home"), Some("z1")),
            agent_in(2, Some("far"), Some("z2")),
            agent_in(3, None, None),
        ]
    };
    let cases: [(Option<&str>, Vec<Constraint>, [bool; 3]); 6] = [
        (Some("home"), vec![], [true, false, true]),
        (None, vec![], [true, true, true]),
        (
            Some("home"),
            vec![constraint("@hostname", "UNIQUE", None)],
            [true, false, true],
        ),
        (
            Some("home"),
            vec![constraint("@region", "IS", Some("far"))],
            [false, true, false],
        ),
        (
            Some("home"),
            vec![constraint("@zone", "LIKE", Some("z."))],
            [true, true, false],
        ),
        (
            Some("home"),
            vec![constraint("@zone", "UNLIKE", Some("z1"))],
            [false, true, true],
        ),
    ];
    for (home, constraints, expected) in cases {
        let mut agent_set = empty_agent_set(home);
        agent_set.update(agents(), Vec::new());
        let task = task(1, constraints, Vec::new());
        let verdicts = agent_set.evaluate(&task, &to_candidates(&ALL_AGENTS[..3]));
        let fits: Vec<_> = verdicts.iter().map(|verdict| *verdict == Verdict::Fits).collect();
        assert_eq!(fits, expected, "{home:?} {:?}", task.constraints);
    }
    // The home region rejects, no constraint: the index is the one after the last constraint.
    let mut agent_set = empty_agent_set(Some("home"));
    agent_set.update(agents(), Vec::new());
    let verdicts = agent_set.evaluate(
        &task(1, vec![constraint("@hostname", "UNIQUE", None)], vec![]),
        &to_candidates(&[(2, 1)]),
    );
    assert_eq!(verdicts, [Verdict::Refused(1)]);
}

#[test]
fn invalid_constraints_are_reported_with_their_index() {
    let matcher = plugin::<Attributes>("{}").unwrap();
    let cases = [
        ("rack", "GROUP_BY", Some("many"), "integer value"),
        ("rack", "GROUP_BY", Some("0"), "at least 1"),
        ("rack", "MAX_PER", None, "integer value"),
        ("rack", "MAX_PER", Some("2.5"), "integer value"),
        ("rack", "NEAR", Some("x"), "expected UNIQUE, CLUSTER"),
        ("rack", "IS", None, "IS requires a value"),
        ("rack", "IS", Some("{a,b}"), "IS only supports"),
        ("rack", "LIKE", Some(""), "non-empty"),
    ];
    for (field, operator, operand, words) in cases {
        let errors = matcher.validate(&[
            Constraint::Expression("gpu:true".to_owned()),
            constraint(field, operator, operand),
            Constraint::Expression("gpu".to_owned()),
        ]);
        let indices: Vec<_> = errors.iter().map(|error| error.constraint).collect();
        assert_eq!(indices, [1, 2], "{operator} {operand:?}");
        assert!(
            errors[0].message.contains(words),
            "{operator} {operand:?}: {}",
            errors[0].message
        );
    }
    for operand in ["1", "3"] {
        assert_eq!(
            matcher.validate(&[constraint("rack", "GROUP_BY", Some(operand))]),
            []
        );
    }
}

/// Values of changed and removed agents are removed, and their numbers are used for other values.
#[test]
fn verdicts_stay_right_while_agents_change() {
    let mut agent_set = empty_agent_set(Some("east"));
    let agent_in_round = |handle: u32, round: u32| {
        let text = |name: &str, value: u32| (name.to_owned(), Value::Text(format!("{name}-{value}")));
        let own = [text("rack", handle % 7 + round), text("serial", handle + round)];
        let other = text(&format!("only-{round}"), handle);
        let attributes: Vec<(&str, Value)> = own
            .iter()
            .chain((handle % 2 == round % 2).then_some(&other))
            .map(|(name, value)| (name.as_str(), value.clone()))
            .collect();
        let mut agent = agent(handle, &format!("h{handle}-{round}"), &attributes);
        agent.region = Some(if handle.is_multiple_of(5) { "west" } else { "east" }.to_owned());
        agent
    };
    for round in 0..40 {
        // Of the agents of the previous round, 100 are removed and 100 change; 100 more are added.
        let changed = (round * 100..round * 100 + 200).map(|handle| agent_in_round(handle, round));
        let removed = (round * 100).saturating_sub(100)..round * 100;
        agent_set.update(changed.collect(), removed.clone().collect());
        let rack = format!("rack-{}", round + 3);
        let rack_is = constraint("rack", "IS", Some(&rack));
        let has_only = constraint(&format!("only-{round}"), "LIKE", Some(".*"));
        let candidates: Vec<(u32, u32)> = (removed.start..round * 100 + 200)
            .map(|handle| (handle, 1))
            .collect();
        let verdicts = agent_set.evaluate(
            &task(1, vec![rack_is, has_only], Vec::new()),
            &to_candidates(&candidates),
        );
        for ((handle, _), verdict) in candidates.into_iter().zip(verdicts) {
            let expected = if removed.contains(&handle) || handle.is_multiple_of(5) {
                Verdict::Refused(2)
            } else if handle % 7 != 3 {
                Verdict::Refused(0)
            } else if handle % 2 != round % 2 {
                Verdict::Refused(1)
            } else {
                Verdict::Fits
            };
            assert_eq!(verdict, expected, "agent {handle} in round {round}");
        }
    }
}
