//! The plugin directory: admits its components and keeps the table of serving versions.
//!
//! One task owns the table. It scans the whole directory after a file event, on command, and
//! periodically in case an event was lost; it admits only files whose content changed. It watches
//! the directory and not the files, because a rename replaces a file together with its watch. The
//! same task executes operators' commands and handles failing versions, so these never race.
//!
//! The task itself only makes decisions. Admissions, which compile and test components, run in
//! background tasks (see `background`). So neither commands nor reactions to failing versions wait
//! for them, and both have priority.
//!
//! * `dir_watcher`, `files`, `scan`: the files, and which of them changed
//! * `background`, `pending_admission`, `admissions`: admissions and rollbacks in progress
//! * `effects`: executes what [`super::state`] decides
//! * `upload`: files that an operator uploads

mod admissions;
mod background;
mod dir_watcher;
mod effects;
mod files;
mod pending_admission;
mod scan;
pub(crate) mod upload;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    path::Path,
    pin::{Pin, pin},
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use tokio::{
    sync::{broadcast, mpsc, oneshot},
    time::{MissedTickBehavior, interval, sleep},
};
use transom_registry::{Sources, artifacts::ArtifactStore};

use super::{
    admission::{AdmissionContext, Admitted, Retry},
    state::{Event, PluginState},
    table::Table,
};
use crate::{
    config::Config,
    error::{CommandError, Error, UploadError},
    observe::{health::HealthEvent, metrics::Metrics, status::Change},
    runtime::{
        candidate::{CandidateJudged, CandidateVerdict},
        engine::{CompileLimits, Compilers},
        executor::Priority,
        pool::Runtime,
    },
    storage::{history::History, staged_files::StagedFiles, version_store::VersionStore},
};
use background::{Admission, BackgroundTasks, PendingRollback};
use dir_watcher::DirWatcher;
use files::Fingerprint;
use upload::Uploaded;

/// Maximum number of changes that a subscriber may lag behind.
const MAX_CHANGES: usize = 256;
/// Capacity of the queue of commands.
const MAX_COMMANDS: usize = 16;
/// Capacity of the queues of health events and of judgements: one for each possible plugin.
const MAX_EVENTS: usize = 256;
/// How long the start waits for plugins before it logs their names.
const START_NOTICE: Duration = Duration::from_secs(1);

/// A command to the directory's task.
pub(crate) enum Command {
    /// Scans now, and returns the changes.
    Rescan(oneshot::Sender<Vec<Change>>),
    /// Rolls back to an earlier version.
    Rollback {
        name: String,
        record: Option<u64>,
        by: String,
        answer: oneshot::Sender<Result<Change, CommandError>>,
    },
    /// Promotes the shadow or the canary.
    Promote {
        name: String,
        by: String,
        answer: oneshot::Sender<Result<Change, CommandError>>,
    },
    /// Stops the shadow or the canary.
    Abort {
        name: String,
        by: String,
        answer: oneshot::Sender<Result<Change, CommandError>>,
    },
    /// Writes an operator's files into the directory, and starts their admission.
    Upload {
        name: String,
        files: StagedFiles,
        answer: oneshot::Sender<Result<Uploaded, UploadError>>,
    },
}

/// The state that the rest of the host shares with the directory's task.
#[derive(Clone)]
pub(crate) struct DirectoryHandle {
    /// The table of plugins, which every call reads.
    pub(crate) table: Arc<ArcSwap<Table>>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) changes: broadcast::Sender<Change>,
}

pub(crate) struct Directory {
    config: Arc<Config>,
    admission_context: AdmissionContext,
    /// Context of rollbacks, and of admissions at the start: separate compiler slots, normal
    /// priority.
    interactive_context: AdmissionContext,
    /// Whether the host does not serve calls yet.
    is_starting: bool,
    /// Components from registries.
    sources: Sources,
    table: Arc<ArcSwap<Table>>,
    metrics: Metrics,
    changes: broadcast::Sender<Change>,
    version_store: VersionStore,
    history: Arc<History>,
    /// Queue for events about the health of serving versions and canaries.
    health_events: mpsc::Sender<HealthEvent>,
    /// Queue for the judgements of shadows and canaries.
    judgements: mpsc::Sender<CandidateJudged>,
    inbox: Inbox,
    plugins: BTreeMap<String, Plugin>,
    /// Files rejected for their names, in escaped form.
    misnamed: BTreeSet<String>,
    admissions: BTreeMap<String, Admission>,
    rollbacks: BTreeMap<String, PendingRollback>,
    /// Plugins whose admission is queued, and how to scan them.
    waiting: BTreeMap<String, ScanMode>,
    /// Admissions and rollbacks in progress.
    tasks: BackgroundTasks,
    waiters: Vec<RescanWaiter>,
    /// Whether a file was left for the next scan.
    has_skipped_files: bool,
}

struct Inbox {
    commands: mpsc::Receiver<Command>,
    health_events: mpsc::Receiver<HealthEvent>,
    judgements: mpsc::Receiver<CandidateJudged>,
}

