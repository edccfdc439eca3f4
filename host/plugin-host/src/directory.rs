//! The plugin directory: admits its components and keeps the table of serving versions.
//!
//! One task owns the table. It scans the whole directory after a file event, on command, and
//! periodically in case an event was lost; it admits only files whose content changed. It watches
//! the directory and not the files, because a rename replaces a file together with its watch. The
//! same task executes operators' commands and handles failing versions, so these never race.
//!
//! The task itself only decides. Admissions, which compile and test components, run in background
//! tasks (see `background`), so commands and failing versions never wait for them; both have
//! priority.

mod background;
mod dir_watcher;
mod files;
mod lifecycle;
mod resolve_files;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    path::Path,
    pin::Pin,
    sync::Arc,
};

use arc_swap::ArcSwap;
use tokio::{
    sync::{broadcast, mpsc, oneshot},
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use crate::{
    admission::{AdmissionContext, AdmissionError, Again},
    config::Config,
    error::{CommandError, Error},
    health::HealthEvent,
    history::History,
    metrics::Metrics,
    origin::Files,
    pool::Runtime,
    sources::Sources,
    status::Change,
    table::Table,
    text::hex,
    version_store::VersionStore,
};
use background::{Admission, FinishedTask, PendingRollback};
use dir_watcher::Watch;
use files::{Fingerprint, MAX_COMPONENTS, fingerprint, names};
use lifecycle::PluginState;

/// A command to the directory's task.
pub(crate) enum Command {
    /// Scan now, and return the changes.
    Rescan(oneshot::Sender<Vec<Change>>),
    /// Roll back to an earlier version.
    Rollback {
        name: String,
        record: Option<u64>,
        by: String,
        answer: oneshot::Sender<Result<Change, CommandError>>,
    },
    /// Promote the shadow version.
    Promote {
        name: String,
        by: String,
        answer: oneshot::Sender<Result<Change, CommandError>>,
    },
}

pub(crate) struct Directory {
    config: Arc<Config>,
    admission_context: AdmissionContext,
    /// For rollbacks: with its own compiler slots.
    rollback_context: AdmissionContext,
    /// Components from registries.
    sources: Sources,
    table: Arc<ArcSwap<Table>>,
    metrics: Metrics,
    changes: broadcast::Sender<Change>,
    version_store: VersionStore,
    history: Arc<History>,
    /// For the health of serving versions.
    health_events: mpsc::Sender<HealthEvent>,
    /// The last seen files and the versions of each plugin.
    plugins: BTreeMap<String, PluginState>,
    /// Files refused for their names, as shown.
    misnamed: BTreeSet<String>,
    admissions: BTreeMap<String, Admission>,
    rollbacks: BTreeMap<String, PendingRollback>,
    /// Plugins whose admission is queued, and how to scan them.
    waiting: BTreeMap<String, ScanMode>,
    /// Admissions and rollbacks in progress.
    tasks: JoinSet<FinishedTask>,
    last_task: u64,
    waiters: Vec<RescanWaiter>,
    /// A file was left for the next scan.
    skipped: bool,
}

/// Parts of the directory's task.
pub(crate) struct DirectoryParts {
    pub(crate) config: Arc<Config>,
    pub(crate) admission_context: AdmissionContext,
    pub(crate) rollback_context: AdmissionContext,
    pub(crate) sources: Sources,
    pub(crate) metrics: Metrics,
    pub(crate) changes: broadcast::Sender<Change>,
    pub(crate) version_store: VersionStore,
    pub(crate) history: Arc<History>,
    pub(crate) health_events: mpsc::Sender<HealthEvent>,
}

/// A caller of a rescan, who waits until all found files are admitted or refused.
struct RescanWaiter {
    answer: oneshot::Sender<Vec<Change>>,
    changes: Vec<Change>,
    /// The plugins in progress. None: the scan itself has not finished.
    pending: Option<BTreeSet<String>>,
}

/// Whether recently modified files are left for the next scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanMode {
    Immediate,
    Debounced,
}

