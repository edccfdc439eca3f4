//! The layout of entries in the database, and reading them.
//!
//! Table `entries`: key to eight bytes of version, big-endian, followed by the value. Table
//! `counters`: `version` is the last assigned version, written in the same transaction as its
//! entries; `fencing` is the last granted fencing number.
//!
//! Table `journal`: the changes of one large batch, which are written to it in several transactions,
//! and moved to `entries` in several. While the counter `journal` exists, the batch is committed: its
//! changes take the place of the entries, their versions are those in the table plus the counter, and
//! no value at all deletes. Without it, the table is not read.

use std::collections::BTreeMap;

use bytes::Bytes;
use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata, Table,
    TableDefinition, WriteTransaction,
};

use crate::{Change, Entry, Error, Result};

const ENTRIES: TableDefinition<&str, &[u8]> = TableDefinition::new("entries");
const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("counters");
const JOURNAL: TableDefinition<&str, &[u8]> = TableDefinition::new("journal");
const LAST_VERSION: &str = "version";
const LAST_FENCING: &str = "fencing";
/// The last version before the committed batch in the journal.
const JOURNAL_BASE: &str = "journal";
const VERSION_BYTES: usize = 8;

/// A read or write error, as the crate's error.
fn unavailable(what: &'static str) -> impl Fn(redb::Error) -> Error {
    move |source| Error::Unavailable {
        what,
        source: source.into(),
    }
}

/// Creates the tables, so that readers find them in an empty store. Returns whether the journal has
/// changes.
pub(super) fn create(database: &Database) -> Result<bool> {
    let make = || -> std::result::Result<bool, redb::Error> {
        let transaction = database.begin_write()?;
        transaction.open_table(ENTRIES)?;
        let counters = transaction.open_table(COUNTERS)?;
        let is_committed = counters.get(JOURNAL_BASE)?.is_some();
        drop(counters);
        let has_changes = is_committed || !transaction.open_table(JOURNAL)?.is_empty()?;
        transaction.commit()?;
        Ok(has_changes)
    };
    make().map_err(unavailable("write"))
}

/// A table of keys and stored values in a snapshot.
type ReadTable = redb::ReadOnlyTable<&'static str, &'static [u8]>;

/// The journal, if its batch is committed, and the last version before the batch.
fn committed_journal(
    transaction: &ReadTransaction,
) -> std::result::Result<Option<(u64, ReadTable)>, redb::Error> {
    let base = transaction.open_table(COUNTERS)?.get(JOURNAL_BASE)?;
    let base = base.map(|base| base.value());
    let open = |base| Ok((base, transaction.open_table(JOURNAL)?));
    base.map(open).transpose()
}

pub(super) fn get(database: &Database, key: &str) -> Result<Option<Entry>> {
    let read = || -> std::result::Result<Option<Result<Entry>>, redb::Error> {
        let transaction = database.begin_read()?;
        if let Some((base, journal)) = committed_journal(&transaction)?
            && let Some(stored) = journal.get(key)?
        {
            return Ok(decode_journal(key, stored.value(), base).transpose());
        }
        let table = transaction.open_table(ENTRIES)?;
        Ok(table.get(key)?.map(|stored| decode(key, stored.value())))
    };
    read().map_err(unavailable("read"))?.transpose()
}

