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

use super::counts::InstanceCounts;
use super::history::History;
use super::known_health::{HealthRecord, last_known};
use super::persist::{SpecRecord, StepRecord};
use super::snapshot::Snapshot;
use super::spec_view::SpecView;
use crate::deploy::Deployment;
use crate::ids::{GroupId, InstanceId, SpecId};
use crate::instance::Instance;
use crate::time::Moment;
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
    specs: BTreeMap<SpecId, Arc<SpecRecord>>,
    groups: OrdMap<GroupId, Arc<Group>>,
    deployments: BTreeMap<String, Arc<Deployment>>,
    /// The same, as snapshots have them.
    by_version: OrdMap<(Moment, String), Arc<Deployment>>,
    /// The deployments of each app or pod, of which the last one locks it.
    lockers: BTreeMap<SpecId, BTreeSet<Arc<str>>>,
    locks: OrdMap<SpecId, Arc<str>>,
    tasks: BTreeMap<SpecId, InstanceTasks>,
    /// The app or pod and the instance of each task in `tasks`.
    owners: BTreeMap<TaskId, (SpecId, InstanceId)>,
    health: BTreeMap<InstanceId, HealthRecord>,
    /// The changes since the last snapshot.
    dirty: BTreeMap<SpecId, Changed>,
}

/// The tasks of the instances of an app or pod.
type InstanceTasks = BTreeMap<InstanceId, BTreeMap<TaskId, Arc<TaskRecord>>>;

