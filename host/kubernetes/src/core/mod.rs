//! The actor that owns the framework's state.
//!
//! It receives requests, events of the scheduler, and the results of jobs, which prepare scripts,
//! query the orchestrator or drain nodes. After each it compares the wanted state with the observed
//! one ([`crate::plan`]) and starts the next steps. The actor itself waits only for the store, and for
//! the master when a request drops the framework's id. Jobs run concurrently with it and are never
//! started twice.

mod autoscale;
mod backup;
pub(crate) mod command;
mod failing;
mod job_result;
mod kvstore;
mod members;
pub(crate) mod persist;
mod publish;
mod readiness;
mod reconcile;
mod requests;
pub(crate) mod term;
#[cfg(test)]
mod tests;
pub(crate) mod version;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_cluster::TaskId;
use transom_cluster::v1::TaskState;
use transom_common::ambient;
use transom_framework::Abdication;
use transom_scheduler::{Event, Events, SchedulerApi, TaskRecord};

use crate::backup::directory::Directory;
use crate::config::Config;
use crate::kind::{Kind, PerKind};
use crate::orchestrator::{ClientConfig, Observation, Orchestrator};
use crate::plan::Plan;
use crate::secrets::{DatastoreRecord, Secrets};
use crate::task::Metadata;
use autoscale::Autoscaler;
use backup::BackupWork;
use command::Command;
use job_result::JobResult;
use kvstore::KvstoreState;
use members::{MemberEffect, Members};
use persist::{Repository, Stored, StoredClientConfig, Wanted};
use term::TermDependencies;

/// The parts of the core.
pub(crate) struct Dependencies {
    pub(crate) service: TermDependencies,
    /// The configuration, without the settings in use.
    pub(crate) configured: Arc<Config>,
    pub(crate) secrets: Secrets,
    pub(crate) scheduler: Arc<dyn SchedulerApi>,
    pub(crate) events: Events,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) abdication: Abdication,
}

/// The last observed state of the orchestrator.
#[derive(Debug, Default)]
struct OrchestratorState {
    /// The client for the API of the server in use.
    client: Option<Arc<dyn Orchestrator>>,
    /// The last answer; `None`: the API does not answer.
    observation: Option<Arc<Observation>>,
    /// Since when it does not answer; `None`: it answers.
    silent_since: Option<Timestamp>,
    /// Why it does not answer.
    problem: Option<String>,
    /// Counts the changes of nodes.
    changes: u64,
}

/// The actor.
struct Core {
    config: Arc<Config>,
    /// The configuration, without the settings in use.
    configured: Arc<Config>,
    service: TermDependencies,
    repository: Repository,
    scheduler: Arc<dyn SchedulerApi>,
    abdication: Abdication,
    tracker: TaskTracker,
    token: CancellationToken,
    job_results: mpsc::Sender<JobResult>,

    wanted: Wanted,
    datastore: DatastoreRecord,
    secrets: Arc<Secrets>,
    /// Why settings of the configuration are ignored.
    ignored: Vec<String>,
    client_config: Option<ReadClientConfig>,
    /// The hand-over of clients to another server that is under way.
    hand_over: Option<HandOver>,
    members: Members,
    /// Live tasks that are no longer members; the scheduler kills them.
    orphans: BTreeSet<TaskId>,
    orchestrator: OrchestratorState,
    kvstore: KvstoreState,
    /// The jobs under way, so that none is started twice.
    jobs: Jobs,
    /// Counts the changes of the bootstrap component.
    component_changes: u64,
    autoscaler: Autoscaler,
    backup: BackupWork,
    plan: Plan,
}

/// The client configuration that was read last.
#[derive(Debug)]
struct ReadClientConfig {
    stored: StoredClientConfig,
    /// The document for clients; `None`: the stored one is invalid.
    text_for_clients: Option<Arc<str>>,
}

impl ReadClientConfig {
    fn new(stored: StoredClientConfig) -> Self {
        let config = ClientConfig::parse(&stored.text).ok();
        let text_for_clients = config.map(|config| config.text_for_clients(&stored.address).into());
        Self {
            stored,
            text_for_clients,
        }
    }
}

/// A hand-over: clients get the client configuration of another server, because the one that they use
/// is about to end.
#[derive(Debug)]
struct HandOver {
    /// The other server.
    to: TaskId,
    since: Timestamp,
}

