//! The errors of the scheduler's handle.

use std::fmt::Write as _;

use transom_cluster::TaskId;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The state store failed.
    #[error("the state store failed while {doing}")]
    Store {
        /// The operation, for example "loading tasks".
        doing: &'static str,
        /// The error of the store.
        #[source]
        source: transom_store::Error,
    },
    /// The state store timed out.
    #[error("the state store timed out after {seconds} s while {doing}")]
    StoreTimeout {
        /// The operation, for example "loading tasks".
        doing: &'static str,
        /// The timeout.
        seconds: u64,
    },
    /// A stored record cannot be decoded by this version.
    #[error("record `{key}` in the state store cannot be decoded")]
    Record {
        /// Its key in the store.
        key: String,
        /// The decoding error.
        #[source]
        source: serde_json::Error,
    },
    /// A record cannot be encoded.
    #[error("the record of task `{task}` cannot be encoded")]
    Encode {
        /// The task.
        task: TaskId,
        /// The encoding error.
        #[source]
        source: serde_json::Error,
    },
    /// `purge` was called for a task that is not terminal.
    #[error("task `{task}` is not terminal; kill it and wait for a terminal state before purging it")]
    NotTerminal {
        /// The task.
        task: TaskId,
    },
    /// A submitted group cannot be launched.
    #[error("group `{group}` {wrong}")]
    BadGroup {
        /// The group.
        group: TaskId,
        /// The problem, for example "has no members".
        wrong: &'static str,
    },
    /// The scheduler has stopped and takes no more requests.
    #[error("the scheduler has stopped")]
    Stopped,
}

impl Error {
    /// Whether the same call would always fail: the call itself is wrong.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::BadGroup { .. } | Self::Encode { .. })
    }
}

/// This crate's results.
pub type Result<T> = std::result::Result<T, Error>;

/// The text of an error and of all its sources, in one line.
pub fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
