//! Tables of situations and the expected decisions of the rule.

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

/// Now, in the tests.
const NOW: i64 = 10_000;

const EMPTY: Resources = Resources {
    cpu_millis: 1000,
    memory: 1000,
    pods: 10,
};

/// Busy agents. Each runs since the second that is its number.
fn agents(count: u32) -> Vec<Agent> {
    let agent = |number: u32| Agent {
        task: format!("a{number}"),
        since: at(i64::from(number)),
        idle_since: None,
    };
    (0..count).map(agent).collect()
}

/// `count` busy agents, and pods, each with its CPU request and the seconds for which it has been
/// unschedulable.
fn observed(count: u32, pods: &[(u64, Option<i64>)]) -> Observed {
    let pod = |(at_index, (cpu_millis, seconds)): (usize, &(u64, Option<i64>))| PendingPod {
        name: format!("d/p{at_index}"),
        requests: Resources {
            cpu_millis: *cpu_millis,
            memory: 1,
            pods: 1,
        },
        unschedulable_since: seconds.map(|seconds| at(NOW - seconds)),
    };
    Observed {
        count,
        usable: agents(count),
        closed: 0,
        waiting: Some(pods.iter().enumerate().map(pod).collect()),
        empty: Some(EMPTY),
        settled: true,
        cordoned: false,
        changed_at: at(0),
    }
}

/// `count` agents without pods. `idle`: the numbers of idle agents, and for how many seconds they have
/// been idle.
fn idle(count: u32, idle: &[(usize, i64)]) -> Observed {
    let mut observed = observed(count, &[]);
    for (agent, seconds) in idle {
        observed.usable[*agent].idle_since = Some(at(NOW - seconds));
    }
    observed
}

fn verdict(observed: &Observed) -> Verdict {
    decide(&Autoscale::default(), 6, observed, at(NOW))
}

/// The new count and the agents that end.
fn change(observed: &Observed) -> Option<(u32, Vec<String>)> {
    verdict(observed)
        .change
        .map(|change| (change.count, change.leaving))
}

/// The only reason why the count stays.
fn note(observed: &Observed) -> String {
    let verdict = verdict(observed);
    assert_eq!(verdict.change, None);
    let [note] = &verdict.notes[..] else {
        panic!("{:?}", verdict.notes)
    };
    note.clone()
}

#[test]
fn nothing_changes_without_a_reason() {
    assert_eq!(verdict(&observed(3, &[])), Verdict::default());
    let unknown = Observed {
        waiting: None,
        ..idle(3, &[(0, 9999)])
    };
    assert_eq!(verdict(&unknown), Verdict::default(), "the pods are not known");
}

#[test]
fn a_count_outside_of_the_limits_becomes_the_nearer_limit() {
    for (count, expected) in [(0, Some(1)), (1, None), (6, None), (7, Some(6)), (100, Some(6))] {
        let found = change(&observed(count, &[]));
        assert_eq!(found, expected.map(|count| (count, vec![])), "{count}");
    }
    let unknown = Observed {
        waiting: None,
        ..observed(9, &[])
    };
    assert_eq!(change(&unknown), Some((6, vec![])), "even without pods");
}

#[test]
fn agents_are_added_until_they_can_hold_the_unschedulable_pods() {
    let long = Some(30);
    for (pods, expected) in [
        // Unschedulable for too short a time, or not tried by the scheduler yet.
        (vec![(100, Some(29))], None),
        (vec![(100, None)], None),
        (vec![(100, long)], Some(2)),
        (vec![(0, long)], Some(2)),
        (vec![(1000, long)], Some(2)),
        (vec![(500, long), (500, long)], Some(2)),
        (vec![(600, long), (500, long)], Some(3)),
        // Only pods that have been unschedulable for long enough count.
        (vec![(600, long), (500, Some(1))], Some(2)),
        // One change adds at most `step` agents.
        (vec![(900, long); 5], Some(3)),
        // No agent can hold this pod.
        (vec![(1001, long)], None),
        (vec![(1001, long), (1, long)], Some(2)),
    ] {
        let found = change(&observed(1, &pods));
        assert_eq!(found, expected.map(|count| (count, vec![])), "{pods:?}");
    }
    let found = verdict(&observed(1, &[(700, long)])).change.unwrap();
    assert_eq!(found.reason, "pods unschedulable for 30s: d/p0");
}