/// The jobs under way.
#[derive(Debug, Default)]
struct Jobs {
    observing: bool,
    reading: bool,
    /// Names of nodes that are being drained, cordoned or removed.
    nodes: BTreeSet<String>,
    /// The client configuration is not read again before this time.
    read_after: Option<Instant>,
    /// When to try again to read it.
    read_at: Option<Instant>,
    /// When the orchestrator is queried again; `None`: immediately.
    observe_at: Option<Instant>,
}

/// The capacity of the queue of job results. Jobs wait while it is full.
const JOB_RESULT_QUEUE_CAPACITY: usize = 256;

/// Starts the core. It ends when `token` is cancelled or the scheduler ends; the returned future
/// resolves when it has ended.
pub(crate) fn start(
    stored: Stored,
    repository: Repository,
    parts: Dependencies,
    tracker: &TaskTracker,
    token: CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let Dependencies {
        service,
        configured,
        secrets,
        scheduler,
        mut events,
        mut commands,
        abdication,
    } = parts;
    let config = Arc::clone(&service.config);
    let directory = config.settings.backup.dir.as_ref();
    let directory = directory.map(|dir| Directory::new(dir, config.name()));
    let (job_results, mut finished_jobs) = mpsc::channel(JOB_RESULT_QUEUE_CAPACITY);
    stored.datastore.warn(&config);
    for reason in &stored.ignored {
        tracing::error!(framework = config.name(), "{reason}");
    }
    let mut core = Core {
        members: Members::new(config.settings.orch_node_timeout.duration()),
        configured,
        service,
        repository,
        scheduler,
        abdication,
        tracker: tracker.clone(),
        token: token.clone(),
        job_results,
        wanted: stored.wanted,
        secrets: Arc::new(secrets),
        datastore: stored.datastore,
        ignored: stored.ignored,
        client_config: stored.client_config.map(ReadClientConfig::new),
        hand_over: None,
        orphans: BTreeSet::new(),
        orchestrator: OrchestratorState::default(),
        kvstore: KvstoreState::new(stored.kvstore),
        jobs: Jobs::default(),
        component_changes: 0,
        autoscaler: Autoscaler::new(ambient::now()),
        backup: BackupWork::new(stored.backup, directory),
        plan: Plan::default(),
        config,
    };
    core.rebuild();
    // The view is published now, because requests are answered from now on and the first turn of the
    // loop takes a while.
    core.publish_view();
    let ended = CancellationToken::new();
    let end = ended.clone().drop_guard();
    tracker.spawn(async move {
        let _end = end;
        let mut components = core.service.bootstrap.changes();
        let mut ticks = tokio::time::interval(core.config.settings.heartbeat_interval.duration());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        core.advance().await;
        core.record_voters().await;
        core.reconcile().await;
        loop {
            let recheck_at = core.next_comparison();
            tokio::select! {
                biased;
                () = token.cancelled() => break,
                _ = ticks.tick() => {
                    let clustered = core.is_clustered();
                    let effects = core.members.tick(clustered, ambient::now());
                    core.apply_effects(effects);
                }
                event = events.next() => {
                    let Some(event) = event else {
                        tracing::info!("scheduler stopped; the Kubernetes framework is no longer managed");
                        break;
                    };
                    core.handle_event(&event);
                }
                Some(job_result) = finished_jobs.recv() => core.handle_job_result(job_result).await,
                Some(command) = commands.recv() => core.handle_command(command).await,
                Some(()) = components.next() => core.handle_component_change(),
                () = tokio::time::sleep_until(recheck_at) => {}
            }
            core.advance().await;
            core.record_voters().await;
            core.reconcile().await;
        }
        core.service.delivery.set(None);
        // The last view stays published for requests that arrive before the handles are withdrawn.
        core.service.metrics.clear_gauges();
    });
    ended.cancelled_owned()
}

