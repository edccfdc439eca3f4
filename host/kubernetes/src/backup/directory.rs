//! The directory of backups on the daemon's machine. A backup consists of its data and a manifest,
//! which is written last. A data file without a manifest is no backup.
//!
//! Files are written under a temporary name, synced and renamed. Only their owner may read them,
//! because they contain the secrets of the cluster.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::Manifest;

/// The maximum number of files of the directory that are read.
const MAX_FILES: usize = 10_000;
/// The maximum size of a manifest.
const MAX_MANIFEST_BYTES: u64 = 64 << 10;
/// The number of bytes per read when a digest is verified.
const READ_CHUNK_BYTES: usize = 1 << 20;

/// Why a backup cannot be used or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("the directory {dir} cannot be {doing}")]
    Directory {
        dir: String,
        doing: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("there is no backup {0}")]
    Unknown(String),
    #[error("the data of the backup {name} cannot be read")]
    Data {
        name: String,
        #[source]
        source: io::Error,
    },
    #[error("the backup {name} is damaged: its data has {found} bytes; expected {expected}")]
    Size { name: String, found: u64, expected: u64 },
    #[error("the backup {name} is damaged: its data does not have the digest of its manifest")]
    Digest { name: String },
}

/// The directory of backups; see the module. All functions block.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    framework: String,
}

impl Directory {
    pub(crate) fn new(path: &Path, framework: &str) -> Self {
        Self {
            path: path.to_owned(),
            framework: framework.to_owned(),
        }
    }

    /// Checks that a backup can be written: creates the directory if it is missing, and a file in it.
    pub(crate) fn probe(&self) -> Result<(), FileError> {
        let attempt = || {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&self.path)?;
            let probe = self.path.join(format!(".{}.probe", self.framework));
            create(&probe)?;
            fs::remove_file(&probe)
        };
        attempt().map_err(|source| self.error("written", source))
    }

    /// The framework's backups, the oldest first.
    pub(crate) fn list(&self) -> Result<Vec<Manifest>, FileError> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|source| self.error("read", source))?,
        };
        let mut manifests = Vec::new();
        for entry in entries.take(MAX_FILES) {
            let path = entry.map_err(|source| self.error("read", source))?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            if path.extension().is_none_or(|it| it != "json") {
                continue;
            }
            match manifest(&path) {
                Ok(manifest) if manifest.name != name => {
                    tracing::warn!(file = %path.display(), name = manifest.name, "a backup's manifest has another name");
                }
                Ok(manifest) if manifest.framework == self.framework => manifests.push(manifest),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(file = %path.display(), %error, "a backup's manifest cannot be read");
                }
            }
        }
        manifests.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        Ok(manifests)
    }

    /// The backup with a name.
    pub(crate) fn find(&self, name: &str) -> Result<Manifest, FileError> {
        let found = self.list()?.into_iter().find(|manifest| manifest.name == name);
        found.ok_or_else(|| FileError::Unknown(name.to_owned()))
    }

    /// Compares a backup's data with its manifest.
    pub(crate) fn verify(&self, manifest: &Manifest) -> Result<(), FileError> {
        let name = &manifest.name;
        let failed = |source| FileError::Data {
            name: name.clone(),
            source,
        };
        let mut file = fs::File::open(self.data_path(name)).map_err(failed)?;
        let found = file.metadata().map_err(failed)?.len();
        if found != manifest.size {
            return Err(FileError::Size {
                name: name.clone(),
                found,
                expected: manifest.size,
            });
        }
        let (mut digest, mut piece) = (Sha256::new(), vec![0; READ_CHUNK_BYTES]);
        loop {
            let read = file.read(&mut piece).map_err(failed)?;
            if read == 0 {
                break;
            }
            digest.update(&piece[..read]);
        }
        if format!("{:x}", digest.finalize()) != manifest.sha256 {
            return Err(FileError::Digest { name: name.clone() });
        }
        Ok(())
    }

    /// The file with the data of a backup.
    pub(crate) fn data_path(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.backup"))
    }

    /// Creates the file for data that is being received, and deletes a former one.
    pub(crate) fn receive(&self) -> Result<fs::File, FileError> {
        let part = self.partial_path();
        let attempt = || {
            if let Err(error) = fs::remove_file(&part)
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(error);
            }
            create(&part)
        };
        attempt().map_err(|source| self.error("written", source))
    }

    /// Completes a backup: gives the received data, which must be synced, its final name, and writes
    /// the manifest.
    pub(crate) fn finish(&self, manifest: &Manifest) -> Result<(), FileError> {
        let attempt = || {
            fs::rename(self.partial_path(), self.data_path(&manifest.name))?;
            let part = self.path.join(format!(".{}.manifest", self.framework));
            let _ = fs::remove_file(&part);
            let mut file = create(&part)?;
            file.write_all(&serde_json::to_vec_pretty(manifest)?)?;
            file.sync_all()?;
            fs::rename(&part, self.manifest(&manifest.name))?;
            fs::File::open(&self.path)?.sync_all()
        };
        attempt().map_err(|source| self.error("written", source))
    }

    /// Deletes data that was not received completely.
    pub(crate) fn discard(&self) {
        let _ = fs::remove_file(self.partial_path());
    }

    /// Deletes a backup. The manifest is deleted first, because without it the data is no backup.
    pub(crate) fn delete(&self, name: &str) -> Result<(), FileError> {
        self.find(name)?;
        let attempt = || {
            fs::remove_file(self.manifest(name))?;
            match fs::remove_file(self.data_path(name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed,
            }
        };
        attempt().map_err(|source| self.error("written", source))
    }

    /// Deletes all but the newest backups; returns the names of those that are deleted.
    pub(crate) fn prune(&self, keep: usize) -> Result<Vec<String>, FileError> {
        let mut manifests = self.list()?;
        manifests.truncate(manifests.len().saturating_sub(keep));
        let names: Vec<String> = manifests.into_iter().map(|manifest| manifest.name).collect();
        for name in &names {
            self.delete(name)?;
        }
        Ok(names)
    }

    fn manifest(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.json"))
    }

    fn partial_path(&self) -> PathBuf {
        self.path.join(format!(".{}.part", self.framework))
    }

    fn error(&self, doing: &'static str, source: io::Error) -> FileError {
        FileError::Directory {
            dir: self.path.display().to_string(),
            doing,
            source,
        }
    }
}

/// Creates a file that only its owner may read.
fn create(path: &Path) -> io::Result<fs::File> {
    let _ = fs::remove_file(path);
    fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

fn manifest(path: &Path) -> io::Result<Manifest> {
    let mut text = Vec::new();
    fs::File::open(path)?
        .take(MAX_MANIFEST_BYTES)
        .read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests;
