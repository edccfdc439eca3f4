//! Admission records of every plugin: a copy in memory for readers, and the persistent one in the
//! store.
//!
//! A record is in memory immediately, and in the store as soon as the store accepts it. Until then
//! it is queued in order, and [`History::durability`] reports that. No operation waits longer than
//! [`STORE_TIMEOUT`] for an unavailable store: plugins serve without it. Daemons with a common
//! store share the sequence numbers; a number that is already in use is skipped.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::Serialize;
use transom_common::error_chain;
use transom_store::typed::{self, Changes, Stored, TypedStore};
use transom_store::{Expect, Store};

use crate::storage::admission_record::{AdmissionRecord, Outcome};

/// Maximum number of records of a plugin.
const RECORDS: usize = 50;
/// Maximum number of plugins with records. The least recently changed ones are evicted.
const PLUGINS: usize = 1024;
/// Maximum number of records in the queue for the store.
const WAITING: usize = 256;
/// Timeout of one store operation.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a plugin's records are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// In the store.
    Store,
    /// In memory: no store is configured, so they are lost when the daemon stops.
    Memory,
    /// In memory, until the store accepts them.
    Waiting,
}

#[derive(Debug)]
pub(crate) struct History {
    /// The records under `PREFIX/plugins`.
    store: Option<TypedStore>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The records of each plugin, oldest first.
    records: BTreeMap<String, VecDeque<AdmissionRecord>>,
    waiting: VecDeque<(String, AdmissionRecord)>,
}

impl History {
    /// Loads the records. If the store is unavailable, its records stay unknown until a restart.
    pub(crate) async fn load(store: Option<Arc<dyn Store>>, prefix: &str) -> History {
        let typed = |store| TypedStore::new(store, &format!("{prefix}/plugins")).with_timeout(STORE_TIMEOUT);
        let history = History {
            store: store.map(typed),
            inner: Mutex::default(),
        };
        if let Some(store) = &history.store {
            match store.load_valid("").await {
                Ok((records, invalid)) => history.insert_loaded(records, &invalid),
                Err(error) => tracing::warn!(
                    error = error_chain(&error),
                    "cannot load the admission records of plugins"
                ),
            }
        }
        history
    }

    fn insert_loaded(&self, records: Vec<Stored<AdmissionRecord>>, invalid: &[typed::Error]) {
        for error in invalid {
            tracing::warn!(error = error_chain(error), "invalid admission record skipped");
        }
        let mut inner = self.inner();
        for Stored { key, value, .. } in records {
            if let Some(name) = plugin_of(&key) {
                inner.records.entry(name).or_default().push_back(value);
            } else {
                tracing::warn!(key, "admission record under an unknown key skipped");
            }
        }
    }

    /// The records of a plugin, newest first.
    pub(crate) fn of(&self, name: &str) -> Vec<AdmissionRecord> {
        let inner = self.inner();
        let records = inner.records.get(name).into_iter().flatten();
        records.rev().cloned().collect()
    }

    pub(crate) fn newest(&self, name: &str) -> Option<AdmissionRecord> {
        self.inner().records.get(name)?.back().cloned()
    }

    pub(crate) fn durability(&self) -> Durability {
        match (&self.store, self.inner().waiting.is_empty()) {
            (None, _) => Durability::Memory,
            (Some(_), true) => Durability::Store,
            (Some(_), false) => Durability::Waiting,
        }
    }

    /// The record of the serving version. `None` after its files were removed.
    pub(crate) fn active_record(&self, name: &str) -> Option<AdmissionRecord> {
        let records = self.of(name);
        let newest = records
            .iter()
            .find(|it| it.serves() || it.outcome == Outcome::Removed)?;
        newest.serves().then(|| newest.clone())
    }

    /// Adds a record. Only one task may call this.
    pub(crate) async fn add(&self, name: &str, mut record: AdmissionRecord) {
        {
            let mut inner = self.inner();
            inner.forget_someone(name);
            let records = inner.records.entry(name.to_owned()).or_default();
            record.sequence = records.back().map_or(1, |it| it.sequence + 1);
            records.push_back(record.clone());
            while records.len() > RECORDS {
                records.pop_front();
            }
            if self.store.is_none() {
                return;
            }
            inner.waiting.push_back((name.to_owned(), record));
            if inner.waiting.len() > WAITING {
                inner.waiting.pop_front();
            }
        }
        self.flush().await;
    }

