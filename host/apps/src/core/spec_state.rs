//! One app or pod in the core.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use imbl::OrdMap;
use transom_cluster::v1::TaskState;
use transom_cluster::{AgentId, TaskId};
use transom_common::trace::TraceContext;
use transom_replicas::{LaunchBackoff, Member, Policy, ReplicaCounts, ReplicaIndex};
use transom_scheduler::{RunSpec, TaskRequest};

use super::budgets::{PastBytes, Share};
use super::counts::InstanceCounts;
use super::ends::{TaskFailure, Termination};
use super::failures::{Failure, Failures, quiet_time};
use super::persist::SpecRecord;
use super::places::{Moved, has_moved};
use super::selected_kills::SelectedKills;
use super::spec_view::SpecView;
use crate::deploy::policy;
use crate::ids::InstanceId;
use crate::instance::Instance;
use crate::model::{Size, Spec};
use crate::task::{LaunchSettings, run_spec};
use crate::time::Moment;

/// The number of ended instances of a pod that are shown.
const MAX_TERMINATIONS: usize = 10;

/// A trace context that changes with the steps of a deployment.
pub(super) type SharedTrace = Arc<ArcSwap<TraceContext>>;

/// One app or pod and its instances.
pub(super) struct SpecState {
    /// Shared with snapshots.
    pub(super) record: Arc<SpecRecord>,
    /// Past definitions that instances were launched from.
    past: BTreeMap<Moment, Spec>,
    /// The run specs of past definitions, for tasks that follow others of their own version.
    past_run_specs: BTreeMap<Moment, Arc<RunSpec>>,
    past_bytes: Share,
    stored_past_bytes: Share,
    /// The version before the current one, whose definition is kept for a deployment that waits.
    previous: Option<Moment>,
    versions: Arc<[Moment]>,
    /// The run spec of new tasks.
    pub(super) run_spec: Arc<RunSpec>,
    /// The versions whose instances are kept; instances of other versions are replaced.
    pub(super) current_versions: BTreeSet<Moment>,
    pub(super) backoff: LaunchBackoff,
    /// The last call of the matcher for a selection of kills, and its result.
    pub(super) kill_choice: Option<SelectedKills>,
    /// Shared with snapshots; an instance is copied when it changes.
    instances: OrdMap<InstanceId, Arc<Instance>>,
    /// Counts of `instances` without those in `uncounted`.
    counts: InstanceCounts,
    /// The same instances as deployments see them; `None` if all have to be counted again, because
    /// the definitions have changed.
    replicas: Option<ReplicaIndex<InstanceId>>,
    /// The agents whose maintenance is imminent, at the time of the counts.
    leaving: Arc<BTreeSet<AgentId>>,
    /// Instances that may have changed since they were last counted, as they were then.
    uncounted: BTreeMap<InstanceId, Option<Arc<Instance>>>,
    /// Instances whose tasks have begun, ended or moved.
    moved: Vec<Moved>,
    /// The trace context of the deployment's current step, to which launches belong; shared by its apps
    /// and pods.
    pub(super) trace: SharedTrace,
}

impl SpecState {
    pub(super) fn new(record: SpecRecord, launch: &LaunchSettings, past: &PastBytes) -> Self {
        let current_versions = record.current_versions();
        let run_spec = run_spec(&record.spec, current_versions.clone(), launch);
        Self {
            versions: record.versions().collect(),
            past: BTreeMap::new(),
            past_run_specs: BTreeMap::new(),
            past_bytes: past.in_memory.share(),
            stored_past_bytes: {
                let mut share = past.stored.share();
                share.set(record.past_bytes());
                share
            },
            previous: None,
            record: Arc::new(record),
            run_spec,
            current_versions,
            backoff: LaunchBackoff::default(),
            kill_choice: None,
            instances: OrdMap::new(),
            counts: InstanceCounts::default(),
            replicas: None,
            leaving: Arc::default(),
            uncounted: BTreeMap::new(),
            moved: Vec::new(),
            trace: SharedTrace::default(),
        }
    }

    pub(super) fn instances(&self) -> &OrdMap<InstanceId, Arc<Instance>> {
        &self.instances
    }

    /// An instance, to be changed.
    pub(super) fn instance_mut(&mut self, id: &InstanceId) -> Option<&mut Instance> {
        self.uncount(id);
        self.instances.get_mut(id).map(Arc::make_mut)
    }

    /// Adds or replaces an instance. Returns the earlier one.
    pub(super) fn insert_instance(&mut self, instance: Instance) -> Option<Arc<Instance>> {
        let id = instance.id.clone();
        self.uncount(&id);
        self.instances.insert(id, Arc::new(instance))
    }

    pub(super) fn remove_instance(&mut self, id: &InstanceId) {
        self.uncount(id);
        self.instances.remove(id);
    }

    /// Takes an instance out of the counts before it changes or is added.
    fn uncount(&mut self, id: &InstanceId) {
        if self.uncounted.contains_key(id) {
            return;
        }
        let before = self.instances.get(id).cloned();
        self.uncounted.insert(id.clone(), before.clone());
        let Some(instance) = &before else { return };
        self.counts.remove(instance);
        if let Some(mut replicas) = self.replicas.take() {
            replicas.remove(&self.counted_member(instance));
            self.replicas = Some(replicas);
        }
    }

