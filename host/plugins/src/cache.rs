//! Compiled components on disk, so that a component is compiled once and not at every start.
//!
//! A file is used when it says that it was made of this component, for this engine, and is whole; what does not is reported,
//! counted and written anew. Without a private directory to keep them in everything works as before, and slower.

use std::{path::Path, sync::Arc};

use crate::{
    engine::{Artefact, ArtefactKey, CompileError, Compiled, Engine},
    metrics::CacheStats,
    shelf::Shelf,
};

/// Compiled components that are kept. One made from Python has 35 MB, most have a tenth of a megabyte.
const MOST: usize = 128;
const MAX_FILE: u64 = 1 << 30;

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    shelf: Option<Arc<Shelf>>,
    stats: CacheStats,
}

impl Cache {
    /// `private`: the host's own directory.
    pub(crate) fn open(private: Option<&Path>, stats: CacheStats) -> Cache {
        let dir = private.map(|it| it.join("compiled"));
        let shelf = dir.and_then(|dir| match Shelf::open(&dir, MOST) {
            Ok(shelf) => Some(Arc::new(shelf)),
            Err(error) => {
                tracing::warn!(dir = %dir.display(), "compiled components are not kept: {error}");
                None
            }
        });
        Cache { shelf, stats }
    }

    /// The compiled component, from its file or from the compiler. `digest` is its SHA-256. Blocks for as long as compiling takes.
    pub(crate) fn compiled(
        &self,
        engine: &Engine,
        component: &[u8],
        digest: [u8; 32],
    ) -> Result<Compiled, CompileError> {
        let key = ArtefactKey {
            component: digest,
            engine: engine.compatibility(),
        };
        if let Some(compiled) = self.recall(engine, &key) {
            self.stats.hits.inc();
            return Ok(compiled);
        }
        self.stats.misses.inc();
        let artefact = Engine::precompile(component)?;
        let loaded = engine.load(&artefact)?;
        self.keep(&key, &artefact);
        Ok(loaded)
    }

    fn recall(&self, engine: &Engine, key: &ArtefactKey) -> Option<Compiled> {
        let files = self.shelf.as_ref()?;
        let loaded = match files.read(&key.name(), MAX_FILE) {
            Ok(None) => return None,
            Ok(Some(file)) => Artefact::verified(file, key)
                .map_err(|why| why.to_string())
                .and_then(|artefact| engine.load(&artefact).map_err(|why| why.to_string())),
            Err(error) => Err(error.to_string()),
        };
        loaded
            .inspect_err(|why| {
                self.stats.rejected.inc();
                let file = files.path(&key.name());
                tracing::warn!(
                    file = %file.display(),
                    "a kept compiled component is not used, it is compiled again: {why}"
                );
            })
            .ok()
    }

    fn keep(&self, key: &ArtefactKey, artefact: &Artefact) {
        let Some(files) = &self.shelf else { return };
        if let Err(error) = files.write(&key.name(), &[&artefact.head(key), artefact.code()]) {
            let file = files.path(&key.name());
            tracing::warn!(file = %file.display(), "a compiled component is not kept: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

    use prometheus_client::registry::Registry;
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::metrics::Metrics;

    struct Rig {
        root: tempfile::TempDir,
        engine: Engine,
        cache: Cache,
    }

    /// Two components with nothing in them; one says so in a section of its own.
    const OTHER: &[u8] = b"\0asm\x0d\0\x01\0";
    const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0\0\x02\x01x";

    impl Rig {
        fn new() -> Rig {
            let root = tempfile::tempdir().unwrap();
            let stats = Metrics::register(&mut Registry::default()).cache();
            let private = root.path().join("private");
            let cache = Cache::open(Some(&private), stats);
            Rig {
                root,
                engine: Engine::new(1).unwrap(),
                cache,
            }
        }

        /// Hits, misses and files that were not trusted, by one request.
        fn ask(&self, component: &[u8]) -> (u64, u64, u64) {
            let stats = &self.cache.stats;
            let now = || (stats.hits.get(), stats.misses.get(), stats.rejected.get());
            let before = now();
            let digest = Sha256::digest(component).into();
            self.cache.compiled(&self.engine, component, digest).unwrap();
            let after = now();
            (after.0 - before.0, after.1 - before.1, after.2 - before.2)
        }

        fn files(&self) -> Vec<PathBuf> {
            let dir = self.root.path().join("private/compiled");
            let mut files: Vec<PathBuf> = fs::read_dir(dir)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .collect();
            files.sort();
            files
        }
    }

    const HIT: (u64, u64, u64) = (1, 0, 0);
    const MISS: (u64, u64, u64) = (0, 1, 0);
    const REJECTED: (u64, u64, u64) = (0, 1, 1);

    #[test]
    fn a_component_is_compiled_once() {
        let rig = Rig::new();
        assert_eq!(rig.ask(COMPONENT), MISS);
        assert_eq!(rig.ask(COMPONENT), HIT);
        assert_eq!(rig.ask(OTHER), MISS);
        assert_eq!(rig.files().len(), 2);
    }

    #[test]
    fn what_is_not_as_it_was_written_is_compiled_again() {
        let rig = Rig::new();
        rig.ask(COMPONENT);
        let file = rig.files().remove(0);
        let whole = fs::read(&file).unwrap();
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        let half = whole[..whole.len() / 2].to_vec();
        for broken in [flipped, half, Vec::new(), b"garbage".to_vec()] {
            fs::write(&file, &broken).unwrap();
            assert_eq!(rig.ask(COMPONENT), REJECTED, "{} bytes", broken.len());
            // It was written anew.
            assert_eq!(fs::read(&file).unwrap(), whole);
            assert_eq!(rig.ask(COMPONENT), HIT);
        }
    }

    #[test]
    fn a_file_under_anothers_name_is_not_trusted() {
        let rig = Rig::new();
        rig.ask(OTHER);
        let other = rig.files().remove(0);
        rig.ask(COMPONENT);
        let own = rig.files().into_iter().find(|it| *it != other).unwrap();
        fs::copy(&other, &own).unwrap();
        assert_eq!(rig.ask(COMPONENT), REJECTED);

        // For another engine: the hash stands behind the component's digest.
        let mut elsewhere = fs::read(&own).unwrap();
        elsewhere[50] ^= 1;
        fs::write(&own, elsewhere).unwrap();
        assert_eq!(rig.ask(COMPONENT), REJECTED);
        assert_eq!(rig.ask(COMPONENT), HIT);
    }

    #[test]
    fn what_others_may_write_is_not_trusted() {
        let rig = Rig::new();
        rig.ask(COMPONENT);
        let file = rig.files().remove(0);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(rig.ask(COMPONENT), REJECTED);
        assert_eq!(rig.ask(COMPONENT), HIT, "it was replaced by a private one");

        let dir = rig.root.path().join("private/compiled");
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
        let private = rig.root.path().join("private");
        let again = Cache::open(Some(&private), rig.cache.stats.clone());
        assert!(again.shelf.is_none());
        let digest = Sha256::digest(COMPONENT).into();
        assert!(
            again.compiled(&rig.engine, COMPONENT, digest).is_ok(),
            "without a cache"
        );
    }
}
