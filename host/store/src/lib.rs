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
//! * **Leases.** At most one holder at a time, each with a fencing number greater than every one before it; a batch can
//!   demand that its lease is still held ([`Batch::fenced`]). What was put cannot be changed by a holder that was replaced.
//!   [`Election`] runs leader elections on them.
//! * **Watches.** A [`Watch`] tells which keys change, or says that it missed some.
//!
//! What it does not do: no expiry, no values beyond what fits in memory (see [`limits`]), no queries but by key prefix.
//!
//! How it fails: a lost race is [`Error::Conflict`] and changed nothing. After [`Error::Unavailable`] from a commit it is
//! not known whether the batch happened; read before trying again.
//!
//! [`open`] picks the store from the configured address, [`Config`] says more: the embedded one
//! ([`file`](mod@file)) or a Redis ([`redis`](mod@redis)). Both pass the same suite (module `conformance`).

#![forbid(unsafe_code)]

mod batch;
mod config;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod election;
mod error;
mod fenced;
pub mod file;
mod lease;
pub mod limits;
pub mod redis;
mod watch;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

pub use batch::{Batch, Change, Fence};
pub use config::{Config, Password, Tls};
pub use election::{Election, Leadership, LeaseTerm, Term};
pub use error::{Cause, Error, Result};
pub use fenced::Fenced;
pub use lease::Lease;
pub use watch::{Notice, Watch};

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
/// Handles are shared as `Arc<dyn Store>`; calls may be made from any number of tasks at once. Leases and watches have
/// defaults that answer [`Error::Missing`], for wrappers in tests that need neither; both stores of this crate have them.
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
    ///
    /// # Errors
    /// [`Error::Conflict`], [`Error::Fenced`], [`Error::TooLarge`]: nothing happened. [`Error::Unavailable`]: not known.
    async fn commit(&self, batch: Batch) -> Result<Vec<u64>>;

    /// Takes the lease `name` for `ttl`. `holder` says who asks, in words that no two processes share. Whoever holds the
    /// lease already gets it again with a new number, and the old number is void: so a call whose answer was lost can be
    /// made again.
    ///
    /// # Errors
    /// [`Error::Held`] when somebody else holds it.
    async fn acquire(&self, name: &str, holder: &str, ttl: Duration) -> Result<Lease> {
        let _ = (name, holder, ttl);
        Err(Error::Missing { what: "leases" })
    }

    /// Prolongs a lease by its whole time to live, from now on. It keeps its number.
    ///
    /// # Errors
    /// [`Error::Fenced`] when it is not held under its number any more, also when it merely ran out: then it may be
    /// acquired again.
    async fn renew(&self, lease: &Lease) -> Result<Lease> {
        let _ = lease;
        Err(Error::Missing { what: "leases" })
    }

    /// Gives a lease back, so that others need not wait for its end. Nothing happens if it is not held any more.
    async fn release(&self, lease: &Lease) -> Result<()> {
        let _ = lease;
        Err(Error::Missing { what: "leases" })
    }

    /// Who holds the lease `name` at this moment.
    async fn lease(&self, name: &str) -> Result<Option<Lease>> {
        let _ = name;
        Err(Error::Missing { what: "leases" })
    }

    /// Watches the keys that begin with `prefix`. What is committed from now on, by whomever, will be told.
    ///
    /// To follow the store: watch first, then scan, then apply what is told; scan again after [`Notice::Lagged`].
    async fn watch(&self, prefix: &str) -> Result<Watch> {
        let _ = prefix;
        Err(Error::Missing { what: "watches" })
    }

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

/// Opens the store that `server` names: `file:DIR` is the embedded store in that directory, which is made when missing;
/// `HOST:PORT`, `redis://…` and `rediss://…` are a Redis. Short for [`Config::open`].
///
/// # Errors
/// [`Error::Unsupported`] for every other address, [`Error::Locked`] when another process has the directory open.
pub async fn open(server: &str) -> Result<Arc<dyn Store>> {
    Config::new(server).open().await
}
