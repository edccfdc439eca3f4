//! Validation errors of a document: paths and messages in upstream's form.
//!
//! A path starts with `/`, an array index is in round brackets (`/constraints(0)`), and `/` is the
//! document itself. Problems with the same path share one entry, in the order in which they were
//! found.

use serde::Serialize;

/// All problems with one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// The path: `/portDefinitions(1)/port`.
    pub(crate) path: String,
    /// The messages, in the order in which they were found; never empty.
    pub(crate) errors: Vec<String>,
}

/// A list of problems; empty for a valid document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    /// Adds a problem with `path`.
    pub(crate) fn add(&mut self, path: impl Into<String>, error: impl Into<String>) {
        let (path, error) = (path.into(), error.into());
        match self.0.iter_mut().find(|problem| problem.path == path) {
            Some(problem) if problem.errors.contains(&error) => {}
            Some(problem) => problem.errors.push(error),
            None => self.0.push(Problem {
                path,
                errors: vec![error],
            }),
        }
    }

    /// Adds all of `other`.
    pub(crate) fn extend(&mut self, other: Self) {
        for problem in other.0 {
            for error in problem.errors {
                self.add(problem.path.clone(), error);
            }
        }
    }

    /// Whether there are no problems.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
impl Problems {
    /// Whether a problem at `path` (any path when empty) contains `text`.
    pub(crate) fn mention(&self, path: &str, text: &str) -> bool {
        self.0
            .iter()
            .filter(|problem| path.is_empty() || problem.path == path)
            .any(|problem| problem.errors.iter().any(|error| error.contains(text)))
    }
}
