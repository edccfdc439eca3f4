//! Choices for several instances, compared with choices one by one, and the work that they take.

use transom_sdk::matcher::{Agent, AgentSet, Candidate, Constraint, Matcher, Task, Value};
use transom_sdk::testing::{agent, constraint, plugin, task};

use crate::Attributes;
use crate::agents::Agents;
use crate::tally::lookups;

/// All operators, with an operand that some agents satisfy.
const OPERATORS: &[(&str, &str, Option<&str>)] = &[
    ("@hostname", "UNIQUE", None),
    ("rack", "UNIQUE", None),
    ("rack", "CLUSTER", None),
    ("rack", "CLUSTER", Some("r1")),
    ("@hostname", "GROUP_BY", None),
    ("rack", "GROUP_BY", None),
    ("rack", "GROUP_BY", Some("3")),
    ("rack", "LIKE", Some("r[0-9]")),
    ("rack", "UNLIKE", Some("r2")),
    ("@hostname", "MAX_PER", Some("2")),
    ("rack", "MAX_PER", Some("3")),
    ("rack", "IS", Some("r1")),
    ("nothing", "GROUP_BY", None),
];

/// Agents of which each has a host name, and all but every 17th a rack.
fn agents(count: u32, racks: u32) -> Agents {
    let in_rack = |handle: u32| -> Agent {
        let rack = ("rack", Value::Text(format!("r{}", handle % racks)));
        let attributes = if handle % 17 == 16 { vec![] } else { vec![rack] };
        agent(handle, &format!("h{handle}"), &attributes)
    };
    let mut agents = plugin::<Attributes>("{}").unwrap().agent_set(None);
    agents.update((0..count).map(in_rack).collect(), Vec::new());
    agents
}

/// The same sequence of numbers in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as u32 % limit
    }
}

fn constraints(numbers: &mut Numbers) -> Vec<Constraint> {
    let mut constraints = Vec::new();
    for _ in 0..=numbers.below(3) {
        let (field, operator, operand) = OPERATORS[numbers.below(OPERATORS.len() as u32) as usize];
        constraints.push(constraint(field, operator, operand));
    }
    constraints
}

/// Each instance with a call of its own.
fn place_one_by_one(agents: &mut Agents, task: &Task, candidates: &[Candidate], count: u32) -> Vec<u32> {
    let (mut task, mut candidates) = (task.clone(), candidates.to_vec());
    let mut chosen = Vec::new();
    while chosen.len() < count as usize {
        let [agent] = agents.place(&task, &candidates, 1)[..] else {
            break;
        };
        for candidate in candidates.iter_mut().filter(|candidate| candidate.agent == agent) {
            candidate.capacity -= 1;
        }
        candidates.retain(|candidate| candidate.capacity > 0);
        task.placed.push(agent);
        chosen.push(agent);
    }
    chosen
}

fn select_kills_one_by_one(agents: &mut Agents, task: &Task, count: u32) -> Vec<u32> {
    let mut remaining: Vec<(u32, u32)> = (0..).zip(task.placed.iter().copied()).collect();
    let mut chosen = Vec::new();
    while chosen.len() < count as usize {
        let placed = remaining.iter().map(|(_, agent)| *agent).collect();
        let task = Task {
            placed,
            ..task.clone()
        };
        let [position] = agents.select_kills(&task, 1)[..] else {
            break;
        };
        chosen.push(remaining.remove(position as usize).0);
    }
    chosen
}

#[test]
fn several_instances_are_chosen_as_if_one_by_one() {
    let mut numbers = Numbers(50);
    let (mut placed, mut killed) = (0, 0);
    for case in 0..2000 {
        let mut agents = agents(18, 1 + numbers.below(6));
        let mut candidates = Vec::new();
        for agent in 0..18 {
            if numbers.below(4) > 0 {
                let (position, capacity) = (numbers.below(18) as usize, 1 + numbers.below(4));
                candidates.insert(position.min(candidates.len()), Candidate { agent, capacity });
            }
        }
        let running = (0..numbers.below(9)).map(|_| numbers.below(18)).collect();
        let instances = 1 + numbers.below(30);
        let task = task(instances, constraints(&mut numbers), running);
        let count = 1 + numbers.below(30);
        let chosen = agents.place(&task, &candidates, count);
        let expected = place_one_by_one(&mut agents, &task, &candidates, count);
        assert_eq!(chosen, expected, "case {case}: {task:?} on {candidates:?}");
        let kills = agents.select_kills(&task, count);
        let expected = select_kills_one_by_one(&mut agents, &task, count);
        assert_eq!(kills, expected, "case {case}: {task:?}");
        (placed, killed) = (placed + chosen.len(), killed + kills.len());
    }
    assert!(placed > 3000 && killed > 1000, "{placed} and {killed}");
}

/// The lookups of agents' values for each call, with as many instances as agents.
fn work(operator: (&str, &str, Option<&str>), size: u32) -> [usize; 3] {
    let mut agents = agents(size, (size / 100).max(1));
    let (field, name, operand) = operator;
    let constraints = vec![constraint(field, name, operand)];
    let candidates: Vec<Candidate> = (0..size).map(|agent| Candidate { agent, capacity: 2 }).collect();
    let none_placed = task(size, constraints.clone(), Vec::new());
    let all_placed = task(size, constraints, (0..size).collect());
    lookups::take();
    agents.place(&none_placed, &candidates, size);
    let place = lookups::take();
    agents.evaluate(&all_placed, &candidates);
    let evaluate = lookups::take();
    agents.select_kills(&all_placed, size / 2);
    [place, evaluate, lookups::take()]
}

#[test]
fn work_of_a_call_grows_with_candidates_and_instances_not_with_their_product() {
    for &operator in OPERATORS {
        let (small, large) = (work(operator, 1000), work(operator, 8000));
        for (small, large) in small.into_iter().zip(large) {
            assert!(large <= 9 * small, "{operator:?}: {small} and {large} lookups");
            assert!(large <= 20 * 8000, "{operator:?}: {large} lookups");
        }
    }
}
