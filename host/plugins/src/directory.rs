//! The plugin directory: what is in it serves.
//!
//! One task owns the table. It reads the whole directory when something in it was touched, when somebody asks, and every so often
//! in case a notice was lost; only files whose content changed are admitted again. The directory is watched, not the files: a
//! file that is replaced by a rename would take its watch with it. The same task carries out operators' orders and takes versions that
//! fail out of service, so that nothing of this happens at the same time as anything else of it.
//!
//! The task itself only decides. Admitting, which compiles, tries out and tests, is done aside (see `aside`), so that orders and versions that fail
//! never wait for it; they go first where several things are to be done.

mod aside;
mod files;
mod life;
mod remote;
mod watch;

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
    admission::{Again, Desk, Refused},
    config::Config,
    error::{Error, OrderError},
    health::Alarm,
    history::History,
    kept::KeptFiles,
    metrics::Metrics,
    origin::Files,
    pool::Surroundings,
    sources::Sources,
    status::Change,
    table::Table,
    text::hex,
};
use aside::{Admission, Ended, Return};
use files::{Fingerprint, MAX_COMPONENTS, fingerprint, names};
use life::Line;
use watch::Watch;

/// What somebody asks of the directory's task.
pub(crate) enum Order {
    /// Look now, and say what changed.
    Rescan(oneshot::Sender<Vec<Change>>),
    /// Have an earlier version serve.
    Rollback {
        name: String,
        record: Option<u64>,
        by: String,
        answer: oneshot::Sender<Result<Change, OrderError>>,
    },
    /// Have the version that answers beside another take its place.
    Promote {
        name: String,
        by: String,
        answer: oneshot::Sender<Result<Change, OrderError>>,
    },
}

pub(crate) struct Directory {
    config: Arc<Config>,
    desk: Desk,
    /// For versions that an operator has return: it compiles in places of its own.
    returns_desk: Desk,
    /// Components that are fetched.
    sources: Sources,
    table: Arc<ArcSwap<Table>>,
    metrics: Metrics,
    changes: broadcast::Sender<Change>,
    kept: KeptFiles,
    history: Arc<History>,
    /// For versions that begin to serve.
    alarms: mpsc::Sender<Alarm>,
    /// What was last seen of each component, and which versions of it there are.
    lines: BTreeMap<String, Line>,
    /// Files that were refused for their names, as these are shown.
    misnamed: BTreeSet<String>,
    admissions: BTreeMap<String, Admission>,
    returns: BTreeMap<String, Return>,
    /// Plugins whose files are to be read again when it is their turn, and how.
    waiting: BTreeMap<String, Patience>,
    /// Ends with each admission and return.
    tasks: JoinSet<Ended>,
    tickets: u64,
    followers: Vec<Follower>,
    /// Something was left for the next look.
    skipped: bool,
}

/// What the directory's task is made of.
pub(crate) struct Parts {
    pub(crate) config: Arc<Config>,
    pub(crate) desk: Desk,
    pub(crate) returns_desk: Desk,
    pub(crate) sources: Sources,
    pub(crate) metrics: Metrics,
    pub(crate) changes: broadcast::Sender<Change>,
    pub(crate) kept: KeptFiles,
    pub(crate) history: Arc<History>,
    pub(crate) alarms: mpsc::Sender<Alarm>,
}

/// Somebody who asked for a look, and waits until all that it found is admitted or refused.
struct Follower {
    answer: oneshot::Sender<Vec<Change>>,
    changes: Vec<Change>,
    /// The plugins that are not done with. None: the look itself is not over.
    pending: Option<BTreeSet<String>>,
}

/// Whether files that were touched a moment ago are left for the next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Now,
    Patient,
}

impl Directory {
    /// Admits what is in the directory.
    pub(crate) async fn open(parts: Parts) -> Result<Directory, Error> {
        let mut directory = Directory {
            config: parts.config,
            desk: parts.desk,
            returns_desk: parts.returns_desk,
            sources: parts.sources,
            table: Arc::default(),
            metrics: parts.metrics,
            changes: parts.changes,
            kept: parts.kept,
            history: parts.history,
            alarms: parts.alarms,
            lines: BTreeMap::new(),
            misnamed: BTreeSet::new(),
            admissions: BTreeMap::new(),
            returns: BTreeMap::new(),
            waiting: BTreeMap::new(),
            tasks: JoinSet::new(),
            tickets: 0,
            followers: Vec::new(),
            skipped: false,
        };
        directory.scan(Patience::Now).await?;
        while let Some(Ok(ended)) = directory.tasks.join_next().await {
            directory.ended(ended).await;
        }
        Ok(directory)
    }

