//! The errors of the scheduler.

use transom_cluster::TaskId;
use transom_store::typed;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The state store failed.
    #[error("the state store failed while {doing}")]
    Store {
        /// The operation, for example "loading tasks".
        doing: &'static str,
        /// The error of the store, except for a record that cannot be decoded.
        #[source]
        source: typed::Error,
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
    /// `purge` was requested for a task that is not terminal.
    #[error("task `{task}` is not terminal; kill it and wait for a terminal state before purging it")]
    NotTerminal {
        /// The task.
        task: TaskId,
    },
    /// A submitted run spec has a role that no framework may have.
    #[error("task `{task}` has the role `{role}`, which {wrong}")]
    BadRole {
        /// The task or group.
        task: TaskId,
        /// [`RunSpec::role`](crate::RunSpec::role).
        role: String,
        /// The problem, for example "has a part that begins with a dash".
        wrong: &'static str,
    },
    /// A submitted run spec has volumes that no cluster can have.
    #[error("task `{task}` {wrong}")]
    BadVolumes {
        /// The task or group.
        task: TaskId,
        /// The problem, for example "has volumes, but its role is `*`".
        wrong: &'static str,
    },
    /// The pattern of a path constraint is not a regular expression.
    #[error("`{pattern}` is not a regular expression")]
    BadPattern {
        /// The pattern.
        pattern: String,
        /// The position of the error.
        #[source]
        source: regex_lite::Error,
    },
    /// A submitted group cannot be launched.
    #[error("group `{group}` {wrong}")]
    BadGroup {
        /// The group.
        group: TaskId,
        /// The problem, for example "has no members".
        wrong: &'static str,
    },
}

impl Error {
    /// The error of a store operation, for example "loading tasks".
    pub(crate) fn of_store(doing: &'static str, error: typed::Error) -> Self {
        match error {
            typed::Error::Record { key, source } => Self::Record { key, source },
            source => Self::Store { doing, source },
        }
    }

    /// Whether the store rejected a write because the version of a key had changed.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Store { source, .. } if source.is_conflict())
    }
}

/// This crate's results.
pub type Result<T> = std::result::Result<T, Error>;
