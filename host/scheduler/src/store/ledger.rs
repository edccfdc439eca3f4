//! The task records in memory and in the store.
//!
//! A record changes in memory only after it is stored. The exceptions are changes that must take
//! effect immediately (a kill, an accepted launch): they are made in memory, marked as *dirty* and
//! written with the next batch.
//!
//! Every write names the version that it replaces. After a write whose result is unknown, the next
//! write of those keys names no version, because this daemon is the only writer of its prefix.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use transom_cluster::{FrameworkId, TaskId};
use transom_store::typed::{self, Changes, Stored, TypedStore};
use transom_store::{Expect, Store};

use crate::store::intern::Interner;
use crate::{Error, InGroup, Result, TaskRecord, Tasks};

/// The folder of the task records under the prefix.
pub(super) const FOLDER: &str = "tasks/";
/// The key of the framework's id under the prefix.
pub(super) const FRAMEWORK_ID: &str = "framework-id";

/// Maximum records in one batch, because stores limit the size of a batch. Records that must be
/// stored together may exceed it.
pub(crate) const MAX_BATCH_RECORDS: usize = 1000;

/// All records, and the connection to the store.
#[derive(Debug)]
pub(crate) struct Ledger {
    store: TypedStore,
    records: Arc<Tasks>,
    /// The tasks of each group.
    groups: BTreeMap<TaskId, BTreeSet<TaskId>>,
    /// The tasks of each run spec.
    by_run_spec: HashMap<String, BTreeSet<TaskId>>,
    /// The stored versions. If the last write of a key is unconfirmed, its version in the store may
    /// differ.
    versions: BTreeMap<TaskId, u64>,
    unconfirmed: BTreeSet<TaskId>,
    dirty: BTreeSet<TaskId>,
    interner: Interner,
}

impl Ledger {
    /// Reads all records. A record that cannot be decoded is an error, because ignoring it could
    /// launch its task twice.
    pub(crate) async fn load(store: Arc<dyn Store>, prefix: &str) -> Result<Self> {
        let mut ledger = Self {
            store: TypedStore::new(store, prefix),
            records: Arc::default(),
            groups: BTreeMap::new(),
            by_run_spec: HashMap::new(),
            versions: BTreeMap::new(),
            unconfirmed: BTreeSet::new(),
            dirty: BTreeSet::new(),
            interner: Interner::default(),
        };
        let store = ledger.store.clone();
        let loaded = store.load_each(FOLDER, |stored: Stored<TaskRecord>| {
            // Equal parts are shared immediately, because each decoded record has its own copy.
            ledger.versions.insert(stored.value.id.clone(), stored.version);
            let record = ledger.intern(stored.value);
            ledger.insert(record);
        });
        loaded
            .await
            .map_err(|error| Error::of_store("loading tasks", error))?;
        Ok(ledger)
    }

    /// Interns a record that is new in memory.
    pub(crate) fn intern(&mut self, record: TaskRecord) -> Arc<TaskRecord> {
        Arc::new(self.interner.intern(record))
    }

    fn insert(&mut self, record: Arc<TaskRecord>) {
        if let Some(group) = &record.group {
            let members = self.groups.entry(group.id.clone()).or_default();
            members.insert(record.id.clone());
        }
        match self.by_run_spec.get_mut(&record.run_spec) {
            Some(tasks) if tasks.contains(&record.id) => {}
            Some(tasks) => drop(tasks.insert(record.id.clone())),
            None => {
                let tasks = BTreeSet::from([record.id.clone()]);
                self.by_run_spec.insert(record.run_spec.clone(), tasks);
            }
        }
        Arc::make_mut(&mut self.records).insert(record.id.clone(), record);
    }

    pub(crate) fn records(&self) -> &Arc<Tasks> {
        &self.records
    }

    pub(crate) fn get(&self, task: &TaskId) -> Option<&Arc<TaskRecord>> {
        self.records.get(task)
    }

