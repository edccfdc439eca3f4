//! The state store: what the daemon must still know after it was killed.
//!
//! A [`Store`] is an ordered map from text keys to bytes. Several parts of the daemon share one store and keep apart by
//! key prefix (`<framework>/tasks/<task id>`); nobody keeps anything outside its own prefix.
//!
//! What every store promises:
//! * **Durable when told.** [`Store::commit`] returns after the batch is on disk. What was acknowledged survives a kill
//!   at any moment; what was not is there either whole or not at all.
//! * **Atomic batches.** All changes of a [`Batch`] happen, or none of them.
//! * **Versions.** Every put gives its key a version that this store never gave out before, so a version names one
//!   value of one key for ever, also when the key was deleted and made again. [`Expect`] compares against it.
//! * **Snapshots.** A [`Store::scan`] sees the store as it was at one moment.
//!
//! What it does not do: no watches, no expiry, no values beyond what fits in memory, no queries but by key prefix.
//!
//! How it fails: a lost race is [`Error::Conflict`] and changed nothing. After [`Error::Unavailable`] from a commit it is
//! not known whether the batch happened; read before trying again.
//!
//! [`open`] picks the store from the configured address; the embedded one ([`file`]) is what this version has.

#![forbid(unsafe_code)]

mod batch;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod error;
pub mod file;

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

pub use batch::{Batch, Change};
pub use error::{Cause, Error, Result};

/// One key with its value, as [`Store::get`] and [`Store::scan`] return it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The whole key, prefix included.
    pub key: String,
    /// What was put.
    pub value: Bytes,
    /// Names this value: greater than every version this store gave out before it, never 0.
    pub version: u64,
}

/// What a change expects to find under its key; anything else is an [`Error::Conflict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Whatever is there, also nothing.
    Any,
    /// Nothing.
    Absent,
    /// The value of this version.
    Version(u64),
}

impl Expect {
    /// Whether a key that now has the version `found` (none: absent) is as expected.
    pub fn accepts(self, found: Option<u64>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => found.is_none(),
            Self::Version(version) => found == Some(version),
        }
    }
}

/// A durable ordered map; see the crate's documentation for what it promises.
///
/// Handles are shared as `Arc<dyn Store>`; calls may be made from any number of tasks at once.
#[async_trait]
pub trait Store: Debug + Send + Sync {
    /// The entry under `key`, if there is one.
    async fn get(&self, key: &str) -> Result<Option<Entry>>;

    /// All entries whose key begins with `prefix`, in byte order of their keys, as of one moment.
    async fn scan(&self, prefix: &str) -> Result<Vec<Entry>>;

    /// Makes all changes of the batch or none, and returns when they are durable: the new version of each put, 0 for
    /// each delete, in the batch's order. Deleting a key that is not there is no error unless a version was expected.
    ///
    /// Dropping the future does not withdraw a batch that was already handed over.
    async fn commit(&self, batch: Batch) -> Result<Vec<u64>>;

    /// Puts one value; returns its version.
    async fn put(&self, key: &str, value: Bytes, expect: Expect) -> Result<u64> {
        let versions = self.commit(Batch::new().put(key, value, expect)).await?;
        versions.first().copied().ok_or(Error::Closed)
    }

    /// Deletes one key.
    async fn delete(&self, key: &str, expect: Expect) -> Result<()> {
        self.commit(Batch::new().delete(key, expect)).await.map(drop)
    }
}

/// Opens the store that `server` names: `file:DIR` is the embedded store in that directory, which is made when missing.
///
/// # Errors
/// [`Error::Unsupported`] for every other address (`host:port` would be a Redis, which this version does not speak),
/// [`Error::Locked`] when another process has the directory open.
pub async fn open(server: &str) -> Result<Arc<dyn Store>> {
    match server.strip_prefix("file:") {
        Some(dir) if !dir.trim().is_empty() => Ok(Arc::new(file::FileStore::open(PathBuf::from(dir)).await?)),
        _ => Err(Error::Unsupported {
            server: server.to_owned(),
        }),
    }
}
