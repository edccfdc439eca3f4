//! The layout of entries in the database, and reading them.
//!
//! Table `entries`: key to eight bytes of version, big-endian, followed by the value. Table
//! `counters`: `version` is the last assigned version, written in the same transaction as its
//! entries; `fencing` is the last granted fencing number.

use bytes::Bytes;
use redb::{Database, ReadableDatabase, Table, TableDefinition, WriteTransaction};

use crate::{Entry, Error, Result};

const ENTRIES: TableDefinition<&str, &[u8]> = TableDefinition::new("entries");
const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("counters");
const LAST_VERSION: &str = "version";
const LAST_FENCING: &str = "fencing";
const VERSION_BYTES: usize = 8;

/// A read or write error, as the crate's error.
fn unavailable(what: &'static str) -> impl Fn(redb::Error) -> Error {
    move |source| Error::Unavailable {
        what,
        source: source.into(),
    }
}

/// Creates the tables, so that readers find them in an empty store.
pub(super) fn create(database: &Database) -> Result<()> {
    let make = || -> std::result::Result<(), redb::Error> {
        let transaction = database.begin_write()?;
        transaction.open_table(ENTRIES)?;
        transaction.open_table(COUNTERS)?;
        transaction.commit()?;
        Ok(())
    };
    make().map_err(unavailable("write"))
}

pub(super) fn get(database: &Database, key: &str) -> Result<Option<Entry>> {
    let read = || -> std::result::Result<Option<Result<Entry>>, redb::Error> {
        let table = database.begin_read()?.open_table(ENTRIES)?;
        Ok(table.get(key)?.map(|stored| decode(key, stored.value())))
    };
    read().map_err(unavailable("read"))?.transpose()
}

pub(super) fn scan(database: &Database, prefix: &str) -> Result<Vec<Entry>> {
    let read = || -> std::result::Result<Result<Vec<Entry>>, redb::Error> {
        let table = database.begin_read()?.open_table(ENTRIES)?;
        let mut entries = Vec::new();
        for item in table.range(prefix..)? {
            let (key, stored) = item?;
            if !key.value().starts_with(prefix) {
                break;
            }
            match decode(key.value(), stored.value()) {
                Ok(entry) => entries.push(entry),
                Err(corrupt) => return Ok(Err(corrupt)),
            }
        }
        Ok(Ok(entries))
    };
    read().map_err(unavailable("read"))?
}

/// The last granted fencing number.
pub(super) fn last_fencing(database: &Database) -> Result<u64> {
    let read = || -> std::result::Result<u64, redb::Error> {
        let table = database.begin_read()?.open_table(COUNTERS)?;
        Ok(table.get(LAST_FENCING)?.map_or(0, |last| last.value()))
    };
    read().map_err(unavailable("read"))
}

/// The tables within one write transaction.
pub(super) struct OpenTables<'t> {
    entries: Table<'t, &'static str, &'static [u8]>,
    counters: Table<'t, &'static str, u64>,
}

impl<'t> OpenTables<'t> {
    pub(super) fn new(transaction: &'t WriteTransaction) -> std::result::Result<Self, redb::Error> {
        Ok(Self {
            entries: transaction.open_table(ENTRIES)?,
            counters: transaction.open_table(COUNTERS)?,
        })
    }

    pub(super) fn last_version(&self) -> std::result::Result<u64, redb::Error> {
        use redb::ReadableTable;
        Ok(self.counters.get(LAST_VERSION)?.map_or(0, |last| last.value()))
    }

    pub(super) fn set_last_version(&mut self, version: u64) -> std::result::Result<(), redb::Error> {
        self.counters.insert(LAST_VERSION, version)?;
        Ok(())
    }

    pub(super) fn set_last_fencing(&mut self, fencing: u64) -> std::result::Result<(), redb::Error> {
        self.counters.insert(LAST_FENCING, fencing)?;
        Ok(())
    }

    /// The current version of `key`.
    pub(super) fn version(&self, key: &str) -> std::result::Result<Result<Option<u64>>, redb::Error> {
        use redb::ReadableTable;
        Ok(self
            .entries
            .get(key)?
            .map(|stored| split(key, stored.value()).map(|(version, _)| version))
            .transpose())
    }

    pub(super) fn put(
        &mut self,
        key: &str,
        value: &[u8],
        version: u64,
    ) -> std::result::Result<(), redb::Error> {
        let mut stored = Vec::with_capacity(VERSION_BYTES + value.len());
        stored.extend_from_slice(&version.to_be_bytes());
        stored.extend_from_slice(value);
        self.entries.insert(key, stored.as_slice())?;
        Ok(())
    }

    pub(super) fn delete(&mut self, key: &str) -> std::result::Result<(), redb::Error> {
        self.entries.remove(key)?;
        Ok(())
    }
}

fn split<'b>(key: &str, stored: &'b [u8]) -> Result<(u64, &'b [u8])> {
    let (version, value) = stored
        .split_first_chunk::<VERSION_BYTES>()
        .ok_or_else(|| Error::Corrupt {
            place: key.to_owned(),
            source: None,
        })?;
    Ok((u64::from_be_bytes(*version), value))
}

fn decode(key: &str, stored: &[u8]) -> Result<Entry> {
    let (version, value) = split(key, stored)?;
    Ok(Entry {
        key: key.to_owned(),
        value: Bytes::copy_from_slice(value),
        version,
    })
}