    /// The tasks of a group, if `id` is the id of one.
    pub(crate) fn group(&self, id: &TaskId) -> Option<&BTreeSet<TaskId>> {
        self.groups.get(id)
    }

    /// The records of a run spec, in the order of their ids.
    pub(crate) fn of_run_spec(&self, run_spec: &str) -> impl Iterator<Item = &Arc<TaskRecord>> {
        let tasks = self.by_run_spec.get(run_spec).into_iter().flatten();
        tasks.filter_map(|task| self.records.get(task))
    }

    /// Changes a record in memory; it is stored with the next batch.
    pub(crate) fn mark_dirty(&mut self, record: TaskRecord) -> Arc<TaskRecord> {
        let record = Arc::new(record);
        self.dirty.insert(record.id.clone());
        self.insert(Arc::clone(&record));
        record
    }

    /// Changes a record in memory only; the next status stores it anyway.
    pub(crate) fn update_in_memory(&mut self, record: TaskRecord) -> Arc<TaskRecord> {
        let record = Arc::new(record);
        self.insert(Arc::clone(&record));
        record
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Stores these records and as many dirty ones as fit in one batch, then changes them in
    /// memory. On an error memory is unchanged.
    pub(crate) async fn commit(&mut self, changed: Vec<Arc<TaskRecord>>) -> Result<()> {
        let mut batch: BTreeMap<TaskId, Arc<TaskRecord>> = self
            .dirty
            .iter()
            .take(MAX_BATCH_RECORDS)
            .filter_map(|id| Some((id.clone(), Arc::clone(self.records.get(id)?))))
            .collect();
        batch.extend(changed.into_iter().map(|record| (record.id.clone(), record)));
        if batch.is_empty() {
            return Ok(());
        }
        let versions = match self.write(&batch).await {
            Ok(versions) => versions,
            Err(error) => {
                self.mark_unconfirmed(&error, batch.keys());
                return Err(Error::of_store("storing tasks", error));
            }
        };
        for ((id, record), version) in batch.into_iter().zip(versions) {
            self.dirty.remove(&id);
            self.unconfirmed.remove(&id);
            self.versions.insert(id, version);
            self.insert(record);
        }
        Ok(())
    }

    async fn write(&self, records: &BTreeMap<TaskId, Arc<TaskRecord>>) -> typed::Result<Vec<u64>> {
        let mut changes = Changes::default();
        for record in records.values() {
            changes.put(key(&record.id), record, self.expected_version(&record.id))?;
        }
        self.store.commit(changes).await
    }

    /// Reads a record that is in the store but not in memory, because another daemon wrote it, or
    /// because a write was wrongly considered to have failed.
    pub(crate) async fn reload(&mut self, task: &TaskId) -> Result<Option<Arc<TaskRecord>>> {
        let stored = self.store.get::<TaskRecord>(&key(task)).await;
        let Some(stored) = stored.map_err(|error| Error::of_store("reading a task", error))? else {
            return Ok(None);
        };
        self.versions.insert(task.clone(), stored.version);
        self.unconfirmed.remove(task);
        let record = self.intern(stored.value);
        self.insert(Arc::clone(&record));
        Ok(Some(record))
    }

    /// Deletes records from the store and from memory. Returns false if there were none to delete.
    pub(crate) async fn remove(&mut self, tasks: &[TaskId]) -> Result<bool> {
        let stored_keys: Vec<String> = tasks
            .iter()
            .filter(|id| self.records.contains_key(*id) || self.unconfirmed.contains(*id))
            .map(key)
            .collect();
        let has_stored_records = !stored_keys.is_empty();
        let deleted = self.store.delete_all(stored_keys).await;
        deleted.map_err(|error| Error::of_store("deleting tasks", error))?;
        let records = Arc::make_mut(&mut self.records);
        for id in tasks {
            let removed = records.remove(id);
            if let Some(record) = &removed
                && let Some(tasks) = self.by_run_spec.get_mut(&record.run_spec)
            {
                tasks.remove(id);
                if tasks.is_empty() {
                    self.by_run_spec.remove(&record.run_spec);
                }
            }
            let group = removed.and_then(|record| record.group.clone());
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
        Ok(has_stored_records)
    }

    fn expected_version(&self, task: &TaskId) -> Expect {
        match self.versions.get(task) {
            _ if self.unconfirmed.contains(task) => Expect::Any,
            Some(version) => Expect::Version(*version),
            None => Expect::Absent,
        }
    }

    /// Handles a failed write. After a conflict nothing was written, but another writer has changed
    /// the key that differs. That is logged as an error, and the next write of this daemon
    /// overwrites it.
    fn mark_unconfirmed<'a>(&mut self, error: &typed::Error, tasks: impl Iterator<Item = &'a TaskId>) {
        if let typed::Error::Store(transom_store::Error::Conflict { key, found }) = error {
            tracing::error!(%key, ?found, "conflict: another writer changed a task record; check that no second daemon uses this prefix");
            let task = key.strip_prefix(&self.store.key(FOLDER)).map(TaskId::from);
            self.unconfirmed
                .extend(task.filter(|task| self.versions.contains_key(task)));
        } else {
            self.unconfirmed.extend(tasks.cloned());
        }
    }
}

pub(super) fn key(task: &TaskId) -> String {
    format!("{FOLDER}{task}")
}

/// The framework id in the store.
#[derive(Clone, Debug)]
pub(crate) struct FrameworkIdStore {
    store: Arc<dyn Store>,
    key: String,
}

impl FrameworkIdStore {
    pub(crate) fn new(store: Arc<dyn Store>, prefix: &str) -> Self {
        Self {
            store,
            key: format!("{prefix}/{FRAMEWORK_ID}"),
        }
    }

