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

use serde::{Deserialize, Serialize};
use serde_json::Value;
use transom_common::error_chain;
use transom_store::typed::{self, Changes, Stored, TypedStore};
use transom_store::{Expect, Store};

use crate::storage::admission_record::{AdmissionOutcome, AdmissionRecord};

/// The folder of the records under the prefix.
const FOLDER: &str = "plugins/";
/// Maximum number of records of a plugin.
const MAX_RECORDS: usize = 50;
/// Maximum number of plugins with records. The least recently changed ones are evicted.
const MAX_PLUGINS: usize = 1024;
/// Maximum number of records in the queue for the store.
const MAX_QUEUED: usize = 256;
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
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The records of each plugin, oldest first.
    records: BTreeMap<String, VecDeque<AdmissionRecord>>,
    queue: VecDeque<(String, AdmissionRecord)>,
}

impl History {
    /// Loads the records. If the store is unavailable, its records stay unknown until a restart.
    pub(crate) async fn load(store: Option<Arc<dyn Store>>, prefix: &str) -> History {
        let typed = |store| {
            TypedStore::new(store, &format!("{prefix}/{}", FOLDER.trim_end_matches('/')))
                .with_timeout(STORE_TIMEOUT)
        };
        let history = History {
            store: store.map(typed),
            state: Mutex::default(),
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
        let mut state = self.state();
        for Stored { key, value, .. } in records {
            if let Some(name) = plugin_of(&key) {
                state.records.entry(name).or_default().push_back(value);
            } else {
                tracing::warn!(key, "admission record under an unknown key skipped");
            }
        }
    }

    /// The records of a plugin, newest first.
    pub(crate) fn records(&self, name: &str) -> Vec<AdmissionRecord> {
        let state = self.state();
        let records = state.records.get(name).into_iter().flatten();
        records.rev().cloned().collect()
    }

    pub(crate) fn newest(&self, name: &str) -> Option<AdmissionRecord> {
        self.state().records.get(name)?.back().cloned()
    }

    pub(crate) fn durability(&self) -> Durability {
        match (&self.store, self.state().queue.is_empty()) {
            (None, _) => Durability::Memory,
            (Some(_), true) => Durability::Store,
            (Some(_), false) => Durability::Waiting,
        }
    }

    /// The record of the serving version. `None` after its files were removed.
    pub(crate) fn active_record(&self, name: &str) -> Option<AdmissionRecord> {
        let records = self.records(name);
        let newest = records
            .iter()
            .find(|it| it.activates() || it.outcome == AdmissionOutcome::Removed)?;
        newest.activates().then(|| newest.clone())
    }

    /// Adds a record. Only one task may call this.
    pub(crate) async fn add(&self, name: &str, mut record: AdmissionRecord) {
        {
            let mut state = self.state();
            state.make_room_for(name);
            let records = state.records.entry(name.to_owned()).or_default();
            record.sequence = records.back().map_or(1, |it| it.sequence + 1);
            records.push_back(record.clone());
            while records.len() > MAX_RECORDS {
                records.pop_front();
            }
            if self.store.is_none() {
                return;
            }
            state.queue.push_back((name.to_owned(), record));
            if state.queue.len() > MAX_QUEUED {
                state.queue.pop_front();
            }
        }
        self.flush().await;
    }

    /// Writes the queued records to the store.
    pub(crate) async fn flush(&self) {
        let Some(store) = &self.store else { return };
        // The number of attempts is bounded, in case another daemon keeps using the numbers.
        for _ in 0..MAX_QUEUED * 2 {
            let Some((name, record)) = self.state().queue.front().cloned() else {
                return;
            };
            let written = match write(store, &name, &record).await {
                Err(error) if error.is_conflict() => self.renumber(store, &name).await,
                Ok(()) => {
                    self.state().queue.pop_front();
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
        let mut state = self.state();
        let State { records, queue } = &mut *state;
        // A queued record that is already in the store: its response was lost.
        queue.retain(|(plugin, record)| plugin != name || !stored.contains(record));
        let mut merged: VecDeque<AdmissionRecord> = stored.into();
        for (_, record) in queue.iter_mut().filter(|(plugin, _)| plugin == name) {
            last = (last + 1).max(record.sequence);
            record.sequence = last;
            merged.push_back(record.clone());
        }
        while merged.len() > MAX_RECORDS {
            merged.pop_front();
        }
        records.insert(name.to_owned(), merged);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Evicts the records of the least recently changed plugin, if `name` needs the space.
    fn make_room_for(&mut self, name: &str) {
        if self.records.len() < MAX_PLUGINS || self.records.contains_key(name) {
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
    if let Some(exceeding) = record.sequence.checked_sub(MAX_RECORDS as u64) {
        changes.delete(key(name, exceeding), Expect::Any);
    }
    store.commit(changes).await.map(drop)
}

fn key(name: &str, sequence: u64) -> String {
    format!("{name}/{sequence:020}")
}

/// Decodes a record of the history. `key`: under the prefix that the daemon passes to the plugin host.
/// `None` if the history has no records with such a key.
///
/// # Errors
/// The record cannot be decoded.
pub fn check_record(key: &str, record: &Value) -> Option<serde_json::Result<()>> {
    plugin_of(key.strip_prefix(FOLDER)?)?;
    Some(AdmissionRecord::deserialize(record).map(drop))
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
        is_unavailable: AtomicBool,
        /// The next commit takes effect, but its response is lost.
        loses_response: AtomicBool,
    }

    fn unavailable() -> StoreError {
        StoreError::Unavailable {
            what: "answer",
            source: "away".into(),
        }
    }

    #[async_trait::async_trait]
    impl Store for Flaky {
        async fn get(&self, _key: &str) -> transom_store::Result<Option<Entry>> {
            Err(unavailable())
        }

        async fn scan(&self, prefix: &str) -> transom_store::Result<Vec<Entry>> {
            if self.is_unavailable.load(Relaxed) {
                return Err(unavailable());
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
            if self.is_unavailable.load(Relaxed) {
                return Err(unavailable());
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
            if self.loses_response.swap(false, Relaxed) {
                return Err(unavailable());
            }
            Ok(vec![1; batch.changes().len()])
        }
    }

    async fn history(store: &Arc<Flaky>) -> History {
        let store: Arc<dyn Store> = Arc::clone(store) as _;
        History::load(Some(store), "x").await
    }

    fn record(reason: &str) -> AdmissionRecord {
        AdmissionRecord::new(AdmissionOutcome::Rejected, "test").with_reason(Some(reason))
    }

    fn reasons_by_sequence(records: &[AdmissionRecord]) -> Vec<(u64, String)> {
        let pairs = records.iter().map(|it| (it.sequence, it.reason.clone().unwrap()));
        pairs.collect()
    }

    #[tokio::test]
    async fn records_wait_while_the_store_is_unavailable() {
        let store = Arc::new(Flaky::default());
        let one = history(&store).await;
        store.is_unavailable.store(true, Relaxed);
        one.add("p", record("a")).await;
        one.add("p", record("b")).await;
        assert_eq!(one.durability(), Durability::Waiting);
        assert_eq!(one.records("p").len(), 2, "it is in memory immediately");
        store.is_unavailable.store(false, Relaxed);
        one.flush().await;
        assert_eq!(one.durability(), Durability::Store);
        // A lost response does not duplicate the record.
        store.loses_response.store(true, Relaxed);
        one.add("p", record("c")).await;
        assert_eq!(one.durability(), Durability::Waiting);
        one.add("p", record("d")).await;
        assert_eq!(one.durability(), Durability::Store);
        let stored = history(&store).await.records("p");
        assert_eq!(stored, one.records("p"));
        assert_eq!(
            reasons_by_sequence(&stored),
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
        let found = reasons_by_sequence(&history(&store).await.records("p"));
        assert_eq!(found, [(3, "c".into()), (2, "b".into()), (1, "a".into())]);
        assert_eq!(reasons_by_sequence(&one.records("p")), found);
        assert_eq!(history(&store).await.records("q").len(), 1);
    }

    #[tokio::test]
    async fn records_are_bounded_and_invalid_ones_are_skipped() {
        let store = Arc::new(Flaky::default());
        let one = history(&store).await;
        for n in 0..60 {
            one.add("p", record(&n.to_string())).await;
        }
        assert_eq!(
            (one.records("p").len(), one.records("p")[0].sequence),
            (MAX_RECORDS, 60)
        );
        assert_eq!(store.entries.lock().unwrap().len(), MAX_RECORDS);
        let odd = "x/plugins/p/00000000000000000099".to_owned();
        store.entries.lock().unwrap().insert(odd, b"nonsense".to_vec());
        let reloaded = history(&store).await;
        assert_eq!(reloaded.records("p"), one.records("p"));
        reloaded.add("p", record("next")).await;
        assert_eq!(reloaded.records("p")[0].sequence, 61);
        let odd = "x/plugins/p/00000000000000000062".to_owned();
        store.entries.lock().unwrap().insert(odd, b"nonsense".to_vec());
        reloaded.add("p", record("after")).await;
        assert_eq!(reloaded.durability(), Durability::Store);
        assert_eq!(
            reloaded.records("p")[0].sequence,
            100,
            "numbers of invalid records are skipped"
        );

        let memory = History::load(None, "x").await;
        for n in 0..MAX_PLUGINS + 10 {
            memory.add(&format!("p{n:05}"), record("a")).await;
        }
        assert_eq!(memory.state().records.len(), MAX_PLUGINS);
        assert_eq!(memory.durability(), Durability::Memory);
    }

    #[tokio::test]
    async fn active_record_is_the_newest_that_serves() {
        let memory = History::load(None, "x").await;
        for (outcome, expected) in [
            (AdmissionOutcome::Rejected, None),
            (AdmissionOutcome::Admitted, Some(2)),
            (AdmissionOutcome::Disabled, Some(2)),
            (AdmissionOutcome::Shadowing, Some(2)),
            (AdmissionOutcome::Canary, Some(2)),
            (AdmissionOutcome::Aborted, Some(2)),
            (AdmissionOutcome::RolledBack, Some(7)),
            (AdmissionOutcome::Promoted, Some(8)),
            (AdmissionOutcome::Removed, None),
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
