//! The records in memory and their copies in the store.
//!
//! The store always follows: a record changes in memory once its copy is stored. The one exception is a mark
//! that must take effect at once (a kill, an accepted launch): it is in memory first and *dirty* to the store,
//! to be written with the next batch.
//!
//! Every write names the version it replaces. After a write of which nobody knows whether it happened, the
//! next one of those keys names none: this daemon is the only writer of its prefix.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use transom_cluster::{FrameworkId, TaskId};
use transom_store::{Batch, Expect, Store};

use crate::store::intern::Interner;
use crate::{Error, InGroup, Result, TaskRecord, Tasks};

/// How long the store may take over one thing.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// How many records go into one batch at most, but for those that must be stored together: a store takes only
/// so much at once.
pub(crate) const BATCH: usize = 1000;

/// All records, and the way to the store.
#[derive(Debug)]
pub(crate) struct Ledger {
    store: Arc<dyn Store>,
    prefix: String,
    records: Arc<Tasks>,
    /// The recorded tasks of each group.
    groups: BTreeMap<TaskId, BTreeSet<TaskId>>,
    /// The stored copies' versions; a key whose last write is in doubt is in neither of the two.
    versions: BTreeMap<TaskId, u64>,
    unconfirmed: BTreeSet<TaskId>,
    dirty: BTreeSet<TaskId>,
    interner: Interner,
}

impl Ledger {
    /// Reads all records. One that cannot be read is an error: going on without it could launch its task a
    /// second time.
    pub(crate) async fn load(store: Arc<dyn Store>, prefix: &str) -> Result<Self> {
        let prefix = format!("{prefix}/tasks/");
        let entries = in_time("loading tasks", store.scan(&prefix)).await?;
        let mut ledger = Self {
            store,
            prefix,
            records: Arc::default(),
            groups: BTreeMap::new(),
            versions: BTreeMap::new(),
            unconfirmed: BTreeSet::new(),
            dirty: BTreeSet::new(),
            interner: Interner::default(),
        };
        for entry in entries {
            let record: TaskRecord =
                serde_json::from_slice(&entry.value).map_err(|source| Error::Record {
                    key: entry.key.clone(),
                    source,
                })?;
            ledger.versions.insert(record.id.clone(), entry.version);
            let record = ledger.intern(record);
            ledger.insert(record);
        }
        Ok(ledger)
    }

    /// A record that is new to memory, holding together with others what is equal in them.
    pub(crate) fn intern(&mut self, record: TaskRecord) -> Arc<TaskRecord> {
        Arc::new(self.interner.intern(record))
    }

    fn insert(&mut self, record: Arc<TaskRecord>) {
        if let Some(group) = &record.group {
            let members = self.groups.entry(group.id.clone()).or_default();
            members.insert(record.id.clone());
        }
        Arc::make_mut(&mut self.records).insert(record.id.clone(), record);
    }

    pub(crate) fn records(&self) -> &Arc<Tasks> {
        &self.records
    }

    pub(crate) fn get(&self, task: &TaskId) -> Option<&Arc<TaskRecord>> {
        self.records.get(task)
    }

    /// The recorded tasks of a group, if `id` is one's.
    pub(crate) fn group(&self, id: &TaskId) -> Option<&BTreeSet<TaskId>> {
        self.groups.get(id)
    }

    /// Changes a record in memory at once; the store gets it with the next batch.
    pub(crate) fn mark_dirty(&mut self, record: TaskRecord) -> Arc<TaskRecord> {
        let record = Arc::new(record);
        self.dirty.insert(record.id.clone());
        self.insert(Arc::clone(&record));
        record
    }