impl Core {
    /// Takes over the tasks that the scheduler knows.
    fn rebuild(&mut self) {
        let tasks = self.scheduler.tasks();
        // The requests of a former term are no longer known, and no event will report their end.
        self.service.scripts.retain(|task| {
            let record = tasks.get(&TaskId::from(task));
            record.is_some_and(|record| record.state != TaskState::Running && !record.is_terminal())
        });
        let (mut live, mut purge, mut kill) = (Vec::new(), Vec::new(), Vec::new());
        for (task, record) in tasks.iter() {
            if self.backup.owns(task) {
                self.backup.adopt(record);
                continue;
            }
            if record.is_terminal() {
                purge.push(task.clone());
                continue;
            }
            let metadata = serde_json::from_value::<Metadata>((*record.metadata).clone());
            live.push((metadata.ok(), record));
        }
        // A former task with the same number may still be known, for example because its agent was
        // unreachable when it was replaced. Its replacement must be found first.
        live.sort_by_key(|(metadata, record)| {
            let incarnation = metadata.map(|metadata| metadata.incarnation);
            (record.killing && !record.restarting, Reverse(incarnation))
        });
        for (metadata, record) in live {
            let adopted = metadata.is_some_and(|metadata| self.members.adopt(metadata, record));
            if !adopted {
                let task = &record.id;
                tracing::info!(%task, framework = self.config.name(), "killing a task that is not one of the framework's");
                self.orphans.insert(task.clone());
                kill.push(task.clone());
            }
        }
        self.scheduler.purge(purge);
        self.scheduler.kill(kill, None);
    }

    fn handle_event(&mut self, event: &Event) {
        let now = ambient::now();
        match event {
            Event::Launched(record) => self.handle_task_change(record, true, now),
            Event::Updated(record) => self.handle_task_change(record, false, now),
            Event::NeverLaunched(task) => {
                self.service.scripts.remove(task.as_str());
                self.orphans.remove(task);
                self.members.remove_unlaunched(task);
                self.handle_one_off_drop(task, "its request was dropped");
            }
            Event::Rejected { task, reason } => {
                tracing::warn!(%task, error = transom_common::error_chain(&**reason), "the scheduler rejected a request");
                self.members.remove_unlaunched(task);
                self.handle_one_off_drop(task, &transom_common::error_chain(&**reason));
            }
            _ => {}
        }
    }

    fn handle_task_change(&mut self, record: &Arc<TaskRecord>, launched: bool, now: Timestamp) {
        if record.state == TaskState::Running {
            // A running task has fetched its script.
            self.service.scripts.remove(record.id.as_str());
        }
        if self.backup.owns(&record.id) {
            return self.handle_one_off_change(record);
        }
        if let Some((kind, _)) = self.members.find(&record.id) {
            if kind == Kind::Datastore {
                // An answer of the members that is under way is older than this change.
                self.kvstore.task_changed();
            }
            let effects = self.members.observe(record, launched, now);
            if record.is_terminal() {
                if kind == Kind::Datastore {
                    self.datastore_failed();
                }
                self.forget_server(&record.id);
                let message = record
                    .status
                    .as_ref()
                    .and_then(|status| status.message.as_deref());
                tracing::info!(
                    framework = self.config.name(),
                    task = %record.id,
                    run_spec = record.run_spec,
                    state = %record.state,
                    message,
                    "task ended"
                );
            }
            self.apply_effects(effects);
        } else if record.is_terminal() {
            self.orphans.remove(&record.id);
            self.service.scripts.remove(record.id.as_str());
            self.scheduler.purge(vec![record.id.clone()]);
        } else if self.orphans.insert(record.id.clone()) {
            self.scheduler.kill(vec![record.id.clone()], None);
        }
    }

    fn apply_effects(&mut self, effects: Vec<MemberEffect>) {
        for effect in effects {
            match effect {
                MemberEffect::Kill(task) => {
                    if self.members.find(&task).is_none() {
                        self.orphans.insert(task.clone());
                    }
                    self.scheduler.kill(vec![task], None);
                }
                MemberEffect::Ended(task) => {
                    self.service.scripts.remove(task.as_str());
                    self.scheduler.purge(vec![task]);
                }
            }
        }
    }

    /// The version of each kind's wanted configuration.
    fn versions(&self) -> PerKind<String> {
        let endpoints = self.endpoints();
        let clustered = self.is_clustered();
        PerKind::from_fn(|kind| {
            version::of(
                &self.config,
                &self.secrets,
                &self.wanted,
                kind,
                &endpoints,
                clustered,
            )
        })
    }
}