/// One plugin: its versions, and the files that were read last.
#[derive(Default)]
struct Plugin {
    state: PluginState<Admitted>,
    /// Time after which the predecessor is no longer needed.
    probation_until: Option<Instant>,
    /// Digest of the files that were read last; their admission may be in progress. `None` if they
    /// were unreadable.
    fingerprint: Option<Fingerprint>,
    /// Digest of the files that were admitted or rejected last.
    decided: Option<Fingerprint>,
    /// Digest of the files that an operator uploaded last.
    uploaded: Option<Fingerprint>,
    /// When to retry unchanged files.
    retry: Option<Retry>,
}

/// A caller of a rescan, which waits until all found files are admitted or rejected.
struct RescanWaiter {
    answer: oneshot::Sender<Vec<Change>>,
    changes: Vec<Change>,
    /// The plugins in progress. `None`: the scan itself has not finished.
    pending: Option<BTreeSet<String>>,
}

/// Whether recently modified files are left for the next scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanMode {
    Immediate,
    Debounced,
}

impl Directory {
    /// Admits the plugins that are bound to an extension point, and starts the admission of the
    /// others in the directory.
    pub(crate) async fn open(
        admission_context: AdmissionContext,
        artifacts: ArtifactStore,
        sources: Sources,
        history: Arc<History>,
        metrics: Metrics,
    ) -> Result<(Directory, DirectoryHandle), Error> {
        let (changes, _) = broadcast::channel(MAX_CHANGES);
        let (command_sender, commands) = mpsc::channel(MAX_COMMANDS);
        let (health_sender, health_events) = mpsc::channel(MAX_EVENTS);
        let (judgement_sender, judgements) = mpsc::channel(MAX_EVENTS);
        let config = Arc::clone(&admission_context.config);
        let compilers = Compilers::new(
            config.compiler.clone(),
            CompileLimits::from(&*config),
            Priority::Interactive,
        );
        let interactive_context = AdmissionContext {
            cache: admission_context.cache.with_compilers(compilers),
            ..admission_context.clone()
        };
        let mut directory = Directory {
            config,
            admission_context,
            interactive_context,
            is_starting: true,
            sources,
            table: Arc::default(),
            metrics,
            changes: changes.clone(),
            version_store: VersionStore::new(artifacts),
            history,
            health_events: health_sender,
            judgements: judgement_sender,
            inbox: Inbox {
                commands,
                health_events,
                judgements,
            },
            plugins: BTreeMap::new(),
            misnamed: BTreeSet::new(),
            admissions: BTreeMap::new(),
            rollbacks: BTreeMap::new(),
            waiting: BTreeMap::new(),
            tasks: BackgroundTasks::default(),
            waiters: Vec::new(),
            has_skipped_files: false,
        };
        directory.scan(ScanMode::Immediate).await?;
        directory.wait_for_bound_plugins().await;
        directory.is_starting = false;
        let handle = DirectoryHandle {
            table: Arc::clone(&directory.table),
            commands: command_sender,
            changes,
        };
        Ok((directory, handle))
    }

    fn runtime(&self) -> &Runtime {
        &self.admission_context.runtime
    }

