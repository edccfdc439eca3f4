//! The state store: the data that a daemon needs again after a restart.
//!
//! A [`Store`] is an ordered map from text keys to bytes. Several parts of the daemon share one
//! store. Each has its own key prefix (`<framework>/tasks/<task id>`) and writes nothing outside
//! it.
//!
//! Guarantees of every store:
//! * **Durability.** [`Store::commit`] returns after the batch is on disk. An acknowledged batch
//!   survives a kill at any moment; an unacknowledged one was applied as a whole or not at all.
//! * **Atomic batches.** All changes of a [`Batch`] are applied, or none of them.
//! * **Versions.** Every put assigns a version that this store never assigned before. A version
//!   thus identifies one value of one key for ever, even if the key is deleted and created again.
//!   [`Expect`] compares with it.
//! * **Snapshots.** A [`Store::scan`] sees the store at one point in time.
//! * **Leases.** At most one holder at a time, each with a fencing number greater than every one
//!   before it. A batch can require that its lease is still held ([`Batch::fenced`]), so a replaced
//!   holder cannot overwrite newer data. [`Election`] runs leader elections on leases.
//! * **Watches.** A [`Watch`] reports changed keys, or reports that it missed some.
//!
//! Not supported: expiry of entries, values that do not fit in memory (see [`limits`]), and queries
//! other than by key prefix.
//!
//! Failures: a lost race is an [`Error::Conflict`] and changed nothing. After
//! [`Error::Unavailable`] a commit may or may not have been applied; read before trying again.
//!
//! [`Measured`] exports the duration and the errors of every operation.
//!
//! [`typed`] stores JSON records with one deadline for every call; services use it instead of the
//! trait. [`transfer`] copies a whole store to another one, or to a file.
//!
//! [`open`] opens the store at the configured address, [`Config`] has more settings: the embedded
//! store ([`file`](mod@file)), a Redis ([`redis`](mod@redis)) or a ZooKeeper
//! ([`zookeeper`](mod@zookeeper)). All pass the same tests (module `conformance`).

#![forbid(unsafe_code)]

mod batch;
mod config;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod election;
mod error;
mod fenced;
pub mod file;
#[cfg(test)]
mod histories;
mod inspection;
mod lease;
mod leases;
pub mod limits;
mod measured;
pub mod redis;
pub mod transfer;
pub mod typed;
mod watch;
pub mod zookeeper;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

pub use batch::{Batch, Change, Fence};
pub use config::{Config, Tls};
pub use election::{Election, Leadership, LeaseTerm, Term};
pub use error::{Cause, Error, Result};
pub use fenced::Fenced;
pub use inspection::{Inspection, RedisSettings, ZooKeeperServer};
pub use lease::Lease;
pub use measured::Measured;
#[cfg(feature = "conformance")]
pub use watch::Feed;
pub use watch::{Notice, Watch};

/// One key with its value, as [`Store::get`] and [`Store::scan`] return it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The whole key, prefix included.
    pub key: String,
    /// The stored value.
    pub value: Bytes,
    /// Identifies this value: greater than every earlier version of this store, never 0.
    pub version: u64,
}

/// The expected entry of a change; any other entry causes an [`Error::Conflict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Any entry, or none.
    Any,
    /// No entry.
    Absent,
    /// The value of this version.
    Version(u64),
}

impl Expect {
    /// Whether a key with the current version `found` (`None`: the key is absent) is as expected.
    pub fn accepts(self, found: Option<u64>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => found.is_none(),
            Self::Version(version) => found == Some(version),
        }
    }
}

/// The data that a crash of the machine or the server loses, as far as the store knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: a commit returns after it is on disk.
    Synced,
    /// Nothing, as long as one server of those that acknowledged a write keeps it: every replica
    /// confirms.
    Replicated,
    /// The last writes, if a failover chooses a replica that has not confirmed them.
    PartlyReplicated,
    /// Acknowledged writes: no write waits for the replicas to which the server can fail over.
    Unconfirmed,
    /// The server has an append-only file; its setting `appendfsync` decides how much of it is on
    /// disk.
    Appended,
    /// The last writes: the server has no append-only file.
    Volatile,
    /// Not known: the server has not been reached, or does not report its settings.
    #[default]
    Unknown,
}

