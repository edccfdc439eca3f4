//! [`CompileCache`]: compiled components that the commands of one user share, so that a component
//! is compiled only once.
//!
//! The files are those of a daemon (`storage::compiled_cache`), and so are the checks before one is
//! loaded: it belongs to this user, is inaccessible to others, names this component and this
//! engine, and matches the digest in its header. A directory that other users can write to is
//! rejected.

use std::{io, path::Path};

use transom_registry::artifacts::ArtifactStore;

/// A directory for compiled components. Cheap to clone. The default keeps no files.
#[derive(Clone, Debug, Default)]
pub struct CompileCache(ArtifactStore);

impl CompileCache {
    /// Default for the total size of all files. A component of Python has 35 MB.
    pub const MAX_BYTES: u64 = 1 << 30;

    /// Opens the directory. It is created with mode 0700 if it does not exist; a daemon's is
    /// `.transom` in its plugin directory. When the total size exceeds `max_bytes`, the least
    /// recently used files are removed. Blocks.
    /// # Errors
    /// The directory cannot be created, or other users can write to it or replace it.
    pub fn open(dir: &Path, max_bytes: u64) -> io::Result<CompileCache> {
        ArtifactStore::compiled_only(dir, max_bytes).map(CompileCache)
    }

    pub(super) fn into_artifacts(self) -> ArtifactStore {
        self.0
    }
}
