//! JSON records under a key prefix, with one deadline for every call of the store.
//!
//! [`TypedStore`] encodes and decodes records, keeps batches small enough for the
//! [`limits`](crate::limits) of every store, and waits at most [`TIMEOUT`] for one call. A stuck
//! disk or a server that does not answer thus never stops an actor.
//!
//! Records that must change together are one [`Changes`], which is applied as a whole or not at
//! all. [`TypedStore::put_all`] and [`TypedStore::delete_all`] split many independent records into
//! batches; after an error some of the batches may have been applied.
//!
//! Every record has a version of its format: the number under [`VERSION_KEY`], or 1 if the key is missing. A
//! record of a version above [`READS_VERSION`] was written by a newer daemon. It is neither decoded nor
//! skipped silently, but causes an [`Error::Newer`].
//!
//! Callers decide about retries and about unknown results. After [`Error::Timeout`], as after
//! [`crate::Error::Unavailable`], a write may or may not have been applied, or may be applied
//! later.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Batch, Entry, Expect, Store};

/// Timeout of one call of the store.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum changes of one batch of [`TypedStore::put_all`] and [`TypedStore::delete_all`]: a store
/// must be able to commit it within the timeout.
const MAX_CHUNK_CHANGES: usize = 1000;
/// Maximum bytes of all values in such a batch.
const MAX_CHUNK_BYTES: usize = 16 << 20;

/// The key of the term number, under the prefix.
pub const TERM_KEY: &str = "term";

/// The key of a record's version among its fields. Records of version 1 do not have it, so that
/// every daemon of this series reads them. A change of a record that older daemons would
/// misunderstand raises [`READS_VERSION`] and writes this key.
pub const VERSION_KEY: &str = "record_version";

/// The highest version of records that this daemon reads; it writes no higher version.
pub const READS_VERSION: u64 = 1;

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// The error of a call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] crate::Error),
    /// A record cannot be decoded, or encoded.
    #[error("record `{key}` in the store cannot be decoded; it is damaged or of another version")]
    Record {
        /// The whole key.
        key: String,
        /// The error of the JSON decoder or encoder.
        #[source]
        source: serde_json::Error,
    },
    /// A record was written by a newer daemon.
    #[error(
        "record `{key}` in the store has version {version}, and this daemon ({}) reads versions up to {READS_VERSION}: a \
         newer daemon wrote it. Start that version of transom again, or restore a backup from before the upgrade; \
         the record is unchanged",
        env!("CARGO_PKG_VERSION")
    )]
    Newer {
        /// The whole key.
        key: String,
        /// The version of the record.
        version: u64,
    },
    /// The store did not answer in time. It is unknown whether a write was applied.
    #[error("the store did not answer within {} s", .timeout.as_secs_f64())]
    Timeout {
        /// The timeout of the call.
        timeout: Duration,
    },
}

impl Error {
    /// Whether the store rejected a write because a key was not as expected; then nothing was
    /// changed.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Store(crate::Error::Conflict { .. }))
    }

    /// Whether a write that failed with this error may have been applied, or may be applied later.
    pub fn is_unconfirmed(&self) -> bool {
        match self {
            Self::Store(error) => matches!(error, crate::Error::Unavailable { .. } | crate::Error::Closed),
            Self::Record { .. } | Self::Newer { .. } => false,
            Self::Timeout { .. } => true,
        }
    }
}

/// A record as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<T> {
    /// The key without the prefix.
    pub key: String,
    /// The record.
    pub value: T,
    /// The version of the entry; see [`Entry::version`].
    pub version: u64,
}

/// Changes that are applied all together or not at all. Keys are without the prefix.
#[derive(Clone, Debug, Default)]
pub struct Changes(Vec<(String, Option<Bytes>, Expect)>);

impl Changes {
    /// Adds: store `record` under `key`.
    ///
    /// # Errors
    /// [`Error::Record`] if the record cannot be encoded, such as a map whose keys are not text.
    pub fn put<T: Serialize + ?Sized>(
        &mut self,
        key: impl Into<String>,
        record: &T,
        expect: Expect,
    ) -> Result<()> {
        let key = key.into();
        let value = encode(&key, record)?;
        self.0.push((key, Some(value), expect));
        Ok(())
    }

