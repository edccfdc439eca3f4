//! The embedded store: one redb file in its own directory.
//!
//! One thread does all writing. It combines all pending batches into one transaction with one sync,
//! so many callers share the cost of a sync. A large batch goes through a journal, in several
//! transactions, and other callers do not wait for it. Batches that change the same key keep the order
//! in which they were submitted. Readers see committed snapshots and never wait for the writer.
//!
//! The directory belongs to one process at a time. A lock on the file, which the system releases
//! when its holder ends, rejects a second process with [`Error::Locked`]. A file left behind by a
//! kill is repaired when it is opened.
//!
//! Leases end with the process that has the store open, because no other process can use it. Their
//! fencing numbers continue.
//!
//! After a failed write (disk full, I/O error) the pending callers receive [`Error::Unavailable`],
//! and the database rejects writes until the store is opened again. Reading still works.

mod batch_check;
mod large_batches;
mod table;
#[cfg(test)]
mod tests;
mod writer;

use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use redb::{Builder, Database, DatabaseError, StorageError};
use tokio::sync::{mpsc, oneshot};

use crate::leases::{HeldLease, LeaseOperation, LeaseStore, Leases};
use crate::watch::Feed;
use crate::{Batch, Durability, Entry, Error, Lease, Result, Store, Watch, limits};
use large_batches::{Commit, LargeBatches};
use writer::{Request, Writer};

/// The maximum number of batches in the writer's queue; then [`Store::commit`] waits.
const MAX_WAITING_REQUESTS: usize = 1024;
/// The size of the database's page cache. Records are read once, at the start of a term, and a write
/// needs few pages: the operating system's cache serves the rest.
const CACHE_BYTES: usize = 16 << 20;
/// The name of the database file.
const FILE_NAME: &str = "store.redb";

/// The embedded store. Dropping it finishes the submitted batches and releases the directory.
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    database: Arc<Database>,
    feed: Feed,
    // Both are `Some` until the store is dropped.
    requests: Option<mpsc::Sender<Request>>,
    writer: Option<thread::JoinHandle<()>>,
}

impl FileStore {
    /// Opens the store in `dir`. Creates a missing directory and file, readable by their owner
    /// only.
    ///
    /// # Errors
    /// [`Error::Locked`] when this or another process has it open; [`Error::Corrupt`] when the file
    /// is not a database of this store; [`Error::Unavailable`] when the directory cannot be used.
    pub async fn open(dir: PathBuf) -> Result<Self> {
        let path = dir.clone();
        let (database, has_journal, fencing) = blocking("open its directory", move || {
            let (database, has_journal) = open_database(&dir)?;
            let fencing = table::last_fencing(&database)?;
            Ok((Arc::new(database), has_journal, fencing))
        })
        .await?;
        let feed = Feed::default();
        let (requests, waiting) = mpsc::channel(MAX_WAITING_REQUESTS);
        let writer = Writer {
            database: Arc::clone(&database),
            leases: Leases::new(fencing),
            feed: feed.clone(),
            large: LargeBatches::new(has_journal),
        };
        let writer = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer.run(waiting))
            .map_err(|source| Error::Unavailable {
                what: "start its writer",
                source: source.into(),
            })?;
        Ok(Self {
            path,
            database,
            feed,
            requests: Some(requests),
            writer: Some(writer),
        })
    }

    /// The store's directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether `dir` contains a store.
    pub fn exists(dir: &Path) -> bool {
        dir.join(FILE_NAME).exists()
    }

    /// Sends a request to the writer and waits for the result.
    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<Result<T>>) -> Request) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let requests = self.requests.as_ref().ok_or(Error::Closed)?;
        requests.send(request(reply)).await.map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)?
    }
}

#[async_trait]
impl LeaseStore for FileStore {
    async fn operate(
        &self,
        _what: &'static str,
        name: &str,
        operation: LeaseOperation,
    ) -> Result<Option<HeldLease>> {
        let name = name.to_owned();
        self.ask(|reply| Request::Lease {
            name,
            operation,
            reply,
        })
        .await
    }
}

#[async_trait]
impl Store for FileStore {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        limits::key(key)?;
        let (database, key) = (Arc::clone(&self.database), key.to_owned());
        blocking("read", move || table::get(&database, &key)).await
    }

    async fn scan(&self, prefix: &str) -> Result<Vec<Entry>> {
        limits::prefix(prefix)?;
        let (database, prefix) = (Arc::clone(&self.database), prefix.to_owned());
        blocking("read", move || table::scan(&database, &prefix)).await
    }

    async fn commit(&self, batch: Batch) -> Result<Vec<u64>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        limits::batch(&batch)?;
        self.ask(|reply| Request::Commit(Commit { batch, reply })).await
    }

    async fn acquire(&self, name: &str, holder: &str, ttl: Duration) -> Result<Lease> {
        self.acquire_lease(name, holder, ttl).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Lease> {
        self.renew_lease(lease).await
    }

    async fn release(&self, lease: &Lease) -> Result<()> {
        self.release_lease(lease).await
    }

    async fn lease(&self, name: &str) -> Result<Option<Lease>> {
        self.read_lease(name).await
    }

    async fn watch(&self, prefix: &str) -> Result<Watch> {
        limits::prefix(prefix)?;
        Ok(self.feed.watch(prefix))
    }

    fn durability(&self) -> Durability {
        Durability::Synced
    }

    fn is_exclusive(&self) -> bool {
        true
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        drop(self.requests.take());
        // Waits until the submitted batches are written, usually with one sync, so that a caller
        // that drops the last handle can open the directory again immediately.
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!(path = %self.path.display(), "panic in the writer of the embedded store");
        }
    }
}

/// Runs file operations on a thread that may block.
async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|source| Error::Unavailable {
            what,
            source: source.into(),
        })?
}

/// Opens the database. Returns also whether its journal has changes.
fn open_database(dir: &Path) -> Result<(Database, bool)> {
    let unusable = |source: std::io::Error| Error::Unavailable {
        what: "use its directory",
        source: source.into(),
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(unusable)?;
    let path = dir.join(FILE_NAME);
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(unusable)?;
    let database = Builder::new()
        .set_cache_size(CACHE_BYTES)
        .create_file(file)
        .map_err(|source| rejected(dir, &path, source))?;
    // A new file is durable only once its directory entry is.
    fs::File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(unusable)?;
    let has_journal = table::create(&database)?;
    Ok((database, has_journal))
}

fn rejected(dir: &Path, path: &Path, source: DatabaseError) -> Error {
    match source {
        DatabaseError::DatabaseAlreadyOpen => Error::Locked { path: dir.to_owned() },
        DatabaseError::Storage(StorageError::Io(source))
            if source.kind() != std::io::ErrorKind::InvalidData =>
        {
            Error::Unavailable {
                what: "open its file",
                source: source.into(),
            }
        }
        source => Error::Corrupt {
            place: path.display().to_string(),
            source: Some(source.into()),
        },
    }
}
