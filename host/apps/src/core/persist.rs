//! Contents of the store: `<prefix>/apps<app id>`, an app with its past definitions;
//! `<prefix>/deployments/<id>`, a running deployment; `<prefix>/events/term`, the number of starts
//! of the bus. Instances are the scheduler's task records.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use transom_store::{Batch, Entry, Expect, Store};

use super::snapshot::TaskFailure;
use crate::deploy::Deployment;
use crate::ids::AppId;
use crate::model::App;
use crate::{Error, Result};

/// Definitions kept of each app, including the current one.
pub(super) const MAX_VERSIONS: usize = 25;

/// An app in the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct AppRecord {
    pub(super) app: Arc<App>,
    /// Oldest first; the last one is current.
    pub(super) versions: Vec<Arc<App>>,
    /// Deleted; kept until its instances are gone.
    #[serde(default)]
    pub(super) gone: bool,
    #[serde(default)]
    pub(super) last_failure: Option<TaskFailure>,
}

/// The service's keys in the store.
#[derive(Clone, Debug)]
pub(super) struct Repository {
    store: Arc<dyn Store>,
    prefix: String,
}

/// Changes that are committed together.
#[derive(Debug, Default)]
pub(super) struct Changes {
    puts: BTreeMap<String, Bytes>,
    deletes: Vec<String>,
}

impl Repository {
    pub(super) fn new(store: Arc<dyn Store>, prefix: &str) -> Self {
        Self {
            store,
            prefix: prefix.to_owned(),
        }
    }

    /// Reads everything stored; called once, at the start.
    pub(super) async fn load(&self) -> Result<(Vec<AppRecord>, Vec<Deployment>)> {
        let apps = self
            .scan(&format!("{}/apps/", self.prefix), "reading apps")
            .await?;
        let mut deployments: Vec<Deployment> = self
            .scan(&format!("{}/deployments/", self.prefix), "reading deployments")
            .await?;
        deployments.sort_by_key(|deployment| deployment.version);
        Ok((apps, deployments))
    }

    /// Increments, stores and returns the number of starts.
    pub(super) async fn next_term(&self) -> Result<u64> {
        let key = format!("{}/events/term", self.prefix);
        let doing = "numbering the start of the event bus";
        let failed = |source| Error::Store { doing, source };
        let last: u64 = match self.store.get(&key).await.map_err(failed)? {
            Some(entry) => decode(&entry)?,
            None => 0,
        };
        let term = last + 1;
        self.store
            .put(&key, Bytes::from(term.to_string()), Expect::Any)
            .await
            .map_err(failed)?;
        Ok(term)
    }

    pub(super) fn put_app(&self, changes: &mut Changes, record: &AppRecord) {
        changes
            .puts
            .insert(self.app_key(&record.app.id), to_bytes(record));
    }

    pub(super) fn delete_app(&self, changes: &mut Changes, id: &AppId) {
        changes.deletes.push(self.app_key(id));
    }

    pub(super) fn put_deployment(&self, changes: &mut Changes, deployment: &Deployment) {
        changes
            .puts
            .insert(self.deployment_key(&deployment.id), to_bytes(deployment));
    }

    pub(super) fn delete_deployment(&self, changes: &mut Changes, id: &str) {
        changes.deletes.push(self.deployment_key(id));
    }

    /// Commits all changes; they are durable when it returns.
    pub(super) async fn commit(&self, changes: Changes) -> transom_store::Result<()> {
        if changes.puts.is_empty() && changes.deletes.is_empty() {
            return Ok(());
        }
        let batch = changes
            .puts
            .into_iter()
            .fold(Batch::new(), |batch, (key, value)| {
                batch.put(key, value, Expect::Any)
            });
        let batch = changes
            .deletes
            .into_iter()
            .fold(batch, |batch, key| batch.delete(key, Expect::Any));
        self.store.commit(batch).await.map(drop)
    }

    async fn scan<T: DeserializeOwned>(&self, prefix: &str, doing: &'static str) -> Result<Vec<T>> {
        let entries = self
            .store
            .scan(prefix)
            .await
            .map_err(|source| Error::Store { doing, source })?;
        entries.iter().map(decode).collect()
    }

    fn app_key(&self, id: &AppId) -> String {
        format!("{}/apps{id}", self.prefix)
    }

    fn deployment_key(&self, id: &str) -> String {
        format!("{}/deployments/{id}", self.prefix)
    }
}

/// Decodes an entry's value.
pub(super) fn decode<T: DeserializeOwned>(entry: &Entry) -> Result<T> {
    serde_json::from_slice(&entry.value).map_err(|source| Error::Record {
        key: entry.key.clone(),
        source,
    })
}

/// These types only have text as keys of maps, so serialising them cannot fail.
fn to_bytes<T: Serialize>(value: &T) -> Bytes {
    Bytes::from(serde_json::to_vec(value).unwrap_or_default())
}