/// The changed parts of an app or pod: some of its instances, or all of them and the definition.
#[derive(Debug)]
enum Changed {
    Instances(BTreeSet<InstanceId>),
    All,
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
                biased;
                Some(sync) = syncs.recv() => {
                    waiting.push(sync);
                    // Notices arrive no later than replies: when this read returns, all changes
                    // that were stored before it have been notified.
                    self.read("apps".to_owned()).await?;
                    None
                }
                notice = watch.next() => match notice {
                    Some(notice) => Some(notice),
                    None => return Err(failed(transom_store::Error::Closed.into())),
                },
            };
            let Some(keys) = changed_keys(first, &mut watch, &self.prefix) else {
                return Ok(());
            };
            let entries = keys.into_iter().map(|key| {
                let read = self.read(key.clone());
                async { Ok::<_, Error>((key, read.await?)) }
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
            decode::<SpecRecord>(entry).map(|record| self.put_spec(record))
        } else if key.starts_with("groups/") {
            decode::<Arc<Group>>(entry).map(|group| drop(self.groups.insert(group.id.clone(), group)))
        } else if let Some(id) = key.strip_prefix("deployments/") {
            decode::<Deployment>(entry).map(|deployment| self.put_deployment(id, deployment))
        } else if let Some(id) = key.strip_prefix("deployment-steps/") {
            decode::<StepRecord>(entry).map(|step| {
                if let Some(deployment) = self.deployments.get_mut(id) {
                    Arc::make_mut(deployment).continue_at(step.current);
                    let key = (deployment.version, deployment.id.clone());
                    self.by_version.insert(key, Arc::clone(deployment));
                }
            })
        } else if let Some(id) = key.strip_prefix("tasks/") {
            decode::<TaskRecord>(entry).map(|record| {
                self.forget(&TaskId::from(id));
                self.task(&Arc::new(record));
            })
        } else if let Some(id) = key.strip_prefix("health/").and_then(InstanceId::parse) {
            decode::<HealthRecord>(entry).map(|record| {
                self.instance_changed(id.spec(), &id);
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

    fn put_spec(&mut self, record: SpecRecord) {
        let id = record.spec.id().clone();
        let earlier = self.specs.get(&id);
        let has_same_instances = earlier.is_some_and(|earlier| {
            earlier.deleted == record.deleted && earlier.spec.health_checks() == record.spec.health_checks()
        });
        if has_same_instances {
            let none = || Changed::Instances(BTreeSet::new());
            self.dirty.entry(id.clone()).or_insert_with(none);
        } else {
            self.dirty.insert(id.clone(), Changed::All);
        }
        self.specs.insert(id, Arc::new(record));
    }

    fn instance_changed(&mut self, spec: Option<SpecId>, instance: &InstanceId) {
        let Some(spec) = spec else { return };
        let none = || Changed::Instances(BTreeSet::new());
        if let Changed::Instances(instances) = self.dirty.entry(spec).or_insert_with(none) {
            instances.insert(instance.clone());
        }
    }

    fn put_deployment(&mut self, id: &str, deployment: Deployment) {
        self.forget_deployment(id);
        let (locker, deployment): (Arc<str>, _) = (deployment.id.as_str().into(), Arc::new(deployment));
        for spec in deployment.specs() {
            let lockers = self.lockers.entry(spec.clone()).or_default();
            lockers.insert(Arc::clone(&locker));
            self.locks
                .extend(lockers.last().map(|last| (spec.clone(), Arc::clone(last))));
        }
        let key = (deployment.version, deployment.id.clone());
        self.by_version.insert(key, Arc::clone(&deployment));
        self.deployments.insert(id.to_owned(), deployment);
    }

    fn forget_deployment(&mut self, id: &str) {
        let Some(deployment) = self.deployments.remove(id) else {
            return;
        };
        self.by_version
            .remove(&(deployment.version, deployment.id.clone()));
        for spec in deployment.specs() {
            let Some(lockers) = self.lockers.get_mut(spec) else {
                continue;
            };
            lockers.remove(deployment.id.as_str());
            if let Some(last) = lockers.last() {
                self.locks.insert(spec.clone(), Arc::clone(last));
            } else {
                self.lockers.remove(spec);
                self.locks.remove(spec);
            }
        }
    }

    fn task(&mut self, record: &Arc<TaskRecord>) {
        let app = SpecId::parse(&record.run_spec).ok();
        let instance = InstanceId::of_task(&record.id).map(|(instance, _)| instance);
        if let (Some(app), Some(instance), false) = (app, instance, record.is_terminal()) {
            self.instance_changed(Some(app.clone()), &instance);
            let owner = (app.clone(), instance.clone());
            self.owners.insert(record.id.clone(), owner);
            let instances = self.tasks.entry(app).or_default();
            let tasks = instances.entry(instance).or_default();
            tasks.insert(record.id.clone(), Arc::clone(record));
        }
    }

    fn forget(&mut self, task: &TaskId) {
        let Some((app, instance)) = self.owners.remove(task) else {
            return;
        };
        if let Some(instances) = self.tasks.get_mut(&app) {
            if let Some(tasks) = instances.get_mut(&instance) {
                tasks.remove(task);
                if tasks.is_empty() {
                    instances.remove(&instance);
                }
            }
            if instances.is_empty() {
                self.tasks.remove(&app);
            }
        }
        self.instance_changed(Some(app), &instance);
    }

    fn delete(&mut self, key: &str) {
        if let Some(id) = key.strip_prefix("apps").and_then(|id| SpecId::parse(id).ok()) {
            self.specs.remove(&id);
            self.dirty.insert(id, Changed::All);
        } else if let Some(id) = key.strip_prefix("groups").and_then(|id| GroupId::parse(id).ok()) {
            self.groups.remove(&id);
        } else if let Some(id) = key.strip_prefix("deployments/") {
            self.forget_deployment(id);
        } else if let Some(id) = key.strip_prefix("tasks/") {
            self.forget(&TaskId::from(id));
        } else if let Some(id) = key.strip_prefix("health/").and_then(InstanceId::parse) {
            self.health.remove(&id);
            self.instance_changed(id.spec(), &id);
        }
    }

    /// The snapshot that results from `snapshot` and the changed records.
    fn snapshot(&mut self, mut snapshot: Snapshot) -> Snapshot {
        for (id, changed) in std::mem::take(&mut self.dirty) {
            let Some(record) = self.specs.get(&id) else {
                snapshot.set(&id, None, false);
                continue;
            };
            let before = snapshot.specs.get(&id).or_else(|| snapshot.deleted.get(&id));
            let before = before.map(|view| (view.instances.clone(), view.counts));
            let (mut instances, mut counts) = (OrdMap::new(), InstanceCounts::default());
            let of_spec = self.tasks.get(&id);
            let changed: Vec<InstanceId> = match (before, changed) {
                (Some(before), Changed::Instances(changed)) => {
                    (instances, counts) = before;
                    changed.into_iter().collect()
                }
                _ => of_spec.into_iter().flatten().map(|(id, _)| id.clone()).collect(),
            };
            for id in changed {
                let tasks = of_spec.and_then(|instances| instances.get(&id));
                let instance = tasks.and_then(|tasks| self.instance(record, tasks));
                let earlier = match instance {
                    Some(instance) => {
                        counts.add(&instance);
                        instances.insert(id, Arc::new(instance))
                    }
                    None => instances.remove(&id),
                };
                if let Some(earlier) = earlier {
                    counts.remove(&earlier);
                }
            }
            let view = SpecView {
                record: Arc::clone(record),
                versions: record.versions().collect(),
                past: BTreeMap::new(),
                instances,
                counts,
                backoff: LaunchBackoff::default(),
            };
            snapshot.set(&id, Some(Arc::new(view)), record.deleted);
        }
        Snapshot {
            groups: self.groups.clone(),
            deployments: self.by_version.clone(),
            locks: self.locks.clone(),
            history: History::default(),
            ..snapshot
        }
    }

    /// An instance with these tasks. The store may still contain an earlier task of it.
    fn instance(&self, record: &SpecRecord, tasks: &BTreeMap<TaskId, Arc<TaskRecord>>) -> Option<Instance> {
        let mut requests: BTreeMap<&TaskId, Vec<Arc<TaskRecord>>> = BTreeMap::new();
        for record in tasks.values() {
            let of_request = requests.entry(record.request_id()).or_default();
            of_request.push(Arc::clone(record));
        }
        let found = requests
            .values()
            .filter_map(|records| Instance::of_records(records));
        let mut instance = found.max_by_key(|instance| instance.replica.incarnation)?;
        let checks = record.spec.health_checks();
        instance.health = last_known(&instance, checks, self.health.get(&instance.id));
        Some(instance)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use serde::Serialize;
    use serde_json::{Value, json};
    use transom_cluster::v1::TaskState;
    use transom_replicas::Condition;

    use super::*;
    use crate::testing::{app, operations, record};

    fn put(state: &mut StandbyState, key: &str, value: &impl Serialize) {
        let entry = Entry {
            key: key.to_owned(),
            value: serde_json::to_vec(value).unwrap().into(),
            version: 1,
        };
        state.put(key, &entry);
    }

    fn put_task(state: &mut StandbyState, id: TaskId, task_state: TaskState) {
        let key = format!("tasks/{id}");
        let status = json!({"task_id": {"value": id.as_str()}, "state": task_state});
        let record = TaskRecord {
            state: task_state,
            status: Some(serde_json::from_value(status).unwrap()),
            ..record(id)
        };
        put(state, &key, &record);
    }

    /// A standby that shows the app `/a` with running instances; and the first task.
    fn standby(instances: u64) -> (StandbyState, Snapshot, TaskId) {
        let mut state = StandbyState::default();
        let spec = app(&json!({"id": "/a", "cmd": "sleep 1", "instances": instances}));
        let record = SpecRecord::new(spec.into(), "c".into());
        put(&mut state, "apps/a", &record);
        let tasks = (0..instances).map(|_| InstanceId::new(record.spec.id()).task(1));
        let tasks: Vec<TaskId> = tasks.collect();
        for task in &tasks {
            put_task(&mut state, task.clone(), TaskState::Running);
        }
        let snapshot = state.snapshot(Snapshot::default());
        assert_eq!(running(&snapshot), instances);
        (state, snapshot, tasks[0].clone())
    }

    fn running(snapshot: &Snapshot) -> u64 {
        let views = snapshot.specs.values();
        let counted = views
            .map(|view| u64::from(view.counts.of(Condition::Running)))
            .sum();
        let total = snapshot.totals.instances.of(Condition::Running);
        assert_eq!(u64::from(total), counted);
        let all = snapshot.specs.values().flat_map(|view| view.instances.values());
        let all = all.filter(|instance| instance.condition() == Condition::Running);
        assert_eq!(all.count() as u64, counted);
        counted
    }

    #[test]
    fn work_of_a_changed_task_does_not_grow_with_the_app() {
        let work = |instances: u64| {
            let (mut state, mut snapshot, task) = standby(instances);
            operations::take();
            for task_state in [TaskState::Killing, TaskState::Running, TaskState::Killing] {
                put_task(&mut state, task.clone(), task_state);
                snapshot = state.snapshot(snapshot);
            }
            let work = operations::take();
            assert_eq!(running(&snapshot), instances - 1);
            work
        };
        let (small, large) = (work(10), work(500));
        assert!(0 < small && small == large, "{small} and {large} visits");
    }

    #[test]
    fn ended_tasks_and_deleted_apps_disappear() {
        let (mut state, snapshot, task) = standby(3);
        put_task(&mut state, task.clone(), TaskState::Failed);
        let snapshot = state.snapshot(snapshot);
        assert_eq!(running(&snapshot), 2);
        // Its next task follows it.
        let (instance, _) = InstanceId::of_task(&task).unwrap();
        put_task(&mut state, instance.task(2), TaskState::Running);
        let snapshot = state.snapshot(snapshot);
        assert_eq!(running(&snapshot), 3);
        state.delete("apps/a");
        let snapshot = state.snapshot(snapshot);
        assert_eq!((running(&snapshot), snapshot.specs.len()), (0, 0));
    }

    #[test]
    fn last_of_the_deployments_of_an_app_locks_it() {
        let deployment = |id: &str, specs: &[&str]| -> Value {
            let version = "2018-01-01T00:00:00.000Z";
            let specs: Vec<Value> = specs
                .iter()
                .map(|id| json!({"id": id, "before": null, "after": version}))
                .collect();
            let change = json!({"version": version, "group": "/", "specs": specs});
            json!({"id": id, "version": version, "steps": [], "current": 0, "change": change})
        };
        let a = SpecId::parse("/a").unwrap();
        let mut state = StandbyState::default();
        put(&mut state, "deployments/1", &deployment("1", &["/a", "/b"]));
        put(&mut state, "deployments/2", &deployment("2", &["/a"]));
        let locks = |state: &mut StandbyState| {
            let snapshot = state.snapshot(Snapshot::default());
            let lock = snapshot.lock(&a).map(ToString::to_string);
            (lock, snapshot.locks.len(), snapshot.deployments.len())
        };
        assert_eq!(locks(&mut state), (Some("2".to_owned()), 2, 2));
        put(&mut state, "deployments/1", &deployment("1", &["/a", "/b"]));
        assert_eq!(locks(&mut state), (Some("2".to_owned()), 2, 2));
        state.delete("deployments/2");
        assert_eq!(locks(&mut state), (Some("1".to_owned()), 2, 1));
        state.delete("deployments/1");
        assert_eq!(locks(&mut state), (None, 0, 0));
    }
}
