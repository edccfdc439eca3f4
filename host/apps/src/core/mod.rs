//! The actor that owns apps, instances and deployments.
//!
//! It handles requests, scheduler events and check results one at a time. It stores a definition,
//! then publishes the change as an immutable [`Snapshot`], then on the bus, and then answers the
//! request: a subscriber or client that reads finds what it was told. The core never waits for the
//! scheduler, and for the store only until a timeout. While the store is unavailable, requests are
//! rejected and running deployments pause.

mod app_state;
pub(crate) mod command;
mod follow;
mod kill;
pub(crate) mod mirror;
mod persist;
mod probing;
pub(crate) mod snapshot;
pub(crate) mod term;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_common::error_chain;
use transom_replicas::{Condition, Directive, Effect, Input, step};
use transom_scheduler::{Events, SchedulerApi};
use transom_store::Store;
use transom_store::typed::{self, TypedStore};

use crate::bus::{Bus, Draft, PlanForm, shapes};
use crate::deploy::{self, ActionKind, Deployment, policy};
use crate::ids::{AppId, InstanceId};
use crate::instance::Instance;
use crate::probes::{Checker, Occasion, Report};
use crate::task::LaunchSettings;
use crate::time::Moment;
use crate::{Config, Result};
use app_state::AppState;
use command::Command;
use persist::{AppRecord, Changes, Repository, Touched};
use snapshot::{Snapshot, TaskFailure};

/// Interval of the work that depends on time alone: unreachable instances and retried writes.
const TICK: Duration = Duration::from_secs(1);
/// How often one app is reconciled before the core does anything else; far more than any plan has
/// steps.
const MAX_PASSES: usize = 100;

/// The dependencies of the core.
pub(crate) struct Parts {
    pub(crate) scheduler: Arc<dyn SchedulerApi>,
    pub(crate) events: Events,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) reports: mpsc::Receiver<Vec<Report>>,
    pub(crate) checker: Checker,
    pub(crate) bus: Bus,
    pub(crate) role: String,
    pub(crate) launch: LaunchSettings,
    pub(crate) plan_form: PlanForm,
    /// How long a launched task may take to run.
    pub(crate) launch_timeout: Duration,
    pub(crate) snapshot: Arc<ArcSwap<Snapshot>>,
}

/// The stored state, read before anything starts.
pub(crate) struct Stored {
    repository: Repository,
    apps: Vec<AppRecord>,
    deployments: Vec<Deployment>,
    /// The number of this term.
    pub(crate) term: u64,
}

impl Stored {
    /// Reads everything and begins a term.
    pub(crate) async fn load(store: Arc<dyn Store>, config: &Config) -> Result<Self> {
        let store = TypedStore::new(store, &config.prefix).with_timeout(config.store_timeout);
        let repository = Repository::new(store);
        let (apps, deployments) = repository.load().await?;
        let term = repository.next_term().await?;
        Ok(Self {
            repository,
            apps,
            deployments,
            term,
        })
    }
}

/// The actor.
pub(crate) struct Core {
    repository: Repository,
    /// Records of which the store may have another state than this core: the result of their last
    /// write is unknown, or they changed without a request.
    unstored: Touched,
    scheduler: Arc<dyn SchedulerApi>,
    checker: Checker,
    bus: Bus,
    /// Events that are published on the bus once the snapshot shows what they report.
    drafts: Vec<Draft>,
    role: String,
    launch: LaunchSettings,
    plan_form: PlanForm,
    launch_timeout: Duration,
    apps: BTreeMap<AppId, AppState>,
    /// At most one for each app.
    deployments: BTreeMap<AppId, Deployment>,
    /// Apps whose view has to be rebuilt.
    dirty: BTreeSet<AppId>,
    last_version: Option<Moment>,
    snapshot: Arc<ArcSwap<Snapshot>>,
    /// Whether this core has published a snapshot.
    published: bool,
}

