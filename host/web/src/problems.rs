//! Problems of a document, each with its path, in the form that Marathon's clients read.
//!
//! A path starts with `/`, an array index is in round brackets (`/constraints(0)`), and `/` is the
//! document itself. Problems with the same path share one entry, in the order in which they were
//! found.
//!
//! Cost and size are bounded, because a client chooses how many problems its document has: adding
//! one costs the same however many there are, at most [`MAX_PROBLEMS`] are kept, and the others are
//! only counted. The written list ends with their number: `and 11,900 more problems`, at `/`.

use std::collections::HashMap;

use serde::{Serialize, Serializer};

use crate::text::shortened;

/// The maximum number of problems that are kept.
pub const MAX_PROBLEMS: usize = 100;
/// The maximum bytes of one message.
const MAX_ERROR_BYTES: usize = 1024;
/// The maximum bytes of one path, which may contain names from the document.
const MAX_PATH_BYTES: usize = 512;
/// The maximum bytes of all kept paths and messages. The first problem is always kept.
const MAX_BYTES: usize = 32 << 10;

/// All problems with one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The path: `/portDefinitions(1)/port`.
    pub path: String,
    /// The messages, in the order in which they were found; never empty.
    pub errors: Vec<String>,
}

/// A list of problems; empty for a valid document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    kept: Vec<Problem>,
    /// The position in `kept` of each path.
    positions: HashMap<String, usize>,
    /// The number of kept messages, and the bytes of kept paths and messages.
    count: usize,
    bytes: usize,
    /// The number of problems beyond the limits. A problem that is found again counts again.
    more: usize,
}

impl Problems {
    /// One problem with `path`.
    pub fn one(path: impl Into<String>, error: impl Into<String>) -> Self {
        let mut problems = Self::default();
        problems.add(path, error);
        problems
    }

    /// Adds a problem with `path`.
    pub fn add(&mut self, path: impl Into<String>, error: impl Into<String>) {
        let path = shortened(path.into(), MAX_PATH_BYTES);
        let position = self.positions.get(&path).copied();
        if self.is_full() && position.is_none() {
            self.more = self.more.saturating_add(1);
            return;
        }
        let error = shortened(error.into(), MAX_ERROR_BYTES);
        let present = position.and_then(|at| self.kept.get_mut(at));
        // The messages of one path are as few as the problems that are kept.
        if present
            .as_ref()
            .is_some_and(|problem| problem.errors.contains(&error))
        {
            return;
        }
        let added = error.len() + if present.is_some() { 0 } else { path.len() };
        if self.count >= MAX_PROBLEMS || self.count > 0 && self.bytes + added > MAX_BYTES {
            // From here on only counted, so that the list has no gaps.
            self.count = MAX_PROBLEMS;
            self.more = self.more.saturating_add(1);
            return;
        }
        (self.count, self.bytes) = (self.count + 1, self.bytes + added);
        if let Some(problem) = present {
            problem.errors.push(error);
        } else {
            self.positions.insert(path.clone(), self.kept.len());
            self.kept.push(Problem {
                path,
                errors: vec![error],
            });
        }
    }

    /// Adds all of `other`.
    pub fn extend(&mut self, other: Self) {
        for problem in other.kept {
            for error in problem.errors {
                self.add(problem.path.clone(), error);
            }
        }
        self.more = self.more.saturating_add(other.more);
    }

    /// Whether further problems are only counted, so that their texts need not be composed.
    pub fn is_full(&self) -> bool {
        self.count >= MAX_PROBLEMS
    }

    /// The same problems of a document that is the part `path` of another one, `/apps(0)`, or the
    /// whole if it is empty.
    #[must_use]
    pub fn below(self, path: &str) -> Self {
        let mut problems = Self::default();
        for problem in self.kept {
            let path = match problem.path.as_str() {
                "/" if !path.is_empty() => path.to_owned(),
                inner => format!("{path}{inner}"),
            };
            for error in problem.errors {
                problems.add(path.clone(), error);
            }
        }
        problems.more = problems.more.saturating_add(self.more);
        problems
    }

