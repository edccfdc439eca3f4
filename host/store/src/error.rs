//! Errors of a store.

use std::path::PathBuf;
use std::time::Duration;

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// The underlying cause, of whichever store it was.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a store could not be opened or did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A key was not as the batch expected; nothing of the batch was done.
    #[error("conflict at `{key}`: {}", describe(*.found))]
    Conflict {
        /// The first key of the batch that differed.
        key: String,
        /// The version it has now; `None` when it is not there.
        found: Option<u64>,
    },
    /// A fence of the batch does not hold, or the lease to renew is not the caller's any more: it ran out, was given back,
    /// or was given to somebody else. Nothing was done.
    #[error("the lease `{lease}` with number {fencing} is no longer held: {}", holder(*.current))]
    Fenced {
        /// The lease's name.
        lease: String,
        /// The number that was shown.
        fencing: u64,
        /// The number it is held under now; `None` when nobody holds it.
        current: Option<u64>,
    },
    /// Somebody else holds the lease.
    #[error("the lease `{lease}` is held by {holder}")]
    Held {
        /// The lease's name.
        lease: String,
        /// Who holds it, as they named themselves.
        holder: String,
        /// How long it is theirs if they do not renew it.
        left: Duration,
    },
    /// Something is larger than a store takes; see [`limits`](crate::limits). Nothing was done.
    #[error("{what} is too large for the store: {size}, at most {limit}")]
    TooLarge {
        /// What is too large, and in which unit it is counted.
        what: String,
        /// How large it is.
        size: usize,
        /// How large it may be.
        limit: usize,
    },
    /// A lease was asked for with a time to live that no store grants.
    #[error(
        "the time to live of a lease must be from {:?} to {:?}, not {ttl:?}",
        crate::limits::MIN_TTL,
        crate::limits::MAX_TTL
    )]
    TimeToLive {
        /// What was asked for.
        ttl: Duration,
    },
    /// This kind of store does not do what was asked.
    #[error("this store does not support {what}")]
    Missing {
        /// What it does not have.
        what: &'static str,
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
    #[error("invalid data in the store at {place}")]
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
    /// The configured address, or what belongs to it, is not of a kind that this version can open.
    #[error(
        "`{server}` is not a valid store address: {reason}; write `file:DIR` for the embedded store, or `HOST:PORT`, \
         `redis://HOST:PORT/DATABASE` or `rediss://…` (TLS) for a Redis"
    )]
    Unsupported {
        /// The address as configured, without user and password.
        server: String,
        /// What is wrong with it.
        reason: String,
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
        || "it does not exist".to_owned(),
        |version| format!("it has version {version}"),
    )
}

fn holder(current: Option<u64>) -> String {
    current.map_or_else(
        || "it is free".to_owned(),
        |current| format!("it is held under number {current}"),
    )
}