/// Starts the core, which ends with `token` or when the scheduler has stopped. The returned future
/// completes when it has ended.
pub(crate) fn start(
    stored: Stored,
    parts: Parts,
    tracker: &TaskTracker,
    token: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let Parts {
        scheduler,
        mut events,
        mut commands,
        mut reports,
        ..
    } = parts;
    let mut core = Core {
        repository: stored.repository,
        unstored: Touched::default(),
        scheduler,
        checker: parts.checker,
        bus: parts.bus,
        drafts: Vec::new(),
        role: parts.role,
        launch: parts.launch,
        plan_form: parts.plan_form,
        launch_timeout: parts.launch_timeout,
        apps: BTreeMap::new(),
        deployments: BTreeMap::new(),
        dirty: BTreeSet::new(),
        last_version: None,
        snapshot: parts.snapshot,
        published: false,
    };
    core.rebuild(stored.apps, stored.deployments);
    core.publish();
    let ended = CancellationToken::new();
    let end = ended.clone().drop_guard();
    tracker.spawn(async move {
        let _end = end;
        core.reconcile_all().await;
        core.publish();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = token.cancelled() => return,
                Some(command) = commands.recv() => core.command(command).await,
                event = events.next() => match event {
                    Some(event) => core.event(event).await,
                    None => return tracing::info!("scheduler stopped; apps are no longer managed"),
                },
                Some(batch) = reports.recv() => core.reports(batch).await,
                _ = ticks.tick() => core.tick().await,
            }
            core.publish();
        }
    });
    ended.cancelled_owned()
}

impl Core {
    /// Combines the stored state and the scheduler's tasks.
    fn rebuild(&mut self, apps: Vec<AppRecord>, deployments: Vec<Deployment>) {
        let tasks = self.scheduler.tasks();
        for record in apps {
            let id = record.app.id.clone();
            self.last_version = self.last_version.max(Some(record.app.version));
            self.dirty.insert(id.clone());
            self.apps.insert(id, AppState::new(record, &self.launch));
        }
        for deployment in deployments {
            self.last_version = self.last_version.max(Some(deployment.version));
            self.deployments.insert(deployment.app.clone(), deployment);
        }
        let (mut purge, mut kill) = (Vec::new(), Vec::new());
        for record in tasks.values() {
            let state = AppId::parse(&record.run_spec)
                .ok()
                .and_then(|id| self.apps.get_mut(&id));
            match (state, Instance::of_record(record)) {
                _ if record.is_terminal() => purge.push(record.id.clone()),
                // Given up: another instance has its place, or none.
                (_, Some(instance))
                    if instance.condition().is_unreachable() && !instance.replica.is_wanted() =>
                {
                    kill.push(record.id.clone());
                }
                (Some(state), Some(instance)) => kill.extend(state.insert_newest(instance)),
                _ => kill.push(record.id.clone()),
            }
        }
        self.scheduler.purge(purge);
        self.scheduler.kill(kill, None);
        let ids: Vec<AppId> = self.apps.keys().cloned().collect();
        for id in ids {
            let running: Vec<InstanceId> = self.apps[&id].instances.keys().cloned().collect();
            for instance in &running {
                self.update_check(&id, instance, Occasion::NewLeader);
            }
        }
    }

    async fn reconcile_all(&mut self) {
        let ids: Vec<AppId> = self.apps.keys().chain(self.deployments.keys()).cloned().collect();
        for id in ids {
            self.reconcile(&id).await;
        }
    }

    /// Applies the app's deployment, or its definition, and proceeds to the next step when one is
    /// done.
    async fn reconcile(&mut self, id: &AppId) {
        self.dirty.insert(id.clone());
        self.update_readiness(id);
        for _ in 0..MAX_PASSES {
            let running = self.deployments.get(id);
            let action = running
                .and_then(Deployment::step)
                .and_then(|step| step.actions.first())
                .map(|action| action.action);
            let deploying = running.is_some();
            let directive = match (self.apps.get(id), action) {
                (Some(state), Some(action)) => deploy::advance(action, &state.record.app, &state.members()),
                (Some(state), None) if !state.record.gone => {
                    deploy::keep(&state.record.app, &state.members())
                }
                _ => Directive::done(),
            };
            self.obey(id, &directive);
            // Removing an unlaunched instance or starting one may allow the next action
            // immediately.
            let moved = !directive.decommission.is_empty() || directive.start > 0;
            let over = deploying && (directive.done || action.is_none());
            if over && !self.next_step(id, action).await || !over && !moved {
                return;
            }
        }
        tracing::warn!(app = %id, "app does not converge: too many steps in one pass");
    }

