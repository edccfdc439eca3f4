//! The result of a replay.

use serde::Serialize;

/// How the answers of a version differ from the recorded ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReplayReport {
    /// Calls whose answers were compared: `same`, `different` and `failed` together.
    pub compared: u64,
    /// Equal answers.
    pub same: u64,
    /// Different answers.
    pub different: u64,
    /// Calls that ended in a fault of this version.
    pub failed: u64,
    /// Calls whose record is a fault and that are answered now. Not compared.
    pub recovered: u64,
    /// Calls whose record is a fault and that end in a fault again. Not compared.
    pub still_failing: u64,
    /// Calls that were not replayed.
    pub skipped: Skipped,
    /// The differences by their kinds, the most frequent first.
    pub differences: Vec<DifferenceGroup>,
    /// Median duration of a call in microseconds.
    pub p50_micros: Sides<Option<u64>>,
    /// 99th percentile of the same. The recorded durations include the wait for an instance.
    pub p99_micros: Sides<Option<u64>>,
    /// Processor time of this version: microseconds for each call.
    pub cpu_micros_per_call: f64,
    /// Peak linear memory of the largest instance in bytes.
    pub memory: Sides<u64>,
}

/// A measurement of the recorded calls and of this version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sides<T> {
    /// The value of the recorded calls.
    pub recorded: T,
    /// The value of this version.
    pub candidate: T,
}

/// Calls that were not replayed, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Calls with masked secrets.
    pub masked: u64,
    /// Calls of another world.
    pub other_world: u64,
    /// Calls of another version of the world's interface.
    pub other_interface: u64,
    /// Records that are not valid calls of their world.
    pub invalid: u64,
    /// Why the first of these is invalid.
    pub invalid_reason: Option<String>,
    /// Calls left over at the deadline.
    pub late: u64,
    /// Calls left over after too many faults.
    pub given_up: u64,
}

/// Differences of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DifferenceGroup {
    /// The kind, such as `evaluate: fits -> rejected`.
    pub kind: String,
    /// Calls with a difference of this kind. A call counts for its first difference only.
    pub calls: u64,
    /// Some of these calls.
    pub examples: Vec<DifferenceExample>,
}

/// A call with a different answer. Each text is one line of bounded length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DifferenceExample {
    /// When it was recorded: milliseconds since 1970.
    pub at: u64,
    /// The version that was recorded.
    pub version: String,
    /// The call in a few words.
    pub question: String,
    /// The recorded answer, reduced to its first difference.
    pub recorded: String,
    /// The answer of this version, reduced likewise.
    pub candidate: String,
}

/// Maximum number of examples of one kind.
const MAX_EXAMPLES: usize = 3;
/// Maximum number of distinct kinds.
const MAX_KINDS: usize = 32;
/// The kind that collects all further differences.
const OTHER_KINDS: &str = "others";

impl ReplayReport {
    /// Percentage of the compared calls whose answer differs or that failed.
    pub fn percent(&self) -> f64 {
        if self.compared == 0 {
            return 0.0;
        }
        (self.different + self.failed) as f64 * 100.0 / self.compared as f64
    }

    pub(super) fn add(&mut self, kind: String, example: DifferenceExample) {
        let index = self.differences.iter().position(|it| it.kind == kind);
        let index = index.or_else(|| {
            let is_full = self.differences.len() >= MAX_KINDS;
            is_full.then(|| self.differences.iter().position(|it| it.kind == OTHER_KINDS))?
        });
        let group_index = index.unwrap_or_else(|| {
            let kind = if self.differences.len() >= MAX_KINDS {
                OTHER_KINDS.to_owned()
            } else {
                kind
            };
            self.differences.push(DifferenceGroup {
                kind,
                calls: 0,
                examples: Vec::new(),
            });
            self.differences.len() - 1
        });
        let group = &mut self.differences[group_index];
        group.calls += 1;
        if group.examples.len() < MAX_EXAMPLES {
            group.examples.push(example);
        }
    }

    /// Sorts the kinds, the most frequent one first.
    pub(super) fn sort(&mut self) {
        self.differences
            .sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.kind.cmp(&b.kind)));
    }
}

impl Skipped {
    /// The sum over all reasons.
    pub fn total(&self) -> u64 {
        self.masked + self.other_world + self.other_interface + self.invalid + self.late + self.given_up
    }
}

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reasons = [
            (self.masked, "have masked secrets"),
            (self.other_world, "are of another world"),
            (self.other_interface, "are of another version of the interface"),
            (self.invalid, "cannot be read"),
            (self.late, "were not asked in time"),
            (self.given_up, "were not asked after too many faults"),
        ];
        let reasons = reasons.iter().filter(|(calls, _)| *calls > 0);
        let reasons: Vec<String> = reasons
            .map(|(calls, reason)| format!("{calls} {reason}"))
            .collect();
        f.write_str(&reasons.join(", "))?;
        match &self.invalid_reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(at: u64) -> DifferenceExample {
        DifferenceExample {
            at,
            version: "1".to_owned(),
            question: String::new(),
            recorded: String::new(),
            candidate: String::new(),
        }
    }

    #[test]
    fn kinds_and_examples_are_bounded_and_all_calls_are_counted() {
        let mut report = ReplayReport::default();
        for at in 0..100 {
            report.add(format!("kind {at}"), example(at));
            report.add("kind 0".to_owned(), example(at));
        }
        report.sort();
        assert_eq!(report.differences.len(), MAX_KINDS + 1);
        let [first, second, ..] = report.differences.as_slice() else {
            panic!("{report:?}");
        };
        assert_eq!(
            (first.kind.as_str(), first.calls, first.examples.len()),
            ("kind 0", 101, MAX_EXAMPLES)
        );
        assert_eq!((second.kind.as_str(), second.calls), (OTHER_KINDS, 68));
    }
}
