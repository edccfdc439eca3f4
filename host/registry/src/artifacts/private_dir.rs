//! A private directory for files that this host wrote: compiled components, and versions to roll
//! back to.
//!
//! Anyone who can write there can run code in the daemon, so the directory and each file must
//! belong to the daemon's user and be inaccessible to others (0700, 0600). Other files are
//! rejected, not repaired. Files are written under a temporary name and renamed; the oldest are
//! removed when there are too many. Nothing is synced to disk: readers verify a digest, which also
//! detects files that a power failure truncated.
//!
//! All functions block: do not call them from a task of the runtime.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, SystemTime},
};

use nix::{fcntl::OFlag, unistd::geteuid};

/// Age at which temporary files of a killed writer are removed.
const ABANDONED_AGE: Duration = Duration::from_hours(1);

/// The directory. It is checked again for each file.
#[derive(Debug)]
pub(super) struct PrivateDir {
    dir: PathBuf,
    max_files: usize,
    max_total_bytes: u64,
}

impl PrivateDir {
    /// Creates the directory and its missing parents. It and its parent must be private. It keeps
    /// at most `max_files` files and `max_total_bytes` bytes.
    pub(super) fn open(dir: &Path, max_files: usize, max_total_bytes: u64) -> io::Result<PrivateDir> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(dir)?;
        // A user who can write to the parent could replace the directory. Links are not followed.
        for dir in [Some(dir), dir.parent()].into_iter().flatten() {
            check_private(dir, &fs::symlink_metadata(dir)?, fs::Metadata::is_dir)?;
        }
        Ok(PrivateDir {
            dir: dir.to_owned(),
            max_files,
            max_total_bytes,
        })
    }

    /// Like [`open`](Self::open), but also fails if another user can replace a folder above the
    /// directory.
    pub(super) fn open_below_own(
        dir: &Path,
        max_files: usize,
        max_total_bytes: u64,
    ) -> io::Result<PrivateDir> {
        let private_dir = PrivateDir::open(dir, max_files, max_total_bytes)?;
        for ancestor in fs::canonicalize(dir)?.ancestors().skip(2) {
            let meta = fs::metadata(ancestor)?;
            let (owner, mode) = (meta.uid(), meta.mode());
            if owner != 0 && owner != geteuid().as_raw() {
                return Err(permission_error(format!(
                    "{} belongs to user {owner}",
                    ancestor.display()
                )));
            }
            // In a sticky directory such as /tmp only the owner of a file may rename it.
            if mode & 0o002 != 0 && mode & 0o1000 == 0 {
                return Err(permission_error(format!(
                    "every user can write to {} (mode {:03o}; run chmod o-w on it)",
                    ancestor.display(),
                    mode & 0o777
                )));
            }
        }
        Ok(private_dir)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Reads a file; none if it does not exist. Makes it the youngest.
    pub(super) fn read(&self, name: &str, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
        let path = self.path(name);
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(&path);
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        check_private(&path, &file.metadata()?, fs::Metadata::is_file)?;
        let mut content = Vec::new();
        (&file).take(max_bytes + 1).read_to_end(&mut content)?;
        if content.len() as u64 > max_bytes {
            return Err(permission_error(format!(
                "{} has more than {max_bytes} bytes",
                path.display()
            )));
        }
        self.touch(name);
        Ok(Some(content))
    }

    /// Writes the parts as one file, which replaces the previous one.
    pub(super) fn write(&self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        static NEXT_TEMPORARY: AtomicU64 = AtomicU64::new(0);
        let number = NEXT_TEMPORARY.fetch_add(1, Relaxed);
        let temporary = self.path(&format!(".{name}.{}.{number}", std::process::id()));
        let written = write_new(&temporary, parts).and_then(|()| fs::rename(&temporary, self.path(name)));
        if written.is_err() {
            // If this fails, `prune` removes the file later.
            let _ = fs::remove_file(&temporary);
        }
        written?;
        self.prune()
    }

    /// Makes the file the youngest, if it exists.
    pub(super) fn touch(&self, name: &str) {
        // A failure does no harm: the file may only be pruned too early.
        if let Ok(file) = File::open(self.path(name)) {
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// Removes the oldest files.
    fn prune(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            // Another process may have removed it.
            let Ok(meta) = entry.metadata() else { continue };
            let modified = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if entry.file_name().to_string_lossy().starts_with('.') {
                let age = SystemTime::now().duration_since(modified).unwrap_or_default();
                if age > ABANDONED_AGE {
                    let _ = fs::remove_file(entry.path());
                }
            } else {
                files.push((modified, entry.path(), meta.len()));
            }
        }
        // Keeps the youngest files, as many as both limits allow.
        files.sort_unstable_by(|a, b| b.cmp(a));
        let mut total = 0_u64;
        let newest = files.iter().take(self.max_files).take_while(|(.., size)| {
            total = total.saturating_add(*size);
            total <= self.max_total_bytes
        });
        let kept_count = newest.count();
        for (_, path, _) in &files[kept_count..] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

fn write_new(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    for part in parts {
        file.write_all(part)?;
    }
    Ok(())
}

/// Checks the file type, the owner and the mode.
fn check_private(path: &Path, meta: &fs::Metadata, kind: fn(&fs::Metadata) -> bool) -> io::Result<()> {
    if !kind(meta) {
        return Err(permission_error(format!(
            "{} has an unexpected file type",
            path.display()
        )));
    }
    if meta.uid() != geteuid().as_raw() {
        return Err(permission_error(format!(
            "{} belongs to user {}",
            path.display(),
            meta.uid()
        )));
    }
    if meta.mode() & 0o077 != 0 {
        let mode = meta.mode() & 0o777;
        return Err(permission_error(format!(
            "{} is accessible to other users (mode {mode:03o}; run chmod go= on it)",
            path.display()
        )));
    }
    Ok(())
}

fn permission_error(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, message)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn private_dir_reads_files_and_prunes_the_oldest() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b");
        let files = PrivateDir::open(&dir, 2, 100).unwrap();
        assert_eq!(files.read("one", 100).unwrap(), None);
        files.write("one", &[b"1", b"1"]).unwrap();
        assert_eq!(files.read("one", 2).unwrap().unwrap(), b"11");
        assert!(files.read("one", 1).is_err());
        files.write("two", &[b"2"]).unwrap();
        let ages = [("one", 10), ("two", 20)];
        for (name, age) in ages {
            let file = File::options().write(true).open(files.path(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age))
                .unwrap();
        }
        // Reading a file makes it the youngest.
        files.read("two", 10).unwrap();
        fs::write(dir.join(".left.1.1"), "x").unwrap();
        files.write("three", &[b"3"]).unwrap();
        assert_eq!(names(&dir), [".left.1.1", "three", "two"]);
        for dir in [&dir, &root.path().join("a")] {
            assert_eq!(fs::metadata(dir).unwrap().mode() & 0o777, 0o700);
        }
        assert_eq!(fs::metadata(files.path("two")).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn private_dir_rejects_files_writable_by_others() {
        let root = tempfile::tempdir().unwrap();
        // `open` also creates the parent, which is therefore private.
        let own = root.path().join("own");
        let dir = own.join("files");
        let files = PrivateDir::open(&dir, 9, 100).unwrap();
        files.write("open", &[b"x"]).unwrap();
        fs::set_permissions(files.path("open"), fs::Permissions::from_mode(0o660)).unwrap();
        let error = files.read("open", 9).unwrap_err().to_string();
        assert!(error.contains("mode 660"), "{error}");

        files.write("own", &[b"x"]).unwrap();
        symlink(files.path("own"), files.path("link")).unwrap();
        assert!(files.read("link", 9).is_err());

        fs::set_permissions(&dir, fs::Permissions::from_mode(0o750)).unwrap();
        for dir in [dir.clone(), dir.join("below")] {
            let error = PrivateDir::open(&dir, 9, 100).unwrap_err().to_string();
            assert!(error.contains("mode 750"), "{error}");
        }
        let link = own.join("link");
        symlink(&dir, &link).unwrap();
        assert!(PrivateDir::open(&link, 9, 100).is_err());
        fs::write(own.join("file"), "").unwrap();
        assert!(PrivateDir::open(&own.join("file"), 9, 100).is_err());
    }
    #[test]
    fn private_dir_keeps_the_youngest_files_within_its_total_size() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b");
        let files = PrivateDir::open(&dir, 9, 10).unwrap();
        for (name, age) in [("one", 30), ("two", 20), ("three", 10)] {
            files.write(name, &[b"1234"]).unwrap();
            let file = File::options().write(true).open(files.path(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age))
                .unwrap();
        }
        files.write("four", &[b"12"]).unwrap();
        assert_eq!(names(&dir), ["four", "three", "two"]);
        files.write("five", &[b"12345"]).unwrap();
        assert_eq!(names(&dir), ["five", "four"]);
        files.write("large", &[b"12345678901"]).unwrap();
        assert!(names(&dir).is_empty(), "the file exceeds the total size");
    }

    #[test]
    fn private_dir_below_a_folder_that_every_user_can_write_to_is_rejected() {
        let root = tempfile::tempdir().unwrap();
        let shared = root.path().join("shared");
        let dir = shared.join("own/files");
        PrivateDir::open_below_own(&dir, 9, 100).unwrap();
        for (mode, rejected) in [(0o777, true), (0o1777, false), (0o775, false)] {
            fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).unwrap();
            let private_dir = PrivateDir::open_below_own(&dir, 9, 100);
            assert_eq!(private_dir.is_err(), rejected, "{mode:o}");
            if let Err(error) = private_dir {
                let error = error.to_string();
                assert!(
                    error.contains("every user can write to") && error.contains("shared"),
                    "{error}"
                );
            }
        }
    }
}
