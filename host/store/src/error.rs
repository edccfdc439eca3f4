//! Errors of a store.

use std::path::PathBuf;
use std::time::Duration;

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The underlying cause, from either store.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a store could not be opened or an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The version of a key was not the expected one; no change was applied.
    #[error("conflict at `{key}`: {}", describe(*.found))]
    Conflict {
        /// The first key of the batch that differed.
        key: String,
        /// The key's current version; `None` when the key is absent.
        found: Option<u64>,
    },
    /// A fence of the batch does not hold, or the lease to renew is no longer the caller's: it
    /// expired, was released, or was granted to another holder. Nothing was changed.
    #[error("the lease `{lease}` with number {fencing} is no longer held: {}", holder(*.current))]
    Fenced {
        /// The lease's name.
        lease: String,
        /// The outdated fencing number.
        fencing: u64,
        /// The current fencing number; `None` when the lease is not held.
        current: Option<u64>,
    },
    /// Another holder has the lease.
    #[error("the lease `{lease}` is held by {holder}")]
    Held {
        /// The lease's name.
        lease: String,
        /// The name of the holder.
        holder: String,
        /// The remaining time, unless the holder renews the lease.
        remaining: Duration,
    },
    /// A size exceeds a limit of all stores; see [`limits`](crate::limits). Nothing was changed.
    #[error("{what} is too large for the store: {size}, at most {limit}")]
    TooLarge {
        /// The kind of size, and its unit.
        what: String,
        /// The size.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// A time to live outside the bounds of leases.
    #[error(
        "the time to live of a lease must be from {:?} to {:?}, not {ttl:?}",
        crate::limits::MIN_TTL,
        crate::limits::MAX_TTL
    )]
    TimeToLive {
        /// The requested time to live.
        ttl: Duration,
    },
    /// This kind of store does not support the operation.
    #[error("this store does not support {what}")]
    Missing {
        /// The unsupported feature.
        what: &'static str,
    },
    /// The store could not be reached or could not write. Whether a commit happened is not known.
    #[error("the store cannot {what}")]
    Unavailable {
        /// The operation, as the end of "the store cannot …".
        what: &'static str,
        /// The error of the system or the database.
        #[source]
        source: Cause,
    },
    /// A stored entry is invalid: it was written by another program or damaged.
    #[error("invalid data in the store at {place}")]
    Corrupt {
        /// Key or file.
        place: String,
        /// The parse error, where known.
        #[source]
        source: Option<Cause>,
    },
    /// The store was closed, or its writer ended after a failure that another caller received.
    #[error("the store is closed")]
    Closed,
    /// This version cannot open the configured address, or its settings are invalid.
    #[error(
        "`{server}` is not a valid store address: {reason}; write `file:DIR` for the embedded store, \
         `zk://USER:PASSWORD@HOST:PORT,HOST:PORT/PATH` for ZooKeeper, or `HOST:PORT`, `redis://HOST:PORT/DATABASE`, \
         `rediss://…` (TLS) or `redis-sentinel://HOST:PORT,HOST:PORT,HOST:PORT/NAME` for a Redis"
    )]
    Unsupported {
        /// The configured address, without user and password.
        server: String,
        /// Why it is invalid.
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
