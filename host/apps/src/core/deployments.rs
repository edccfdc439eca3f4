//! Running deployments, and the apps and pods that they lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;
use tracing::Span;
use transom_common::trace::{TARGET, TraceContext};

use super::snapshot::Snapshot;
use super::spec_state::SharedTrace;
use crate::deploy::plan::Action;
use crate::deploy::{ActionKind, Deployment};
use crate::ids::SpecId;
use crate::time::Moment;

/// The running deployments.
#[derive(Default)]
pub(super) struct Deployments {
    running: BTreeMap<String, DeploymentState>,
    /// The same by version, for snapshots.
    by_version: OrdMap<(Moment, String), Arc<Deployment>>,
    /// The deployment of each locked app or pod.
    locks: OrdMap<SpecId, Arc<str>>,
    /// Apps and pods of deployments that began since they were last reconciled.
    newly_locked: BTreeSet<SpecId>,
    /// Deployments whose current step is done.
    finished: BTreeSet<String>,
    /// Deployments whose canaries failed, with the reason.
    failed_canaries: BTreeMap<String, String>,
}

/// A running deployment.
pub(super) struct DeploymentState {
    pub(super) deployment: Arc<Deployment>,
    /// Actions of the current step that are not done, by app or pod.
    pub(super) unfinished: BTreeMap<SpecId, ActionKind>,
    waiting: Waiting,
    /// Apps and pods whose canaries are complete and healthy, and since when.
    pub(super) healthy_canaries: BTreeMap<SpecId, Moment>,
    /// The context of the current step.
    pub(super) trace: SharedTrace,
    /// Open while the current step runs.
    _span: Span,
}

/// Apps and pods with an action in a later step, each with its number of such actions and the version
/// that the deployment replaces.
type Waiting = BTreeMap<SpecId, (usize, Option<Moment>)>;

/// Why a deployment must not replace the instances of an app or pod yet. The tasks that follow theirs
/// are launched from the same definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// A later step replaces them.
    Waits,
    /// The step replaces only as many as the canary has.
    Canary,
}

impl Deployments {
    pub(super) fn get(&self, id: &str) -> Option<&DeploymentState> {
        self.running.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &str) -> Option<&mut DeploymentState> {
        self.running.get_mut(id)
    }

    /// All, in the order of their ids.
    pub(super) fn values(&self) -> impl Iterator<Item = &DeploymentState> {
        self.running.values()
    }

    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    /// The id of the deployment that locks an app or pod.
    pub(super) fn lock(&self, spec: &SpecId) -> Option<&Arc<str>> {
        self.locks.get(spec)
    }

    /// The deployment that locks an app or pod.
    pub(super) fn of(&self, spec: &SpecId) -> Option<&DeploymentState> {
        self.running.get(&**self.locks.get(spec)?)
    }

    pub(super) fn of_mut(&mut self, spec: &SpecId) -> Option<&mut DeploymentState> {
        self.running.get_mut(&**self.locks.get(spec)?)
    }

    /// Locks the apps and pods of a deployment, and begins its current step.
    pub(super) fn begin(&mut self, deployment: Deployment, trace: SharedTrace) -> &DeploymentState {
        let id: Arc<str> = deployment.id.as_str().into();
        for spec in deployment.specs() {
            self.locks.insert(spec.clone(), Arc::clone(&id));
            self.newly_locked.insert(spec.clone());
        }
        let mut waiting = Waiting::new();
        for action in later_actions(&deployment, deployment.current) {
            waiting.entry(action.id.clone()).or_insert((0, None)).0 += 1;
        }
        for changed in &deployment.change.specs {
            if let Some((_, before)) = waiting.get_mut(&changed.id) {
                *before = changed.before;
            }
        }
        self.enter_step(deployment, waiting, trace)
    }

    /// Begins the step after the current one.
    pub(super) fn begin_next_step(&mut self, next: Deployment) -> &DeploymentState {
        let running = self.running.remove(&next.id);
        let running = running.map(|running| (running.waiting, running.trace));
        let (waiting, trace) = running.unwrap_or_default();
        self.enter_step(next, waiting, trace)
    }

    /// `waiting` contains the actions of this step, too.
    fn enter_step(
        &mut self,
        deployment: Deployment,
        mut waiting: Waiting,
        trace: SharedTrace,
    ) -> &DeploymentState {
        let mut unfinished = BTreeMap::new();
        for action in deployment.step().into_iter().flat_map(|step| &step.actions) {
            unfinished.insert(action.id.clone(), action.kind);
            if let Some((actions, _)) = waiting.get_mut(&action.id) {
                *actions -= 1;
                if *actions == 0 {
                    waiting.remove(&action.id);
                }
            }
        }
        if unfinished.is_empty() {
            self.finished.insert(deployment.id.clone());
        }
        let span = deployment.trace.child(|| step_span(&deployment));
        trace.store(Arc::new(TraceContext::of(&span)));
        let deployment = Arc::new(deployment);
        self.show(&deployment);
        let running = DeploymentState {
            deployment: Arc::clone(&deployment),
            unfinished,
            waiting,
            healthy_canaries: BTreeMap::new(),
            trace,
            _span: span,
        };
        self.running
            .entry(deployment.id.clone())
            .insert_entry(running)
            .into_mut()
    }

