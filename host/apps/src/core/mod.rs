//! The actor that owns apps, pods, groups, instances and deployments.
//!
//! It works in turns. A turn takes all requests, scheduler events and check results that are ready.
//! Requests are stored together. Then the changes are published as one immutable [`Snapshot`], then
//! as events on the bus, and then the requests are answered, so that a client that has received an
//! event or a response can read the change. The core never waits for the scheduler, and for the
//! store only until a timeout. Large changes are planned and stored beside the turns, see
//! [`Core::meanwhile`]. While the store is unavailable, requests are rejected and running deployments
//! pause.

mod agent_health;
mod batch;
mod budgets;
mod canary;
pub(crate) mod command;
mod commit;
mod counts;
mod deployments;
pub(crate) mod ends;
pub(crate) mod failing;
pub(crate) mod failures;
pub(crate) mod format;
mod history;
mod kill;
mod kill_choice;
mod known_health;
pub(crate) mod metrics;
pub(crate) mod mirror;
pub(crate) mod persist;
pub(crate) mod places;
mod planning;
mod probing;
mod progress;
mod publisher;
mod reconcile_queue;
mod residents;
mod scheduler_events;
mod selected_kills;
pub(crate) mod snapshot;
mod spec_state;
pub(crate) mod spec_view;
mod state_metrics;
pub(crate) mod term;
mod totals;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_cluster::{AgentId, TaskId};
use transom_replicas::{Condition, Effect, Input, step};
use transom_scheduler::{Event, Events, SchedulerApi, TaskRecord};
use transom_store::Store;
use transom_store::typed::TypedStore;

use crate::bus::{Bus, shapes};
use crate::ids::{InstanceId, SpecId};
use crate::instance::Instance;
use crate::probes::{Checker, Occasion, Report};
use crate::task::LaunchSettings;
use crate::time::Moment;
use crate::{Config, Error, Result};
use agent_health::agent_kill;
use budgets::PastBytes;
use command::Command;
use deployments::{Deployments, Held};
use metrics::Metrics;
use persist::{Records, Repository, Touched};
use planning::{Definitions, Planner};
use publisher::Publisher;
use reconcile_queue::ReconcileQueue;
use snapshot::Snapshot;
use spec_state::SpecState;

/// Interval of the work that depends only on the time, such as that of unreachable instances and
/// retried writes.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of requests, events and reports in one turn.
const MAX_TURN_INPUTS: usize = 256;

/// The dependencies of the core.
pub(crate) struct CoreParts {
    pub(crate) scheduler: Arc<dyn SchedulerApi>,
    pub(crate) events: Events,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) reports: mpsc::Receiver<Vec<Report>>,
    pub(crate) checker: Checker,
    pub(crate) bus: Bus,
    pub(crate) metrics: Metrics,
    /// The settings that changes depend on.
    pub(crate) settings: planning::Settings,
    pub(crate) launch: LaunchSettings,
    /// How long a launched task may take to run.
    pub(crate) launch_timeout: Duration,
    pub(crate) snapshot: Arc<ArcSwap<Snapshot>>,
}

/// The stored state, read before anything starts.
pub(crate) struct StoredState {
    repository: Repository,
    records: Records,
    /// Past definitions that tasks were launched from, or that running deployments replace.
    past: BTreeMap<(SpecId, Moment), crate::model::Spec>,
    /// The number of this term.
    pub(crate) term: u64,
}