    /// Adds the changed instances to the counts again.
    fn count(&mut self) {
        let uncounted = std::mem::take(&mut self.uncounted);
        let mut replicas = self.replicas.take();
        for (id, before) in uncounted {
            let after = self.instances.get(&id).cloned();
            if let Some(instance) = &after {
                self.counts.add(instance);
                if let Some(replicas) = &mut replicas {
                    replicas.add(&self.counted_member(instance));
                }
            }
            self.moved.extend(Some((before, after)).filter(has_moved));
        }
        self.replicas = replicas;
    }

    /// The instances whose tasks have begun, ended or moved since the last call.
    pub(super) fn take_moved(&mut self) -> Vec<Moved> {
        self.count();
        std::mem::take(&mut self.moved)
    }

    /// Counts of all instances.
    pub(super) fn counts(&mut self) -> InstanceCounts {
        self.count();
        self.counts
    }

    /// The instances as deployments see them, counted. `leaving`: agents whose maintenance is
    /// imminent.
    pub(super) fn replica_counts(&mut self, leaving: &Arc<BTreeSet<AgentId>>) -> ReplicaCounts {
        if !Arc::ptr_eq(&self.leaving, leaving) {
            self.leaving = Arc::clone(leaving);
            self.replicas = None;
        }
        self.count();
        let replicas = self.replicas.take();
        let replicas = replicas.unwrap_or_else(|| self.index_replicas());
        // Keeps the cost of the check small.
        debug_assert!(self.instances.len() > 20 || replicas == self.index_replicas());
        let counts = replicas.counts();
        self.replicas = Some(replicas);
        counts
    }

    /// The old instances that a restart removes first, in that order, as they were last counted. `None`
    /// if the matcher has selected some.
    pub(super) fn first_old(&self, count: usize) -> Option<Vec<InstanceId>> {
        let replicas = self.replicas.as_ref().filter(|_| self.kill_choice.is_none())?;
        Some(replicas.first_old(count))
    }

    fn index_replicas(&self) -> ReplicaIndex<InstanceId> {
        let mut replicas = ReplicaIndex::new(policy::scaling(&self.record.spec).kill_selection);
        for instance in self.instances.values() {
            replicas.add(&self.counted_member(instance));
        }
        replicas
    }

    /// The instance as deployments see it, without the matcher's selection.
    fn counted_member(&self, instance: &Instance) -> Member<InstanceId> {
        #[cfg(test)]
        crate::testing::operations::count();
        let (outdated, fitness) = (self.is_outdated(instance), self.fitness(instance));
        Member {
            leaving: instance.agent().is_some_and(|agent| self.leaving.contains(agent)),
            ..instance.member(outdated, fitness)
        }
    }

    /// The definition that an instance was launched from, if it is known.
    pub(super) fn definition(&self, version: Moment) -> Option<&Spec> {
        if version == self.record.spec.version() {
            return Some(&self.record.spec);
        }
        self.past.get(&version)
    }

    /// Adds a past definition, which instances were launched from or which a deployment replaces.
    pub(super) fn insert_past(&mut self, spec: Spec, launch: &LaunchSettings) {
        self.replicas = None;
        self.add_run_spec(&spec, launch);
        self.past.insert(spec.version(), spec);
        self.count_past();
    }

    fn count_past(&mut self) {
        let deleted = Some(&self.record.spec).filter(|_| self.record.deleted);
        let sizes = self
            .past
            .values()
            .chain(deleted)
            .map(|spec| Size::of(spec).memory);
        self.past_bytes.set(sizes.sum());
    }

    fn add_run_spec(&mut self, spec: &Spec, launch: &LaunchSettings) {
        let version = spec.version();
        let run_spec = run_spec(spec, self.record.versions_like(version), launch);
        self.past_run_specs.insert(version, run_spec);
    }

    /// Adds an instance that was restored from its task. If it has two tasks, the earlier one was
    /// given up on an unreachable agent; returns that one.
    pub(super) fn insert_newest(&mut self, instance: Instance) -> Option<TaskId> {
        let existing = self.instances.get(&instance.id);
        if existing.is_some_and(|existing| existing.replica.incarnation > instance.replica.incarnation) {
            return Some(instance.task());
        }
        let earlier = self.insert_instance(instance);
        earlier.map(|earlier| earlier.task())
    }

    /// The instances as deployments see them, with the agents in maintenance at the last count.
    pub(super) fn members(&self) -> Vec<Member<InstanceId>> {
        let selected = |instance: &Instance| {
            let choice = self.kill_choice.as_ref();
            choice.is_some_and(|choice| choice.is_selected(&instance.task()))
        };
        let member = |instance: &Arc<Instance>| Member {
            selected: selected(instance),
            ..self.counted_member(instance)
        };
        self.instances.values().map(member).collect()
    }

