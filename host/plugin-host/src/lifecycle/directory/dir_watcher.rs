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
const DEBOUNCE_INTERVAL: Duration = Duration::from_millis(200);

pub(super) struct DirWatcher {
    dir: PathBuf,
    changes: mpsc::Receiver<()>,
    notifier: mpsc::Sender<()>,
    watcher: Option<Debouncer<RecommendedWatcher, RecommendedCache>>,
    /// Device and inode of the watched directory.
    identity: Option<(u64, u64)>,
}

impl DirWatcher {
    pub(super) fn new(dir: &Path) -> DirWatcher {
        // One queued notification is enough.
        let (notifier, changes) = mpsc::channel(1);
        let mut watch = DirWatcher {
            dir: dir.to_owned(),
            changes,
            notifier,
            watcher: None,
            identity: None,
        };
        watch.renew();
        watch
    }

    /// Returns after a change in the directory.
    pub(super) async fn changed(&mut self) {
        // The channel is never closed, because `notifier` is kept here.
        let _ = self.changes.recv().await;
    }

    /// Makes [`Watch::changed`] return once more.
    pub(super) fn notify(&self) {
        // Full: a notification is already queued.
        let _ = self.notifier.try_send(());
    }

    /// Watches the directory that has the name now, if it is not the watched one.
    pub(super) fn renew(&mut self) {
        let identity = identity(&self.dir);
        if self.watcher.is_some() && self.identity == identity {
            return;
        }
        self.watcher = None;
        self.identity = identity;
        let notifier = self.notifier.clone();
        let on_events = move |result: DebounceEventResult| {
            let needs_scan = match result {
                Ok(events) => events
                    .iter()
                    .any(|event| event.need_rescan() || is_change(event.kind)),
                Err(_) => true,
            };
            if needs_scan {
                // Full: a notification is already queued.
                let _ = notifier.try_send(());
            }
        };
        let started = new_debouncer(DEBOUNCE_INTERVAL, None, on_events).and_then(|mut watcher| {
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
const MAX_DEBOUNCE_ROUNDS: u32 = 10;

/// Returns when no file in the directory was modified for the debounce interval: a component and
/// its manifest are written one after the other.
pub(super) async fn wait_until_settled(dir: &Path) {
    for _ in 0..MAX_DEBOUNCE_ROUNDS {
        let remaining = youngest_age(dir)
            .await
            .map_or(Duration::ZERO, |age| DEBOUNCE_INTERVAL.saturating_sub(age));
        if remaining.is_zero() {
            return;
        }
        tokio::time::sleep(remaining).await;
    }
}

/// Whether a file of the plugin was modified within the debounce interval.
pub(super) async fn is_recently_modified(dir: &Path, name: &str) -> bool {
    for kind in ["wasm", "toml", "wasm.sig"] {
        let age = age(&dir.join(format!("{name}.{kind}"))).await;
        if age.is_some_and(|age| age < DEBOUNCE_INTERVAL) {
            return true;
        }
    }
    false
}

/// The time since the last file was written or renamed.
async fn youngest_age(dir: &Path) -> Option<Duration> {
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
    SystemTime::now().duration_since(changed_at(&meta)?).ok()
}

/// Returns the time of the last inode change, which a rename updates, too.
#[cfg(unix)]
fn changed_at(meta: &std::fs::Metadata) -> Option<SystemTime> {
    use std::os::unix::fs::MetadataExt;
    let (seconds, nanos) = (
        u64::try_from(meta.ctime()).ok()?,
        u32::try_from(meta.ctime_nsec()).ok()?,
    );
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

#[cfg(not(unix))]
fn changed_at(meta: &std::fs::Metadata) -> Option<SystemTime> {
    meta.modified().ok()
}

/// Reads do not count as changes; otherwise a scan would trigger itself.
fn is_change(kind: EventKind) -> bool {
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