    /// Removes and starts instances.
    fn obey(&mut self, id: &AppId, directive: &Directive<InstanceId>) {
        for instance in &directive.decommission {
            self.decommission(id, instance);
        }
        let Some(state) = self.apps.get_mut(id) else {
            return;
        };
        let mut requests = Vec::new();
        for _ in 0..directive.start {
            let instance = Instance::new(id, state.record.app.version, Moment::now());
            requests.push(state.wanted(&instance));
            state.instances.insert(instance.id.clone(), instance);
        }
        self.scheduler.submit(requests);
    }

    /// Removes an instance for good. An unlaunched instance is removed immediately; if its launch
    /// is already under way, the task becomes an orphan and is released when it appears.
    fn decommission(&mut self, id: &AppId, instance: &InstanceId) {
        self.checker.end(instance);
        self.step(id, instance, Input::Decommission);
    }

    /// Applies what happened to an instance, and executes what follows. Returns whether anything
    /// followed.
    fn step(&mut self, id: &AppId, instance: &InstanceId, input: Input<'_>) -> bool {
        let Some(state) = self.apps.get_mut(id) else {
            return false;
        };
        let policy = state.policy(self.launch_timeout);
        let Some(known) = state.instances.get_mut(instance) else {
            return false;
        };
        let now = Moment::now();
        let (next, effects) = step(&known.replica, input, &policy, now.timestamp());
        let mut launch = false;
        for effect in &effects {
            match *effect {
                Effect::Changed(condition) if condition.is_public() => {
                    let version = known.version().to_string();
                    self.drafts
                        .push(shapes::instance_changed(known.facts(id, &version), condition));
                }
                Effect::Changed(_) => {}
                Effect::Kill { incarnation } => {
                    let grace = state.record.app.task_kill_grace_period_seconds;
                    let grace = grace.map(|seconds| Duration::from_secs(u64::from(seconds)));
                    self.scheduler.kill(vec![instance.task(incarnation)], grace);
                }
                Effect::Ended {
                    incarnation,
                    condition,
                    restarting,
                } => {
                    self.checker.end(instance);
                    self.scheduler.purge(vec![instance.task(incarnation)]);
                    let unexpected = matches!(
                        condition,
                        Condition::Failed | Condition::Error | Condition::Gone | Condition::Dropped
                    );
                    if let (true, Some(record)) = (unexpected && !restarting, &known.record) {
                        state.record.last_failure = Some(TaskFailure::new(id, known.version(), record));
                        self.unstored.apps.insert(id.clone());
                    }
                }
                Effect::Launch { after_failure } => {
                    launch = true;
                    if after_failure {
                        let policy = policy::backoff(&state.record.app);
                        state.backoff.failed(&policy, now.timestamp());
                    }
                }
            }
        }
        if let Some(replica) = next {
            known.set_replica(replica);
        } else {
            state.instances.remove(instance);
            self.checker.end(instance);
        }
        if launch && let Some(known) = state.instances.get(instance) {
            self.scheduler.submit(vec![state.wanted(known)]);
        }
        !effects.is_empty()
    }

