//! The plugin directory: what is in it serves.
//!
//! One task owns the table. It reads the whole directory when something in it was touched, when somebody asks, and every so often
//! in case a notice was lost; only files whose content changed are admitted again. The directory is watched, not the files: a
//! file that is replaced by a rename would take its watch with it. The same task carries out operators' orders and takes versions that
//! fail out of service, so that nothing of this happens at the same time as anything else of it.

mod files;
mod life;
mod remote;
mod watch;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use arc_swap::ArcSwap;
use tokio::{
    sync::{broadcast, mpsc, oneshot},
    time::{MissedTickBehavior, interval},
};

use crate::{
    admission::{Desk, Refused},
    config::Config,
    error::{Error, OrderError},
    health::Alarm,
    history::History,
    kept::KeptFiles,
    metrics::Metrics,
    origin::{Files, Origin},
    pool::Surroundings,
    sources::Sources,
    status::Change,
    table::Table,
    text::hex,
};
use files::{Fingerprint, MAX_COMPONENTS, components, fingerprint};
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
    pub(crate) config: Arc<Config>,
    pub(crate) desk: Desk,
    /// Components that are fetched.
    pub(crate) sources: Sources,
    pub(crate) table: Arc<ArcSwap<Table>>,
    pub(crate) metrics: Metrics,
    pub(crate) changes: broadcast::Sender<Change>,
    pub(crate) kept: KeptFiles,
    pub(crate) history: Arc<History>,
    /// For versions that begin to serve.
    pub(crate) alarms: mpsc::Sender<Alarm>,
    /// What was last seen of each component, and which versions of it there are.
    pub(crate) lines: BTreeMap<String, Line>,
    /// Something was left for the next look.
    pub(crate) skipped: bool,
}

/// Whether files that were touched a moment ago are left for the next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Now,
    Patient,
}

impl Directory {
    pub(crate) fn around(&self) -> &Surroundings {
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
        let work = async {
            loop {
                tokio::select! {
                    () = watch.touched() => {}
                    () = sources.news() => {}
                    _ = rescan.tick() => {
                        watch.renew();
                        self.forget_predecessors();
                        self.history.flush().await;
                    }
                    Some(alarm) = alarms.recv() => {
                        self.raised(alarm).await;
                        continue;
                    }
                    order = asked.recv() => match order {
                        Some(order) => {
                            self.carry_out(order, &watch).await;
                            continue;
                        }
                        // Every handle is gone: nobody can ask a plugin anything any more.
                        None => break,
                    },
                }
                // Nobody is waiting: a component may still be waiting for its manifest.
                let order = tokio::select! {
                    () = watch::settled(&self.config.dir) => None,
                    order = asked.recv() => order,
                };
                match order {
                    Some(order) => self.carry_out(order, &watch).await,
                    None => drop(self.scan_or_log(Patience::Patient, &watch).await),
                }
            }
        };
        token.run_until_cancelled(work).await;
        // Drops the owners' queues: the instances end with the calls in progress.
        self.table.store(Arc::default());
    }

    /// Whoever asked may have gone away.
    async fn carry_out(&mut self, order: Order, watch: &Watch) {
        match order {
            Order::Rescan(answer) => {
                self.sources.refresh();
                let changes = self.scan_or_log(Patience::Now, watch).await;
                drop(answer.send(changes));
            }
            Order::Rollback {
                name,
                record,
                by,
                answer,
            } => {
                let done = self.rollback(&name, record, &by).await;
                drop(answer.send(done));
            }
            Order::Promote { name, by, answer } => {
                let done = self.promote(&name, &by, None).await;
                drop(answer.send(done));
            }
        }
    }

    async fn scan_or_log(&mut self, patience: Patience, watch: &Watch) -> Vec<Change> {
        let changes = match self.scan(patience).await {
            Ok(changes) => changes,
            Err(error) => {
                let cause = std::error::Error::source(&error)
                    .map(ToString::to_string)
                    .unwrap_or_default();
                tracing::error!("{error}: {cause}; what serves goes on serving");
                Vec::new()
            }
        };
        if std::mem::take(&mut self.skipped) {
            watch.again();
        }
        changes
    }

    /// Reads the directory and brings the table up to it.
    pub(crate) async fn scan(&mut self, patience: Patience) -> Result<Vec<Change>, Error> {
        let dir = self.config.dir.clone();
        let names = components(&dir).await.map_err(|source| Error::Directory {
            path: dir.clone(),
            source,
        })?;
        let mut changes = Vec::new();
        let gone: Vec<String> = self
            .lines
            .keys()
            .filter(|name| !names.contains(*name))
            .cloned()
            .collect();
        for name in gone {
            changes.push(self.removed(&name).await);
        }
        self.sources.keep_only(&names);
        // Those that were read before go first: what is added does not drive out what serves.
        let (known, new): (Vec<String>, Vec<String>) = names.into_iter().partition(|name| {
            self.lines
                .get(name)
                .is_some_and(|line| line.fingerprint.is_some())
        });
        for (place, name) in known.into_iter().chain(new).enumerate() {
            let files = if place < MAX_COMPONENTS {
                self.files(&dir, &name).await
            } else {
                Err(Refused::TooMany(MAX_COMPONENTS))
            };
            match files.transpose() {
                Some(files) => self.look_at(&dir, &name, files, patience, &mut changes).await,
                None => self.wait_for(&name),
            }
        }
        Ok(changes)
    }

    async fn look_at(
        &mut self,
        dir: &Path,
        name: &str,
        files: Result<Files, Refused>,
        patience: Patience,
        changes: &mut Vec<Change>,
    ) {
        let found = files.as_ref().ok().map(fingerprint);
        let known = self.lines.get(name);
        if known.is_some_and(|line| line.fingerprint == found) && found.is_some() {
            return;
        }
        // Asked after reading: what was read came to rest before.
        if patience == Patience::Patient && watch::in_motion(dir, name).await {
            self.skipped = true;
            return;
        }
        // A manifest that is taken away takes its grants with it.
        let withdrawn = matches!(&files, Ok(Files { manifest: None, .. }))
            && known.is_some_and(|line| line.current.is_some());
        if withdrawn {
            changes.push(self.removed(name).await);
        }
        self.lines.entry(name.to_owned()).or_default().fingerprint = found;
        let admitted = match files {
            Ok(files) => {
                let admitted = self.admit(name, &files).await;
                if let (Ok(_), Origin::Image(image)) = (&admitted, &files.origin) {
                    self.sources.admitted(image).await;
                }
                admitted
            }
            Err(refused) => Err(refused),
        };
        match admitted {
            Ok(change) => changes.push(change),
            Err(refused) => changes.extend(self.refused(name, &refused, found.is_none()).await),
        }
    }

    /// What is in the directory, as records name it.
    fn files_of(&self, name: &str) -> Option<String> {
        let fingerprint: Fingerprint = self.lines.get(name)?.fingerprint?;
        Some(format!("sha256:{}", hex(&fingerprint)))
    }
}