impl StoredState {
    /// Reads all records and begins a term.
    pub(crate) async fn load(
        store: Arc<dyn Store>,
        config: &Config,
        scheduler: &dyn SchedulerApi,
    ) -> Result<Self> {
        let store =
            TypedStore::new(store, &config.settings.framework_name).with_timeout(config.store_timeout);
        let format = format::check(&store).await?;
        let repository = Repository::new(store.clone());
        let records = repository.load().await?;
        let current: BTreeSet<(&SpecId, Moment)> = records
            .specs
            .iter()
            .map(|record| (record.spec.id(), record.spec.version()))
            .collect();
        let tasks = scheduler.tasks();
        let mut launched_from: BTreeSet<(SpecId, Moment)> = tasks
            .values()
            .filter_map(|task| Some((SpecId::parse(&task.run_spec).ok()?, task.version.parse().ok()?)))
            .filter(|(id, version)| !current.contains(&(id, *version)))
            .collect();
        let replaced = records
            .deployments
            .iter()
            .flat_map(|deployment| &deployment.change.specs);
        let replaced = replaced.filter_map(|spec| Some((spec.id.clone(), spec.before?)));
        launched_from.extend(replaced.filter(|(id, version)| !current.contains(&(id, *version))));
        let past = repository.definitions(launched_from).await;
        let past = past.map_err(|error| Error::of_store("reading past definitions", error))?;
        let term = repository.next_term().await?;
        if format.is_none() {
            format::write(&store).await?;
        }
        Ok(Self {
            repository,
            records,
            past,
            term,
        })
    }
}

/// The actor.
pub(crate) struct Core {
    repository: Repository,
    /// Records whose state in the store may differ from the core's: the result of their last write
    /// is unknown, or they changed without a request.
    unstored: Touched,
    scheduler: Arc<dyn SchedulerApi>,
    events: Events,
    /// Results of checks.
    reports: mpsc::Receiver<Vec<Report>>,
    checker: Checker,
    publisher: Publisher,
    metrics: Metrics,
    /// The beginning of the turn, or of its part after a large change was planned or stored.
    turn_began: Instant,
    /// The settings that changes depend on.
    settings: Arc<planning::Settings>,
    launch: LaunchSettings,
    launch_timeout: Duration,
    definitions: Definitions,
    /// All apps and pods, with their instances.
    specs: BTreeMap<SpecId, SpecState>,
    past_bytes: PastBytes,
    /// Agents that instances must leave before maintenance.
    leaving: Arc<BTreeSet<AgentId>>,
    deployments: Deployments,
    reconcile_queue: ReconcileQueue,
    last_version: Option<Moment>,
}

