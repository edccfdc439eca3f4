//! The reservations in memory and in the store.
//!
//! A reservation is stored before anything is reserved or launched with it. Later changes (it was
//! offered, is released, or is removed) are made in memory and written with the next batch. If a
//! crash loses a removal, the record is found to be unused after the restart and is removed again.
//!
//! After a write whose result is unknown, the next write of the same key names no version, as in
//! [`ledger`](super::ledger).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use transom_store::typed::{Changes, TypedStore};
use transom_store::{Expect, Store};

use super::ledger::MAX_BATCH_RECORDS;
use crate::{Error, Reservation, Reservations, Result};

/// The folder of the reservations under the prefix.
pub(super) const FOLDER: &str = "reservations/";

/// All reservations, and the connection to the store.
#[derive(Debug)]
pub(crate) struct ReservationLedger {
    store: TypedStore,
    records: Arc<Reservations>,
    /// The stored versions; `None` if the last write is unconfirmed.
    versions: BTreeMap<String, Option<u64>>,
    dirty: BTreeSet<String>,
    /// Keys that are to be deleted from the store.
    removed: BTreeSet<String>,
    /// Keys that have changed since [`ReservationLedger::take_changed`].
    changed: BTreeSet<String>,
}

impl ReservationLedger {
    /// Reads all records. One that cannot be decoded is an error, because the resources and volumes
    /// of a reservation without a record would be removed.
    pub(crate) async fn load(store: Arc<dyn Store>, prefix: &str) -> Result<Self> {
        let store = TypedStore::new(store, prefix);
        let loaded = store.load_all::<Reservation>(FOLDER).await;
        let loaded = loaded.map_err(|error| Error::of_store("loading reservations", error))?;
        let mut ledger = Self {
            store,
            records: Arc::default(),
            versions: BTreeMap::new(),
            dirty: BTreeSet::new(),
            removed: BTreeSet::new(),
            changed: BTreeSet::new(),
        };
        for stored in loaded {
            let key = stored.value.key.clone();
            ledger.versions.insert(key, Some(stored.version));
            ledger.insert(stored.value);
        }
        ledger.changed.clear();
        Ok(ledger)
    }

    fn insert(&mut self, record: Reservation) {
        let key = record.key.clone();
        self.changed.insert(key.clone());
        Arc::make_mut(&mut self.records).insert(key, Arc::new(record));
    }

    pub(crate) fn records(&self) -> &Arc<Reservations> {
        &self.records
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Arc<Reservation>> {
        self.records.get(key)
    }

    /// Whether all changes of this reservation are stored.
    pub(crate) fn is_stored(&self, key: &str) -> bool {
        !self.dirty.contains(key)
    }

    /// Stores these records, then changes them in memory. On an error memory is unchanged.
    pub(crate) async fn put(&mut self, records: Vec<Reservation>) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        for chunk in records.chunks(MAX_BATCH_RECORDS) {
            self.write(&chunk.iter().collect::<Vec<_>>()).await?;
        }
        for record in records {
            self.dirty.remove(&record.key);
            self.removed.remove(&record.key);
            self.insert(record);
        }
        Ok(())
    }

    async fn write(&mut self, records: &[&Reservation]) -> Result<()> {
        let mut changes = Changes::default();
        for record in records {
            let expect = match self.versions.get(&record.key) {
                Some(Some(version)) => Expect::Version(*version),
                Some(None) => Expect::Any,
                None => Expect::Absent,
            };
            let put = changes.put(key_of(&record.key), *record, expect);
            put.map_err(|error| Error::of_store("storing reservations", error))?;
        }
        let written = self.store.commit(changes).await;
        let versions = match &written {
            Ok(versions) => versions.iter().copied().map(Some).collect(),
            Err(_) => vec![None; records.len()],
        };
        let keys = records.iter().map(|record| record.key.clone());
        self.versions.extend(keys.zip(versions));
        written
            .map(drop)
            .map_err(|error| Error::of_store("storing reservations", error))
    }

    /// Changes a record in memory; it is stored with the next batch.
    pub(crate) fn mark_dirty(&mut self, record: Reservation) {
        self.dirty.insert(record.key.clone());
        self.insert(record);
    }

