//! [`CompileCache`]: compiled components of one user's commands, so that a component is compiled
//! once and not by each command.
//!
//! The files are those of a daemon (`storage::compiled_cache`), and so are the checks before one is
//! loaded: it belongs to this user, is inaccessible to others, names this component and this
//! engine, and has the content that its header promises. A directory that other users can write to
//! is refused.

use std::{io, path::Path};

use transom_registry::artifacts::ArtifactStore;

/// A directory for compiled components. Cheap to clone. The default keeps nothing.
#[derive(Clone, Debug, Default)]
pub struct CompileCache(ArtifactStore);

impl CompileCache {
    /// Default for the size of all files. A component of Python has 35 MB.
    pub const MAX_BYTES: u64 = 1 << 30;

    /// Opens the directory, which is created with mode 0700 if it does not exist; a daemon's is
    /// `.transom` in its plugin directory. The files that were used least recently are removed when
    /// all together exceed `max_bytes`. Blocks.
    ///
    /// # Errors
    /// The directory cannot be created, or other users can write to it or replace it.
    pub fn open(dir: &Path, max_bytes: u64) -> io::Result<CompileCache> {
        ArtifactStore::compiled_only(dir, max_bytes).map(CompileCache)
    }

    pub(super) fn into_artifacts(self) -> ArtifactStore {
        self.0
    }
}
