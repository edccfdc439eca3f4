//! The key of the daemons that share a store, by which they recognise each other's requests.
//!
//! The first daemon stores it; it never changes. To replace it, stop all daemons and delete the
//! record `transom/daemon-key`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use transom_store::typed::{Changes, Error, TypedStore};
use transom_store::{Expect, Store};
use transom_web::DaemonKey;

/// The prefix of records that belong to no framework.
const PREFIX: &str = "transom";
const KEY: &str = "daemon-key";

/// The stored key.
#[derive(Serialize, Deserialize)]
struct Record {
    key: [u8; DaemonKey::BYTES],
}

/// The key of the daemons that share `store`. A new key if no other daemon can share it (`None`).
///
/// # Errors
/// If the store cannot be read or written, or the record is damaged.
pub async fn daemon_key(store: Option<Arc<dyn Store>>) -> Result<DaemonKey, Error> {
    let record = Record { key: rand::random() };
    let Some(store) = store else {
        return Ok(DaemonKey::new(&record.key));
    };
    let records = TypedStore::new(store, PREFIX);
    if let Some(stored) = records.get::<Record>(KEY).await? {
        return Ok(DaemonKey::new(&stored.value.key));
    }
    let mut changes = Changes::default();
    changes.put(KEY, &record, Expect::Absent)?;
    match records.commit(changes).await {
        Ok(_) => Ok(DaemonKey::new(&record.key)),
        // Another daemon was faster.
        Err(conflict) if conflict.is_conflict() => match records.get::<Record>(KEY).await? {
            Some(stored) => Ok(DaemonKey::new(&stored.value.key)),
            None => Err(conflict),
        },
        Err(error) => Err(error),
    }
}

/// Decodes a record that belongs to no framework. `key`: the whole key. `None` if there are no records
/// with such a key.
///
/// # Errors
/// The record cannot be decoded.
pub fn check_record(key: &str, record: &Value) -> Option<serde_json::Result<()>> {
    let key = key.strip_prefix(PREFIX)?.strip_prefix('/')?;
    (key == KEY).then(|| Record::deserialize(record).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn key_is_stored_once_and_then_read() {
        let dir = tempfile::tempdir().unwrap();
        let server = format!("file:{}", dir.path().display());
        let store = transom_store::Config::new(&server).open().await.unwrap();
        let stored = async || store.get("transom/daemon-key").await.unwrap();
        daemon_key(None).await.unwrap();
        assert_eq!(stored().await, None, "a key for one daemon alone is not stored");
        // The first two start at the same time.
        let shared = || daemon_key(Some(Arc::clone(&store)));
        let (one, other) = tokio::join!(shared(), shared());
        one.unwrap();
        other.unwrap();
        let first = stored().await.unwrap();
        shared().await.unwrap();
        assert_eq!(stored().await.unwrap(), first);
    }
}