    /// Changes a record in memory only: what the store will get with the next status anyway.
    pub(crate) fn update_in_memory(&mut self, record: TaskRecord) -> Arc<TaskRecord> {
        let record = Arc::new(record);
        self.insert(Arc::clone(&record));
        record
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Stores these records, and of what is dirty as much as goes with them, in one batch, then changes them in
    /// memory. On an error memory is as before.
    pub(crate) async fn commit(&mut self, changed: Vec<Arc<TaskRecord>>) -> Result<()> {
        let mut all: BTreeMap<TaskId, Arc<TaskRecord>> = self
            .dirty
            .iter()
            .take(BATCH)
            .filter_map(|id| Some((id.clone(), Arc::clone(self.records.get(id)?))))
            .collect();
        all.extend(changed.into_iter().map(|record| (record.id.clone(), record)));
        if all.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new();
        for record in all.values() {
            let value = serde_json::to_vec(record).map_err(|source| Error::Encode {
                task: record.id.clone(),
                source,
            })?;
            batch = batch.put(self.key(&record.id), value, self.expect(&record.id));
        }
        let versions = match in_time("storing tasks", self.store.commit(batch)).await {
            Ok(versions) => versions,
            Err(error) => {
                self.mark_unconfirmed(&error, all.keys());
                return Err(error);
            }
        };
        for ((id, record), version) in all.into_iter().zip(versions) {
            self.dirty.remove(&id);
            self.unconfirmed.remove(&id);
            self.versions.insert(id, version);
            self.insert(record);
        }
        Ok(())
    }

    /// Reads a record that the store has and memory has not: somebody else's, or of a write that was thought
    /// to have failed.
    pub(crate) async fn reload(&mut self, task: &TaskId) -> Result<Option<Arc<TaskRecord>>> {
        let key = self.key(task);
        let Some(entry) = in_time("reading a task", self.store.get(&key)).await? else {
            return Ok(None);
        };
        let record: TaskRecord =
            serde_json::from_slice(&entry.value).map_err(|source| Error::Record { key, source })?;
        self.versions.insert(task.clone(), entry.version);
        self.unconfirmed.remove(task);
        let record = self.intern(record);
        self.insert(Arc::clone(&record));
        Ok(Some(record))
    }

    /// Takes records out of store and memory.
    pub(crate) async fn remove(&mut self, tasks: &[TaskId]) -> Result<()> {
        let known: Vec<&TaskId> = tasks
            .iter()
            .filter(|id| self.records.contains_key(*id) || self.unconfirmed.contains(*id))
            .collect();
        for known in known.chunks(BATCH) {
            let batch = known
                .iter()
                .fold(Batch::new(), |batch, id| batch.delete(self.key(id), Expect::Any));
            in_time("forgetting tasks", self.store.commit(batch)).await?;
        }
        let records = Arc::make_mut(&mut self.records);
        for id in tasks {
            let group = records.remove(id).and_then(|record| record.group.clone());
            if let Some(InGroup { id: group, .. }) = group
                && let Some(members) = self.groups.get_mut(&group)
            {
                members.remove(id);
                if members.is_empty() {
                    self.groups.remove(&group);
                }
            }
            self.versions.remove(id);
            self.unconfirmed.remove(id);
            self.dirty.remove(id);
        }
        Ok(())
    }

    fn key(&self, task: &TaskId) -> String {
        format!("{}{task}", self.prefix)
    }

    fn expect(&self, task: &TaskId) -> Expect {
        match self.versions.get(task) {
            _ if self.unconfirmed.contains(task) => Expect::Any,
            Some(version) => Expect::Version(*version),
            None => Expect::Absent,
        }
    }

    /// After a failed write. A conflict is certain not to have changed anything, but the one key that differs
    /// has been written by somebody else; it is said loudly and then ours is what counts.
    fn mark_unconfirmed<'a>(&mut self, error: &Error, tasks: impl Iterator<Item = &'a TaskId>) {
        if let Error::Store {
            source: transom_store::Error::Conflict { key, found },
            ..
        } = error
        {
            tracing::error!(%key, ?found, "a task's record was changed by somebody else: do two daemons share this prefix?");
            let task = key.strip_prefix(&self.prefix).map(TaskId::from);
            self.unconfirmed
                .extend(task.filter(|task| self.versions.contains_key(task)));
        } else {
            self.unconfirmed.extend(tasks.cloned());
        }
    }
}

