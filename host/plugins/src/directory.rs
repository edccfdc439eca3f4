//! The plugin directory: what is in it serves.
//!
//! One task owns the table. It reads the whole directory when something in it was touched, when somebody asks, and every so often
//! in case a notice was lost; only files whose content changed are admitted again. The directory is watched, not the files: a
//! file that is replaced by a rename would take its watch with it. The same task carries out operators' orders and takes versions that
//! fail out of service, so that nothing of this happens at the same time as anything else of it.
//!
//! The task itself only decides. Admitting, which compiles, tries out and tests, is done aside (see `run_blocking`), so that orders and versions that fail
//! never wait for it; they go first where several things are to be done.

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

/// What somebody asks of the directory's task.
pub(crate) enum Command {
    /// Look now, and say what changed.
    Rescan(oneshot::Sender<Vec<Change>>),
    /// Have an earlier version serve.
    Rollback {
        name: String,
        record: Option<u64>,
        by: String,
        answer: oneshot::Sender<Result<Change, CommandError>>,
    },
    /// Have the version that answers beside another take its place.
    Promote {
        name: String,
        by: String,
        answer: oneshot::Sender<Result<Change, CommandError>>,
    },
}

pub(crate) struct Directory {
    config: Arc<Config>,
    admission_context: AdmissionContext,
    /// For versions that an operator has return: it compiles in places of its own.
    rollback_context: AdmissionContext,
    /// Components that are fetched.
    sources: Sources,
    table: Arc<ArcSwap<Table>>,
    metrics: Metrics,
    changes: broadcast::Sender<Change>,
    version_store: VersionStore,
    history: Arc<History>,
    /// For versions that begin to serve.
    health_events: mpsc::Sender<HealthEvent>,
    /// What was last seen of each component, and which versions of it there are.
    plugins: BTreeMap<String, PluginState>,
    /// Files that were refused for their names, as these are shown.
    misnamed: BTreeSet<String>,
    admissions: BTreeMap<String, Admission>,
    rollbacks: BTreeMap<String, PendingRollback>,
    /// Plugins whose files are to be read again when it is their turn, and how.
    waiting: BTreeMap<String, ScanMode>,
    /// Ends with each admission and return.
    tasks: JoinSet<FinishedTask>,
    last_task: u64,
    waiters: Vec<RescanWaiter>,
    /// Something was left for the next look.
    skipped: bool,
}

/// What the directory's task is made of.
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

/// Somebody who asked for a look, and waits until all that it found is admitted or refused.
struct RescanWaiter {
    answer: oneshot::Sender<Vec<Change>>,
    changes: Vec<Change>,
    /// The plugins that are not done with. None: the look itself is not over.
    pending: Option<BTreeSet<String>>,
}

/// Whether files that were touched a moment ago are left for the next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanMode {
    Immediate,
    Debounced,
}

impl Directory {
    /// Admits what is in the directory.
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
        // Nobody is waiting for a look that was not ordered: a component may still be waiting for its manifest.
        let mut rest = Debounce::default();
        let work = async {
            loop {
                tokio::select! {
                    biased;
                    Some(event) = health_events.recv() => self.on_health_event(event).await,
                    command = asked.recv() => match command {
                        Some(command) => self.execute(command).await,
                        // Every handle is gone: nobody can ask a plugin anything any more.
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
        // Drops the owners' queues: the instances end with the calls in progress.
        self.table.store(Arc::default());
    }

    /// Whoever asked may have gone away.
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

    /// Answers those whose look is over, admissions included.
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
            tracing::error!("{error}: {cause}; what serves goes on serving");
        }
    }

    /// Reads the directory, and has admitted what changed in it.
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
            // One that is about to return goes when it is there.
            .filter(|name| !names.contains(*name) && !self.rollbacks.contains_key(*name))
            .cloned()
            .collect();
        for name in gone {
            self.removed(&name).await;
        }
        self.sources.keep_only(&names);
        self.refuse_misnamed(found.misnamed);
        // Those that were read before go first: what is added does not drive out what serves.
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

    /// Reads a plugin's files.
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
        // Asked after reading: what was read came to rest before.
        if mode == ScanMode::Debounced && dir_watcher::in_motion(&self.config.dir, name).await {
            self.skipped = true;
            return;
        }
        // A manifest that is taken away takes its grants with it.
        let withdrawn = matches!(&files, Ok(Files { manifest: None, .. }))
            && known.is_some_and(|plugin| plugin.current.is_some());
        if withdrawn {
            self.removed(name).await;
        }
        // What is being admitted is not what is there any more.
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

    /// Has a plugin's files read again when it is their turn.
    fn defer(&mut self, name: &str, mode: ScanMode) {
        let plugin = self.plugins.entry(name.to_owned()).or_default();
        plugin.fingerprint = None;
        self.waiting.insert(name.to_owned(), mode);
        self.admitting(name);
    }

    /// Something that was done aside is over: what came of it, and then whose turn it is.
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

    /// Components that were refused for reasons that pass are looked at as if they were new.
    fn retry_refused(&mut self, when: Again) {
        for plugin in self.plugins.values_mut() {
            let due = plugin.again.take_if(|it| *it == Again::Soon || *it == when);
            if due.is_some() {
                plugin.fingerprint = None;
            }
        }
    }

    /// What is in the directory, as records name it: the files whose admission is over.
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

/// Waiting until the files in the directory have come to rest.
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