    /// Proceeds after a completed step or ends the deployment. Returns false when the deployment is
    /// over or must wait for the store.
    async fn next_step(&mut self, id: &AppId, done: Option<ActionKind>) -> bool {
        let Some(deployment) = self.deployments.get(id) else {
            return false;
        };
        let last = deployment.current + 1 >= deployment.steps.len();
        let deployment_id = deployment.id.clone();
        let stopped = done == Some(ActionKind::StopApplication);
        let mut changes = Changes::default();
        let stored = if last {
            changes.delete_deployment(&deployment_id);
            Ok(())
        } else {
            // With the step, so that a restart of the daemon does not report it again.
            changes.put_deployment(&Deployment {
                current: deployment.current + 1,
                ..deployment.clone()
            })
        };
        if stopped {
            changes.delete_app(id);
        }
        let stored = match stored {
            Ok(()) => self.commit(changes).await,
            failed => failed,
        };
        if let Err(error) = stored {
            tracing::warn!(
                deployment = deployment_id,
                error = error_chain(&error),
                "storing the progress of a deployment failed; retrying"
            );
            return false;
        }
        if stopped {
            self.apps.remove(id);
            self.drafts.push(shapes::app_terminated(id));
        }
        let Some(deployment) = self.deployments.get_mut(id) else {
            return false;
        };
        if done.is_some() {
            self.drafts.push(shapes::deployment_step(
                "deployment_step_success",
                deployment,
                self.plan_form,
            ));
        }
        deployment.current += 1;
        if last {
            self.drafts
                .push(shapes::deployment_ended(deployment, self.plan_form, None));
            self.deployments.remove(id);
            return false;
        }
        self.drafts.push(shapes::deployment_step(
            "deployment_info",
            deployment,
            self.plan_form,
        ));
        true
    }

    /// Commits changes, before they are made here.
    async fn commit(&mut self, changes: Changes) -> typed::Result<()> {
        let touched = changes.touched.clone();
        let outcome = self.repository.commit(changes).await;
        if outcome.as_ref().is_err_and(typed::Error::is_unconfirmed) {
            self.unstored.extend(touched);
        }
        outcome
    }

    /// Stores the present state of unstored records. After a write with an unknown result, clients
    /// were told that nothing was done.
    async fn store_unstored(&mut self) {
        if self.unstored.is_empty() {
            return;
        }
        let outcome = match self.unstored_changes() {
            Ok(changes) => self.repository.commit(changes).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => self.unstored = Touched::default(),
            Err(error) => tracing::warn!(
                error = error_chain(&error),
                "storing changed records failed; retrying"
            ),
        }
    }

    fn unstored_changes(&self) -> typed::Result<Changes> {
        let mut changes = Changes::default();
        for id in &self.unstored.apps {
            match self.apps.get(id) {
                Some(state) => changes.put_app(&state.record)?,
                None => changes.delete_app(id),
            }
        }
        for id in &self.unstored.deployments {
            match self.deployments.values().find(|deployment| deployment.id == *id) {
                Some(deployment) => changes.put_deployment(deployment)?,
                None => changes.delete_deployment(id),
            }
        }
        Ok(changes)
    }

    /// A version that no other definition or deployment has.
    fn new_version(&mut self) -> Moment {
        let version = Moment::after(self.last_version);
        self.last_version = Some(version);
        version
    }

    /// Publishes the changes to readers, then the events about them.
    fn publish(&mut self) {
        self.publish_snapshot();
        for draft in self.drafts.drain(..) {
            self.bus.publish(draft);
        }
    }

    fn publish_snapshot(&mut self) {
        if self.dirty.is_empty() && self.published {
            return;
        }
        // The snapshot so far is the mirror's copy of an earlier leader's state.
        let (mut apps, mut deleted) = if std::mem::replace(&mut self.published, true) {
            let last = self.snapshot.load();
            (last.apps.clone(), last.deleted.clone())
        } else {
            Default::default()
        };
        for id in std::mem::take(&mut self.dirty) {
            apps.remove(&id);
            deleted.remove(&id);
            if let Some(state) = self.apps.get(&id) {
                let shown = if state.record.gone {
                    &mut deleted
                } else {
                    &mut apps
                };
                shown.insert(id, Arc::new(state.view()));
            }
        }
        let mut deployments: Vec<Arc<Deployment>> =
            self.deployments.values().cloned().map(Arc::new).collect();
        deployments.sort_by_key(|deployment| deployment.version);
        self.snapshot.store(Arc::new(Snapshot {
            apps,
            deleted,
            deployments,
        }));
    }
}
