//! One app in the core.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use transom_cluster::TaskId;
use transom_replicas::{LaunchBackoff, Member, Policy};
use transom_scheduler::{RunSpec, TaskRequest};

use super::persist::AppRecord;
use super::snapshot::AppView;
use crate::deploy::policy;
use crate::ids::InstanceId;
use crate::instance::Instance;
use crate::task::{LaunchSettings, run_spec};
use crate::time::Moment;

/// One app and its instances.
pub(super) struct AppState {
    pub(super) record: AppRecord,
    /// The run spec of new tasks.
    pub(super) spec: Arc<RunSpec>,
    /// The versions whose instances stay; instances of other versions are replaced.
    pub(super) current: BTreeSet<Moment>,
    pub(super) backoff: LaunchBackoff,
    pub(super) instances: BTreeMap<InstanceId, Instance>,
}

impl AppState {
    pub(super) fn new(record: AppRecord, launch: &LaunchSettings) -> Self {
        let current = record.current_versions(launch.checks);
        let spec = run_spec(&record.app, current.clone(), launch);
        Self {
            record,
            spec,
            current,
            backoff: LaunchBackoff::default(),
            instances: BTreeMap::new(),
        }
    }

    /// Adds an instance that was found by its task. Returns the task that is not the instance's
    /// current one, if it has two: the earlier was given up on an unreachable agent.
    pub(super) fn insert_newest(&mut self, instance: Instance) -> Option<TaskId> {
        let known = self.instances.get(&instance.id);
        if known.is_some_and(|known| known.replica.incarnation > instance.replica.incarnation) {
            return Some(instance.task());
        }
        let earlier = self.instances.insert(instance.id.clone(), instance);
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
        self.current = record.current_versions(launch.checks);
        self.spec = run_spec(&record.app, self.current.clone(), launch);
        self.record = record;
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

    pub(super) fn view(&self) -> AppView {
        AppView {
            app: Arc::clone(&self.record.app),
            versions: self.record.versions.clone(),
            instances: self.instances.values().cloned().collect(),
            last_failure: self.record.last_failure.clone(),
        }
    }
}
