//! Pending tasks by run spec, for operators: how many are pending, since when, and why.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::pending::PendingTask;

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
}

/// The run specs with pending tasks, at most `limit` of them and the longest pending first, and the
/// number of all such run specs.
pub fn waiting(pending: &[PendingTask], limit: usize) -> (Vec<Waiting>, u64) {
    let mut by_spec: BTreeMap<&str, (u64, &PendingTask)> = BTreeMap::new();
    for task in pending {
        let entry = by_spec.entry(&task.run_spec).or_insert((0, task));
        entry.0 += 1;
        if task.since < entry.1.since {
            entry.1 = task;
        }
    }
    let all = by_spec.len() as u64;
    let mut oldest: Vec<_> = by_spec.into_values().collect();
    oldest.sort_by_key(|(_, first)| first.since);
    oldest.truncate(limit);
    let waiting = oldest.into_iter().map(|(tasks, first)| {
        let counts = first.reasons.last.iter();
        Waiting {
            run_spec: first.run_spec.clone(),
            tasks,
            since: first.since,
            reasons: counts.map(|(reason, count)| (reason.as_str(), *count)).collect(),
            offers: first.reasons.last_offers,
            message: first.reasons.message.clone(),
        }
    });
    (waiting.collect(), all)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use transom_cluster::TaskId;

    use super::*;
    use crate::{Reason, Reasons};

    #[test]
    fn run_specs_are_listed_by_age_with_their_reasons() {
        let pending = |task: &str, run_spec: &str, second: i64| PendingTask {
            task: TaskId::from(task),
            run_spec: run_spec.to_owned(),
            version: "1".to_owned(),
            since: Timestamp::from_second(second).unwrap(),
            not_before: None,
            reasons: Arc::new(Reasons {
                last: [(Reason::InsufficientCpus, 2)].into(),
                last_offers: 3,
                ..Reasons::default()
            }),
        };
        let tasks = [
            pending("a", "/new", 30),
            pending("b", "/old", 20),
            pending("c", "/old", 10),
            pending("d", "/mid", 15),
        ];
        let (listed, all) = waiting(&tasks, 2);
        let found: Vec<_> = listed
            .iter()
            .map(|one| (one.run_spec.as_str(), one.tasks, one.since.as_second()))
            .collect();
        assert_eq!(found, [("/old", 2, 10), ("/mid", 1, 15)]);
        assert_eq!(all, 3);
        assert_eq!(listed[0].reasons, [("InsufficientCpus", 2)].into());
        assert_eq!(listed[0].offers, 3);
        assert_eq!(waiting(&[], 2), (Vec::new(), 0));
    }
}
