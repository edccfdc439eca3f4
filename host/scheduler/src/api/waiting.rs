//! Pending tasks by run spec, for operators: how many are pending, since when, and why.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::PendingSnapshot;

/// The pending tasks of one run spec.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Waiting {
    /// [`RunSpec::id`](crate::RunSpec::id).
    pub run_spec: String,
    /// How many tasks are pending.
    pub tasks: u64,
    /// When the first of them was submitted.
    pub since: Timestamp,
    /// How often each reason occurred in the last round; see [`Reasons::last`](crate::Reasons::last).
    pub reasons: BTreeMap<&'static str, u32>,
    /// Offers matched in the last round.
    pub offers: u32,
    /// Details of the last round.
    pub message: Option<String>,
    /// [`Reasons::sentence`](crate::Reasons::sentence).
    pub why: String,
    /// [`Reasons::advice`](crate::Reasons::advice).
    pub advice: Vec<&'static str>,
}

/// The run specs with pending tasks, at most `limit` of them and the longest pending first, and the
/// number of all such run specs.
pub fn waiting(pending: &PendingSnapshot, limit: usize) -> (Vec<Waiting>, u64) {
    let mut oldest: Vec<_> = pending.specs().map(|spec| (spec.since(), spec)).collect();
    let all = oldest.len() as u64;
    oldest.sort_by_key(|(since, _)| *since);
    oldest.truncate(limit);
    let waiting = oldest.into_iter().map(|(since, spec)| {
        let reasons = spec.reasons();
        let counts = reasons.last.iter();
        Waiting {
            run_spec: spec.run_spec.to_owned(),
            tasks: spec.tasks() as u64,
            since,
            reasons: counts.map(|(reason, count)| (reason.as_str(), *count)).collect(),
            offers: reasons.last_offers,
            message: reasons.message.clone(),
            why: reasons.sentence(),
            advice: reasons.advice(),
        }
    });
    (waiting.collect(), all)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::{spec, task_request};
    use crate::{Reason, Reasons};

    #[test]
    fn run_specs_are_listed_by_age_with_their_reasons() {
        let reasons = Arc::new(Reasons {
            last: [(Reason::UnfulfilledRole, 1), (Reason::InsufficientCpus, 2)].into(),
            last_offers: 3,
            message: Some("m".to_owned()),
            ..Reasons::default()
        });
        let old = Arc::new(spec("/old"));
        let requests = [
            (task_request("c", &old), 10),
            (task_request("d", &Arc::new(spec("/mid"))), 15),
            (task_request("b", &old), 20),
            (task_request("a", &Arc::new(spec("/new"))), 30),
        ];
        let pending = PendingSnapshot::of(
            requests.map(|(request, second)| (request, Timestamp::from_second(second).unwrap())),
            &reasons,
        );
        let (listed, all) = waiting(&pending, 2);
        let found: Vec<_> = listed
            .iter()
            .map(|one| (one.run_spec.as_str(), one.tasks, one.since.as_second()))
            .collect();
        assert_eq!(found, [("/old", 2, 10), ("/mid", 1, 15)]);
        assert_eq!(all, 3);
        let counts = [("InsufficientCpus", 2), ("UnfulfilledRole", 1)];
        assert_eq!(listed[0].reasons, counts.into());
        assert_eq!(
            listed[0].why,
            "2 of 3 offers have too few CPUs; 1 of 3 offers have no resources of an accepted role; m"
        );
        assert_eq!(
            listed[0].advice,
            [Reason::InsufficientCpus, Reason::UnfulfilledRole].map(|reason| reason.words().advice)
        );
        assert_eq!(Reasons::default().sentence(), Reasons::NOT_MATCHED);
        assert_eq!(listed[0].offers, 3);
        assert_eq!(waiting(&PendingSnapshot::default(), 2), (Vec::new(), 0));
    }
}