    /// Adds: delete the record under `key`.
    pub fn delete(&mut self, key: impl Into<String>, expect: Expect) {
        self.0.push((key.into(), None, expect));
    }

    /// Adds all of `other`.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of changes.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// A part of a store, with JSON records. Clones are cheap and share the store.
#[derive(Clone, Debug)]
pub struct TypedStore {
    store: Arc<dyn Store>,
    prefix: String,
    timeout: Duration,
}

impl TypedStore {
    /// The part of `store` under `prefix`, which has no trailing slash.
    pub fn new(store: Arc<dyn Store>, prefix: &str) -> Self {
        Self {
            store,
            prefix: format!("{prefix}/"),
            timeout: TIMEOUT,
        }
    }

    /// With another timeout of one call.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The whole key of a record.
    pub fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// All records whose key begins with `folder`, in byte order of their keys.
    ///
    /// # Errors
    /// [`Error::Record`] if any of them cannot be decoded.
    pub async fn load_all<T: DeserializeOwned>(&self, folder: &str) -> Result<Vec<Stored<T>>> {
        let mut records = Vec::new();
        self.load_each(folder, |record| records.push(record)).await?;
        Ok(records)
    }

    /// Calls `each` with all records whose key begins with `folder`, in byte order of their keys.
    /// Only one record at a time is decoded: for many records of which the caller keeps only a
    /// part.
    ///
    /// # Errors
    /// [`Error::Record`] if a record cannot be decoded; `each` was called with those before it.
    /// [`Error::Store`] and [`Error::Timeout`].
    pub async fn load_each<T: DeserializeOwned>(
        &self,
        folder: &str,
        mut each: impl FnMut(Stored<T>),
    ) -> Result<()> {
        let prefix = self.key(folder);
        for entry in self.call(self.store.scan(&prefix)).await? {
            each(self.stored(&entry)?);
        }
        Ok(())
    }

    /// Like [`load_all`](Self::load_all), but skips records that cannot be decoded and returns an
    /// [`Error::Record`] or [`Error::Newer`] for each of them: for records that are not essential
    /// to a service.
    ///
    /// # Errors
    /// [`Error::Store`] and [`Error::Timeout`].
    pub async fn load_valid<T: DeserializeOwned>(
        &self,
        folder: &str,
    ) -> Result<(Vec<Stored<T>>, Vec<Error>)> {
        let prefix = self.key(folder);
        let entries = self.call(self.store.scan(&prefix)).await?;
        let (mut records, mut errors) = (Vec::new(), Vec::new());
        for entry in &entries {
            match self.stored(entry) {
                Ok(record) => records.push(record),
                Err(error) => errors.push(error),
            }
        }
        Ok((records, errors))
    }

    /// One record.
    ///
    /// # Errors
    /// [`Error::Record`] if it cannot be decoded.
    pub async fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<Stored<T>>> {
        let key = self.key(key);
        let entry = self.call(self.store.get(&key)).await?;
        entry.as_ref().map(|entry| self.stored(entry)).transpose()
    }

    /// Applies the changes, all or none, in one batch. They are durable when it returns: the new
    /// version of each put, 0 for each delete, in order.
    ///
    /// # Errors
    /// See [`Store::commit`].
    pub async fn commit(&self, changes: Changes) -> Result<Vec<u64>> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let batch = changes
            .0
            .into_iter()
            .fold(Batch::new(), |batch, (key, value, expect)| match value {
                Some(value) => batch.put(self.key(&key), value, expect),
                None => batch.delete(self.key(&key), expect),
            });
        self.call(self.store.commit(batch)).await
    }

    /// Stores many records, each under its key, and replaces earlier ones. The timeout applies to
    /// each batch.
    ///
    /// # Errors
    /// After one, earlier records may be stored and later ones not.
    pub async fn put_all<T: Serialize>(&self, records: impl IntoIterator<Item = (String, T)>) -> Result<()> {
        let (mut chunk, mut bytes) = (Changes::default(), 0);
        for (key, record) in records {
            let value = encode(&key, &record)?;
            let full = chunk.0.len() == MAX_CHUNK_CHANGES || bytes + value.len() > MAX_CHUNK_BYTES;
            if full && !chunk.is_empty() {
                self.commit(std::mem::take(&mut chunk)).await?;
                bytes = 0;
            }
            bytes += value.len();
            chunk.0.push((key, Some(value), Expect::Any));
        }
        self.commit(chunk).await.map(drop)
    }

