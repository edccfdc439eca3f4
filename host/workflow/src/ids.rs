//! The id of a job, and the Mesos task id of a run of it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use transom_cluster::TaskId;

/// Maximum length of a job id.
pub(crate) const MAX_BYTES: usize = 512;
/// Maximum bytes of the job id in a task id. Mesos accepts 255 bytes; the rest is for the number of
/// the run.
const MAX_TASK_ID_PREFIX: usize = 200;

/// A client's id of a job. It is a segment of paths, so it has nothing that `transom_web::check_target`
/// rejects. Several runs may share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct JobId(Arc<str>);

impl JobId {
    /// # Errors
    /// The problem.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            Err("is empty; expected the job's id".to_owned())
        } else if text.len() > MAX_BYTES {
            Err(format!("has {} bytes; expected at most {MAX_BYTES}", text.len()))
        } else if text.chars().any(char::is_control) {
            Err("has control characters; expected printable ones".to_owned())
        } else if text.contains(['/', '\\']) || matches!(text, "." | "..") {
            let shown = text.escape_debug();
            Err(format!(
                "is \"{shown}\"; expected an id without / and \\, neither . nor .., because it is a segment of paths"
            ))
        } else {
            Ok(Self(text.into()))
        }
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The Mesos task id of a run: the job id if it is valid and not taken, otherwise the job id
    /// with the number of the run.
    pub(crate) fn task(&self, run: ChangeSeq, is_taken: impl Fn(&TaskId) -> bool) -> TaskId {
        let plain: String = self
            .0
            .chars()
            .map(|char| match char {
                ' ' | '/' | '\\' => '_',
                char if char.is_ascii() => char,
                _ => '_',
            })
            .take(MAX_TASK_ID_PREFIX)
            .collect();
        let plain_id = TaskId::from(plain.as_str());
        let is_unchanged = plain == *self.0 && plain != "." && plain != "..";
        if is_unchanged && !is_taken(&plain_id) {
            return plain_id;
        }
        TaskId::from(format!("{plain}.{run}"))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The sequence number of a run or a change: greater than all earlier ones, including those before
/// a restart.
///
/// The high bits are the number of the leader's term, so no sequence number has to be stored before
/// it is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct ChangeSeq(pub(crate) u64);

/// Bits of a [`ChangeSeq`] that count within a term. Numbers stay exact as 64-bit floats for two
/// million terms.
const COUNTER_BITS: u32 = 32;

impl ChangeSeq {
    /// The number before the first one of a term.
    pub(crate) fn before(term: u64) -> Self {
        Self(term << COUNTER_BITS)
    }

    /// The next number.
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for ChangeSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}-{}",
            self.0 >> COUNTER_BITS,
            self.0 & ((1 << COUNTER_BITS) - 1)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_id_is_the_job_id_when_it_is_valid_and_free() {
        let run = ChangeSeq::before(3).next();
        let is_taken = |task: &TaskId| task.as_str() == "airflow.d1.taken";
        for (id, expected) in [
            ("airflow.d1.t1", "airflow.d1.t1"),
            (
                "airflow.d1.t1:2026-11-20T00:00:00+00:00",
                "airflow.d1.t1:2026-11-20T00:00:00+00:00",
            ),
            ("airflow.d1.taken", "airflow.d1.taken.3-1"),
            ("a b c", "a_b_c.3-1"),
            ("größe", "gr__e.3-1"),
            // Earlier versions accepted and stored these.
            ("a/b", "a_b.3-1"),
            ("..", "...3-1"),
        ] {
            let id = JobId(id.into());
            assert_eq!(id.task(run, is_taken).as_str(), expected, "{id}");
        }
        let long = JobId::parse(&"x".repeat(500)).unwrap();
        assert!(long.task(run, is_taken).as_str().len() < 255);
    }

    #[test]
    fn invalid_ids_are_rejected() {
        for (text, expected) in [
            ("", "is empty"),
            ("a\nb", "control characters"),
            (&*"x".repeat(513), "at most 512"),
            ("a/b", "without /"),
            (r"a\b", "without /"),
            ("..", "neither . nor .."),
        ] {
            let error = JobId::parse(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn sequence_numbers_grow_from_term_to_term() {
        let old = ChangeSeq::before(1).next().next();
        assert!(ChangeSeq::before(2) > old);
        assert_eq!(old.to_string(), "1-2");
    }
}