impl Directory {
    /// Admits the plugins of the directory.
    pub(crate) async fn open(parts: DirectoryParts) -> Result<Directory, Error> {
        let mut directory = Directory {
            config: parts.config,
            admission_context: parts.admission_context,
            rollback_context: parts.rollback_context,
            sources: parts.sources,
            table: Arc::default(),
            metrics: parts.metrics,
            changes: parts.changes,
            version_store: parts.version_store,
            history: parts.history,
            health_events: parts.health_events,
            plugins: BTreeMap::new(),
            misnamed: BTreeSet::new(),
            admissions: BTreeMap::new(),
            rollbacks: BTreeMap::new(),
            waiting: BTreeMap::new(),
            tasks: JoinSet::new(),
            last_task: 0,
            waiters: Vec::new(),
            skipped: false,
        };
        directory.scan(ScanMode::Immediate).await?;
        while let Some(Ok(finished)) = directory.tasks.join_next().await {
            directory.on_task_finished(finished).await;
        }
        Ok(directory)
    }

    pub(crate) fn table(&self) -> &Arc<ArcSwap<Table>> {
        &self.table
    }

    fn runtime(&self) -> &Runtime {
        &self.admission_context.runtime
    }

    /// Serves until the daemon stops.
    pub(crate) async fn run(
        mut self,
        mut asked: mpsc::Receiver<Command>,
        mut health_events: mpsc::Receiver<HealthEvent>,
    ) {
        let token = self.runtime().token.clone();
        let mut watch = Watch::new(&self.config.dir);
        let sources = self.sources.clone();
        let mut rescan = interval(self.config.rescan);
        rescan.set_missed_tick_behavior(MissedTickBehavior::Delay);
        rescan.reset();
        // No caller waits for these scans, so they are debounced: a manifest may follow its
        // component.
        let mut rest = Debounce::default();
        let work = async {
            loop {
                tokio::select! {
                    biased;
                    Some(event) = health_events.recv() => self.on_health_event(event).await,
                    command = asked.recv() => match command {
                        Some(command) => self.execute(command).await,
                        // All handles are dropped: there are no callers left.
                        None => break,
                    },
                    Some(Ok(finished)) = self.tasks.join_next(), if !self.tasks.is_empty() => self.on_task_finished(finished).await,
                    () = rest.over(), if rest.is_awaited() => self.scan_or_log(ScanMode::Debounced).await,
                    () = watch.touched(), if !rest.is_awaited() => rest.wait(&self.config.dir),
                    () = sources.updated(), if !rest.is_awaited() => rest.wait(&self.config.dir),
                    _ = rescan.tick() => {
                        watch.renew();
                        self.drop_predecessors();
                        self.history.flush().await;
                        rest.wait(&self.config.dir);
                    }
                }
                self.answer_waiters();
                if std::mem::take(&mut self.skipped) {
                    watch.again();
                }
            }
        };
        token.run_until_cancelled(work).await;
        // Drops the queues of the instance tasks: the instances end with the calls in progress.
        self.table.store(Arc::default());
    }

    /// Executes a command; its caller may be gone.
    async fn execute(&mut self, command: Command) {
        match command {
            Command::Rescan(answer) => {
                self.sources.refresh();
                self.retry_refused(Again::Asked);
                self.waiters.push(RescanWaiter {
                    answer,
                    changes: Vec::new(),
                    pending: None,
                });
                self.scan_or_log(ScanMode::Immediate).await;
                let pending: BTreeSet<String> = self
                    .admissions
                    .keys()
                    .chain(self.waiting.keys())
                    .cloned()
                    .collect();
                if let Some(waiter) = self.waiters.last_mut() {
                    waiter.pending = Some(pending);
                }
            }
            Command::Rollback {
                name,
                record,
                by,
                answer,
            } => self.rollback(&name, record, by, answer).await,
            Command::Promote { name, by, answer } => {
                let done = self.promote(&name, &by, None).await;
                drop(answer.send(done));
            }
        }
    }

    /// Answers the rescans that have finished, admissions included.
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

    async fn scan_or_log(&mut self, mode: ScanMode) {
        if let Err(error) = self.scan(mode).await {
            let cause = std::error::Error::source(&error)
                .map(ToString::to_string)
                .unwrap_or_default();
            tracing::error!("plugin directory scan failed, serving versions stay active: {error}: {cause}");
        }
    }