    /// Ends a deployment and unlocks its apps and pods.
    pub(super) fn end(&mut self, id: &str) -> Option<Arc<Deployment>> {
        let deployment = self.running.remove(id)?.deployment;
        self.finished.remove(id);
        let key = (deployment.version, deployment.id.clone());
        self.by_version.remove(&key);
        for spec in deployment.specs() {
            if self.locks.get(spec).is_some_and(|lock| **lock == *id) {
                self.locks.remove(spec);
            }
        }
        Some(deployment)
    }

    /// Shows readers a deployment as it is now.
    pub(super) fn show(&mut self, deployment: &Arc<Deployment>) {
        let key = (deployment.version, deployment.id.clone());
        self.by_version.insert(key, Arc::clone(deployment));
    }

    pub(super) fn show_in(&self, snapshot: &mut Snapshot) {
        snapshot.deployments = self.by_version.clone();
        snapshot.locks = self.locks.clone();
    }

    /// Whether the deployment of an app or pod holds its instances back.
    pub(super) fn held(&self, spec: &SpecId) -> Option<Held> {
        let running = self.of(spec)?;
        match running.unfinished.get(spec) {
            Some(ActionKind::Restart) => {
                let canary = running.deployment.canary.filter(|canary| !canary.continued);
                canary.map(|_| Held::Canary)
            }
            Some(_) => None,
            None => running.waiting.contains_key(spec).then_some(Held::Waits),
        }
    }

    /// The version of an app or pod that a later step of its deployment replaces.
    pub(super) fn replaced_version(&self, spec: &SpecId) -> Option<Moment> {
        self.of(spec)?.waiting.get(spec)?.1
    }

    /// Whether the deployment of an app or pod began since the last call for it.
    pub(super) fn take_newly_locked(&mut self, spec: &SpecId) -> bool {
        self.newly_locked.remove(spec)
    }

    /// Ends the action on an app or pod in the current step of its deployment.
    pub(super) fn finish_action(&mut self, spec: &SpecId) {
        let Some(running) = self.of_mut(spec) else { return };
        running.unfinished.remove(spec);
        if running.unfinished.is_empty() {
            let id = running.deployment.id.clone();
            self.finished.insert(id);
        }
    }

    pub(super) fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// The deployments whose current step is done; then none is.
    pub(super) fn take_finished(&mut self) -> Vec<Arc<Deployment>> {
        let finished = std::mem::take(&mut self.finished);
        let finished = finished.iter().filter_map(|id| self.running.get(id));
        finished.map(|running| Arc::clone(&running.deployment)).collect()
    }

    /// Takes these back, because their progress could not be stored.
    pub(super) fn put_back_finished(&mut self, finished: &[Arc<Deployment>]) {
        let ids = finished.iter().map(|deployment| deployment.id.clone());
        self.finished.extend(ids);
    }

    pub(super) fn fail_canary(&mut self, id: String, reason: String) {
        self.failed_canaries.entry(id).or_insert(reason);
    }

    /// The running deployments whose canaries failed, with the reasons; then none has.
    pub(super) fn take_failed_canaries(&mut self) -> BTreeMap<String, String> {
        let mut failed = std::mem::take(&mut self.failed_canaries);
        failed.retain(|id, _| self.running.contains_key(id));
        failed
    }
}

impl DeploymentState {
    /// The time since when the current step only waits for canaries; `None` if other actions are
    /// open.
    pub(super) fn held_since(&self) -> Option<Moment> {
        let waits = |id: &SpecId| self.healthy_canaries.get(id).copied();
        let since: Option<Vec<Moment>> = self.unfinished.keys().map(waits).collect();
        since?.into_iter().max()
    }
}

/// The actions of this step and of all later ones.
fn later_actions(deployment: &Deployment, step: usize) -> impl Iterator<Item = &Action> {
    let actions = deployment.steps.iter().skip(step).flat_map(|step| &step.actions);
    #[cfg(test)]
    let actions = actions.inspect(|_| crate::testing::operations::count());
    actions
}

fn step_span(deployment: &Deployment) -> Span {
    tracing::info_span!(
        target: TARGET,
        "deployment_step",
        deployment = deployment.id,
        step = deployment.current + 1,
        steps = deployment.steps.len(),
        trace_id = tracing::field::Empty,
    )
}
