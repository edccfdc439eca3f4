//! The view of a standby: apps, pods, deployments and launched tasks as the leader stores them.
//!
//! The mirror watches the store and reads changed entries, so its delay is that of the store's
//! notices. While the store is unavailable, readers keep the last known state. Data that is never
//! stored is missing: tasks that are not launched yet and results of checks. Health is the last known.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::{FutureExt, StreamExt, TryStreamExt};
use imbl::OrdMap;
use tokio::sync::{mpsc, oneshot};
use transom_cluster::TaskId;
use transom_common::error_chain;
use transom_replicas::LaunchBackoff;
use transom_scheduler::TaskRecord;
use transom_store::typed::{self, decode};
use transom_store::{Entry, Notice, Store, Watch};

use super::history::History;
use super::known_health::{HealthRecord, last_known};
use super::persist::{SpecRecord, StepRecord};
use super::snapshot::{Snapshot, SpecView};
use crate::deploy::Deployment;
use crate::ids::{GroupId, InstanceId, SpecId};
use crate::instance::Instance;
use crate::tree::Group;
use crate::{Error, Result};

/// Delay before the store is read again after a failure.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Maximum number of changed keys that are read in one batch.
const MAX_BATCH_KEYS: usize = 1024;

/// The number of concurrent reads.
const MAX_CONCURRENT_READS: usize = 16;

/// Requests a notification as soon as everything that was stored before is visible.
pub(crate) type CatchUp = oneshot::Sender<()>;

/// The mirror. Its snapshot outlives it.
#[derive(Debug)]
pub(crate) struct Mirror {
    store: Arc<dyn Store>,
    prefix: String,
    snapshot: Arc<ArcSwap<Snapshot>>,
    state: StandbyState,
    is_stale: bool,
}

/// The state read from the store. Pure.
#[derive(Debug, Default)]
struct StandbyState {
    specs: BTreeMap<SpecId, SpecRecord>,
    groups: OrdMap<GroupId, Arc<Group>>,
    deployments: BTreeMap<String, Arc<Deployment>>,
    tasks: BTreeMap<SpecId, BTreeMap<TaskId, Arc<TaskRecord>>>,
    /// The app or pod of each task in `tasks`.
    owners: BTreeMap<TaskId, SpecId>,
    health: BTreeMap<InstanceId, HealthRecord>,
    dirty: BTreeSet<SpecId>,
}

impl Mirror {
    pub(crate) fn new(store: Arc<dyn Store>, prefix: &str, snapshot: Arc<ArcSwap<Snapshot>>) -> Self {
        Self {
            store,
            prefix: format!("{prefix}/"),
            snapshot,
            state: StandbyState::default(),
            is_stale: false,
        }
    }

    /// Reads all records and publishes a snapshot of them.
    pub(crate) async fn load(&mut self) -> Result<()> {
        let mut state = StandbyState::default();
        for folder in [
            "apps/",
            "groups/",
            "deployments/",
            "deployment-steps/",
            "tasks/",
            "health/",
        ] {
            let entries = self.scan(folder).await?;
            for entry in &entries {
                state.put(&entry.key[self.prefix.len()..], entry);
            }
        }
        self.state = state;
        self.snapshot
            .store(Arc::new(self.state.snapshot(Snapshot::default())));
        Ok(())
    }