pub(super) fn scan(database: &Database, prefix: &str) -> Result<Vec<Entry>> {
    let read = || -> std::result::Result<Result<Vec<Entry>>, redb::Error> {
        let transaction = database.begin_read()?;
        let table = transaction.open_table(ENTRIES)?;
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
        let Some((base, journal)) = committed_journal(&transaction)? else {
            return Ok(Ok(entries));
        };
        let entries = entries.into_iter().map(|entry| (entry.key.clone(), entry));
        let mut entries: BTreeMap<String, Entry> = entries.collect();
        for item in journal.range(prefix..)? {
            let (key, stored) = item?;
            if !key.value().starts_with(prefix) {
                break;
            }
            match decode_journal(key.value(), stored.value(), base) {
                Ok(Some(entry)) => entries.insert(entry.key.clone(), entry),
                Ok(None) => entries.remove(key.value()),
                Err(corrupt) => return Ok(Err(corrupt)),
            };
        }
        Ok(Ok(entries.into_values().collect()))
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
    journal: Table<'t, &'static str, &'static [u8]>,
    /// The last version before the committed batch in the journal.
    base: Option<u64>,
}

impl<'t> OpenTables<'t> {
    pub(super) fn new(transaction: &'t WriteTransaction) -> std::result::Result<Self, redb::Error> {
        let counters = transaction.open_table(COUNTERS)?;
        let base = counters.get(JOURNAL_BASE)?.map(|base| base.value());
        Ok(Self {
            entries: transaction.open_table(ENTRIES)?,
            counters,
            journal: transaction.open_table(JOURNAL)?,
            base,
        })
    }

    pub(super) fn last_version(&self) -> std::result::Result<u64, redb::Error> {
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
        if let Some(base) = self.base
            && let Some(stored) = self.journal.get(key)?
        {
            return Ok(
                split_journal(key, stored.value(), base).map(|found| found.map(|(version, _)| version))
            );
        }
        let stored = self.entries.get(key)?;
        let found = stored.map(|stored| split(key, stored.value()).map(|(version, _)| version));
        Ok(found.transpose())
    }

    pub(super) fn put(
        &mut self,
        key: &str,
        value: &[u8],
        version: u64,
    ) -> std::result::Result<(), redb::Error> {
        self.entries.insert(key, stored(value, version).as_slice())?;
        self.remove_from_journal(key)
    }

    pub(super) fn delete(&mut self, key: &str) -> std::result::Result<(), redb::Error> {
        self.entries.remove(key)?;
        self.remove_from_journal(key)
    }

    /// Follows a change of `key` that is later than the journal's.
    fn remove_from_journal(&mut self, key: &str) -> std::result::Result<(), redb::Error> {
        if self.base.is_some() {
            self.journal.remove(key)?;
        }
        Ok(())
    }

    /// Writes a change of a batch that is not committed to the journal. `number` counts the puts of the
    /// batch, from 1.
    pub(super) fn add_to_journal(
        &mut self,
        change: &Change,
        number: u64,
    ) -> std::result::Result<(), redb::Error> {
        let stored = change.value.as_ref().map(|value| stored(value, number));
        let stored = stored.unwrap_or_default();
        self.journal.insert(change.key.as_str(), stored.as_slice())?;
        Ok(())
    }

    /// Commits the batch in the journal. `base` is the last version before it.
    pub(super) fn commit_journal(&mut self, base: u64) -> std::result::Result<(), redb::Error> {
        self.counters.insert(JOURNAL_BASE, base)?;
        self.base = Some(base);
        Ok(())
    }

    /// Moves changes from the journal to the entries, or drops those of a batch that is not committed,
    /// until one of the limits is reached. Returns whether the journal is empty.
    pub(super) fn move_journal(
        &mut self,
        max_changes: usize,
        max_bytes: usize,
    ) -> std::result::Result<bool, redb::Error> {
        let (mut changes, mut bytes) = (0, 0);
        while changes < max_changes && bytes < max_bytes {
            let Some((key, stored)) = self.journal.pop_first()? else {
                self.counters.remove(JOURNAL_BASE)?;
                self.base = None;
                return Ok(true);
            };
            changes += 1;
            bytes += stored.value().len();
            let Some(base) = self.base else { continue };
            match stored.value().split_first_chunk::<VERSION_BYTES>() {
                Some((number, value)) => {
                    let version = base + u64::from_be_bytes(*number);
                    self.entries
                        .insert(key.value(), self::stored(value, version).as_slice())?;
                }
                None => drop(self.entries.remove(key.value())?),
            }
        }
        Ok(false)
    }
}

/// A value with its version, as in the tables.
fn stored(value: &[u8], version: u64) -> Vec<u8> {
    let mut stored = Vec::with_capacity(VERSION_BYTES + value.len());
    stored.extend_from_slice(&version.to_be_bytes());
    stored.extend_from_slice(value);
    stored
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

/// Version and value of a change in the journal; `None` if it deletes.
fn split_journal<'b>(key: &str, stored: &'b [u8], base: u64) -> Result<Option<(u64, &'b [u8])>> {
    if stored.is_empty() {
        return Ok(None);
    }
    split(key, stored).map(|(number, value)| Some((base + number, value)))
}

fn decode(key: &str, stored: &[u8]) -> Result<Entry> {
    split(key, stored).map(|found| entry(key, found))
}

fn decode_journal(key: &str, stored: &[u8], base: u64) -> Result<Option<Entry>> {
    split_journal(key, stored, base).map(|found| found.map(|found| entry(key, found)))
}

fn entry(key: &str, (version, value): (u64, &[u8])) -> Entry {
    Entry {
        key: key.to_owned(),
        value: Bytes::copy_from_slice(value),
        version,
    }
}
