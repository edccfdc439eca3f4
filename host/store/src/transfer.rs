//! Copies of a whole store: to another store of any kind, or to a file.
//!
//! * [`Snapshot`]: all entries of a store at one point in time, and their digest.
//! * [`Holds`] keeps daemons from leading on a store while it is copied or written; imports use it, too.
//! * [`write`] writes a snapshot to an empty store, in batches, and [`finish`] verifies and completes it.
//! * [`dump`] and [`read_dump`] are the file.
//!
//! # Promises
//!
//! * **A copy is whole or unusable.** The first batch creates the record [`KEY`] in the destination, and
//!   [`finish`] deletes it after it has compared all keys and values. While the record exists, daemons
//!   reject the store ([`check_finished`]).
//! * **An interrupted copy continues.** Each batch is one commit with the record, which names the last
//!   key. The copy continues after that key if the digest of the snapshot is the same; otherwise the
//!   source has changed, and [`Error::Another`] says so.
//! * **Nothing else is overwritten.** Every entry is expected to be absent.
//!
//! # What a copy keeps
//!
//! Keys and values, byte by byte. It does not keep versions and fencing numbers, which belong to a
//! store and are assigned again. No record contains one: services compare versions only with those that
//! they have read from the same store since they started, and the numbers that clients see (terms, and
//! the sequence numbers made from them) are counted in records of their own (`<framework>/term`), which
//! are copied. Leases are not copied; the copy ends after all of them have.
//!
//! # Limits
//!
//! A snapshot is in memory as a whole, as a scan of the store is.

mod file;
mod holds;
mod snapshot;
mod target;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use file::{DumpError, Header, dump, read_dump};
pub use holds::Holds;
pub use snapshot::{Contents, Snapshot};
pub use target::{Progress, check_finished, clear, finish, unfinished, write};

use crate::typed;

/// The key of the record of an unfinished copy. The lease of commands that write to a whole store has
/// the same name.
pub const KEY: &str = "transom/transfer";

/// The timeout of reading or writing a batch. A store with many records takes longer than for the records
/// of one service.
const TIMEOUT: Duration = Duration::from_mins(2);

/// The result of a copy.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a store was not copied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A daemon leads on the store.
    #[error("a daemon leads on this store ({holder}); stop all daemons of this store first")]
    Led {
        /// The lease.
        lease: String,
        /// The address of the daemon.
        holder: String,
    },
    /// Another command copies or restores.
    #[error("another command copies or restores this store; wait until it ends, and then for {} s", .remaining.as_secs())]
    Busy {
        /// The remaining time of its lease.
        remaining: Duration,
    },
    /// A lease was lost while the store was copied.
    #[error("the lease `{lease}` ended during the copy; repeat the command to continue the copy")]
    LeaseLost {
        /// The lease.
        lease: String,
    },
    /// The destination has records.
    #[error("the store to be written has records already, {count} keys such as {}; use an empty store", .keys.join(", "))]
    NotEmpty {
        /// The number of keys.
        count: usize,
        /// Some of them.
        keys: Vec<String>,
    },
    /// The destination has an unfinished copy of other records.
    #[error(
        "the store has an unfinished copy of other records (from {from}, {copied} of {entries} entries): its source has \
         changed since, or it is another one; `--restart` discards that copy and begins again"
    )]
    Another {
        /// Where the copy comes from.
        from: String,
        /// The number of copied entries.
        copied: u64,
        /// The number of all entries.
        entries: u64,
    },
    /// The store has an unfinished copy.
    #[error(
        "the store has an unfinished copy (from {from}, {copied} of {entries} entries); repeat the same `transom store \
         copy` or `restore`, which continues it, or use an empty store"
    )]
    Unfinished {
        /// Where the copy comes from.
        from: String,
        /// The number of copied entries.
        copied: u64,
        /// The number of all entries.
        entries: u64,
    },
    /// The source has nothing to copy.
    #[error("there are no records to copy")]
    Empty,
    /// Entries in the source are not those that were copied.
    #[error(
        "the source has changed during the copy; stop all daemons of this store, and repeat with `--restart`"
    )]
    SourceChanged,
    /// The destination differs from the source after all entries were written.
    #[error(
        "the copy has {found} entries and differs from the source with {expected}: another program has written to the \
         destination; repeat with `--restart`"
    )]
    Differs {
        /// The number of entries in the copy.
        found: u64,
        /// The number of entries in the source.
        expected: u64,
    },
    /// A store failed.
    #[error(
        "the state store failed while {doing}; if entries were written, the same command continues after them"
    )]
    Store {
        /// The operation that failed.
        doing: &'static str,
        /// The store's error.
        #[source]
        source: typed::Error,
    },
}

impl Error {
    fn of<E: Into<typed::Error>>(doing: &'static str) -> impl Fn(E) -> Self {
        move |error| Self::Store {
            doing,
            source: error.into(),
        }
    }
}

/// A call of a store, with a deadline.
async fn call<T>(doing: &'static str, call: impl Future<Output = crate::Result<T>>) -> Result<T> {
    typed::with_timeout(TIMEOUT, call).await.map_err(Error::of(doing))
}
