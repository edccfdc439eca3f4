//! Selects the replicas to remove, or counts those to start.

use jiff::Timestamp;

use crate::Condition;

/// Which replicas are removed first when there are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillSelection {
    /// The youngest.
    YoungestFirst,
    /// The oldest.
    OldestFirst,
}

/// The fields of a replica that the selection uses.
#[derive(Clone, Debug)]
pub struct Candidate<I> {
    /// Its id.
    pub id: I,
    /// Its condition.
    pub condition: Condition,
    /// The time since which it is running, staging or in its current condition.
    pub since: Timestamp,
    /// Whether it is healthy. Of running replicas the unhealthy ones are removed first.
    pub healthy: bool,
    /// Whether it was selected to be removed first.
    pub selected: bool,
    /// Whether its configuration is older than the current one. Of equally healthy replicas in the
    /// same condition the old ones are removed first.
    pub old: bool,
}

/// The actions that change the number of replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal<I> {
    /// In the order of removal.
    pub decommission: Vec<I>,
    /// The number to start.
    pub start: u32,
}

/// Scales from `replicas` to `wanted` replicas. The replicas in `to_remove` are removed in any case;
/// unknown ids in it are ignored.
pub fn propose<I: Clone + PartialEq>(
    replicas: &[Candidate<I>],
    to_remove: &[I],
    wanted: u32,
    selection: KillSelection,
) -> Proposal<I> {
    let (removed, mut candidates): (Vec<_>, Vec<_>) = replicas
        .iter()
        .partition(|replica| to_remove.contains(&replica.id));
    candidates.sort_by(|a, b| kill_order(a, b, selection));
    let excess = replicas
        .len()
        .saturating_sub(wanted as usize)
        .saturating_sub(removed.len());
    let decommission: Vec<I> = removed
        .iter()
        .chain(candidates.iter().take(excess))
        .map(|replica| replica.id.clone())
        .collect();
    let remaining = replicas.len() - decommission.len();
    Proposal {
        decommission,
        start: wanted.saturating_sub(remaining as u32),
    }
}

/// All of them, in the order of removal, whether selected or not.
pub(super) fn in_kill_order<I: Clone>(replicas: &[Candidate<I>], selection: KillSelection) -> Vec<I> {
    let mut order: Vec<&Candidate<I>> = replicas.iter().collect();
    order.sort_by(|a, b| by_preference(a, b, selection));
    order.into_iter().map(|replica| replica.id.clone()).collect()
}

/// The order of removal: selected ones first, then as [`by_preference`].
pub fn kill_order<I>(a: &Candidate<I>, b: &Candidate<I>, selection: KillSelection) -> std::cmp::Ordering {
    let by_selection = b.selected.cmp(&a.selected);
    by_selection.then_with(|| by_preference(a, b, selection))
}