impl Durability {
    /// The name for display.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Synced => "synced",
            Self::Replicated => "replicated",
            Self::PartlyReplicated => "partly_replicated",
            Self::Unconfirmed => "unconfirmed",
            Self::Appended => "appended",
            Self::Volatile => "volatile",
            Self::Unknown => "unknown",
        }
    }

    /// What a failure can lose although it was acknowledged, for logs and people.
    pub fn may_lose(self) -> Option<&'static str> {
        match self {
            Self::Synced | Self::Replicated | Self::Unknown => None,
            Self::PartlyReplicated => {
                Some("a failover to a replica that has not confirmed the last writes loses them")
            }
            Self::Unconfirmed => Some(
                "no write waits for the replicas: a failover to one loses acknowledged writes and can grant a lease \
                 twice",
            ),
            Self::Appended => Some(
                "a crash of the machine loses the last writes, unless the Redis has `appendfsync always`",
            ),
            Self::Volatile => {
                Some("there is no append-only file: a crash of the Redis loses the last writes")
            }
        }
    }
}

/// A durable ordered map; the crate's documentation lists the guarantees.
///
/// Handles are shared as `Arc<dyn Store>`; any number of tasks may call concurrently. Leases and
/// watches have defaults that return [`Error::Missing`], for wrappers in tests that need neither;
/// all stores of this crate implement them.
#[async_trait]
pub trait Store: Debug + Send + Sync {
    /// The entry under `key`, if there is one.
    async fn get(&self, key: &str) -> Result<Option<Entry>>;

    /// All entries whose key begins with `prefix`, in byte order of their keys, at one point in
    /// time.
    async fn scan(&self, prefix: &str) -> Result<Vec<Entry>>;

    /// Applies all changes of the batch or none, and returns when they are durable: the new version
    /// of each put, 0 for each delete, in the batch's order. Deleting an absent key is no error
    /// unless a version was expected.
    ///
    /// Dropping the future does not withdraw a submitted batch.
    ///
    /// # Errors
    /// [`Error::Conflict`], [`Error::Fenced`], [`Error::TooLarge`]: nothing was applied.
    /// [`Error::Unavailable`]: unknown.
    async fn commit(&self, batch: Batch) -> Result<Vec<u64>>;

    /// Acquires the lease `name` for `ttl`. `holder` is a text that no two processes share. The
    /// present holder gets a new number and its old number becomes void, so a call without a reply
    /// can be repeated.
    ///
    /// # Errors
    /// [`Error::Held`] when another holder has it.
    async fn acquire(&self, name: &str, holder: &str, ttl: Duration) -> Result<Lease> {
        let _ = (name, holder, ttl);
        Err(Error::Missing { what: "leases" })
    }

    /// Extends a lease by its whole time to live, from now on. It keeps its number.
    ///
    /// # Errors
    /// [`Error::Fenced`] when it is no longer held under its number, even if it only expired: then
    /// it can be acquired again.
    async fn renew(&self, lease: &Lease) -> Result<Lease> {
        let _ = lease;
        Err(Error::Missing { what: "leases" })
    }

    /// Releases a lease, so that others need not wait until it expires. No effect if it is no
    /// longer held.
    async fn release(&self, lease: &Lease) -> Result<()> {
        let _ = lease;
        Err(Error::Missing { what: "leases" })
    }

    /// The present holder of the lease `name`.
    async fn lease(&self, name: &str) -> Result<Option<Lease>> {
        let _ = name;
        Err(Error::Missing { what: "leases" })
    }

    /// Whether the store belongs to this process alone, so that no other process can acquire its
    /// leases.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// Watches the keys that begin with `prefix`. It reports every later commit of any process.
    ///
    /// To follow the store: watch first, then scan, then apply the notices; scan again after
    /// [`Notice::Lagged`].
    async fn watch(&self, prefix: &str) -> Result<Watch> {
        let _ = prefix;
        Err(Error::Missing { what: "watches" })
    }

    /// The data that a crash loses. Makes no call to a server.
    fn durability(&self) -> Durability {
        Durability::Unknown
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

/// Opens the store at `server`: `file:DIR` is the embedded store in that directory, which is
/// created if it is missing; `zk://…` is a ZooKeeper; `HOST:PORT`, `redis://…` and `rediss://…` are a
/// Redis, and `redis-sentinel://…` is one that fails over. Short for
/// [`Config::open`].
///
/// # Errors
/// [`Error::Unsupported`] for every other address, [`Error::Locked`] when another process has the
/// directory open.
pub async fn open(server: &str) -> Result<Arc<dyn Store>> {
    Config::new(server).open().await
}