    /// Follows the store until dropped.
    pub(crate) async fn follow(&mut self, syncs: &mut mpsc::Receiver<CatchUp>) -> Infallible {
        loop {
            let error = match self.follow_changes(syncs).await {
                Ok(()) => continue,
                Err(error) => error,
            };
            if !std::mem::replace(&mut self.is_stale, true) {
                tracing::warn!(
                    error = error_chain(&error),
                    "standby view is stale: the state store is unavailable"
                );
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Reads all records, then every change. Returns when notices were missed and all must be read
    /// again.
    async fn follow_changes(&mut self, syncs: &mut mpsc::Receiver<CatchUp>) -> Result<()> {
        let failed = |error| Error::of_store("watching for changes", error);
        let watch = self.store.watch(&self.prefix);
        let mut watch = typed::with_timeout(typed::TIMEOUT, watch).await.map_err(failed)?;
        self.load().await?;
        if std::mem::take(&mut self.is_stale) {
            tracing::info!("standby view is up to date again");
        }
        loop {
            let mut waiting = Vec::new();
            let first = tokio::select! {
                notice = watch.next() => match notice {
                    Some(notice) => Some(notice),
                    None => return Err(failed(transom_store::Error::Closed.into())),
                },
                Some(sync) = syncs.recv() => {
                    waiting.push(sync);
                    // Notices arrive no later than replies: when this read returns, all changes
                    // that were stored before it have been notified.
                    self.read("apps".to_owned()).await?;
                    None
                }
            };
            let Some(keys) = changed_keys(first, &mut watch, &self.prefix) else {
                return Ok(());
            };
            let entries = keys.into_iter().map(|key| {
                let read = self.read(key.clone());
                async { Ok((key, read.await?)) }
            });
            let entries: Vec<(String, Option<Entry>)> = futures::stream::iter(entries)
                .buffer_unordered(MAX_CONCURRENT_READS)
                .try_collect()
                .await?;
            for (key, entry) in entries {
                match entry {
                    Some(entry) => self.state.put(&key, &entry),
                    None => self.state.delete(&key),
                }
            }
            let snapshot_before = Snapshot::clone(&self.snapshot.load());
            self.snapshot
                .store(Arc::new(self.state.snapshot(snapshot_before)));
            for sync in waiting {
                // The client may have disconnected.
                let _ = sync.send(());
            }
        }
    }

    async fn read(&self, key: String) -> Result<Option<Entry>> {
        let key = format!("{}{key}", self.prefix);
        let entry = typed::with_timeout(typed::TIMEOUT, self.store.get(&key)).await;
        entry.map_err(|error| Error::of_store("reading changed records", error))
    }

    async fn scan(&self, folder: &str) -> Result<Vec<Entry>> {
        let prefix = format!("{}{folder}", self.prefix);
        let entries = typed::with_timeout(typed::TIMEOUT, self.store.scan(&prefix)).await;
        entries.map_err(|error| Error::of_store("reading all records", error))
    }
}

/// The keys of the first notice and of all further notices that have arrived, without the prefix.
/// `None` if notices were missed.
fn changed_keys(first: Option<Notice>, watch: &mut Watch, prefix: &str) -> Option<BTreeSet<String>> {
    let mut keys = BTreeSet::new();
    let mut next = first.or_else(|| watch.next().now_or_never().flatten());
    while let Some(notice) = next {
        match notice {
            Notice::Lagged => return None,
            Notice::Changed { key, .. } => keys.extend(key.strip_prefix(prefix).map(str::to_owned)),
        }
        next = if keys.len() < MAX_BATCH_KEYS {
            watch.next().now_or_never().flatten()
        } else {
            None
        };
    }
    Some(keys)
}

impl StandbyState {
    /// Applies an entry. An entry that cannot be decoded is logged and skipped, because only the
    /// leader depends on every record.
    fn put(&mut self, key: &str, entry: &Entry) {
        let outcome = if key.starts_with("apps/") {
            decode::<SpecRecord>(entry).map(|record| {
                self.dirty.insert(record.spec.id().clone());
                self.specs.insert(record.spec.id().clone(), record);
            })
        } else if key.starts_with("groups/") {
            decode::<Arc<Group>>(entry).map(|group| drop(self.groups.insert(group.id.clone(), group)))
        } else if let Some(id) = key.strip_prefix("deployments/") {
            decode::<Deployment>(entry).map(|deployment| {
                self.deployments.insert(id.to_owned(), Arc::new(deployment));
            })
        } else if let Some(id) = key.strip_prefix("deployment-steps/") {
            decode::<StepRecord>(entry).map(|step| {
                if let Some(deployment) = self.deployments.get_mut(id) {
                    Arc::make_mut(deployment).continue_at(step.current);
                }
            })
        } else if let Some(id) = key.strip_prefix("tasks/") {
            decode::<TaskRecord>(entry).map(|record| {
                self.forget(&TaskId::from(id));
                self.task(&Arc::new(record));
            })
        } else if let Some(id) = key.strip_prefix("health/").and_then(InstanceId::parse) {
            decode::<HealthRecord>(entry).map(|record| {
                self.dirty.extend(id.spec());
                self.health.insert(id, record);
            })
        } else {
            Ok(())
        };
        if let Err(error) = outcome {
            tracing::warn!(
                error = error_chain(&error),
                "record skipped: it cannot be decoded"
            );
        }
    }

    fn task(&mut self, record: &Arc<TaskRecord>) {
        let app = SpecId::parse(&record.run_spec).ok();
        if let (Some(app), false) = (app, record.is_terminal()) {
            self.dirty.insert(app.clone());
            self.owners.insert(record.id.clone(), app.clone());
            self.tasks
                .entry(app)
                .or_default()
                .insert(record.id.clone(), Arc::clone(record));
        }
    }

    fn forget(&mut self, task: &TaskId) {
        let Some(app) = self.owners.remove(task) else {
            return;
        };
        if let Some(tasks) = self.tasks.get_mut(&app) {
            tasks.remove(task);
            if tasks.is_empty() {
                self.tasks.remove(&app);
            }
        }
        self.dirty.insert(app);
    }

    fn delete(&mut self, key: &str) {
        if let Some(id) = key.strip_prefix("apps").and_then(|id| SpecId::parse(id).ok()) {
            self.specs.remove(&id);
            self.dirty.insert(id);
        } else if let Some(id) = key.strip_prefix("groups").and_then(|id| GroupId::parse(id).ok()) {
            self.groups.remove(&id);
        } else if let Some(id) = key.strip_prefix("deployments/") {
            self.deployments.remove(id);
        } else if let Some(id) = key.strip_prefix("tasks/") {
            self.forget(&TaskId::from(id));
        } else if let Some(id) = key.strip_prefix("health/").and_then(InstanceId::parse) {
            self.health.remove(&id);
            self.dirty.extend(id.spec());
        }
    }

    /// The snapshot that results from `snapshot_before` and the changed records.
    fn snapshot(&mut self, snapshot_before: Snapshot) -> Snapshot {
        let (mut specs, mut deleted) = (snapshot_before.specs, snapshot_before.deleted);
        for id in std::mem::take(&mut self.dirty) {
            specs.remove(&id);
            deleted.remove(&id);
            let Some(record) = self.specs.get(&id) else {
                continue;
            };
            let tasks = self.tasks.get(&id).into_iter().flat_map(BTreeMap::values);
            let mut instances = OrdMap::new();
            let mut requests: BTreeMap<&TaskId, Vec<Arc<TaskRecord>>> = BTreeMap::new();
            for record in tasks {
                let of_request = requests.entry(record.request_id()).or_default();
                of_request.push(Arc::clone(record));
            }
            let checks = record.spec.health_checks();
            for mut instance in requests
                .values()
                .filter_map(|records| Instance::of_records(records))
            {
                // The store may still contain an earlier task of the instance.
                let newer =
                    |existing: &Arc<Instance>| existing.replica.incarnation > instance.replica.incarnation;
                if !instances.get(&instance.id).is_some_and(newer) {
                    instance.health = last_known(&instance, checks, self.health.get(&instance.id));
                    instances.insert(instance.id.clone(), Arc::new(instance));
                }
            }
            let view = SpecView {
                spec: record.spec.clone(),
                versions: record.versions().collect(),
                past: BTreeMap::new(),
                instances,
                last_failure: record.last_failure.clone(),
                terminations: record.terminations.clone(),
                backoff: LaunchBackoff::default(),
            };
            let views = if record.deleted { &mut deleted } else { &mut specs };
            views.insert(id, Arc::new(view));
        }
        let mut locks = OrdMap::new();
        for deployment in self.deployments.values() {
            let id: Arc<str> = deployment.id.as_str().into();
            locks.extend(deployment.specs().map(|app| (app.clone(), Arc::clone(&id))));
        }
        let deployments = self.deployments.values();
        let deployments = deployments.map(|one| ((one.version, one.id.clone()), Arc::clone(one)));
        Snapshot {
            specs,
            deleted,
            groups: self.groups.clone(),
            deployments: deployments.collect(),
            locks,
            history: History::default(),
        }
    }
}
