//! What can go wrong when a job talks to the scheduler.

use std::fmt::Write as _;

use transom_cluster::TaskId;

/// Everything this crate's calls can fail with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The state store did not answer, or refused.
    #[error("the state store failed while {doing}")]
    Store {
        /// What was being done, as "loading tasks".
        doing: &'static str,
        /// The store's own reason.
        #[source]
        source: transom_store::Error,
    },
    /// The state store gave no answer in time.
    #[error("the state store gave no answer within {seconds} s while {doing}")]
    StoreSilent {
        /// What was being done, as "loading tasks".
        doing: &'static str,
        /// How long it was given.
        seconds: u64,
    },
    /// A stored record is not one that this version can read.
    #[error("the record under key `{key}` cannot be read")]
    Record {
        /// Its key in the store.
        key: String,
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// A record could not be put into its stored form.
    #[error("the record of task `{task}` cannot be written as JSON")]
    Encode {
        /// Whose record.
        task: TaskId,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// `forget` was asked for a task that still runs, or may.
    #[error("task `{task}` is not terminal; release it and wait for its end before forgetting it")]
    NotTerminal {
        /// Which.
        task: TaskId,
    },
    /// A group that was wanted cannot be launched.
    #[error("group `{group}` {wrong}")]
    BadGroup {
        /// Which.
        group: TaskId,
        /// What is wrong with it, as "has no members".
        wrong: &'static str,
    },
    /// The scheduler has been stopped; no more work is taken.
    #[error("the scheduler has stopped")]
    Stopped,
}

impl Error {
    /// Whether the same call would fail again, whatever happens meanwhile: it is the call itself that is wrong.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::BadGroup { .. } | Self::Encode { .. })
    }
}

/// This crate's results.
pub type Result<T> = std::result::Result<T, Error>;

/// The text of an error and of all its sources, in one line.
pub(crate) fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
