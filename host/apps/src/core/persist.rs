//! Contents of the store: `<prefix>/apps<app id>`, an app with its past definitions;
//! `<prefix>/deployments/<id>`, a running deployment; `<prefix>/term`, the number of terms, which
//! is part of the ids of events. Instances are the scheduler's task records.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use transom_store::Expect;
use transom_store::typed::{self, TypedStore};

use super::snapshot::TaskFailure;
use crate::config::Checks;
use crate::deploy::Deployment;
use crate::ids::AppId;
use crate::model::{App, Effect};
use crate::time::Moment;
use crate::{Error, Result};

/// The folders under the prefix.
const APPS: &str = "apps/";
const DEPLOYMENTS: &str = "deployments/";

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
    /// The last request for a restart: instances of earlier versions are outdated.
    #[serde(default)]
    pub(super) restarted_at: Option<Moment>,
}

impl AppRecord {
    /// Whether an instance of this version has to be replaced. The content of the definition
    /// decides, not its time: after a rollback, instances of the restored content stay.
    pub(super) fn is_outdated(&self, version: Moment, checks: Checks) -> bool {
        if self
            .restarted_at
            .is_some_and(|restarted_at| version < restarted_at)
        {
            return true;
        }
        let definition = self.versions.iter().find(|app| app.version == version);
        definition.is_none_or(|app| app.effect_of(&self.app, checks) == Effect::Replace)
    }

    /// The versions whose instances stay.
    pub(super) fn current_versions(&self, checks: Checks) -> BTreeSet<Moment> {
        let versions = self.versions.iter().map(|app| app.version);
        versions
            .filter(|version| !self.is_outdated(*version, checks))
            .collect()
    }
}

/// The service's part of the store. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Repository(TypedStore);

/// Changes that are committed together.
#[derive(Debug, Default)]
pub(super) struct Changes {
    changes: typed::Changes,
    pub(super) touched: Touched,
}

/// The records that some changes concern.
#[derive(Clone, Debug, Default)]
pub(super) struct Touched {
    pub(super) apps: BTreeSet<AppId>,
    /// Ids of deployments.
    pub(super) deployments: BTreeSet<String>,
}

impl Touched {
    pub(super) fn is_empty(&self) -> bool {
        self.apps.is_empty() && self.deployments.is_empty()
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.apps.extend(other.apps);
        self.deployments.extend(other.deployments);
    }
}

impl Repository {
    pub(super) fn new(store: TypedStore) -> Self {
        Self(store)
    }

    /// Reads everything stored; called once, at the start.
    pub(super) async fn load(&self) -> Result<(Vec<AppRecord>, Vec<Deployment>)> {
        let apps = self.load_all(APPS, "reading apps").await?;
        let mut deployments: Vec<Deployment> = self.load_all(DEPLOYMENTS, "reading deployments").await?;
        deployments.sort_by_key(|deployment| deployment.version);
        Ok((apps, deployments))
    }

    async fn load_all<T: DeserializeOwned>(&self, folder: &str, doing: &'static str) -> Result<Vec<T>> {
        let stored = self.0.load_all(folder).await;
        let stored = stored.map_err(|error| Error::of_store(doing, error))?;
        Ok(stored.into_iter().map(|stored| stored.value).collect())
    }

    /// Begins a term; returns its number.
    pub(super) async fn next_term(&self) -> Result<u64> {
        let term = self.0.next_term().await;
        term.map_err(|error| Error::of_store("counting this term", error))
    }

    /// Commits all changes; they are durable when it returns.
    pub(super) async fn commit(&self, changes: Changes) -> typed::Result<()> {
        self.0.commit(changes.changes).await.map(drop)
    }
}

impl Changes {
    pub(super) fn put_app(&mut self, record: &AppRecord) -> typed::Result<()> {
        self.touched.apps.insert(record.app.id.clone());
        self.changes.put(app_key(&record.app.id), record, Expect::Any)
    }

    pub(super) fn delete_app(&mut self, id: &AppId) {
        self.touched.apps.insert(id.clone());
        self.changes.delete(app_key(id), Expect::Any);
    }

    pub(super) fn put_deployment(&mut self, deployment: &Deployment) -> typed::Result<()> {
        self.touched.deployments.insert(deployment.id.clone());
        self.changes
            .put(deployment_key(&deployment.id), deployment, Expect::Any)
    }

    pub(super) fn delete_deployment(&mut self, id: &str) {
        self.touched.deployments.insert(id.to_owned());
        self.changes.delete(deployment_key(id), Expect::Any);
    }
}

/// An app's id begins with a slash.
fn app_key(id: &AppId) -> String {
    format!("apps{id}")
}

fn deployment_key(id: &str) -> String {
    format!("{DEPLOYMENTS}{id}")
}