    /// Waits a bounded time until the plugins that are bound to an extension point are admitted or
    /// rejected, or the host is stopped.
    async fn wait_for_bound_plugins(&mut self) {
        let config = Arc::clone(&self.config);
        let token = self.runtime().token.clone();
        let limit = config.start_timeout;
        let mut deadline = pin!(sleep(limit));
        let mut notice = pin!(sleep(START_NOTICE));
        let mut is_noticed = false;
        loop {
            let awaited = self.pending().filter(|name| config.bindings.contains(name));
            let plugins = awaited.collect::<Vec<_>>().join(", ");
            if plugins.is_empty() {
                return;
            }
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                finished = self.tasks.next() => match finished {
                    Some(finished) => self.on_task_finished(finished).await,
                    None => return,
                },
                () = &mut deadline => {
                    tracing::error!(plugins, "serving without these plugins, not admitted within {limit:?} of the start");
                    return;
                }
                () = &mut notice, if !is_noticed => {
                    is_noticed = true;
                    tracing::info!(plugins, "waiting up to {limit:?} for these plugins to be compiled and checked");
                }
            }
        }
    }

    /// The plugins whose admission is in progress or queued.
    fn pending(&self) -> impl Iterator<Item = &str> {
        self.admissions
            .keys()
            .chain(self.waiting.keys())
            .map(String::as_str)
    }

    /// Runs until the daemon stops.
    pub(crate) async fn run(mut self) {
        let token = self.runtime().token.clone();
        let mut watch = DirWatcher::new(&self.config.dir);
        let sources = self.sources.clone();
        let mut rescan = interval(self.config.rescan);
        rescan.set_missed_tick_behavior(MissedTickBehavior::Delay);
        rescan.reset();
        // No caller waits for these scans, so they are debounced: a manifest may be written after
        // its component.
        let mut debounce = Debounce::default();
        let work = async {
            loop {
                tokio::select! {
                    biased;
                    Some(event) = self.inbox.health_events.recv() => self.on_health_event(event).await,
                    Some(judged) = self.inbox.judgements.recv() => self.on_candidate_judged(judged).await,
                    command = self.inbox.commands.recv() => match command {
                        Some(command) => self.execute(command).await,
                        // All handles are dropped, so there are no callers left.
                        None => break,
                    },
                    Some(finished) = self.tasks.next(), if !self.tasks.is_empty() => self.on_task_finished(finished).await,
                    () = debounce.finished(), if debounce.is_started() => self.scan_or_log(ScanMode::Debounced).await,
                    () = watch.changed(), if !debounce.is_started() => debounce.start(&self.config.dir),
                    () = sources.updated(), if !debounce.is_started() => debounce.start(&self.config.dir),
                    _ = rescan.tick() => {
                        watch.renew();
                        self.drop_predecessors().await;
                        self.history.flush().await;
                        debounce.start(&self.config.dir);
                    }
                }
                self.answer_waiters();
                if std::mem::take(&mut self.has_skipped_files) {
                    watch.notify();
                }
            }
        };
        // Boxed, because the future is large.
        token.run_until_cancelled(Box::pin(work)).await;
        // Drops the queues of the instance tasks. The instances end after their calls in progress.
        self.table.store(Arc::default());
    }

    /// Handles a version with too many faults.
    async fn on_health_event(&mut self, event: HealthEvent) {
        let HealthEvent {
            plugin,
            generation,
            action,
            reason,
        } = event;
        if self.plugins.contains_key(&plugin) {
            let event = Event::Failed {
                generation,
                action,
                reason,
            };
            self.apply(&plugin, event).await;
        }
    }

    /// Handles a candidate that met its plan or exceeds a limit. The event is ignored if the
    /// candidate has ended in the meantime.
    async fn on_candidate_judged(&mut self, judged: CandidateJudged) {
        let CandidateJudged {
            plugin,
            generation,
            verdict,
            reason,
        } = judged;
        if self.plugins.contains_key(&plugin) {
            let event = match verdict {
                CandidateVerdict::Agreed => Event::CandidateAgreed { generation, reason },
                CandidateVerdict::Failed => Event::CandidateFailed { generation, reason },
            };
            self.apply(&plugin, event).await;
        }
    }

    /// Executes a command. Its caller may have stopped waiting.
    async fn execute(&mut self, command: Command) {
        match command {
            Command::Rescan(answer) => {
                self.sources.refresh();
                self.retry_rejected(Retry::OnRescan);
                self.waiters.push(RescanWaiter {
                    answer,
                    changes: Vec::new(),
                    pending: None,
                });
                self.scan_or_log(ScanMode::Immediate).await;
                let pending: BTreeSet<String> = self.pending().map(str::to_owned).collect();
                if let Some(waiter) = self.waiters.last_mut() {
                    waiter.pending = Some(pending);
                }
            }
            Command::Rollback {
                name,
                record,
                by,
                answer,
            } => self.start_rollback(&name, record, by, answer).await,
            Command::Promote { name, by, answer } => {
                let done = self.end_candidate(name, "promote", Event::Promoted { by }).await;
                drop(answer.send(done));
            }
            Command::Abort { name, by, answer } => {
                let done = self.end_candidate(name, "abort", Event::Aborted { by }).await;
                drop(answer.send(done));
            }
            Command::Upload { name, files, answer } => drop(answer.send(self.upload(&name, files).await)),
        }
    }

    /// Executes an operator's command to promote or to return a candidate.
    async fn end_candidate(
        &mut self,
        name: String,
        what: &'static str,
        event: Event<Admitted>,
    ) -> Result<Change, CommandError> {
        if !self.plugins.contains_key(&name) {
            return Err(CommandError::Unknown { name });
        }
        let done = self.apply(&name, event).await;
        done.ok_or(CommandError::NoCandidate { name, what })
    }

    /// Answers the rescans whose admissions have all finished.
    fn answer_waiters(&mut self) {
        let waiters = std::mem::take(&mut self.waiters);
        for mut waiter in waiters {
            if let Some(pending) = &mut waiter.pending {
                pending.retain(|name| self.is_pending(name));
                if pending.is_empty() {
                    drop(waiter.answer.send(waiter.changes));
                    continue;
                }
            }
            self.waiters.push(waiter);
        }
    }
}

impl RescanWaiter {
    fn record_change(&mut self, change: &Change) {
        let pending = self.pending.as_ref();
        if pending.is_none_or(|it| it.contains(change.plugin())) {
            self.changes.push(change.clone());
        }
    }
}

/// A delay until the files in the directory are no longer being modified.
#[derive(Default)]
struct Debounce(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Debounce {
    fn is_started(&self) -> bool {
        self.0.is_some()
    }

    fn start(&mut self, dir: &Path) {
        let dir = dir.to_owned();
        self.0
            .get_or_insert_with(|| Box::pin(async move { dir_watcher::wait_until_settled(&dir).await }));
    }

    async fn finished(&mut self) {
        match &mut self.0 {
            Some(delay) => delay.await,
            None => pending().await,
        }
        self.0 = None;
    }
}
