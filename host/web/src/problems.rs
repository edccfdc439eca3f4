//! Problems of a document, each with its path, in the form that Marathon's clients read.
//!
//! A path starts with `/`, an array index is in round brackets (`/constraints(0)`), and `/` is the
//! document itself. Problems with the same path share one entry, in the order in which they were
//! found.

use serde::Serialize;

/// All problems with one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The path: `/portDefinitions(1)/port`.
    pub path: String,
    /// The messages, in the order in which they were found; never empty.
    pub errors: Vec<String>,
}

/// A list of problems; empty for a valid document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// One problem with `path`.
    pub fn one(path: impl Into<String>, error: impl Into<String>) -> Self {
        let mut problems = Self::default();
        problems.add(path, error);
        problems
    }

    /// Adds a problem with `path`.
    pub fn add(&mut self, path: impl Into<String>, error: impl Into<String>) {
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
    pub fn extend(&mut self, other: Self) {
        for problem in other.0 {
            for error in problem.errors {
                self.add(problem.path.clone(), error);
            }
        }
    }

    /// The same problems of a document that is the part `path` of another one, `/apps(0)`, or the
    /// whole if it is empty.
    #[must_use]
    pub fn below(mut self, path: &str) -> Self {
        for problem in &mut self.0 {
            problem.path = match problem.path.as_str() {
                "/" if !path.is_empty() => path.to_owned(),
                inner => format!("{path}{inner}"),
            };
        }
        self
    }

    /// The problems in the order of their paths.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.0.sort_by(|a, b| a.path.cmp(&b.path));
        self
    }

    /// Whether there are no problems.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a problem at `path` (any path if empty) contains `text`.
    pub fn contains(&self, path: &str, text: &str) -> bool {
        self.0
            .iter()
            .filter(|problem| path.is_empty() || problem.path == path)
            .any(|problem| problem.errors.iter().any(|error| error.contains(text)))
    }
}

#[cfg(test)]
mod tests {
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
}