/// The order of removal: the smaller weight first, then the unhealthy, then those of an old
/// configuration, then the youngest or the oldest.
fn by_preference<I>(a: &Candidate<I>, b: &Candidate<I>, selection: KillSelection) -> std::cmp::Ordering {
    let by_age = match selection {
        KillSelection::YoungestFirst => b.since.cmp(&a.since),
        KillSelection::OldestFirst => a.since.cmp(&b.since),
    };
    a.condition
        .kill_weight()
        .cmp(&b.condition.kill_weight())
        .then(a.healthy.cmp(&b.healthy))
        .then(b.old.cmp(&a.old))
        .then(by_age)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;
    use serde_json::{Value, json};

    fn condition(name: &Value) -> Condition {
        [
            Condition::Running,
            Condition::Unreachable,
            Condition::Starting,
            Condition::Staging,
        ]
        .into_iter()
        .find(|condition| condition.as_str() == name.as_str().unwrap())
        .unwrap_or_else(|| panic!("{name}"))
    }

    fn selection(input: &Value) -> KillSelection {
        match input["killSelection"].as_str() {
            None | Some("YOUNGEST_FIRST") => KillSelection::YoungestFirst,
            Some("OLDEST_FIRST") => KillSelection::OldestFirst,
            Some(other) => panic!("{other}"),
        }
    }

    fn since(text: Option<&Value>) -> Timestamp {
        let base: Timestamp = "2018-01-01T02:00:00.000Z".parse().unwrap();
        let ago = i64::from(text == Some(&json!("now-1h")));
        base - SignedDuration::from_hours(ago)
    }

    #[test]
    fn selection_matches_upstream_in_the_recorded_cases() {
        let suite: Value = serde_json::from_str(include_str!("../../tests/fixtures/scaling.json")).unwrap();
        for case in suite["cases"].as_array().unwrap() {
            let input = &case["input"];
            if case["kind"] == "kill-order" {
                let candidate = |side: &Value| Candidate {
                    id: 0,
                    condition: condition(&side["condition"]),
                    since: since(side.get("since")),
                    healthy: true,
                    selected: false,
                    old: false,
                };
                let order = kill_order(&candidate(&input["a"]), &candidate(&input["b"]), selection(input));
                assert_eq!(
                    order.is_lt(),
                    case["expect"]["a_killed_first"].as_bool().unwrap(),
                    "{}",
                    case["id"]
                );
                continue;
            }
            assert_eq!(input["kill_to_meet_constraints"], json!([]), "{}", case["id"]);
            let instances: Vec<Candidate<u64>> = input["instances"]
                .as_array()
                .unwrap()
                .iter()
                .map(|instance| Candidate {
                    id: instance["id"].as_u64().unwrap(),
                    condition: condition(&instance["condition"]),
                    since: since(None) + SignedDuration::from_millis(instance["started"].as_i64().unwrap()),
                    healthy: true,
                    selected: false,
                    old: false,
                })
                .collect();
            let sentenced: Vec<u64> = serde_json::from_value(input["sentenced"].clone()).unwrap();
            let wanted = u32::try_from(input["scaleTo"].as_i64().unwrap()).unwrap_or(0);
            let found = propose(&instances, &sentenced, wanted, selection(input));
            assert_eq!(
                json!(found.decommission),
                case["expect"]["toDecommission"],
                "{}",
                case["id"]
            );
            assert_eq!(json!(found.start), case["expect"]["toStart"], "{}", case["id"]);
        }
    }

    #[test]
    fn unhealthy_replicas_are_removed_before_younger_healthy_ones() {
        let candidate = |id: i64, healthy| Candidate {
            id,
            condition: Condition::Running,
            since: since(None) + SignedDuration::from_secs(id),
            healthy,
            selected: false,
            old: false,
        };
        let instances = [candidate(1, false), candidate(2, true), candidate(3, true)];
        let found = propose(&instances, &[], 1, KillSelection::YoungestFirst);
        assert_eq!(found.decommission, [1, 3]);
    }

    #[test]
    fn selected_replicas_are_removed_before_others_and_do_not_change_the_number() {
        let candidate = |id: i64, selected| Candidate {
            id,
            condition: Condition::Running,
            since: since(None) + SignedDuration::from_secs(id),
            healthy: true,
            selected,
            old: false,
        };
        let instances = [
            candidate(1, true),
            candidate(2, false),
            candidate(3, true),
            candidate(4, false),
        ];
        for (wanted, killed) in [(3, vec![3]), (2, vec![3, 1]), (1, vec![3, 1, 4])] {
            let found = propose(&instances, &[], wanted, KillSelection::YoungestFirst);
            assert_eq!((found.decommission, found.start), (killed, 0), "{wanted}");
        }
        let order = in_kill_order(&instances, KillSelection::YoungestFirst);
        assert_eq!(order, [4, 3, 2, 1]);
    }

    #[test]
    fn old_replicas_are_removed_before_younger_ones_and_after_unhealthy_ones() {
        let candidate = |id: i64, healthy, old| Candidate {
            id,
            condition: Condition::Running,
            since: since(None) + SignedDuration::from_secs(id),
            healthy,
            selected: false,
            old,
        };
        let instances = [
            candidate(1, true, true),
            candidate(2, false, false),
            candidate(3, true, false),
        ];
        for (wanted, killed) in [(2, vec![2]), (1, vec![2, 1])] {
            let found = propose(&instances, &[], wanted, KillSelection::YoungestFirst);
            assert_eq!(found.decommission, killed, "{wanted}");
        }
    }

    #[test]
    fn unreachable_replicas_are_removed_before_those_that_are_launched() {
        let candidate = |id, condition| Candidate {
            id,
            condition,
            since: since(None) + SignedDuration::from_secs(id),
            healthy: true,
            selected: false,
            old: false,
        };
        for launching in Condition::LAUNCHING {
            let instances = [candidate(1, Condition::Unreachable), candidate(2, launching)];
            let found = propose(&instances, &[], 1, KillSelection::YoungestFirst);
            assert_eq!(found.decommission, [1], "{launching:?}");
        }
    }

    #[test]
    fn unlaunched_replicas_are_removed_first() {
        let candidate = |id, condition| Candidate {
            id,
            condition,
            since: since(None),
            healthy: true,
            selected: false,
            old: false,
        };
        let instances = [
            candidate(1, Condition::Running),
            candidate(2, Condition::Scheduled),
            candidate(3, Condition::Staging),
        ];
        let found = propose(&instances, &[], 1, KillSelection::OldestFirst);
        assert_eq!(
            found,
            Proposal {
                decommission: vec![2, 3],
                start: 0
            }
        );
    }
}
