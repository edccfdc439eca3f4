//! One app in the core.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use imbl::OrdMap;
use transom_cluster::TaskId;
use transom_replicas::{LaunchBackoff, Member, Policy};
use transom_scheduler::{RunSpec, TaskRequest};

use super::persist::AppRecord;
use super::snapshot::AppView;
use crate::deploy::policy;
use crate::ids::InstanceId;
use crate::instance::Instance;
use crate::model::App;
use crate::task::{LaunchSettings, run_spec};
use crate::time::Moment;

/// One app and its instances.
pub(super) struct AppState {
    pub(super) record: AppRecord,
    /// Past definitions that instances were launched from.
    past: BTreeMap<Moment, Arc<App>>,
    versions: Arc<[Moment]>,
    /// The run spec of new tasks.
    pub(super) spec: Arc<RunSpec>,
    /// The versions whose instances stay; instances of other versions are replaced.
    pub(super) current: BTreeSet<Moment>,
    pub(super) backoff: LaunchBackoff,
    /// Shared with readers; an instance is copied when it changes.
    pub(super) instances: OrdMap<InstanceId, Arc<Instance>>,
}

impl AppState {
    pub(super) fn new(record: AppRecord, launch: &LaunchSettings) -> Self {
        let current = record.current_versions();
        let spec = run_spec(&record.app, current.clone(), launch);
        Self {
            versions: record.versions().collect(),
            past: BTreeMap::new(),
            record,
            spec,
            current,
            backoff: LaunchBackoff::default(),
            instances: OrdMap::new(),
        }
    }

    /// An instance, to be changed.
    pub(super) fn instance_mut(&mut self, id: &InstanceId) -> Option<&mut Instance> {
        self.instances.get_mut(id).map(Arc::make_mut)
    }

    /// The definition that an instance was launched from, if it is known.
    pub(super) fn definition(&self, version: Moment) -> Option<&Arc<App>> {
        if version == self.record.app.version {
            return Some(&self.record.app);
        }
        self.past.get(&version)
    }

    /// Adds a past definition, which instances were launched from.
    pub(super) fn insert_past(&mut self, app: Arc<App>) {
        self.past.insert(app.version, app);
    }

    /// Adds an instance that was found by its task. Returns the task that is not the instance's
    /// current one, if it has two: the earlier was given up on an unreachable agent.
    pub(super) fn insert_newest(&mut self, instance: Instance) -> Option<TaskId> {
        let known = self.instances.get(&instance.id);
        if known.is_some_and(|known| known.replica.incarnation > instance.replica.incarnation) {
            return Some(instance.task());
        }
        let earlier = self.instances.insert(instance.id.clone(), Arc::new(instance));
        earlier.map(|earlier| earlier.task())
    }

    pub(super) fn members(&self) -> Vec<Member<InstanceId>> {
        let instances = self.instances.values();
        instances
            .map(|instance| instance.member(self.is_outdated(instance), self.fitness(instance)))
            .collect()
    }

    /// Whether the configuration of the instance is another than the app's.
    pub(super) fn is_outdated(&self, instance: &Instance) -> bool {
        !self.current.contains(&instance.version())
    }

    /// Takes over a definition.
    pub(super) fn set_record(&mut self, record: AppRecord, launch: &LaunchSettings) {
        let before = std::mem::replace(&mut self.record, record);
        if before.app.version != self.record.app.version {
            self.past.insert(before.app.version, before.app);
        }
        let used = self.used_versions();
        self.past.retain(|version, _| used.contains(version));
        self.versions = self.record.versions().collect();
        self.current = self.record.current_versions();
        self.spec = run_spec(&self.record.app, self.current.clone(), launch);
    }

    /// The versions that instances were launched from, or will be.
    pub(super) fn used_versions(&self) -> BTreeSet<Moment> {
        let instances = self.instances.values();
        instances.map(|instance| instance.version()).collect()
    }

    /// The rules for each instance.
    pub(super) fn policy(&self, launch_timeout: Duration) -> Policy<Moment> {
        policy::instance(&self.record.app, launch_timeout, !self.record.gone)
    }

    pub(super) fn wanted(&self, instance: &Instance) -> TaskRequest {
        let not_before = self.backoff.until(Moment::now().timestamp());
        TaskRequest {
            id: instance.task(),
            spec: Arc::clone(&self.spec),
            not_before,
            priority: 0,
        }
    }

    /// The view for readers. It shares everything with this state.
    pub(super) fn view(&self) -> AppView {
        AppView {
            app: Arc::clone(&self.record.app),
            versions: Arc::clone(&self.versions),
            past: self.past.clone(),
            instances: self.instances.clone(),
            last_failure: self.record.last_failure.clone(),
        }
    }
}
