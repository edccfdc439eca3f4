//! The possible states of each app, from the answers to the writes.
//!
//! A write with a 2xx answer was applied, a rejected one was not, and the outcome of one without an
//! answer (the daemon was killed, the store was unavailable) is unknown. So an app usually has one
//! possible state, and two or more after writes without an answer. This module makes no requests.

use std::collections::{BTreeMap, BTreeSet};

use crate::spec::{Op, Slot, Spec};

/// The outcome of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// 2xx.
    Acknowledged,
    /// 4xx: nothing has changed.
    Rejected,
    /// No response, or one that leaves the outcome open.
    Unanswered,
}

/// `None` means that the app does not exist.
type State = Option<Spec>;

/// The possible states of each app.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model(BTreeMap<Slot, BTreeSet<State>>);

impl Model {
    /// Applies a write and its outcome. An error means that the outcome contradicts earlier
    /// answers.
    pub(crate) fn apply_write(&mut self, slot: Slot, op: &Op, outcome: Outcome) -> Result<(), String> {
        let before = self.possible_states(slot);
        let after: BTreeSet<State> = before.iter().filter_map(|state| state_after(state, op)).collect();
        let next = match outcome {
            Outcome::Rejected => return Ok(()),
            Outcome::Unanswered => before.union(&after).cloned().collect(),
            Outcome::Acknowledged if after.is_empty() => {
                return Err(format!(
                    "{slot}: `{op}` was acknowledged, though it is {}",
                    describe_states(&before)
                ));
            }
            Outcome::Acknowledged => after,
        };
        self.0.insert(slot, next);
        Ok(())
    }

    /// Applies the observed state of an app. An error means that earlier answers exclude it.
    pub(crate) fn apply_observed(&mut self, slot: Slot, state: &State) -> Result<(), String> {
        let possible_states = self.possible_states(slot);
        if !possible_states.contains(state) {
            let seen = BTreeSet::from([state.clone()]);
            return Err(format!(
                "{slot} is {}, acknowledged was {}",
                describe_states(&seen),
                describe_states(&possible_states)
            ));
        }
        self.0.insert(slot, BTreeSet::from([state.clone()]));
        Ok(())
    }

    /// All apps that were ever written to.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.0.keys().copied()
    }

    /// Whether this is the only possible state of the app.
    pub(crate) fn is_certainly(&self, slot: Slot, state: Option<&Spec>) -> bool {
        let possible_states = self.possible_states(slot);
        possible_states.len() == 1 && possible_states.first().is_some_and(|only| only.as_ref() == state)
    }

    fn possible_states(&self, slot: Slot) -> BTreeSet<State> {
        self.0
            .get(&slot)
            .cloned()
            .unwrap_or_else(|| BTreeSet::from([None]))
    }
}

/// The state after the write; `None` where it would be rejected.
fn state_after(state: &State, op: &Op) -> Option<State> {
    match (state, op) {
        (None, Op::Create(spec)) | (_, Op::Change(spec)) => Some(Some(spec.clone())),
        (Some(spec), Op::Scale(instances)) => Some(Some(Spec {
            instances: *instances,
            ..spec.clone()
        })),
        (Some(_), Op::Delete) => Some(None),
        (Some(_), Op::Create(_)) | (None, Op::Scale(_) | Op::Delete) => None,
    }
}

fn describe_states(states: &BTreeSet<State>) -> String {
    let descriptions: Vec<String> = states
        .iter()
        .map(|state| {
            state
                .as_ref()
                .map_or_else(|| "absent".to_owned(), |spec| format!("[{spec}]"))
        })
        .collect();
    descriptions.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes with their outcomes, and the states that are possible afterwards.
    type Case = (Vec<(Op, Outcome)>, Vec<State>);

    fn spec(revision: u32, instances: u32) -> Spec {
        Spec {
            instances,
            revision,
            ports: 0,
            surge: false,
        }
    }

    #[test]
    fn model_is_narrowed_by_responses_and_widened_by_timeouts() {
        use Outcome::{Acknowledged, Rejected, Unanswered};
        let create = || Op::Create(spec(1, 2));
        let change = || Op::Change(spec(2, 3));
        let table: [Case; 8] = [
            (vec![], vec![None]),
            (vec![(create(), Acknowledged)], vec![Some(spec(1, 2))]),
            (vec![(create(), Rejected)], vec![None]),
            (vec![(create(), Unanswered)], vec![None, Some(spec(1, 2))]),
            (
                vec![(create(), Unanswered), (Op::Scale(5), Acknowledged)],
                vec![Some(spec(1, 5))],
            ),
            (
                vec![
                    (create(), Acknowledged),
                    (change(), Unanswered),
                    (Op::Scale(5), Acknowledged),
                ],
                vec![Some(spec(1, 5)), Some(spec(2, 5))],
            ),
            (
                vec![(create(), Acknowledged), (Op::Delete, Unanswered)],
                vec![None, Some(spec(1, 2))],
            ),
            (
                vec![
                    (create(), Acknowledged),
                    (Op::Delete, Acknowledged),
                    (change(), Unanswered),
                    (change(), Acknowledged),
                ],
                vec![Some(spec(2, 3))],
            ),
        ];
        for (writes, expected) in table {
            let mut model = Model::default();
            for (op, outcome) in &writes {
                model.apply_write(Slot(1), op, *outcome).unwrap();
            }
            assert_eq!(
                model.possible_states(Slot(1)),
                expected.into_iter().collect(),
                "{writes:?}"
            );
        }
    }

    #[test]
    fn model_reports_states_that_earlier_responses_exclude() {
        let mut model = Model::default();
        model
            .apply_write(Slot(1), &Op::Create(spec(1, 2)), Outcome::Acknowledged)
            .unwrap();
        assert!(
            model
                .apply_write(Slot(1), &Op::Create(spec(2, 2)), Outcome::Acknowledged)
                .is_err()
        );
        assert!(model.apply_observed(Slot(1), &None).is_err());
        assert!(model.apply_observed(Slot(1), &Some(spec(1, 3))).is_err());
        model.apply_observed(Slot(1), &Some(spec(1, 2))).unwrap();
        assert!(
            model.apply_observed(Slot(2), &Some(spec(1, 2))).is_err(),
            "never written"
        );
        assert!(model.is_certainly(Slot(1), Some(&spec(1, 2))) && model.is_certainly(Slot(2), None));
    }
}
