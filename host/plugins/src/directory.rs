//! The plugin directory: what is in it serves.
//!
//! One task owns the table. It reads the whole directory when something in it was touched, when somebody asks, and every so often
//! in case a notice was lost; only files whose content changed are admitted again. The directory is watched, not the files: a
//! file that is replaced by a rename would take its watch with it.

mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use sha2::{Digest, Sha256};
use tokio::{
    io::AsyncReadExt,
    sync::{broadcast, mpsc, oneshot},
    time::{MissedTickBehavior, interval},
};

use crate::{
    admission::{Files, Refused, admit},
    config::Config,
    error::Error,
    limits::MAX_SIZE,
    metrics::Metrics,
    pool::Surroundings,
    status::Change,
    table::Table,
};
use watch::Watch;

/// Where to send what changed.
pub(crate) type Rescan = oneshot::Sender<Vec<Change>>;

pub(crate) struct Directory {
    pub(crate) config: Arc<Config>,
    pub(crate) around: Surroundings,
    pub(crate) table: Arc<ArcSwap<Table>>,
    pub(crate) metrics: Metrics,
    pub(crate) changes: broadcast::Sender<Change>,
    /// What each component and its manifest were when last looked at.
    pub(crate) seen: BTreeMap<String, Option<Fingerprint>>,
    /// Something was left for the next look.
    pub(crate) skipped: bool,
}

/// Whether files that were touched a moment ago are left for the next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Now,
    Patient,
}

/// Digest of a component and its manifest.
type Fingerprint = [u8; 32];

impl Directory {
    /// Serves until the daemon stops.
    pub(crate) async fn run(mut self, mut asked: mpsc::Receiver<Rescan>) {
        let token = self.around.token.clone();
        let mut watch = Watch::new(&self.config.dir);
        let mut rescan = interval(self.config.rescan);
        rescan.set_missed_tick_behavior(MissedTickBehavior::Delay);
        rescan.reset();
        let work = async {
            loop {
                let mut answers = Vec::new();
                tokio::select! {
                    () = watch.touched() => {}
                    _ = rescan.tick() => watch.renew(),
                    answer = asked.recv() => match answer {
                        Some(answer) => answers.push(answer),
                        // Every handle is gone: nobody can ask a plugin anything any more.
                        None => break,
                    },
                }
                if answers.is_empty() {
                    // Nobody is waiting: a component may still be waiting for its manifest.
                    tokio::select! {
                        () = watch::settled(&self.config.dir) => {}
                        answer = asked.recv() => answers.extend(answer),
                    }
                }
                let patience = if answers.is_empty() {
                    Patience::Patient
                } else {
                    Patience::Now
                };
                let changes = self.scan_or_log(patience).await;
                if std::mem::take(&mut self.skipped) {
                    watch.again();
                }
                for answer in answers {
                    // Whoever asked may have gone away.
                    drop(answer.send(changes.clone()));
                }
            }
        };
        token.run_until_cancelled(work).await;
        // Drops the owners' queues: the instances end with the calls in progress.
        self.table.store(Arc::default());
    }