/// Whether the store refused because a key was not as expected.
pub(crate) fn conflict(error: &Error) -> bool {
    matches!(
        error,
        Error::Store {
            source: transom_store::Error::Conflict { .. },
            ..
        }
    )
}

/// The framework's id in the store.
#[derive(Clone, Debug)]
pub(crate) struct FrameworkIdStore {
    store: Arc<dyn Store>,
    key: String,
}

impl FrameworkIdStore {
    pub(crate) fn new(store: Arc<dyn Store>, prefix: &str) -> Self {
        Self {
            store,
            key: format!("{prefix}/framework-id"),
        }
    }

    /// The id and its version; `None` before the first registration.
    pub(crate) async fn read(&self) -> Result<Option<(FrameworkId, u64)>> {
        let entry = in_time("reading the framework id", self.store.get(&self.key)).await?;
        Ok(entry.map(|entry| {
            (
                FrameworkId::from(String::from_utf8_lossy(&entry.value).trim()),
                entry.version,
            )
        }))
    }

    /// Writes the id that the cluster gave; `known`: what [`FrameworkIdStore::read`] found.
    pub(crate) async fn write(&self, id: &FrameworkId, known: Option<u64>) -> Result<()> {
        let expect = known.map_or(Expect::Absent, Expect::Version);
        let value = id.as_str().to_owned().into_bytes();
        let put = self.store.put(&self.key, value.into(), expect);
        in_time("writing the framework id", put).await.map(drop)
    }

    /// Forgets the id of a framework that the cluster has removed.
    pub(crate) async fn remove(&self, version: u64) -> Result<()> {
        let delete = self.store.delete(&self.key, Expect::Version(version));
        in_time("removing the framework id", delete).await
    }
}

async fn in_time<T>(doing: &'static str, work: impl Future<Output = transom_store::Result<T>>) -> Result<T> {
    match tokio::time::timeout(STORE_TIMEOUT, work).await {
        Ok(outcome) => outcome.map_err(|source| Error::Store { doing, source }),
        Err(_) => Err(Error::StoreSilent {
            doing,
            seconds: STORE_TIMEOUT.as_secs(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use transom_store::Entry;

    use super::*;
    use crate::testing::record;

    /// Keeps nothing but the sizes of the batches.
    #[derive(Debug, Default)]
    struct Sizes(Mutex<Vec<usize>>);

    #[async_trait]
    impl Store for Sizes {
        async fn get(&self, _key: &str) -> transom_store::Result<Option<Entry>> {
            Ok(None)
        }

        async fn scan(&self, _prefix: &str) -> transom_store::Result<Vec<Entry>> {
            Ok(Vec::new())
        }

        async fn commit(&self, batch: Batch) -> transom_store::Result<Vec<u64>> {
            let size = batch.changes().len();
            self.0.lock().unwrap().push(size);
            Ok(vec![1; size])
        }
    }

    #[tokio::test]
    async fn what_is_owed_or_forgotten_goes_in_batches_that_a_store_takes() {
        let store = Arc::new(Sizes::default());
        let mut ledger = Ledger::load(store.clone(), "fw").await.unwrap();
        let ids: Vec<TaskId> = (0..2500).map(|n| TaskId::from(format!("t{n}"))).collect();
        for id in &ids {
            ledger.mark_dirty(record(id.as_str()));
        }
        ledger.commit(vec![Arc::new(record("new"))]).await.unwrap();
        while ledger.is_dirty() {
            ledger.commit(Vec::new()).await.unwrap();
        }
        assert_eq!(ledger.records().len(), 2501);
        ledger.remove(&ids).await.unwrap();
        assert_eq!(ledger.records().len(), 1);
        assert_eq!(*store.0.lock().unwrap(), [1001, 1000, 500, 1000, 1000, 500]);
    }
}
