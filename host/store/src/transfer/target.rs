//! Writing a snapshot to a store.

use serde::{Deserialize, Serialize};

use super::{Contents, Error, Holds, KEY, Result, Snapshot, call};
use crate::typed::{self, decode};
use crate::{Batch, Entry, Expect, Store};

/// The maximum number of entries in one batch. With the record of the copy, the embedded store still
/// commits it in one transaction.
const MAX_BATCH_ENTRIES: usize = 999;
/// The maximum bytes of keys and values in one batch of several entries.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// The maximum number of keys in an error.
const MAX_NAMED_KEYS: usize = 5;

/// The record of an unfinished copy, under [`KEY`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The source for display: the address of a store without secrets, or the name of a file.
    pub from: String,
    /// All entries of the source.
    pub contents: Contents,
    /// The last copied key; the entries up to it are in the store.
    pub after: String,
    /// The number of copied entries.
    pub copied: u64,
}

impl Progress {
    fn another(self) -> Error {
        Error::Another {
            from: self.from,
            copied: self.copied,
            entries: self.contents.entries,
        }
    }
}

/// The record of an unfinished copy in a store, if there is one.
///
/// # Errors
/// [`Error::Store`].
pub async fn unfinished(store: &dyn Store) -> Result<Option<Progress>> {
    Ok(read(store).await?.map(|(progress, _)| progress))
}

/// Checks that the store has no unfinished copy.
///
/// # Errors
/// [`Error::Unfinished`], and [`Error::Store`].
pub async fn check_finished(store: &dyn Store) -> Result<()> {
    match unfinished(store).await? {
        None => Ok(()),
        Some(progress) => Err(Error::Unfinished {
            from: progress.from,
            copied: progress.copied,
            entries: progress.contents.entries,
        }),
    }
}

/// The record with its version.
async fn read(store: &dyn Store) -> Result<Option<(Progress, u64)>> {
    let doing = "reading the state of a copy";
    let entry = call(doing, store.get(KEY)).await?;
    let progress = entry.map(|entry| decode(&entry).map(|progress| (progress, entry.version)));
    progress.transpose().map_err(Error::of(doing))
}

/// Writes the entries of `snapshot` to an empty store, or those that are missing in an unfinished copy
/// of the same entries. The copy remains unfinished until [`finish`]. Calls `report` with the number of
/// written entries, before the first batch and after each.
///
/// # Errors
/// [`Error::NotEmpty`], [`Error::Another`], [`Error::Empty`]: the store is unchanged. After
/// [`Error::Store`] and [`Error::LeaseLost`] the same call continues the copy.
pub async fn write(snapshot: &Snapshot, from: &str, to: &Holds, mut report: impl FnMut(u64)) -> Result<()> {
    let (entries, store) = (snapshot.entries(), to.store());
    if entries.is_empty() {
        return Err(Error::Empty);
    }
    let (mut written, mut expect) = match read(&*store).await? {
        Some((progress, _)) if progress.contents != *snapshot.contents() => return Err(progress.another()),
        Some((progress, version)) => {
            let written = entries.partition_point(|entry| entry.key <= progress.after);
            (written, Expect::Version(version))
        }
        None => {
            check_empty(&*store).await?;
            (0, Expect::Absent)
        }
    };
    report(written as u64);
    while let Some(batch) = next_batch(entries, written) {
        to.check()?;
        written += batch.len();
        let progress = Progress {
            from: from.to_owned(),
            contents: snapshot.contents().clone(),
            after: batch.last().map(|entry| entry.key.clone()).unwrap_or_default(),
            copied: written as u64,
        };
        let version = commit(&*store, batch, &progress, expect).await?;
        expect = Expect::Version(version);
        report(written as u64);
    }
    Ok(())
}

/// Commits a batch with the record of the copy; returns the record's version.
async fn commit(store: &dyn Store, entries: &[Entry], progress: &Progress, expect: Expect) -> Result<u64> {
    let doing = "writing entries; the same command continues after those that were written";
    let record = serde_json::to_vec(progress).map_err(|source| typed::Error::Record {
        key: KEY.to_owned(),
        source,
    });
    let record = record.map_err(Error::of(doing))?;
    let batch = entries
        .iter()
        .fold(Batch::new().put(KEY, record, expect), |batch, entry| {
            batch.put(entry.key.clone(), entry.value.clone(), Expect::Absent)
        });
    let versions = call(doing, store.commit(batch)).await?;
    let version = versions.first().copied().ok_or(crate::Error::Closed);
    version.map_err(Error::of(doing))
}

/// The entries of the next batch; `None` after the last one.
fn next_batch(entries: &[Entry], written: usize) -> Option<&[Entry]> {
    let (left, mut bytes) = (entries.get(written..)?, 0);
    let fits = |entry: &&Entry| {
        let first = bytes == 0;
        bytes += entry.key.len() + entry.value.len();
        first || bytes <= MAX_BATCH_BYTES
    };
    let count = left.iter().take(MAX_BATCH_ENTRIES).take_while(fits).count();
    left.get(..count).filter(|batch| !batch.is_empty())
}

async fn check_empty(store: &dyn Store) -> Result<()> {
    let found = call("reading all entries", store.scan("")).await?;
    if found.is_empty() {
        return Ok(());
    }
    let count = found.len();
    let keys = found.into_iter().take(MAX_NAMED_KEYS).map(|entry| entry.key);
    Err(Error::NotEmpty {
        count,
        keys: keys.collect(),
    })
}

/// Compares all keys and values in the store with `contents`, and completes the copy.
///
/// # Errors
/// [`Error::Differs`], and [`Error::Store`]: the copy remains unfinished.
pub async fn finish(contents: &Contents, to: &Holds) -> Result<()> {
    let store = to.store();
    let found = Snapshot::of_store(&*store).await?;
    if found.contents() != contents {
        return Err(Error::Differs {
            found: found.contents().entries,
            expected: contents.entries,
        });
    }
    to.check()?;
    call("completing the copy", store.delete(KEY, Expect::Any)).await
}

/// Deletes everything in a store with an unfinished copy, on which no daemon has led. A store without
/// one is not changed.
///
/// # Errors
/// [`Error::Store`] and [`Error::LeaseLost`]: the copy remains unfinished.
pub async fn clear(to: &Holds) -> Result<()> {
    let store = to.store();
    if read(&*store).await?.is_none() {
        return Ok(());
    }
    let found = Snapshot::of_store(&*store).await?;
    for entries in found.entries().chunks(MAX_BATCH_ENTRIES) {
        to.check()?;
        let batch = entries.iter().fold(Batch::new(), |batch, entry| {
            batch.delete(entry.key.clone(), Expect::Any)
        });
        call("discarding a copy", store.commit(batch)).await?;
    }
    call("discarding a copy", store.delete(KEY, Expect::Any)).await
}