    async fn scan_or_log(&mut self, patience: Patience) -> Vec<Change> {
        match self.scan(patience).await {
            Ok(changes) => changes,
            Err(error) => {
                let cause = std::error::Error::source(&error)
                    .map(ToString::to_string)
                    .unwrap_or_default();
                tracing::error!("{error}: {cause}; what serves goes on serving");
                Vec::new()
            }
        }
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
            .seen
            .keys()
            .filter(|name| !names.contains(*name))
            .cloned()
            .collect();
        for name in gone {
            self.remove(&name);
            self.publish(&mut changes, Change::Removed { name });
        }
        // Those that were read before go first: what is added does not drive out what serves.
        let (known, new): (Vec<String>, Vec<String>) = names
            .into_iter()
            .partition(|name| self.seen.get(name).is_some_and(Option::is_some));
        for (place, name) in known.into_iter().chain(new).enumerate() {
            let files = if place < MAX_COMPONENTS {
                read(&dir, &name).await
            } else {
                Err(Refused::TooMany(MAX_COMPONENTS))
            };
            self.look_at(&dir, &name, files, patience, &mut changes).await;
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
        let fingerprint = files.as_ref().ok().map(fingerprint);
        if self.seen.get(name) == Some(&fingerprint) && fingerprint.is_some() {
            return;
        }
        // Asked after reading: what was read came to rest before.
        if patience == Patience::Patient && watch::in_motion(dir, name).await {
            self.skipped = true;
            return;
        }
        // A manifest that is taken away takes its grants with it.
        let withdrawn = matches!(&files, Ok(Files { manifest: None, .. }))
            && self.table.load().serving.contains_key(name);
        if withdrawn {
            self.remove(name);
            self.publish(
                changes,
                Change::Removed {
                    name: name.to_owned(),
                },
            );
        }
        self.seen.insert(name.to_owned(), fingerprint);
        let admitted = match files {
            Ok(files) => {
                let stats = self.metrics.of(name);
                admit(&self.around, &self.config.limits, name, files, stats).await
            }
            Err(refused) => Err(refused),
        };
        let mut table = Table::clone(&self.table.load());
        let change = match admitted {
            Ok(serving) => {
                let facts = serving.facts().clone();
                table.refusals.remove(name);
                table.serving.insert(name.to_owned(), serving);
                Change::Admitted {
                    name: name.to_owned(),
                    version: facts.version,
                    digest: facts.digest,
                }
            }
            Err(refused) => {
                let reason = refused.to_string();
                if table.refusals.insert(name.to_owned(), reason.clone()).as_ref() == Some(&reason)
                    && fingerprint.is_none()
                {
                    // Still unreadable, and said before.
                    return;
                }
                self.metrics.refused(name);
                Change::Refused {
                    name: name.to_owned(),
                    reason,
                }
            }
        };
        self.table.store(Arc::new(table));
        self.publish(changes, change);
    }

    fn remove(&mut self, name: &str) {
        self.seen.remove(name);
        let mut table = Table::clone(&self.table.load());
        table.serving.remove(name);
        table.refusals.remove(name);
        self.table.store(Arc::new(table));
    }

    fn publish(&self, changes: &mut Vec<Change>, change: Change) {
        match &change {
            Change::Admitted {
                name,
                version,
                digest,
            } => {
                tracing::info!(plugin = name, version, digest, "plugin admitted");
            }
            Change::Refused { name, reason } => {
                let still = self
                    .table
                    .load()
                    .serving
                    .get(name)
                    .map(|it| it.facts().version.clone());
                let serving = still.as_deref().unwrap_or("none");
                tracing::error!(plugin = name, serving, "plugin refused: {reason}");
            }
            Change::Removed { name } => tracing::warn!(plugin = name, "plugin removed"),
        }
        // Nobody has to follow.
        drop(self.changes.send(change.clone()));
        changes.push(change);
    }
}

/// Components in a directory. As many instances live at once, over all plugins.
const MAX_COMPONENTS: usize = 256;
/// Bytes of a manifest.
const MAX_MANIFEST: u64 = 1 << 20;

/// Names of the components in a directory.
async fn components(dir: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let mut entries = tokio::fs::read_dir(dir).await?;
    while let Some(entry) = entries.next_entry().await? {
        let path = PathBuf::from(entry.file_name());
        let name = path.file_stem().and_then(|stem| stem.to_str());
        let Some(name) = name.filter(|_| path.extension().is_some_and(|it| it == "wasm")) else {
            continue;
        };
        // What starts with a dot is on its way to another name. Links are followed, folders are none of ours.
        let is_file = tokio::fs::metadata(entry.path())
            .await
            .is_ok_and(|meta| meta.is_file());
        if !name.starts_with('.') && is_file {
            names.insert(name.to_owned());
        }
    }
    Ok(names)
}

async fn read(dir: &Path, name: &str) -> Result<Files, Refused> {
    let component = dir.join(format!("{name}.wasm"));
    let manifest = dir.join(format!("{name}.toml"));
    let component = read_file(&component, MAX_SIZE).await?;
    let manifest = match tokio::fs::metadata(&manifest).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        _ => {
            let bytes = read_file(&manifest, MAX_MANIFEST).await?;
            let text = String::from_utf8(bytes).map_err(|_| unreadable(&manifest, "it is not UTF-8"))?;
            Some(text)
        }
    };
    Ok(Files { component, manifest })
}

async fn read_file(path: &Path, most: u64) -> Result<Vec<u8>, Refused> {
    let failed = |error: io::Error| unreadable(path, &error.to_string());
    // Opening a pipe would wait for its other end.
    if !tokio::fs::metadata(path).await.map_err(failed)?.is_file() {
        return Err(unreadable(path, "it is no file"));
    }
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    let found = file.metadata().await.map_err(failed)?.len();
    let mut bytes = Vec::new();
    if found <= most {
        // It may grow meanwhile.
        file.take(most + 1)
            .read_to_end(&mut bytes)
            .await
            .map_err(failed)?;
    }
    let found = found.max(bytes.len() as u64);
    if found > most {
        return Err(unreadable(
            path,
            &format!("it has {found} bytes, at most {most} are read"),
        ));
    }
    Ok(bytes)
}

fn unreadable(path: &Path, message: &str) -> Refused {
    Refused::Unreadable {
        what: path.display().to_string(),
        message: message.to_owned(),
    }
}

fn fingerprint(files: &Files) -> Fingerprint {
    let mut hasher = Sha256::new();
    hasher.update((files.component.len() as u64).to_le_bytes());
    hasher.update(&files.component);
    hasher.update([u8::from(files.manifest.is_some())]);
    hasher.update(files.manifest.as_deref().unwrap_or_default());
    hasher.finalize().into()
}