    /// Writes the queued records to the store.
    pub(crate) async fn flush(&self) {
        let Some(store) = &self.store else { return };
        // The number of attempts is bounded, in case another daemon keeps using the numbers.
        for _ in 0..WAITING * 2 {
            let Some((name, record)) = self.inner().waiting.front().cloned() else {
                return;
            };
            let written = match write(store, &name, &record).await {
                Err(error) if error.is_conflict() => self.renumber(store, &name).await,
                Ok(()) => {
                    self.inner().waiting.pop_front();
                    Ok(())
                }
                failed => failed,
            };
            if let Err(error) = written {
                tracing::warn!(
                    plugin = name,
                    error = error_chain(&error),
                    "admission record not stored, retrying"
                );
                return;
            }
        }
    }

    /// Renumbers the queued records after those in the store. Another daemon has added records, or
    /// a response was lost.
    async fn renumber(&self, store: &TypedStore, name: &str) -> typed::Result<()> {
        let (found, invalid) = store.load_valid(&format!("{name}/")).await?;
        let stored: Vec<AdmissionRecord> = found.into_iter().map(|record| record.value).collect();
        let of_invalid = invalid.iter().filter_map(|error| match error {
            typed::Error::Record { key, .. } | typed::Error::Newer { key, .. } => {
                key.rsplit('/').next()?.parse().ok()
            }
            _ => None,
        });
        let in_use = stored.iter().map(|it| it.sequence).chain(of_invalid);
        let mut last = in_use.max().unwrap_or_default();
        let mut inner = self.inner();
        let Inner { records, waiting } = &mut *inner;
        // A queued record that is already in the store: its response was lost.
        waiting.retain(|(plugin, record)| plugin != name || !stored.contains(record));
        let mut known: VecDeque<AdmissionRecord> = stored.into();
        for (_, record) in waiting.iter_mut().filter(|(plugin, _)| plugin == name) {
            last = (last + 1).max(record.sequence);
            record.sequence = last;
            known.push_back(record.clone());
        }
        while known.len() > RECORDS {
            known.pop_front();
        }
        records.insert(name.to_owned(), known);
        Ok(())
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Evicts the records of the least recently changed plugin, if `name` needs the space.
    fn forget_someone(&mut self, name: &str) {
        if self.records.len() < PLUGINS || self.records.contains_key(name) {
            return;
        }
        let last = |records: &VecDeque<AdmissionRecord>| records.back().map_or(0, |it| it.at);
        let oldest = self.records.iter().min_by_key(|(_, records)| last(records));
        if let Some(name) = oldest.map(|(name, _)| name.clone()) {
            self.records.remove(&name);
        }
    }
}

/// Writes a record if its number is unused, and deletes the record that exceeds the maximum.
async fn write(store: &TypedStore, name: &str, record: &AdmissionRecord) -> typed::Result<()> {
    let mut changes = Changes::default();
    changes.put(key(name, record.sequence), record, Expect::Absent)?;
    if let Some(old) = record.sequence.checked_sub(RECORDS as u64) {
        changes.delete(key(name, old), Expect::Any);
    }
    store.commit(changes).await.map(drop)
}

fn key(name: &str, sequence: u64) -> String {
    format!("{name}/{sequence:020}")
}

fn plugin_of(key: &str) -> Option<String> {
    let (name, sequence) = key.rsplit_once('/')?;
    sequence.parse::<u64>().ok().map(|_| name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use transom_store::{Batch, Entry, Error as StoreError};

    use super::*;

    /// A store that can be unavailable.
    #[derive(Debug, Default)]
    struct Flaky {
        entries: Mutex<BTreeMap<String, Vec<u8>>>,
        away: AtomicBool,
        /// The next commit takes effect, but its response is lost.
        mute: AtomicBool,
    }

    fn away() -> StoreError {
        StoreError::Unavailable {
            what: "answer",
            source: "away".into(),
        }
    }

    #[async_trait::async_trait]
    impl Store for Flaky {
        async fn get(&self, _key: &str) -> transom_store::Result<Option<Entry>> {
            Err(away())
        }

        async fn scan(&self, prefix: &str) -> transom_store::Result<Vec<Entry>> {
            if self.away.load(Relaxed) {
                return Err(away());
            }
            let entries = self.entries.lock().unwrap();
            Ok(entries
                .range(prefix.to_owned()..)
                .take_while(|(key, _)| key.starts_with(prefix))
                .map(|(key, value)| Entry {
                    key: key.clone(),
                    value: value.clone().into(),
                    version: 1,
                })
                .collect())
        }

        async fn commit(&self, batch: Batch) -> transom_store::Result<Vec<u64>> {
            if self.away.load(Relaxed) {
                return Err(away());
            }
            let mut entries = self.entries.lock().unwrap();
            for change in batch.changes() {
                let found = entries.contains_key(&change.key).then_some(1);
                if !change.expect.accepts(found) {
                    let key = change.key.clone();
                    return Err(StoreError::Conflict { key, found });
                }
                match &change.value {
                    Some(value) => entries.insert(change.key.clone(), value.to_vec()),
                    None => entries.remove(&change.key),
                };
            }
            if self.mute.swap(false, Relaxed) {
                return Err(away());
            }
            Ok(vec![1; batch.changes().len()])
        }
    }

    async fn history(store: &Arc<Flaky>) -> History {
        let store: Arc<dyn Store> = Arc::clone(store) as _;
        History::load(Some(store), "x").await
    }

    fn record(reason: &str) -> AdmissionRecord {
        AdmissionRecord::new(Outcome::Refused, "test").because(Some(reason))
    }

    fn told(records: &[AdmissionRecord]) -> Vec<(u64, String)> {
        let told = records.iter().map(|it| (it.sequence, it.reason.clone().unwrap()));
        told.collect()
    }

    #[tokio::test]
    async fn records_wait_while_the_store_is_unavailable() {
        let store = Arc::new(Flaky::default());
        let one = history(&store).await;
        store.away.store(true, Relaxed);
        one.add("p", record("a")).await;
        one.add("p", record("b")).await;
        assert_eq!(one.durability(), Durability::Waiting);
        assert_eq!(one.of("p").len(), 2, "it is in memory immediately");
        store.away.store(false, Relaxed);
        one.flush().await;
        assert_eq!(one.durability(), Durability::Store);
        // A lost response does not duplicate the record.
        store.mute.store(true, Relaxed);
        one.add("p", record("c")).await;
        assert_eq!(one.durability(), Durability::Waiting);
        one.add("p", record("d")).await;
        assert_eq!(one.durability(), Durability::Store);
        let stored = history(&store).await.of("p");
        assert_eq!(stored, one.of("p"));
        assert_eq!(
            told(&stored),
            [4, 3, 2, 1]
                .into_iter()
                .zip(["d", "c", "b", "a"].map(String::from))
                .collect::<Vec<_>>()
        );
    }

    #[tokio::test]
    async fn records_of_two_daemons_on_one_store_are_all_kept() {
        let store = Arc::new(Flaky::default());
        let (one, two) = (history(&store).await, history(&store).await);
        one.add("p", record("a")).await;
        two.add("p", record("b")).await;
        one.add("p", record("c")).await;
        one.add("q", record("d")).await;
        let found = told(&history(&store).await.of("p"));
        assert_eq!(found, [(3, "c".into()), (2, "b".into()), (1, "a".into())]);
        assert_eq!(told(&one.of("p")), found);
        assert_eq!(history(&store).await.of("q").len(), 1);
    }

    #[tokio::test]
    async fn records_are_bounded_and_invalid_ones_are_skipped() {
        let store = Arc::new(Flaky::default());
        let one = history(&store).await;
        for n in 0..60 {
            one.add("p", record(&n.to_string())).await;
        }
        assert_eq!((one.of("p").len(), one.of("p")[0].sequence), (RECORDS, 60));
        assert_eq!(store.entries.lock().unwrap().len(), RECORDS);
        let odd = "x/plugins/p/00000000000000000099".to_owned();
        store.entries.lock().unwrap().insert(odd, b"nonsense".to_vec());
        let again = history(&store).await;
        assert_eq!(again.of("p"), one.of("p"));
        again.add("p", record("next")).await;
        assert_eq!(again.of("p")[0].sequence, 61);
        let odd = "x/plugins/p/00000000000000000062".to_owned();
        store.entries.lock().unwrap().insert(odd, b"nonsense".to_vec());
        again.add("p", record("after")).await;
        assert_eq!(again.durability(), Durability::Store);
        assert_eq!(
            again.of("p")[0].sequence,
            100,
            "numbers of invalid records are skipped"
        );

        let memory = History::load(None, "x").await;
        for n in 0..PLUGINS + 10 {
            memory.add(&format!("p{n:05}"), record("a")).await;
        }
        assert_eq!(memory.inner().records.len(), PLUGINS);
        assert_eq!(memory.durability(), Durability::Memory);
    }

    #[tokio::test]
    async fn active_record_is_the_newest_that_serves() {
        let memory = History::load(None, "x").await;
        for (outcome, expected) in [
            (Outcome::Refused, None),
            (Outcome::Admitted, Some(2)),
            (Outcome::Disabled, Some(2)),
            (Outcome::Shadowing, Some(2)),
            (Outcome::Canary, Some(2)),
            (Outcome::Returned, Some(2)),
            (Outcome::RolledBack, Some(7)),
            (Outcome::Promoted, Some(8)),
            (Outcome::Removed, None),
        ] {
            memory.add("p", AdmissionRecord::new(outcome, "test")).await;
            assert_eq!(
                memory.active_record("p").map(|it| it.sequence),
                expected,
                "{outcome:?}"
            );
        }
    }
}
