//! Watches the plugin directory.
//!
//! An event is only a hint: the directory is then scanned as a whole, and it is also scanned
//! periodically. [`Watch::renew`] detects that another directory has replaced the watched one.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use notify::{
    EventKind, RecommendedWatcher, RecursiveMode,
    event::{AccessKind, AccessMode},
};
use notify_debouncer_full::{DebounceEventResult, Debouncer, RecommendedCache, new_debouncer};
use tokio::sync::mpsc;

/// Debounce interval: changes of a component and its manifest come together.
const QUIET: Duration = Duration::from_millis(200);

pub(super) struct Watch {
    dir: PathBuf,
    touched: mpsc::Receiver<()>,
    notice: mpsc::Sender<()>,
    watcher: Option<Debouncer<RecommendedWatcher, RecommendedCache>>,
    /// Device and inode of the watched directory.
    identity: Option<(u64, u64)>,
}

impl Watch {
    pub(super) fn new(dir: &Path) -> Watch {
        // One queued notification is enough.
        let (notice, touched) = mpsc::channel(1);
        let mut watch = Watch {
            dir: dir.to_owned(),
            touched,
            notice,
            watcher: None,
            identity: None,
        };
        watch.renew();
        watch
    }

    /// Returns after a change in the directory.
    pub(super) async fn touched(&mut self) {
        // The channel is never closed, because `notice` is kept here.
        let _ = self.touched.recv().await;
    }

    /// Makes [`Watch::touched`] return once more.
    pub(super) fn again(&self) {
        // Full: a notification is already queued.
        let _ = self.notice.try_send(());
    }

    /// Watches the directory that has the name now, if it is not the watched one.
    pub(super) fn renew(&mut self) {
        let identity = identity(&self.dir);
        if self.watcher.is_some() && self.identity == identity {
            return;
        }
        self.watcher = None;
        self.identity = identity;
        let notice = self.notice.clone();
        let react = move |result: DebounceEventResult| {
            let worth_a_look = match result {
                Ok(events) => events
                    .iter()
                    .any(|event| event.need_rescan() || changes_something(event.kind)),
                Err(_) => true,
            };
            if worth_a_look {
                // Full: a notification is already queued.
                let _ = notice.try_send(());
            }
        };
        let started = new_debouncer(QUIET, None, react).and_then(|mut watcher| {
            watcher.watch(&self.dir, RecursiveMode::NonRecursive)?;
            Ok(watcher)
        });
        match started {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) => {
                tracing::warn!(dir = %self.dir.display(), "cannot watch the plugin directory, scanning it periodically: {error}");
            }
        }
    }
}

/// Maximum number of debounce rounds; afterwards the directory is read as it is.
const LOOKS: u32 = 10;

/// Returns when no file in the directory was modified for the debounce interval: a component and
/// its manifest are written one after the other.
pub(super) async fn settled(dir: &Path) {
    for _ in 0..LOOKS {
        let rest = youngest(dir)
            .await
            .map_or(Duration::ZERO, |age| QUIET.saturating_sub(age));
        if rest.is_zero() {
            return;
        }
        tokio::time::sleep(rest).await;
    }
}

/// Whether a file of the plugin was modified within the debounce interval.
pub(super) async fn in_motion(dir: &Path, name: &str) -> bool {
    for kind in ["wasm", "toml", "wasm.sig"] {
        let age = age(&dir.join(format!("{name}.{kind}"))).await;
        if age.is_some_and(|age| age < QUIET) {
            return true;
        }
    }
    false
}

/// The time since the last file was written or renamed.
async fn youngest(dir: &Path) -> Option<Duration> {
    let mut entries = tokio::fs::read_dir(dir).await.ok()?;
    let mut youngest = None;
    while let Ok(Some(entry)) = entries.next_entry().await {
        youngest = youngest.into_iter().chain(age(&entry.path()).await).min();
    }
    youngest
}

/// The time since the last change of a file. `None` if there is no such file. A time in the future
/// counts as long ago.
async fn age(path: &Path) -> Option<Duration> {
    let meta = tokio::fs::metadata(path).await.ok()?;
    SystemTime::now().duration_since(touched_at(&meta)?).ok()
}

/// Returns the time of the last inode change, which a rename updates, too.
#[cfg(unix)]
fn touched_at(meta: &std::fs::Metadata) -> Option<SystemTime> {
    use std::os::unix::fs::MetadataExt;
    let (seconds, nanos) = (
        u64::try_from(meta.ctime()).ok()?,
        u32::try_from(meta.ctime_nsec()).ok()?,
    );
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

#[cfg(not(unix))]
fn touched_at(meta: &std::fs::Metadata) -> Option<SystemTime> {
    meta.modified().ok()
}

/// Reads do not count as changes; otherwise a scan would trigger itself.
fn changes_something(kind: EventKind) -> bool {
    !matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}

#[cfg(unix)]
fn identity(dir: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(dir).ok().map(|meta| (meta.dev(), meta.ino()))
}

#[cfg(not(unix))]
fn identity(dir: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(dir).ok().map(|_| (0, 0))
}
