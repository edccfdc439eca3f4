//! Everything that can go wrong with a store.

use std::path::PathBuf;

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// The underlying cause, of whichever store it was.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a store could not be opened or did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A key was not as the batch expected; nothing of the batch was done.
    #[error("`{key}` is not as expected: {}", describe(*.found))]
    Conflict {
        /// The first key of the batch that differed.
        key: String,
        /// The version it has now; `None` when it is not there.
        found: Option<u64>,
    },
    /// The store could not be reached or could not write. Whether a commit happened is not known.
    #[error("the store cannot {what}")]
    Unavailable {
        /// What was tried, as the end of "the store cannot …".
        what: &'static str,
        /// What the system or the database said.
        #[source]
        source: Cause,
    },
    /// What the store holds cannot be read as an entry: it was written by something else or damaged.
    #[error("the store holds something unreadable at {place}")]
    Corrupt {
        /// Key or file.
        place: String,
        /// What did not parse, where that is known.
        #[source]
        source: Option<Cause>,
    },
    /// The store was closed, or its writer ended after a failure that was reported to someone else.
    #[error("the store is closed")]
    Closed,
    /// The configured address is not of a kind that this version can open.
    #[error(
        "`{server}` is no store this version can open: it has the embedded store only, written as `file:DIR`"
    )]
    Unsupported {
        /// The address as configured.
        server: String,
    },
    /// Another process has the directory open.
    #[error("the store in {} is in use by another process; stop that one or choose another directory", .path.display())]
    Locked {
        /// The store's directory.
        path: PathBuf,
    },
}

fn describe(found: Option<u64>) -> String {
    found.map_or_else(
        || "it is not there".to_owned(),
        |version| format!("it has version {version}"),
    )
}