/// Starts the core, which ends with `token` or when the scheduler has stopped. The returned future
/// completes when it has ended.
pub(crate) fn start(
    stored: StoredState,
    parts: CoreParts,
    tracker: &TaskTracker,
    token: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let mut commands = parts.commands;
    let mut core = Core {
        repository: stored.repository,
        unstored: Touched::default(),
        scheduler: parts.scheduler,
        events: parts.events,
        reports: parts.reports,
        checker: parts.checker,
        publisher: Publisher::new(parts.bus, parts.snapshot),
        metrics: parts.metrics,
        turn_began: Instant::now(),
        settings: Arc::new(parts.settings),
        launch: parts.launch,
        launch_timeout: parts.launch_timeout,
        definitions: Definitions::default(),
        specs: BTreeMap::new(),
        past_bytes: PastBytes::default(),
        leaving: Arc::default(),
        deployments: Deployments::default(),
        reconcile_queue: ReconcileQueue::default(),
        last_version: None,
    };
    core.rebuild(stored.records, stored.past);
    core.publish();
    let ended = CancellationToken::new();
    let end = ended.clone().drop_guard();
    tracker.spawn(async move {
        let _end = end;
        core.reconcile_pending().await;
        core.publish();
        let mut ticks = tokio::time::interval(TICK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut requests = Vec::new();
        loop {
            // In this order none waits for ever: ticks are rare, and a turn takes inputs of all kinds.
            let first = tokio::select! {
                biased;
                () = token.cancelled() => return,
                _ = ticks.tick() => TurnInput::Tick,
                Some(command) = commands.recv() => TurnInput::Command(command),
                event = core.events.next() => match event {
                    Some(event) => TurnInput::Event(event),
                    None => return tracing::info!("scheduler stopped; apps are no longer managed"),
                },
                Some(batch) = core.reports.recv() => TurnInput::Reports(batch),
                () = std::future::ready(()), if core.reconcile_queue.has_postponed() => TurnInput::Nothing,
            };
            core.turn_began = Instant::now();
            match first {
                TurnInput::Command(command) => requests.push(command),
                TurnInput::Event(event) => core.handle_event(event),
                TurnInput::Reports(batch) => core.handle_reports(batch),
                TurnInput::Tick => core.tick().await,
                TurnInput::Nothing => {}
            }
            core.reconcile_queue.begin_turn();
            for _ in 1..MAX_TURN_INPUTS {
                let command = commands.try_recv().ok();
                let has_command = command.is_some();
                requests.extend(command);
                if !core.take_more_inputs() && !has_command {
                    break;
                }
            }
            core.handle_requests(std::mem::take(&mut requests)).await;
            core.reconcile_pending().await;
            core.publish();
            core.metrics.record_turn(core.turn_began.elapsed());
        }
    });
    ended.cancelled_owned()
}

/// The input that begins a turn.
enum TurnInput {
    Command(Command),
    Event(Event),
    Reports(Vec<Report>),
    Tick,
    /// The turn only continues the work of the one before.
    Nothing,
}

impl Core {
    /// Takes one more input of each kind for the turn, if it is ready. The end of the event stream
    /// is handled by the next turn.
    fn take_more_inputs(&mut self) -> bool {
        let event: Option<Event> = self.events.next().now_or_never().flatten();
        let report = self.reports.try_recv().ok();
        let any = event.is_some() || report.is_some();
        if let Some(event) = event {
            self.handle_event(event);
        }
        if let Some(report) = report {
            self.handle_reports(report);
        }
        any
    }

    /// Waits for work on a large change. Scheduler events and results of checks do not wait for it:
    /// they are handled in turns of their own. Requests, the ends of steps and what depends only on
    /// the time come later, because they change what the work began with.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        self.metrics.record_turn(self.turn_began.elapsed());
        loop {
            let has_postponed = self.reconcile_queue.has_postponed();
            let input = tokio::select! {
                biased;
                output = &mut work => {
                    self.turn_began = Instant::now();
                    return output;
                }
                Some(event) = self.events.next() => TurnInput::Event(event),
                Some(batch) = self.reports.recv() => TurnInput::Reports(batch),
                () = std::future::ready(()), if has_postponed => TurnInput::Nothing,
            };
            self.turn_began = Instant::now();
            match input {
                TurnInput::Event(event) => self.handle_event(event),
                TurnInput::Reports(batch) => self.handle_reports(batch),
                TurnInput::Command(_) | TurnInput::Tick | TurnInput::Nothing => {}
            }
            self.reconcile_queue.begin_turn();
            for _ in 1..MAX_TURN_INPUTS {
                if !self.take_more_inputs() {
                    break;
                }
            }
            self.reconcile_specs(&mut 0);
            self.publish();
            self.metrics.record_turn(self.turn_began.elapsed());
        }
    }

    /// Combines the stored state and the scheduler's tasks.
    fn rebuild(&mut self, records: Records, past: BTreeMap<(SpecId, Moment), crate::model::Spec>) {
        for group in records.groups {
            self.definitions.tree.insert_group(group);
        }
        for record in records.specs {
            let id = record.spec.id().clone();
            self.last_version = self.last_version.max(Some(record.spec.version()));
            self.publisher.changed(&id);
            self.reconcile_queue.insert(id.clone());
            if !record.deleted {
                self.definitions.tree.insert(record.spec.clone());
            }
            let state = SpecState::new(record, &self.launch, &self.past_bytes);
            self.specs.insert(id, state);
        }
        for ((id, _), definition) in past {
            if let Some(state) = self.specs.get_mut(&id) {
                state.insert_past(definition, &self.launch);
            }
        }
        self.warn_above_budgets();
        for change in records.history {
            self.last_version = self.last_version.max(Some(change.version));
            self.definitions.history.push(Arc::new(change));
        }
        for deployment in records.deployments {
            self.last_version = self.last_version.max(Some(deployment.version));
            self.definitions.history.retain(&deployment.change);
            self.run_deployment(deployment);
        }
        let tasks = self.scheduler.tasks();
        let mut requests: BTreeMap<&TaskId, Vec<Arc<TaskRecord>>> = BTreeMap::new();
        for record in tasks.values() {
            let of_request = requests.entry(record.request_id()).or_default();
            of_request.push(Arc::clone(record));
        }
        let (mut purge, mut kill, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        let is_terminal = |records: &[Arc<TaskRecord>]| records.iter().all(|record| record.is_terminal());
        for (request, records) in &requests {
            let id = records.first().and_then(|it| SpecId::parse(&it.run_spec).ok());
            let state = id.and_then(|id| self.specs.get_mut(&id));
            let terminal = is_terminal(records);
            match (state, Instance::of_records(records)) {
                // The instance was given up on an unreachable agent: it is being replaced, or was
                // not wanted any more.
                (_, Some(instance))
                    if instance.condition().is_unreachable()
                        && (!instance.replica.is_wanted() || instance.replica.restarting) =>
                {
                    kill.push(TaskId::clone(request));
                }
                (Some(state), Some(instance)) => {
                    if terminal {
                        // The task ended while there was no leader. `step_ended` handles its end.
                        ended.push(instance.id.clone());
                    }
                    if let Some(earlier) = state.insert_newest(instance) {
                        let terminal = requests.get(&earlier).is_none_or(|records| is_terminal(records));
                        let unused = if terminal { &mut purge } else { &mut kill };
                        unused.push(earlier);
                    }
                }
                _ if terminal => purge.push(TaskId::clone(request)),
                _ => kill.push(TaskId::clone(request)),
            }
        }
        self.scheduler.purge(purge);
        self.scheduler.kill(kill, None);
        let requests = self.restore_residents();
        self.scheduler.submit(requests);
        for instance in ended {
            self.step_ended(&instance);
        }
        self.restore_health(records.health);
        let ids: Vec<SpecId> = self.specs.keys().cloned().collect();
        for id in ids {
            let running: Vec<InstanceId> = self.specs[&id].instances().keys().cloned().collect();
            for instance in &running {
                self.update_check(&id, instance, Occasion::NewLeader);
            }
        }
    }

    /// Removes an instance for good. An unlaunched instance is removed immediately; if its launch
    /// is already under way, the task becomes an orphan and is released when it appears. Its volumes
    /// are destroyed once its task has ended.
    fn decommission(&mut self, id: &SpecId, instance: &InstanceId) {
        let state = self.specs.get(id);
        if state.is_some_and(|state| state.record.spec.is_resident()) {
            self.scheduler.release_reservation(instance.as_str());
        }
        self.checker.end(instance);
        self.step(id, instance, Input::Decommission);
    }

    /// Applies an input to an instance, and executes the effects. Returns whether there were any.
    fn step(&mut self, id: &SpecId, instance_id: &InstanceId, input: Input<'_>) -> bool {
        let held = self.deployments.held(id);
        let Some(state) = self.specs.get_mut(id) else {
            return false;
        };
        let mut policy = state.policy(self.launch_timeout);
        let Some(instance) = state.instances().get(instance_id).cloned() else {
            return false;
        };
        // A canary of instances with volumes is the next task of an earlier instance.
        let is_canary = policy.resident && (instance.replica.restarting || matches!(input, Input::Restart));
        if held == Some(Held::Waits) || held == Some(Held::Canary) && !is_canary {
            policy.version = state.own_version(&instance);
        }
        self.publisher.changed(id);
        self.reconcile_queue.insert(id.clone());
        let now = Moment::now();
        let (next, effects) = step(&instance.replica, input, &policy, now.timestamp());
        let version = instance.version().to_string();
        let changed =
            |condition: Condition| shapes::instance_changed(instance.facts(id, &version), condition);
        let killed_by_check = matches!(input, Input::Updated(task) if task.is_killed_by_check());
        let (mut launch, mut failed) = (false, false);
        for effect in &effects {
            match *effect {
                Effect::Changed(condition) => {
                    let is_public = condition.is_public();
                    self.publisher.events(is_public.then(|| changed(condition)));
                }
                Effect::Kill { incarnation } => {
                    let grace = state.record.spec.kill_grace_seconds();
                    let grace = grace.map(|seconds| Duration::from_secs(u64::from(seconds)));
                    let task = vec![instance.task_of(incarnation)];
                    let wanted = next.as_ref().is_some_and(transom_replicas::Replica::is_wanted);
                    if wanted {
                        self.scheduler.restart(task, grace);
                    } else {
                        self.scheduler.kill(task, grace);
                    }
                }
                Effect::Ended {
                    incarnation,
                    condition,
                    restarting,
                } => {
                    self.checker.end(instance_id);
                    self.scheduler.purge(vec![instance.task_of(incarnation)]);
                    if state.record.spec.is_pod() {
                        state.record_termination(&instance);
                        self.unstored.specs.insert(id.clone());
                    }
                    let unexpected = matches!(
                        condition,
                        Condition::Failed | Condition::Error | Condition::Gone | Condition::Dropped
                    ) || killed_by_check;
                    if killed_by_check {
                        self.publisher.events(agent_kill(id, &instance));
                    }
                    if unexpected && !restarting && !state.is_outdated(&instance) {
                        failed = true;
                    }
                    if unexpected && !restarting && state.record_failure(&instance) {
                        self.unstored.specs.insert(id.clone());
                    }
                }
                Effect::Launch { after_failure } => {
                    launch = true;
                    if after_failure {
                        state.count_failure(&instance, killed_by_check, now);
                        self.unstored.specs.insert(id.clone());
                    }
                }
            }
        }
        // A changed goal is published as a change of the instance, too.
        let is_published = effects.iter().any(|effect| matches!(effect, Effect::Changed(_)));
        if let Some(next) = &next
            && next.goal != instance.replica.goal
            && !is_published
            && next.condition.is_public()
        {
            self.publisher.event(changed(next.condition));
        }
        self.unstored.health.extend(instance.ended_health(next.as_ref()));
        if let Some(replica) = next {
            if let Some(instance) = state.instance_mut(instance_id) {
                instance.set_replica(replica);
                if let Some(wanted) = instance.take_wanted_since() {
                    self.metrics.record_launch(wanted);
                }
            }
        } else {
            state.remove_instance(instance_id);
            self.checker.end(instance_id);
        }
        if launch && let Some(instance) = state.instances().get(instance_id) {
            self.scheduler.submit(vec![state.task_request(instance)]);
        }
        if failed {
            self.canary_failed(id, "failed");
        }
        !effects.is_empty()
    }

    /// A version that differs from those of all other definitions and deployments.
    fn new_version(&mut self) -> Moment {
        let version = Moment::after(self.last_version);
        self.last_version = Some(version);
        version
    }

    /// Publishes the changes to readers, then the events about them, then the replies.
    fn publish(&mut self) {
        self.refresh_snapshot();
        self.publisher.publish();
    }

    /// What changes are planned from now. `accepted` requests with deployments wait to be stored.
    fn planner(&mut self, accepted: usize) -> Planner {
        self.refresh_snapshot();
        Planner {
            settings: Arc::clone(&self.settings),
            repository: self.repository.clone(),
            snapshot: self.publisher.next.clone(),
            past_bytes: self.past_bytes.clone(),
            running: self.deployments.len() + accepted,
        }
    }

    /// Updates the next snapshot.
    fn refresh_snapshot(&mut self) {
        for id in self.publisher.take_changed() {
            let state = self.specs.get_mut(&id);
            let deleted = state.as_ref().is_some_and(|state| state.record.deleted);
            let view = state.map(|state| {
                let view = state.view();
                for moved in state.take_moved() {
                    self.publisher.next.places.change(&id, &moved);
                }
                Arc::new(view)
            });
            self.publisher.next.set(&id, view, deleted);
        }
        self.publisher.next.groups = self.definitions.tree.groups().clone();
        self.publisher.next.history = self.definitions.history.clone();
        self.deployments.show_in(&mut self.publisher.next);
    }
}