    /// Whether the instance was launched from another configuration than the current one.
    pub(super) fn is_outdated(&self, instance: &Instance) -> bool {
        !self.current_versions.contains(&instance.version())
    }

    /// Replaces the definition.
    pub(super) fn set_record(&mut self, record: SpecRecord, launch: &LaunchSettings) {
        self.replicas = None;
        let before = std::mem::replace(&mut self.record, Arc::new(record));
        if before.spec.version() != self.record.spec.version() {
            self.previous = Some(before.spec.version());
            self.insert_past(before.spec.clone(), launch);
        }
        let mut used = self.used_versions();
        used.extend(self.previous);
        self.past.retain(|version, _| used.contains(version));
        self.past_run_specs.retain(|version, _| used.contains(version));
        self.count_past();
        self.stored_past_bytes.set(self.record.past_bytes());
        self.versions = self.record.versions().collect();
        self.current_versions = self.record.current_versions();
        self.run_spec = run_spec(&self.record.spec, self.current_versions.clone(), launch);
    }

    /// The versions that instances were launched from, or will be.
    pub(super) fn used_versions(&self) -> BTreeSet<Moment> {
        let instances = self.instances.values();
        instances.map(|instance| instance.version()).collect()
    }

    /// The rules for each instance.
    pub(super) fn policy(&self, launch_timeout: Duration) -> Policy<Moment> {
        policy::instance(&self.record.spec, launch_timeout, !self.record.deleted)
    }

    /// The version of the next task of an instance that a deployment must not replace yet.
    pub(super) fn own_version(&self, instance: &Instance) -> Moment {
        let version = instance.version();
        let is_known = self.past_run_specs.contains_key(&version);
        if is_known && self.is_outdated(instance) {
            version
        } else {
            self.record.spec.version()
        }
    }

    /// The request for the next task of an instance. If its version is outdated, the task is launched
    /// from the definition of that version.
    pub(super) fn task_request(&self, instance: &Instance) -> TaskRequest {
        let not_before = self.backoff.until(Moment::now().timestamp());
        let own = self.past_run_specs.get(&instance.version());
        let own = own.filter(|_| self.is_outdated(instance));
        TaskRequest {
            id: instance.task(),
            spec: Arc::clone(own.unwrap_or(&self.run_spec)),
            not_before,
            priority: 0,
            reservation: self.record.spec.is_resident().then(|| instance.id.to_string()),
            trace: TraceContext::clone(&self.trace.load()),
        }
    }

    /// Records the failure of an instance, if one of its tasks failed. Returns whether one did.
    pub(super) fn record_failure(&mut self, instance: &Instance) -> bool {
        let failed = instance.failed_record();
        let failure =
            failed.map(|record| TaskFailure::new(self.record.spec.id(), instance.version(), record));
        let has_failed = failure.is_some();
        if has_failed {
            Arc::make_mut(&mut self.record).last_failure = failure;
        }
        has_failed
    }

    /// Counts the failure of an instance for the delay of the next launch, and in the row of failures.
    /// `killed_by_check`: its agent killed it because a health check failed.
    pub(super) fn count_failure(&mut self, instance: &Instance, killed_by_check: bool, now: Moment) {
        let policy = policy::backoff(&self.record.spec);
        self.backoff.record_failure(&policy, now.timestamp());
        // A task that is lost with its agent has not failed itself.
        let lost = [TaskState::Gone, TaskState::GoneByOperator, TaskState::Lost];
        if let Some(record) = instance.failed_record().filter(|it| !lost.contains(&it.state)) {
            let failure = Failure::of(record, killed_by_check, instance.health_answer());
            self.add_failure(failure, &record.agent.hostname, now);
        }
    }

    /// Adds a failure on an agent to the row of failures.
    pub(super) fn add_failure(&mut self, failure: Failure, agent: &str, now: Moment) {
        let delay_ends = self.backoff.until(now.timestamp()).map_or(now, Moment::from);
        let quiet = quiet_time(&self.record.spec, failure.cause).as_millis();
        let until = delay_ends.plus_millis(i64::try_from(quiet).unwrap_or(i64::MAX));
        let row = &mut Arc::make_mut(&mut self.record).failures;
        Failures::record(row, failure, agent, until);
    }

    /// Ends the delay of launches and the row of failures.
    pub(super) fn forget_failures(&mut self) {
        self.backoff = LaunchBackoff::default();
        Arc::make_mut(&mut self.record).failures = None;
    }

    /// Records the end of a pod's instance.
    pub(super) fn record_termination(&mut self, instance: &Instance) {
        let terminations = &mut Arc::make_mut(&mut self.record).terminations;
        terminations.extend(Termination::new(instance));
        let excess = terminations.len().saturating_sub(MAX_TERMINATIONS);
        terminations.drain(..excess);
    }

    /// The view for snapshots, which shares its contents with this state.
    pub(super) fn view(&mut self) -> SpecView {
        SpecView {
            counts: self.counts(),
            record: Arc::clone(&self.record),
            versions: Arc::clone(&self.versions),
            past: self.past.clone(),
            instances: self.instances.clone(),
            backoff: self.backoff,
        }
    }
}