    pub(crate) fn table(&self) -> &Arc<ArcSwap<Table>> {
        &self.table
    }

    fn around(&self) -> &Surroundings {
        &self.desk.around
    }

    /// Serves until the daemon stops.
    pub(crate) async fn run(mut self, mut asked: mpsc::Receiver<Order>, mut alarms: mpsc::Receiver<Alarm>) {
        let token = self.around().token.clone();
        let mut watch = Watch::new(&self.config.dir);
        let sources = self.sources.clone();
        let mut rescan = interval(self.config.rescan);
        rescan.set_missed_tick_behavior(MissedTickBehavior::Delay);
        rescan.reset();
        // Nobody is waiting for a look that was not ordered: a component may still be waiting for its manifest.
        let mut rest = Rest::default();
        let work = async {
            loop {
                tokio::select! {
                    biased;
                    Some(alarm) = alarms.recv() => self.raised(alarm).await,
                    order = asked.recv() => match order {
                        Some(order) => self.carry_out(order).await,
                        // Every handle is gone: nobody can ask a plugin anything any more.
                        None => break,
                    },
                    Some(Ok(ended)) = self.tasks.join_next(), if !self.tasks.is_empty() => self.ended(ended).await,
                    () = rest.over(), if rest.is_awaited() => self.scan_or_log(Patience::Patient).await,
                    () = watch.touched(), if !rest.is_awaited() => rest.wait(&self.config.dir),
                    () = sources.news(), if !rest.is_awaited() => rest.wait(&self.config.dir),
                    _ = rescan.tick() => {
                        watch.renew();
                        self.forget_predecessors();
                        self.history.flush().await;
                        rest.wait(&self.config.dir);
                    }
                }
                self.answer_followers();
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
    async fn carry_out(&mut self, order: Order) {
        match order {
            Order::Rescan(answer) => {
                self.sources.refresh();
                self.look_again(Again::Asked);
                self.followers.push(Follower {
                    answer,
                    changes: Vec::new(),
                    pending: None,
                });
                self.scan_or_log(Patience::Now).await;
                let pending: BTreeSet<String> = self
                    .admissions
                    .keys()
                    .chain(self.waiting.keys())
                    .cloned()
                    .collect();
                if let Some(follower) = self.followers.last_mut() {
                    follower.pending = Some(pending);
                }
            }
            Order::Rollback {
                name,
                record,
                by,
                answer,
            } => self.rollback(&name, record, by, answer).await,
            Order::Promote { name, by, answer } => {
                let done = self.promote(&name, &by, None).await;
                drop(answer.send(done));
            }
        }
    }

    /// Answers those whose look is over, admissions included.
    fn answer_followers(&mut self) {
        let followers = std::mem::take(&mut self.followers);
        for mut follower in followers {
            if let Some(pending) = &mut follower.pending {
                pending.retain(|name| self.is_pending(name));
                if pending.is_empty() {
                    drop(follower.answer.send(follower.changes));
                    continue;
                }
            }
            self.followers.push(follower);
        }
    }

    async fn scan_or_log(&mut self, patience: Patience) {
        if let Err(error) = self.scan(patience).await {
            let cause = std::error::Error::source(&error)
                .map(ToString::to_string)
                .unwrap_or_default();
            tracing::error!("{error}: {cause}; what serves goes on serving");
        }
    }

    /// Reads the directory, and has admitted what changed in it.
    async fn scan(&mut self, patience: Patience) -> Result<(), Error> {
        let dir = self.config.dir.clone();
        let found = names(&dir).await.map_err(|source| Error::Directory {
            path: dir.clone(),
            source,
        })?;
        self.look_again(Again::Soon);
        let names = found.plugins;
        let gone: Vec<String> = self
            .lines
            .keys()
            // One that is about to return goes when it is there.
            .filter(|name| !names.contains(*name) && !self.returns.contains_key(*name))
            .cloned()
            .collect();
        for name in gone {
            self.removed(&name).await;
        }
        self.sources.keep_only(&names);
        self.refuse_misnamed(found.misnamed);
        // Those that were read before go first: what is added does not drive out what serves.
        let (known, new): (Vec<String>, Vec<String>) = names.into_iter().partition(|name| {
            self.lines
                .get(name)
                .is_some_and(|line| line.fingerprint.is_some())
        });
        for (place, name) in known.into_iter().chain(new).enumerate() {
            if place < MAX_COMPONENTS {
                self.look(&name, patience).await;
            } else {
                let refused = Err(Refused::TooMany(MAX_COMPONENTS));
                self.look_at(&name, refused, patience).await;
            }
        }
        Ok(())
    }

    /// Reads a plugin's files.
    async fn look(&mut self, name: &str, patience: Patience) {
        let dir = self.config.dir.clone();
        match self.files(&dir, name).await.transpose() {
            Some(files) => self.look_at(name, files, patience).await,
            None => self.wait_for(name),
        }
    }

    async fn look_at(&mut self, name: &str, files: Result<Files, Refused>, patience: Patience) {
        let found = files.as_ref().ok().map(fingerprint);
        let known = self.lines.get(name);
        if known.is_some_and(|line| line.fingerprint == found) && found.is_some() {
            return;
        }
        // Asked after reading: what was read came to rest before.
        if patience == Patience::Patient && watch::in_motion(&self.config.dir, name).await {
            self.skipped = true;
            return;
        }
        // A manifest that is taken away takes its grants with it.
        let withdrawn = matches!(&files, Ok(Files { manifest: None, .. }))
            && known.is_some_and(|line| line.current.is_some());
        if withdrawn {
            self.removed(name).await;
        }
        // What is being admitted is not what is there any more.
        self.give_up(name);
        let files = match files {
            Ok(files) => files,
            Err(refused) => {
                self.lines.entry(name.to_owned()).or_default().fingerprint = None;
                self.refused(name, &refused, true).await;
                return;
            }
        };
        if self.has_room() && !self.returns.contains_key(name) {
            let found = fingerprint(&files);
            self.admit(name, files, found);
        } else {
            self.put_off(name, patience);
        }
    }

    /// Has a plugin's files read again when it is their turn.
    fn put_off(&mut self, name: &str, patience: Patience) {
        let line = self.lines.entry(name.to_owned()).or_default();
        line.fingerprint = None;
        self.waiting.insert(name.to_owned(), patience);
        self.admitting(name);
    }

    /// Something that was done aside is over: what came of it, and then whose turn it is.
    async fn ended(&mut self, ended: Ended) {
        self.concluded(ended).await;
        let waiting: Vec<String> = self.waiting.keys().cloned().collect();
        for name in waiting {
            if !self.has_room() {
                return;
            }
            if self.returns.contains_key(&name) {
                continue;
            }
            if let Some(patience) = self.waiting.remove(&name) {
                self.change_table(|table| {
                    let _ = table.admitting.remove(&name);
                });
                self.look(&name, patience).await;
            }
        }
    }

    /// Components that were refused for reasons that pass are looked at as if they were new.
    fn look_again(&mut self, when: Again) {
        for line in self.lines.values_mut() {
            let due = line.again.take_if(|it| *it == Again::Soon || *it == when);
            if due.is_some() {
                line.fingerprint = None;
            }
        }
    }

    /// What is in the directory, as records name it: the files whose admission is over.
    fn files_of(&self, name: &str) -> Option<String> {
        let line = self.lines.get(name)?;
        let fingerprint: Fingerprint = if self.is_pending(name) {
            line.evaluated
        } else {
            line.fingerprint
        }?;
        Some(format!("sha256:{}", hex(&fingerprint)))
    }
}

/// Waiting until the files in the directory have come to rest.
#[derive(Default)]
struct Rest(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Rest {
    fn is_awaited(&self) -> bool {
        self.0.is_some()
    }

    fn wait(&mut self, dir: &Path) {
        let dir = dir.to_owned();
        self.0
            .get_or_insert_with(|| Box::pin(async move { watch::settled(&dir).await }));
    }

    async fn over(&mut self) {
        match &mut self.0 {
            Some(rest) => rest.await,
            None => pending().await,
        }
        self.0 = None;
    }
}
