//! The store into which records are copied.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use transom_framework::Framework;
use transom_store::transfer::{self, Holds};
use transom_store::typed::{self, TypedStore};
use transom_store::{Batch, Expect, Store};

use super::Records;
use super::backup::{is_of_daemon, is_record, is_term};
use crate::core::format::{self, Format};

/// The timeout of one batch.
const BATCH_TIMEOUT: Duration = Duration::from_secs(50);
/// The maximum number of changes in one batch.
const MAX_BATCH_CHANGES: usize = 20_000;
/// The maximum number of bytes in one batch.
const MAX_BATCH_BYTES: usize = 32 << 20;
/// The maximum number of keys in an error.
const MAX_NAMED_KEYS: usize = 5;

/// Why records cannot be written into a store.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// A daemon leads on it, or the lease was lost.
    #[error(transparent)]
    Held(#[from] transfer::Error),
    /// It contains records of another origin.
    #[error("the store has records already: {}; use an empty store, or another framework_name", .keys.join(", "))]
    NotEmpty {
        /// Some of their keys.
        keys: Vec<String>,
    },
    /// A daemon has led with the records of an earlier import, so they may have changed.
    #[error(
        "a daemon has led on this store since it was imported: its records are newer; use an empty store"
    )]
    Used,
    /// The store failed.
    #[error(
        "the state store failed while {doing}; if records were written, the same command can be repeated"
    )]
    Store {
        /// The operation that failed.
        doing: &'static str,
        /// The store's error.
        #[source]
        source: typed::Error,
    },
}

type Result<T> = std::result::Result<T, TargetError>;

/// A store into which records are written under one prefix.
#[derive(Debug)]
pub struct Target {
    store: Arc<dyn Store>,
    prefix: String,
}

/// A change of one key.
type Change = (String, Option<Bytes>);

impl Target {
    /// The part of `store` under `prefix`, which has no trailing slash.
    pub fn new(store: Arc<dyn Store>, prefix: impl Into<String>) -> Self {
        Self {
            store,
            prefix: prefix.into(),
        }
    }

    /// Checks whether [`Self::write`] would write these records, without any effect.
    ///
    /// # Errors
    /// The reason why they would not be written.
    pub async fn check(&self, records: &Records) -> Result<()> {
        Holds::check_free(&*self.store, &Framework::lease(&self.prefix)).await?;
        self.replaced(records).await.map(drop)
    }

    /// Writes the records, while no daemon can lead. After a failure the store is either unchanged
    /// or rejected by daemons, and the same call can be repeated.
    ///
    /// # Errors
    /// The reason why the records were not written, or not all of them.
    pub async fn write(&self, records: &Records) -> Result<()> {
        let leases = [Framework::lease(&self.prefix)];
        let holds = Holds::acquire(Arc::clone(&self.store), leases).await?;
        let outcome = self.write_with(records, &holds).await;
        holds.release().await;
        outcome
    }

    async fn write_with(&self, records: &Records, holds: &Holds) -> Result<()> {
        let mut changes: Vec<Change> = Vec::new();
        for key in self.replaced(records).await? {
            changes.push((key, None));
        }
        for (key, value) in &records.records {
            changes.push((key.clone(), Some(encoded(value)?)));
        }
        let origin = Some(records.origin.clone());
        let format = |incomplete| Format {
            format: format::CURRENT,
            copied_from: origin.clone(),
            incomplete,
        };
        let id = records.framework_id.clone().map(Bytes::from);
        changes.push((transom_scheduler::FRAMEWORK_ID_KEY.to_owned(), id));
        changes.push((format::KEY.to_owned(), Some(encoded(&format(false))?)));
        let mut batches = batches(changes);
        if batches.len() > 1 {
            let incomplete = Some(encoded(&format(true))?);
            let no_id = (transom_scheduler::FRAMEWORK_ID_KEY.to_owned(), None);
            batches.insert(0, vec![(format::KEY.to_owned(), incomplete), no_id]);
        }
        let store = holds.store();
        for batch in batches {
            holds.check()?;
            let changes = batch.into_iter().fold(Batch::new(), |batch, (key, value)| {
                let key = format!("{}/{key}", self.prefix);
                match value {
                    Some(value) => batch.put(key, value, Expect::Any),
                    None => batch.delete(key, Expect::Any),
                }
            });
            let written = typed::with_timeout(BATCH_TIMEOUT, store.commit(changes)).await;
            written.map_err(failed("writing the records"))?;
        }
        Ok(())
    }

    /// The keys that are deleted: those of an earlier copy from the same origin, and those of a
    /// daemon that has led without any apps.
    async fn replaced(&self, records: &Records) -> Result<Vec<String>> {
        let doing = "reading its records";
        let folder = format!("{}/", self.prefix);
        let entries = typed::with_timeout(typed::TIMEOUT, self.store.scan(&folder)).await;
        let entries = entries.map_err(failed(doing))?;
        let keys = entries
            .iter()
            .filter_map(|entry| entry.key.strip_prefix(&folder))
            .filter(|key| !is_of_daemon(key));
        let keys: Vec<String> = keys.map(str::to_owned).collect();
        let own: Vec<String> = keys.iter().filter(|key| is_record(key)).cloned().collect();
        if own.is_empty() {
            return Ok(keys);
        }
        let stored_format = TypedStore::new(Arc::clone(&self.store), &self.prefix)
            .get::<Format>(format::KEY)
            .await
            .map_err(failed(doing))?;
        let origin = stored_format.and_then(|stored_format| stored_format.value.copied_from);
        if origin.as_ref() != Some(&records.origin) {
            let keys = own.into_iter().take(MAX_NAMED_KEYS).collect();
            return Err(TargetError::NotEmpty { keys });
        }
        if keys.iter().any(|key| is_term(key)) {
            return Err(TargetError::Used);
        }
        Ok(keys)
    }
}

fn failed<E: Into<typed::Error>>(doing: &'static str) -> impl Fn(E) -> TargetError {
    move |error| TargetError::Store {
        doing,
        source: error.into(),
    }
}

fn encoded<T: serde::Serialize>(record: &T) -> Result<Bytes> {
    let text = serde_json::to_vec(record).map_err(|source| TargetError::Store {
        doing: "encoding a record",
        source: typed::Error::Record {
            key: String::new(),
            source,
        },
    })?;
    Ok(text.into())
}

/// Splits the changes into batches that every store accepts. A key that is both deleted and put is
/// only put.
fn batches(changes: Vec<Change>) -> Vec<Vec<Change>> {
    let put: std::collections::BTreeSet<String> = changes
        .iter()
        .filter(|(_, value)| value.is_some())
        .map(|(key, _)| key.clone())
        .collect();
    let (mut batches, mut batch, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (key, value) in changes {
        if value.is_none() && put.contains(&key) {
            continue;
        }
        let size = key.len() + value.as_ref().map_or(0, Bytes::len);
        if batch.len() == MAX_BATCH_CHANGES || !batch.is_empty() && bytes + size > MAX_BATCH_BYTES {
            batches.push(std::mem::take(&mut batch));
            bytes = 0;
        }
        bytes += size;
        batch.push((key, value));
    }
    batches.push(batch);
    batches
}