    /// Scans the directory, and starts the admission of changed files.
    async fn scan(&mut self, mode: ScanMode) -> Result<(), Error> {
        let dir = self.config.dir.clone();
        let found = names(&dir).await.map_err(|source| Error::Directory {
            path: dir.clone(),
            source,
        })?;
        self.retry_refused(Again::Soon);
        let names = found.plugins;
        let gone: Vec<String> = self
            .plugins
            .keys()
            // A plugin with a rollback in progress is removed afterwards.
            .filter(|name| !names.contains(*name) && !self.rollbacks.contains_key(*name))
            .cloned()
            .collect();
        for name in gone {
            self.removed(&name).await;
        }
        self.sources.keep_only(&names);
        self.refuse_misnamed(found.misnamed);
        // Known plugins first: new files do not displace serving ones.
        let (known, new): (Vec<String>, Vec<String>) = names.into_iter().partition(|name| {
            self.plugins
                .get(name)
                .is_some_and(|plugin| plugin.fingerprint.is_some())
        });
        for (place, name) in known.into_iter().chain(new).enumerate() {
            if place < MAX_COMPONENTS {
                self.check_plugin(&name, mode).await;
            } else {
                let refused = Err(AdmissionError::TooMany(MAX_COMPONENTS));
                self.check_files(&name, refused, mode).await;
            }
        }
        Ok(())
    }

    /// Reads a plugin's files and checks whether they changed.
    async fn check_plugin(&mut self, name: &str, mode: ScanMode) {
        let dir = self.config.dir.clone();
        match self.files(&dir, name).await.transpose() {
            Some(files) => self.check_files(name, files, mode).await,
            None => self.on_fetching(name),
        }
    }

    async fn check_files(&mut self, name: &str, files: Result<Files, AdmissionError>, mode: ScanMode) {
        let found = files.as_ref().ok().map(fingerprint);
        let known = self.plugins.get(name);
        if known.is_some_and(|plugin| plugin.fingerprint == found) && found.is_some() {
            return;
        }
        // Checked after reading: the files read were complete before.
        if mode == ScanMode::Debounced && dir_watcher::in_motion(&self.config.dir, name).await {
            self.skipped = true;
            return;
        }
        // Removing the manifest removes its grants.
        let withdrawn = matches!(&files, Ok(Files { manifest: None, .. }))
            && known.is_some_and(|plugin| plugin.current.is_some());
        if withdrawn {
            self.removed(name).await;
        }
        // The admission in progress is of outdated files.
        self.cancel_pending(name);
        let files = match files {
            Ok(files) => files,
            Err(refused) => {
                self.plugins.entry(name.to_owned()).or_default().fingerprint = None;
                self.refused(name, &refused, true).await;
                return;
            }
        };
        if self.has_capacity() && !self.rollbacks.contains_key(name) {
            let found = fingerprint(&files);
            self.admit(name, files, found);
        } else {
            self.defer(name, mode);
        }
    }

    /// Queues a plugin's files for a later admission.
    fn defer(&mut self, name: &str, mode: ScanMode) {
        let plugin = self.plugins.entry(name.to_owned()).or_default();
        plugin.fingerprint = None;
        self.waiting.insert(name.to_owned(), mode);
        self.admitting(name);
    }

    /// Handles a finished background task, then starts queued admissions.
    async fn on_task_finished(&mut self, finished: FinishedTask) {
        self.finish_task(finished).await;
        let waiting: Vec<String> = self.waiting.keys().cloned().collect();
        for name in waiting {
            if !self.has_capacity() {
                return;
            }
            if self.rollbacks.contains_key(&name) {
                continue;
            }
            if let Some(mode) = self.waiting.remove(&name) {
                self.change_table(|table| {
                    let _ = table.admitting.remove(&name);
                });
                self.check_plugin(&name, mode).await;
            }
        }
    }

    /// Retries components that were refused for temporary reasons.
    fn retry_refused(&mut self, when: Again) {
        for plugin in self.plugins.values_mut() {
            let due = plugin.again.take_if(|it| *it == Again::Soon || *it == when);
            if due.is_some() {
                plugin.fingerprint = None;
            }
        }
    }

    /// The digest of the files in the directory whose admission has finished, as in records.
    fn files_of(&self, name: &str) -> Option<String> {
        let plugin = self.plugins.get(name)?;
        let fingerprint: Fingerprint = if self.is_pending(name) {
            plugin.decided
        } else {
            plugin.fingerprint
        }?;
        Some(format!("sha256:{}", hex(&fingerprint)))
    }
}

/// Waits until the files in the directory are no longer modified.
#[derive(Default)]
struct Debounce(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Debounce {
    fn is_awaited(&self) -> bool {
        self.0.is_some()
    }

    fn wait(&mut self, dir: &Path) {
        let dir = dir.to_owned();
        self.0
            .get_or_insert_with(|| Box::pin(async move { dir_watcher::settled(&dir).await }));
    }

    async fn over(&mut self) {
        match &mut self.0 {
            Some(rest) => rest.await,
            None => pending().await,
        }
        self.0 = None;
    }
}
