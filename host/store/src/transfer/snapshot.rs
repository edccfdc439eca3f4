//! All entries of a store, and their digest.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use transom_common::text::hex;

use super::{KEY, Result, call};
use crate::{Entry, Store};

/// The entries of a store at one point in time, in byte order of their keys, without the record of an
/// unfinished copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    entries: Vec<Entry>,
    contents: Contents,
}

/// Identifies entries: two stores with equal contents have the same keys and values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// The number of entries.
    pub entries: u64,
    /// Bytes of all keys and values.
    pub bytes: u64,
    /// SHA-256 of all keys and values, each with its length, in hexadecimal digits.
    pub digest: String,
}

impl Contents {
    fn of(entries: &[Entry]) -> Self {
        let (mut digest, mut bytes) = (Sha256::new(), 0);
        for entry in entries {
            for part in [entry.key.as_bytes(), &entry.value] {
                digest.update((part.len() as u64).to_be_bytes());
                digest.update(part);
                bytes += part.len() as u64;
            }
        }
        Self {
            entries: entries.len() as u64,
            bytes,
            digest: hex(&digest.finalize()),
        }
    }
}

impl Snapshot {
    /// Reads all entries of a store.
    ///
    /// # Errors
    /// [`Error::Store`](super::Error::Store).
    pub async fn of_store(store: &dyn Store) -> Result<Self> {
        let mut entries = call("reading all entries", store.scan("")).await?;
        entries.retain(|entry| entry.key != KEY);
        Ok(Self::new(entries))
    }

    /// These entries, whose keys are in byte order.
    pub(super) fn new(entries: Vec<Entry>) -> Self {
        Self {
            contents: Contents::of(&entries),
            entries,
        }
    }

    /// The entries, in byte order of their keys.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Their number, size and digest.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }
}

/// An entry of a file, which has no version.
pub(super) fn entry(key: String, value: impl Into<Bytes>) -> Entry {
    Entry {
        key,
        value: value.into(),
        version: 0,
    }
}
