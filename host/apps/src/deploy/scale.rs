//! Scaling: selects the instances to remove, or counts those to start.

use crate::condition::Condition;
use crate::model::KillSelection;
use crate::time::Moment;

/// The fields of an instance that the selection uses.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<I> {
    pub(crate) id: I,
    pub(crate) condition: Condition,
    /// The time since which it is running, staging or in its current condition.
    pub(crate) since: Moment,
}

/// The actions that change the number of instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proposal<I> {
    /// In the order of removal.
    pub(crate) decommission: Vec<I>,
    pub(crate) start: u32,
}

/// Scales from `instances` to `wanted` instances. `sentenced` ones are removed first; unknown ids
/// among them are ignored.
pub(crate) fn propose<I: Clone + PartialEq>(
    instances: &[Candidate<I>],
    sentenced: &[I],
    wanted: u32,
    selection: KillSelection,
) -> Proposal<I> {
    let (doomed, mut rest): (Vec<_>, Vec<_>) = instances
        .iter()
        .partition(|instance| sentenced.contains(&instance.id));
    rest.sort_by(|a, b| kill_order(a, b, selection));
    let excess = instances
        .len()
        .saturating_sub(wanted as usize)
        .saturating_sub(doomed.len());
    let decommission: Vec<I> = doomed
        .iter()
        .chain(rest.iter().take(excess))
        .map(|instance| instance.id.clone())
        .collect();
    let left = instances.len() - decommission.len();
    Proposal {
        decommission,
        start: wanted.saturating_sub(left as u32),
    }
}

/// The order of removal: the smaller weight first, then the youngest or the oldest.
pub(crate) fn kill_order<I>(
    a: &Candidate<I>,
    b: &Candidate<I>,
    selection: KillSelection,
) -> std::cmp::Ordering {
    let by_age = match selection {
        KillSelection::YoungestFirst => b.since.cmp(&a.since),
        KillSelection::OldestFirst => a.since.cmp(&b.since),
    };
    a.condition
        .kill_weight()
        .cmp(&b.condition.kill_weight())
        .then(by_age)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]
    use super::*;
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
        serde_json::from_value(
            input
                .get("killSelection")
                .cloned()
                .unwrap_or(json!("YOUNGEST_FIRST")),
        )
        .unwrap()
    }

    fn since(text: Option<&Value>) -> Moment {
        let base: Moment = "2018-01-01T02:00:00.000Z".parse().unwrap();
        base.plus_millis(if text == Some(&json!("now-1h")) {
            -3_600_000
        } else {
            0
        })
    }

    #[test]
    fn fixtures() {
        let suite: Value = serde_json::from_str(include_str!("../../tests/fixtures/scaling.json")).unwrap();
        for case in suite["cases"].as_array().unwrap() {
            let input = &case["input"];
            if case["kind"] == "kill-order" {
                let candidate = |side: &Value| Candidate {
                    id: 0,
                    condition: condition(&side["condition"]),
                    since: since(side.get("since")),
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
            assert_eq!(
                input["kill_to_meet_constraints"],
                json!([]),
                "{}: balancing by constraints is not covered yet",
                case["id"]
            );
            let instances: Vec<Candidate<u64>> = input["instances"]
                .as_array()
                .unwrap()
                .iter()
                .map(|instance| Candidate {
                    id: instance["id"].as_u64().unwrap(),
                    condition: condition(&instance["condition"]),
                    since: since(None).plus_millis(instance["started"].as_i64().unwrap()),
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
    fn what_is_not_launched_yet_goes_first() {
        let candidate = |id, condition| Candidate {
            id,
            condition,
            since: since(None),
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