    /// The problems in the order of their paths.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.kept.sort_by(|a, b| a.path.cmp(&b.path));
        let paths = self.kept.iter().map(|problem| problem.path.clone());
        self.positions = paths.zip(0..).collect();
        self
    }

    /// Whether there are no problems.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether a problem at `path` (any path if empty) contains `text`.
    pub fn contains(&self, path: &str, text: &str) -> bool {
        self.kept
            .iter()
            .filter(|problem| path.is_empty() || problem.path == path)
            .any(|problem| problem.errors.iter().any(|error| error.contains(text)))
    }
}

impl Serialize for Problems {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let more = (self.more > 0).then(|| Problem {
            path: "/".to_owned(),
            errors: vec![match self.more {
                1 => "and 1 more problem".to_owned(),
                more => format!("and {} more problems", grouped(more)),
            }],
        });
        serializer.collect_seq(self.kept.iter().chain(&more))
    }
}

/// A number with commas between groups of three digits.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use serde_json::json;

    use super::*;

    #[test]
    fn problems_with_one_path_share_an_entry_in_the_order_found() {
        let mut problems = Problems::one("/b", "first");
        problems.add("/a", "other");
        let mut more = Problems::one("/b", "second");
        more.add("/b", "first");
        problems.extend(more);
        let expected = json!([
            {"path": "/b", "errors": ["first", "second"]},
            {"path": "/a", "errors": ["other"]},
        ]);
        assert_eq!(json!(problems), expected);
        assert_eq!(json!(problems.clone().sorted())[0], expected[1]);
        assert!(problems.contains("", "oth") && problems.contains("/b", "second"));
        assert!(!problems.contains("/a", "second"));
    }

    /// The bytes of the written list.
    fn written(problems: &Problems) -> usize {
        serde_json::to_vec(problems).unwrap().len()
    }

    #[test]
    fn problems_beyond_the_limit_are_only_counted() {
        let mut problems = Problems::default();
        for index in 0..12_000 {
            problems.add(format!("/volumes({index})"), "error.expected.jsobject");
        }
        // Known problems are not counted again.
        problems.add("/volumes(0)", "error.expected.jsobject");
        for problems in [
            problems.clone(),
            problems.clone().sorted(),
            problems.clone().below(""),
        ] {
            let shown = json!(problems);
            assert_eq!(shown.as_array().unwrap().len(), MAX_PROBLEMS + 1);
            assert_eq!(
                shown[MAX_PROBLEMS],
                json!({"path": "/", "errors": ["and 11,900 more problems"]})
            );
        }
        let mut all = Problems::one("/id", "error.pattern");
        all.extend(problems.below("/apps(0)"));
        let shown = json!(all);
        assert_eq!(shown[1]["path"], "/apps(0)/volumes(0)");
        assert_eq!(shown[MAX_PROBLEMS]["errors"], json!(["and 11,901 more problems"]));
        let mut one_path = Problems::default();
        for index in 0..=MAX_PROBLEMS {
            one_path.add("/", format!("{index}"));
        }
        let shown = json!(one_path);
        assert_eq!(shown[0]["errors"].as_array().unwrap().len(), MAX_PROBLEMS);
        assert_eq!(shown[1]["errors"], json!(["and 1 more problem"]));
    }

    #[test]
    fn long_paths_and_messages_are_cut_between_characters() {
        let long = "é".repeat(100_000);
        let mut problems = Problems::one(format!("/env/{long}"), format!("got {long}"));
        let shown = json!(problems);
        let path = shown[0]["path"].as_str().unwrap();
        let error = shown[0]["errors"][0].as_str().unwrap();
        assert!(path.starts_with("/env/é") && path.ends_with("é…") && path.len() <= MAX_PATH_BYTES);
        assert!(error.starts_with("got é") && error.ends_with("é…") && error.len() <= MAX_ERROR_BYTES);
        for index in 0..1_000 {
            problems.add(format!("/{index}/{long}"), &*long);
        }
        assert!(written(&problems) < MAX_BYTES + 4096, "{}", written(&problems));
    }

    #[test]
    fn numbers_have_commas() {
        for (number, expected) in [(2, "2"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), expected);
        }
    }
}