    /// Reads the id and its version; `None` before the first registration.
    pub(crate) async fn read(&self) -> Result<Option<(FrameworkId, u64)>> {
        let entry = with_timeout("reading the framework id", self.store.get(&self.key)).await?;
        Ok(entry.map(|entry| {
            (
                FrameworkId::from(String::from_utf8_lossy(&entry.value).trim()),
                entry.version,
            )
        }))
    }

    /// Stores the id that the master assigned. `version` is the version that
    /// [`FrameworkIdStore::read`] returned.
    pub(crate) async fn write(&self, id: &FrameworkId, version: Option<u64>) -> Result<()> {
        let expected_version = version.map_or(Expect::Absent, Expect::Version);
        let value = id.as_str().to_owned().into_bytes();
        let put = self.store.put(&self.key, value.into(), expected_version);
        with_timeout("writing the framework id", put).await.map(drop)
    }

    /// Deletes the id of a framework that the master removed.
    pub(crate) async fn remove(&self, version: u64) -> Result<()> {
        let delete = self.store.delete(&self.key, Expect::Version(version));
        with_timeout("removing the framework id", delete).await
    }
}

async fn with_timeout<T>(
    doing: &'static str,
    operation: impl Future<Output = transom_store::Result<T>>,
) -> Result<T> {
    let outcome = typed::with_timeout(typed::TIMEOUT, operation).await;
    outcome.map_err(|error| Error::of_store(doing, error))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use transom_store::{Batch, Entry};

    use super::*;
    use crate::testing::record;

    /// A store that records only the sizes of the batches.
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
    async fn commit_and_remove_split_large_writes_into_batches() {
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
        let of_run_spec = |ledger: &Ledger| ledger.of_run_spec(&record("new").run_spec).count();
        assert_eq!(
            (of_run_spec(&ledger), ledger.of_run_spec("/none").count()),
            (2501, 0)
        );
        ledger.remove(&ids).await.unwrap();
        assert_eq!(ledger.records().len(), 1);
        assert_eq!(of_run_spec(&ledger), 1);
        assert_eq!(*store.0.lock().unwrap(), [1001, 1000, 500, 1000, 1000, 500]);
    }
}
