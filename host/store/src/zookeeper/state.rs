//! The state that results from the log, and what requests change in it. Pure: the caller passes the
//! time.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::records::Record;
use crate::leases::{HeldLease, LeaseOperation, Leases};
use crate::{Batch, Entry, Error, Notice, Result};

/// Key, version and value of all entries.
pub(super) type Entries = BTreeMap<Arc<str>, (u64, Bytes)>;

/// Everything up to a position in the log.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// The last applied position.
    pub(super) position: u64,
    entries: Entries,
    leases: Leases,
    last_version: u64,
}

impl State {
    /// The state before the log's first entry. `first`: no version and no number up to this one is
    /// assigned.
    pub(super) fn new(position: u64, first: u64) -> Self {
        Self {
            position,
            entries: Entries::new(),
            leases: Leases::new(first),
            last_version: first,
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<Entry> {
        let (key, (version, value)) = self.entries.get_key_value(key)?;
        Some(entry(key, *version, value))
    }

    pub(super) fn scan(&self, prefix: &str) -> Vec<Entry> {
        let from = self
            .entries
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let found = from.take_while(|(key, _)| key.starts_with(prefix));
        found
            .map(|(key, (version, value))| entry(key, *version, value))
            .collect()
    }

    /// Applies the next entry of the log, or records of a snapshot. Leases count from `now`.
    pub(super) fn apply(&mut self, records: impl IntoIterator<Item = Record>, now: Instant) -> Vec<Notice> {
        let mut notices = Vec::new();
        for record in records {
            match record {
                Record::Put { key, version, value } => {
                    self.last_version = self.last_version.max(version);
                    notices.push(Notice::Changed {
                        key: key.to_string(),
                        version: Some(version),
                    });
                    self.entries.insert(key, (version, value));
                }
                Record::Delete { key } => {
                    self.entries.remove(&key);
                    notices.push(Notice::Changed {
                        key: key.to_string(),
                        version: None,
                    });
                }
                Record::Grant {
                    name,
                    holder,
                    fencing,
                    ttl,
                } => {
                    let expires = now + ttl;
                    let held = HeldLease {
                        holder,
                        fencing,
                        ttl,
                        expires,
                    };
                    self.leases.granted(name, held);
                }
                Record::Release { name } => self.leases.released(&name),
                Record::Counters { version, fencing } => {
                    self.last_version = self.last_version.max(version);
                    self.leases.continue_after(fencing);
                }
            }
        }
        notices
    }

    /// The records of a snapshot.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> {
        let counters = Record::Counters {
            version: self.last_version,
            fencing: self.leases.last(),
        };
        let leases = self.leases.iter().map(|(name, held)| Record::Grant {
            name: name.clone(),
            holder: held.holder.clone(),
            fencing: held.fencing,
            ttl: held.ttl,
        });
        let entries = self.entries.iter().map(|(key, (version, value))| Record::Put {
            key: Arc::clone(key),
            version: *version,
            value: value.clone(),
        });
        std::iter::once(counters).chain(leases).chain(entries)
    }
}

fn entry(key: &str, version: u64, value: &Bytes) -> Entry {
    Entry {
        key: key.to_owned(),
        value: value.clone(),
        version,
    }
}

/// The next entry of the log while requests are added to it. Each request sees the ones before it.
#[derive(Debug)]
pub(super) struct Draft<'s> {
    state: &'s State,
    now: Instant,
    leases: Leases,
    last_version: u64,
    /// The versions of changed keys; `None` if deleted.
    changed: BTreeMap<String, Option<u64>>,
    records: Vec<Record>,
}

impl<'s> Draft<'s> {
    pub(super) fn new(state: &'s State, now: Instant) -> Self {
        Self {
            state,
            now,
            leases: state.leases.clone(),
            last_version: state.last_version,
            changed: BTreeMap::new(),
            records: Vec::new(),
        }
    }