    /// Deletes many records; absent ones are no error. The timeout applies to each batch.
    ///
    /// # Errors
    /// After one, earlier records may be deleted and later ones not.
    pub async fn delete_all(&self, keys: impl IntoIterator<Item = String>) -> Result<()> {
        let mut chunk = Changes::default();
        for key in keys {
            if chunk.0.len() == MAX_CHUNK_CHANGES {
                self.commit(std::mem::take(&mut chunk)).await?;
            }
            chunk.delete(key, Expect::Any);
        }
        self.commit(chunk).await.map(drop)
    }

    /// Begins a term of a service, and returns its number: one more than that of the previous term,
    /// and at least 1. Call it once after each election, with a store that rejects writes of an
    /// earlier leader ([`Term::fenced_store`](crate::Term::fenced_store)).
    ///
    /// Fencing numbers are not used for this: they grow by unknown steps, and they leave no low
    /// bits for a counter.
    ///
    /// # Errors
    /// [`crate::Error::Conflict`] if another process begins a term at the same time.
    pub async fn next_term(&self) -> Result<u64> {
        let last = self.get::<u64>(TERM_KEY).await?;
        let expect = last
            .as_ref()
            .map_or(Expect::Absent, |last| Expect::Version(last.version));
        let term = last.map_or(0, |last| last.value) + 1;
        let mut changes = Changes::default();
        changes.put(TERM_KEY, &term, expect)?;
        self.commit(changes).await?;
        Ok(term)
    }

    fn stored<T: DeserializeOwned>(&self, entry: &Entry) -> Result<Stored<T>> {
        let key = entry.key.strip_prefix(&self.prefix).unwrap_or(&entry.key);
        Ok(Stored {
            key: key.to_owned(),
            value: decode(entry)?,
            version: entry.version,
        })
    }

    async fn call<T>(&self, call: impl Future<Output = crate::Result<T>>) -> Result<T> {
        with_timeout(self.timeout, call).await
    }
}

/// Waits for a call of a store, at most `timeout`.
///
/// # Errors
/// [`Error::Store`] and [`Error::Timeout`].
pub async fn with_timeout<T>(timeout: Duration, call: impl Future<Output = crate::Result<T>>) -> Result<T> {
    match tokio::time::timeout(timeout, call).await {
        Ok(outcome) => Ok(outcome?),
        Err(_) => Err(Error::Timeout { timeout }),
    }
}

/// Decodes the record of an entry.
///
/// # Errors
/// [`Error::Record`] and [`Error::Newer`].
pub fn decode<T: DeserializeOwned>(entry: &Entry) -> Result<T> {
    if let Some(version) = newer_version(&entry.value) {
        return Err(Error::Newer {
            key: entry.key.clone(),
            version,
        });
    }
    serde_json::from_slice(&entry.value).map_err(|source| Error::Record {
        key: entry.key.clone(),
        source,
    })
}

/// The version of a JSON record, if this daemon does not read that version. Also used for lines of
/// files and other records that are not in a store.
pub fn newer_version(record: &[u8]) -> Option<u64> {
    #[derive(serde::Deserialize)]
    struct Versioned {
        record_version: u64,
    }
    // Almost no record has the key, and a search is much cheaper than a second pass of the decoder.
    memchr::memmem::find(record, VERSION_KEY.as_bytes())?;
    let versioned: Versioned = serde_json::from_slice(record).ok()?;
    (versioned.record_version > READS_VERSION).then_some(versioned.record_version)
}

fn encode<T: Serialize + ?Sized>(key: &str, record: &T) -> Result<Bytes> {
    let value = serde_json::to_vec(record).map_err(|source| Error::Record {
        key: key.to_owned(),
        source,
    })?;
    Ok(value.into())
}
