//! Watches a project's folder, and detects changed files by a fingerprint.
//!
//! Tools write into the folder while they build. Their output folders are not watched, and a
//! notification causes a build only if the fingerprint of all other files has changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use notify::{RecommendedWatcher, RecursiveMode};
use notify_debouncer_full::{DebounceEventResult, Debouncer, RecommendedCache, new_debouncer};
use tokio::sync::mpsc;

/// Debounce time: an editor writes several files, or one file in several steps.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// Folders that tools write to.
const OUTPUT_FOLDERS: &[&str] = &["target", "out", "node_modules", "__pycache__", "build", "dist"];
/// The maximum number of files in a fingerprint, and the maximum depth of folders.
const MAX_FILES: usize = 20_000;
const MAX_DEPTH: usize = 32;

pub(super) struct Watch {
    root: PathBuf,
    changed: mpsc::Receiver<()>,
    watcher: Debouncer<RecommendedWatcher, RecommendedCache>,
    watched: Vec<PathBuf>,
}

impl Watch {
    pub(super) fn new(root: &Path) -> anyhow::Result<Watch> {
        // One queued notification is enough.
        let (sender, changed) = mpsc::channel(1);
        let notify_change = move |_: DebounceEventResult| {
            // Full: a notification is already queued.
            let _ = sender.try_send(());
        };
        let watcher = new_debouncer(DEBOUNCE, None, notify_change);
        let mut watch = Watch {
            root: root.to_owned(),
            changed,
            watcher: watcher.context("cannot watch files")?,
            watched: Vec::new(),
        };
        watch.watch_new_folders()?;
        Ok(watch)
    }

    /// Returns after a change. May also return without one.
    pub(super) async fn changed(&mut self) {
        // The channel is never closed, because the debouncer owns the sender.
        let _ = self.changed.recv().await;
    }

    /// Starts to watch new folders.
    pub(super) fn watch_new_folders(&mut self) -> anyhow::Result<()> {
        let mut folders = vec![(self.root.clone(), RecursiveMode::NonRecursive)];
        let entries = fs::read_dir(&self.root).with_context(|| cannot_watch(&self.root))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() && is_input(&path) {
                folders.push((path, RecursiveMode::Recursive));
            }
        }
        self.watched.retain(|it| it.exists());
        for (path, mode) in folders {
            if !self.watched.contains(&path) {
                self.watcher
                    .watch(&path, mode)
                    .with_context(|| cannot_watch(&path))?;
                self.watched.push(path);
            }
        }
        Ok(())
    }
}

fn cannot_watch(path: &Path) -> String {
    format!("cannot watch {}", path.display())
}

/// Time and size of each of a project's files, except for output and hidden files.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fingerprint(BTreeMap<PathBuf, (Option<SystemTime>, u64)>);

pub(super) fn fingerprint(root: &Path) -> Fingerprint {
    let mut files = BTreeMap::new();
    collect(root, MAX_DEPTH, &mut files);
    Fingerprint(files)
}

/// Skips unreadable files; the build reports them.
fn collect(dir: &Path, depth: usize, files: &mut BTreeMap<PathBuf, (Option<SystemTime>, u64)>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if files.len() >= MAX_FILES {
            return;
        }
        // Links are not followed, because a folder may contain a link to itself.
        match fs::symlink_metadata(&path) {
            Ok(meta) if is_input(&path) && meta.is_dir() && depth > 0 => {
                collect(&path, depth - 1, files);
            }
            Ok(meta) if is_input(&path) && !meta.is_dir() => {
                files.insert(path, (meta.modified().ok(), meta.len()));
            }
            _ => {}
        }
    }
}

fn is_input(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    !name.starts_with('.') && !name.ends_with('~') && !OUTPUT_FOLDERS.contains(&&*name)
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn fingerprint_changes_with_sources_only() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        write(&root.join("src/lib.rs"), "one");
        let mut last = fingerprint(root);
        for (file, changes) in [
            ("src/deep/er/mod.rs", true),
            ("plugin.js", true),
            ("target/debug/x", false),
            ("out/x.wasm", false),
            ("src/__pycache__/x.pyc", false),
            ("node_modules/x/index.js", false),
            (".venv/bin/x", false),
            ("src/.lib.rs.swp", false),
            ("src/lib.rs~", false),
        ] {
            write(&root.join(file), "new");
            let current = fingerprint(root);
            assert_eq!(current != last, changes, "{file}");
            last = current;
        }
        write(&root.join("src/lib.rs"), "longer");
        assert_ne!(fingerprint(root), last);
        fs::remove_file(root.join("plugin.js")).unwrap();
        std::os::unix::fs::symlink(root, root.join("src/loop")).unwrap();
        assert_ne!(
            fingerprint(root),
            last,
            "a link to the folder itself causes no endless recursion"
        );
    }

    #[tokio::test]
    async fn changes_in_new_folders_are_detected() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("src/a"), "one");
        let mut watch = Watch::new(dir.path()).unwrap();
        for file in ["src/a", "b", "new/c", "new/c"] {
            // One change may be reported more than once.
            while timeout(3 * DEBOUNCE, watch.changed()).await.is_ok() {}
            write(&dir.path().join(file), "something else");
            let detected = timeout(Duration::from_secs(30), watch.changed()).await;
            assert!(detected.is_ok(), "{file}");
            watch.watch_new_folders().unwrap();
        }
    }
}