    /// Removes a record from memory; it is deleted from the store with the next batch.
    pub(crate) fn remove(&mut self, key: &str) {
        if Arc::make_mut(&mut self.records).remove(key).is_some() {
            self.changed.insert(key.to_owned());
        }
        self.dirty.remove(key);
        self.removed.insert(key.to_owned());
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || !self.removed.is_empty()
    }

    /// Writes all changes that are not stored yet.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        while !self.dirty.is_empty() {
            let keys: Vec<String> = self.dirty.iter().take(MAX_BATCH_RECORDS).cloned().collect();
            let records: Vec<_> = keys
                .iter()
                .filter_map(|key| self.records.get(key).cloned())
                .collect();
            self.write(&records.iter().map(|record| &**record).collect::<Vec<_>>())
                .await?;
            for key in &keys {
                self.dirty.remove(key);
            }
        }
        let keys: Vec<String> = self.removed.iter().map(|key| key_of(key)).collect();
        if !keys.is_empty() {
            let deleted = self.store.delete_all(keys).await;
            deleted.map_err(|error| Error::of_store("deleting reservations", error))?;
            for key in std::mem::take(&mut self.removed) {
                self.versions.remove(&key);
            }
        }
        Ok(())
    }

    /// The keys of the records that have changed in memory.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.changed)
    }
}

fn key_of(key: &str) -> String {
    format!("{FOLDER}{key}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::reservation;

    async fn opened(dir: &tempfile::TempDir) -> (Arc<dyn Store>, ReservationLedger) {
        let store = transom_store::open(&format!("file:{}", dir.path().display()))
            .await
            .unwrap();
        let ledger = ReservationLedger::load(Arc::clone(&store), "fw").await.unwrap();
        (store, ledger)
    }

    async fn stored(store: &Arc<dyn Store>) -> Vec<(String, bool)> {
        let ledger = ReservationLedger::load(Arc::clone(store), "fw").await.unwrap();
        let records = ledger.records().values();
        records
            .map(|record| (record.key.clone(), record.releasing))
            .collect()
    }

    fn released(key: &str) -> Reservation {
        Reservation {
            releasing: true,
            ..reservation(key, "1")
        }
    }

    #[tokio::test]
    async fn records_are_stored_before_they_are_known_and_changes_with_the_next_batch() {
        let dir = tempfile::tempdir().unwrap();
        let (store, mut ledger) = opened(&dir).await;
        let both = vec![reservation("a", "1"), reservation("b", "1")];
        ledger.put(both).await.unwrap();
        let keys = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        assert_eq!(ledger.take_changed(), keys(&["a", "b"]));
        assert_eq!(
            stored(&store).await,
            [("a".to_owned(), false), ("b".to_owned(), false)]
        );

        ledger.mark_dirty(released("a"));
        ledger.remove("b");
        assert!(!ledger.is_stored("a") && ledger.is_dirty() && ledger.get("b").is_none());
        assert_eq!(stored(&store).await.len(), 2, "the change is not stored yet");
        ledger.flush().await.unwrap();
        assert!(ledger.is_stored("a") && !ledger.is_dirty());
        assert_eq!(stored(&store).await, [("a".to_owned(), true)]);
        assert_eq!(ledger.take_changed(), keys(&["a", "b"]));

        // A new record replaces one whose deletion is pending.
        ledger.remove("a");
        ledger.put(vec![reservation("a", "2")]).await.unwrap();
        ledger.flush().await.unwrap();
        assert_eq!(stored(&store).await, [("a".to_owned(), false)]);
        ledger.put(vec![reservation("b", "2")]).await.unwrap();
        assert_eq!(stored(&store).await.len(), 2);
    }

    #[tokio::test]
    async fn failed_write_leaves_memory_as_it_was_and_the_next_one_wins() {
        let dir = tempfile::tempdir().unwrap();
        let (store, mut ledger) = opened(&dir).await;
        let mut other = ReservationLedger::load(Arc::clone(&store), "fw").await.unwrap();
        other.put(vec![reservation("a", "other")]).await.unwrap();
        let error = ledger.put(vec![reservation("a", "1")]).await.unwrap_err();
        assert!(error.is_conflict());
        assert!(ledger.records().is_empty());
        ledger.put(vec![reservation("a", "2")]).await.unwrap();
        assert_eq!(ledger.get("a").unwrap().id, "2");
    }
}