#[test]
fn idle_agents_and_agents_that_are_not_usable_yet_are_subtracted() {
    let pods = [(900, Some(60)), (900, Some(60)), (900, Some(60))];
    let mut one_idle = observed(3, &pods);
    one_idle.usable[0].idle_since = Some(at(NOW));
    assert_eq!(change(&one_idle), Some((5, vec![])));
    let mut one_starts = observed(3, &pods);
    one_starts.usable.pop();
    assert_eq!(change(&one_starts), Some((5, vec![])));
    one_idle.usable[1].idle_since = Some(at(NOW));
    assert_eq!(change(&one_idle), Some((4, vec![])));
    one_idle.usable[2].idle_since = Some(at(NOW));
    assert!(note(&one_idle).contains("something else keeps the pods away"));
    one_starts.usable.clear();
    assert!(note(&one_starts).contains("agents that do not accept pods yet: 3"));
    // Pods are not placed on cordoned agents.
    one_starts.closed = 2;
    assert_eq!(change(&one_starts), Some((5, vec![])));
    one_starts.closed = 0;
    // No agent is ready, so the resources of an agent are not known.
    one_starts.empty = None;
    assert!(note(&one_starts).contains("agents that do not accept pods yet: 3"));
}

#[test]
fn reasons_why_the_count_stays_are_named() {
    let pods = [(100, Some(31))];
    assert!(note(&observed(6, &pods)).contains("the count is `max`, 6"));
    let cordoned = Observed {
        cordoned: true,
        ..observed(2, &pods)
    };
    assert!(note(&cordoned).contains("cordoned by request"));
    let cools_down = Observed {
        changed_at: at(NOW - 59),
        ..observed(2, &pods)
    };
    assert!(note(&cools_down).contains("the cooldown has not passed"));
    assert_eq!(verdict(&cools_down).recheck_at, Some(at(NOW + 1)));
    let large = note(&observed(2, &[(5000, Some(99))]));
    assert_eq!(large, "ignored, because no agent can hold their requests: d/p0");
    let many = note(&observed(6, &[(1, Some(31)); 8]));
    assert!(many.contains("d/p0, d/p1, d/p2, d/p3, d/p4 and 3 more"), "{many}");
}

#[test]
fn idle_agents_end_the_youngest_first() {
    for (seconds, expected) in [
        (vec![], None),
        (vec![(1, 599)], None),
        (vec![(1, 600)], Some((3, vec!["a1"]))),
        (vec![(0, 600), (2, 700), (1, 1)], Some((2, vec!["a2", "a0"]))),
        // `min` agents stay.
        (
            vec![(0, 900), (1, 900), (2, 900), (3, 900)],
            Some((1, vec!["a3", "a2", "a1"])),
        ),
    ] {
        let expected =
            expected.map(|(count, tasks)| (count, tasks.into_iter().map(str::to_owned).collect::<Vec<_>>()));
        assert_eq!(change(&idle(4, &seconds)), expected, "{seconds:?}");
    }
    assert_eq!(change(&idle(1, &[(0, 9999)])), None);
    let found = verdict(&idle(2, &[(0, 700), (1, 700)])).change.unwrap();
    assert_eq!(found.reason, "agents idle for 600s: 2");
}

#[test]
fn idle_agents_stay_while_pods_wait_or_something_is_not_ready() {
    let mut waits = observed(2, &[(1, None)]);
    waits.usable[0].idle_since = Some(at(0));
    assert!(note(&waits).contains("pods wait for a node: d/p0"));
    // A pod that no agent can hold does not count.
    let mut large = observed(2, &[(1001, Some(9999))]);
    large.usable[0].idle_since = Some(at(0));
    assert_eq!(change(&large), Some((1, vec!["a0".to_owned()])));
    let unsettled = Observed {
        settled: false,
        ..idle(2, &[(0, 9999)])
    };
    assert!(note(&unsettled).contains("every node is ready"));
    let cools_down = Observed {
        changed_at: at(NOW - 1),
        ..idle(2, &[(0, 9999)])
    };
    assert!(note(&cools_down).contains("the cooldown has not passed"));
}

#[test]
fn the_rule_is_applied_again_when_the_first_delay_ends() {
    for (observed, expected) in [
        (observed(1, &[(1, Some(10)), (1, Some(20)), (1, None)]), Some(10)),
        (idle(2, &[(0, 590), (1, 100)]), Some(10)),
        // Nothing can be removed.
        (idle(1, &[(0, 590)]), None),
    ] {
        let expected = expected.map(|seconds| at(NOW + seconds));
        assert_eq!(verdict(&observed).recheck_at, expected, "{observed:?}");
    }
}