    /// Adds a batch; returns the versions of its changes.
    pub(super) fn commit(&mut self, batch: &Batch) -> Result<Vec<u64>> {
        for fence in batch.fences() {
            self.leases.check(fence, self.now)?;
        }
        let (mut own, mut last) = (BTreeMap::<&str, Option<u64>>::new(), self.last_version);
        let (mut versions, mut records) = (Vec::new(), Vec::new());
        for change in batch.changes() {
            let key = change.key.as_str();
            let found = own.get(key).copied().unwrap_or_else(|| self.version(key));
            if !change.expect.accepts(found) {
                return Err(Error::Conflict {
                    key: key.to_owned(),
                    found,
                });
            }
            let key_of_record = Arc::from(key);
            if let Some(value) = &change.value {
                last += 1;
                own.insert(key, Some(last));
                versions.push(last);
                records.push(Record::Put {
                    key: key_of_record,
                    version: last,
                    value: value.clone(),
                });
            } else {
                own.insert(key, None);
                versions.push(0);
                records.push(Record::Delete { key: key_of_record });
            }
        }
        let own = own.into_iter().map(|(key, version)| (key.to_owned(), version));
        self.changed.extend(own);
        self.last_version = last;
        self.records.append(&mut records);
        Ok(versions)
    }

    /// Adds an operation on a lease; returns the resulting lease.
    pub(super) fn lease(&mut self, name: &str, operation: &LeaseOperation) -> Result<Option<HeldLease>> {
        let before = self.leases.apply(name, &LeaseOperation::Read, self.now)?;
        let held = self.leases.apply(name, operation, self.now)?;
        match (operation, &held) {
            (LeaseOperation::Acquire { .. } | LeaseOperation::Renew { .. }, Some(held)) => {
                self.records.push(Record::Grant {
                    name: name.to_owned(),
                    holder: held.holder.clone(),
                    fencing: held.fencing,
                    ttl: held.ttl,
                });
            }
            (LeaseOperation::Release { .. }, None) if before.is_some() => {
                self.records.push(Record::Release {
                    name: name.to_owned(),
                });
            }
            _ => {}
        }
        Ok(held)
    }

    pub(super) fn into_records(self) -> Vec<Record> {
        self.records
    }

    fn version(&self, key: &str) -> Option<u64> {
        let stored = || self.state.entries.get(key).map(|(version, _)| *version);
        self.changed.get(key).copied().unwrap_or_else(stored)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)] // Tests may panic.
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Expect;

    #[test]
    fn requests_of_an_entry_see_those_before_them_and_a_rejected_one_leaves_nothing() {
        let (mut state, now) = (State::new(0, 100), Instant::now());
        let mut draft = Draft::new(&state, now);
        let put = |key: &str, expect| Batch::new().put(key, "x", expect);
        assert_eq!(draft.commit(&put("a", Expect::Absent)).unwrap(), [101]);
        let rejected = put("b", Expect::Any).put("a", "y", Expect::Absent);
        let rejected = draft.commit(&rejected);
        assert!(
            matches!(rejected, Err(Error::Conflict { found: Some(101), .. })),
            "{rejected:?}"
        );
        assert_eq!(draft.commit(&put("b", Expect::Absent)).unwrap(), [102]);
        let twice = Batch::new()
            .delete("a", Expect::Version(101))
            .put("a", "z", Expect::Absent);
        assert_eq!(draft.commit(&twice).unwrap(), [0, 103]);
        let records = draft.into_records();
        let notices = state.apply(records, now);
        assert_eq!(notices.len(), 4);
        assert_eq!(state.get("a").unwrap().version, 103);
        assert_eq!(state.scan("").len(), 2);
    }

    #[test]
    fn snapshot_has_everything_and_versions_continue() {
        let (mut state, now) = (State::new(0, 100), Instant::now());
        let mut draft = Draft::new(&state, now);
        let ttl = Duration::from_secs(10);
        let acquire = LeaseOperation::Acquire {
            holder: "h".to_owned(),
            ttl,
        };
        let held = draft.lease("l", &acquire).unwrap().unwrap();
        let fenced = Batch::new().put("a", "x", Expect::Any).fenced("l", held.fencing);
        draft.commit(&fenced).unwrap();
        draft.commit(&Batch::new().put("gone", "x", Expect::Any)).unwrap();
        draft.commit(&Batch::new().delete("gone", Expect::Any)).unwrap();
        let records = draft.into_records();
        state.apply(records, now);

        let mut loaded = State::new(state.position, 0);
        loaded.apply(state.records().collect::<Vec<_>>(), now);
        assert_eq!(loaded.scan(""), state.scan(""));
        let held = |state: &State| {
            state
                .leases
                .iter()
                .map(|(_, held)| held.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(held(&loaded), held(&state));
        let mut draft = Draft::new(&loaded, now);
        let versions = draft.commit(&Batch::new().put("b", "x", Expect::Absent)).unwrap();
        assert_eq!(
            versions,
            [103],
            "the version of a deleted key is not assigned again"
        );
    }
}
