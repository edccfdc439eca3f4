//! Cache of compiled components on disk, so that a component is compiled once and not at each
//! start.
//!
//! A file is only used if it was compiled from this component for this engine and is intact. Any
//! other file is logged and counted, and the component is compiled again.

use std::{fmt, sync::Arc};

use transom_registry::artifacts::{ArtifactStore, Kind};

use crate::{
    observe::metrics::CacheStats,
    runtime::{
        engine::{ArtifactKey, CompileError, Compiled, CompiledArtifact, Compilers, Engine},
        executor::{BlockingTaskError, Priority, run_blocking},
    },
};

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct CompiledCache {
    artifacts: ArtifactStore,
    compilers: Compilers,
    stats: CacheStats,
}

/// The source of a compiled component. Display is for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CompiledFrom {
    Cache,
    /// Contains the reason why a cached file was rejected, if there was one.
    Compiler(Option<String>),
}

impl fmt::Display for CompiledFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompiledFrom::Cache => f.write_str("from the cache"),
            CompiledFrom::Compiler(None) => f.write_str("compiled"),
            CompiledFrom::Compiler(Some(why)) => write!(f, "compiled; the cached file was rejected: {why}"),
        }
    }
}

/// Why compilation failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotCompiled {
    #[error("{0}")]
    Compile(#[from] CompileError),
    #[error("{0}")]
    BlockingTaskError(#[from] BlockingTaskError),
}

impl CompiledCache {
    pub(crate) fn new(artifacts: ArtifactStore, compilers: Compilers, stats: CacheStats) -> CompiledCache {
        CompiledCache {
            artifacts,
            compilers,
            stats,
        }
    }

    /// Returns the compiled component from the cache or from the compiler. `digest` is its SHA-256.
    pub(crate) async fn get_or_compile(
        &self,
        engine: &Engine,
        component: &Arc<Vec<u8>>,
        digest: [u8; 32],
    ) -> Result<(Compiled, CompiledFrom), NotCompiled> {
        let key = ArtifactKey {
            component: digest,
            engine: engine.compatibility(),
        };
        let found = run_blocking({
            let (cache, engine, key) = (self.clone(), engine.clone(), key.clone());
            move || cache.load(&engine, &key)
        });
        let rejected = match found.await? {
            Ok(Some(compiled)) => {
                self.stats.hits.inc();
                return Ok((compiled, CompiledFrom::Cache));
            }
            Ok(None) => None,
            Err(why) => Some(why),
        };
        self.stats.misses.inc();
        let artifact = self.compilers.compile(Arc::clone(component), &key).await?;
        let (cache, engine) = (self.clone(), engine.clone());
        let loaded = run_blocking(move || {
            let loaded = engine.load(&artifact)?;
            cache.save(&key, &artifact);
            Ok::<_, CompileError>(loaded)
        });
        Ok((loaded.await??, CompiledFrom::Compiler(rejected)))
    }

    /// The priority of compilations.
    pub(crate) fn priority(&self) -> Priority {
        self.compilers.priority()
    }

    /// Returns the same cache with other compilers.
    pub(crate) fn with_compilers(&self, compilers: Compilers) -> CompiledCache {
        CompiledCache {
            compilers,
            ..self.clone()
        }
    }

    /// Returns the same cache with another directory.
    pub(crate) fn with_artifacts(&self, artifacts: ArtifactStore) -> CompiledCache {
        CompiledCache {
            artifacts,
            ..self.clone()
        }
    }

    /// Loads a cached file. `None` if there is no file. The error is the reason why the file is
    /// rejected.
    fn load(&self, engine: &Engine, key: &ArtifactKey) -> Result<Option<Compiled>, String> {
        let loaded = match self.artifacts.read(Kind::Compiled, &key.name()) {
            Ok(None) => return Ok(None),
            Ok(Some(file)) => CompiledArtifact::verified(file, key)
                .map_err(|why| why.to_string())
                .and_then(|artifact| engine.load(&artifact).map_err(|why| why.to_string())),
            Err(error) => Err(error.to_string()),
        };
        loaded.map(Some).inspect_err(|why| {
            self.stats.rejected.inc();
            tracing::warn!(
                file = %self.artifacts.path(Kind::Compiled, &key.name()).display(),
                "cached compiled component rejected, compiling again: {why}"
            );
        })
    }

    fn save(&self, key: &ArtifactKey, artifact: &CompiledArtifact) {
        let parts = [&artifact.header(key), artifact.code()];
        if let Err(error) = self.artifacts.write(Kind::Compiled, &key.name(), &parts) {
            tracing::warn!(
                file = %self.artifacts.path(Kind::Compiled, &key.name()).display(),
                "cannot cache a compiled component: {error}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, time::Duration};

    use prometheus_client::registry::Registry;
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::{config::Compiler, observe::metrics::Metrics, runtime::engine::CompileLimits};

    struct Rig {
        root: tempfile::TempDir,
        engine: Engine,
        cache: CompiledCache,
    }

    /// Two empty components. The second one differs by a custom section.
    const OTHER: &[u8] = b"\0asm\x0d\0\x01\0";
    const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0\0\x02\x01x";

    fn compilers() -> Compilers {
        let limits = CompileLimits {
            cpu: Duration::from_mins(1),
            wall_clock: Duration::from_mins(10),
        };
        Compilers::new(Compiler::InProcess, limits, Priority::Interactive)
    }

    impl Rig {
        fn new() -> Rig {
            let root = tempfile::tempdir().unwrap();
            let stats = Metrics::register(&mut Registry::default()).cache();
            let private = root.path().join("private");
            let cache = CompiledCache::new(ArtifactStore::open(Some(&private)), compilers(), stats);
            Rig {
                root,
                engine: Engine::new(1).unwrap(),
                cache,
            }
        }

        /// Requests a component once. Returns the changes in hits, misses and rejected files.
        async fn ask(&self, component: &[u8]) -> (u64, u64, u64) {
            let stats = &self.cache.stats;
            let now = || (stats.hits.get(), stats.misses.get(), stats.rejected.get());
            let before = now();
            let digest = Sha256::digest(component).into();
            let component = Arc::new(component.to_vec());
            let compiled = self.cache.get_or_compile(&self.engine, &component, digest).await;
            compiled.map(drop).unwrap();
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

    #[tokio::test]
    async fn a_component_is_compiled_once() {
        let rig = Rig::new();
        assert_eq!(rig.ask(COMPONENT).await, MISS);
        assert_eq!(rig.ask(COMPONENT).await, HIT);
        assert_eq!(rig.ask(OTHER).await, MISS);
        assert_eq!(rig.files().len(), 2);
    }

    #[tokio::test]
    async fn corrupt_cache_file_is_compiled_again() {
        let rig = Rig::new();
        rig.ask(COMPONENT).await;
        let file = rig.files().remove(0);
        let whole = fs::read(&file).unwrap();
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        let half = whole[..whole.len() / 2].to_vec();
        for broken in [flipped, half, Vec::new(), b"garbage".to_vec()] {
            fs::write(&file, &broken).unwrap();
            assert_eq!(rig.ask(COMPONENT).await, REJECTED, "{} bytes", broken.len());
            // The compiled file was written again.
            assert_eq!(fs::read(&file).unwrap(), whole);
            assert_eq!(rig.ask(COMPONENT).await, HIT);
        }
    }

    #[tokio::test]
    async fn cache_file_of_another_component_is_rejected() {
        let rig = Rig::new();
        rig.ask(OTHER).await;
        let other = rig.files().remove(0);
        rig.ask(COMPONENT).await;
        let own = rig.files().into_iter().find(|it| *it != other).unwrap();
        fs::copy(&other, &own).unwrap();
        assert_eq!(rig.ask(COMPONENT).await, REJECTED);

        // A file for another engine: the engine's hash follows the component's digest.
        let mut for_other_engine = fs::read(&own).unwrap();
        for_other_engine[50] ^= 1;
        fs::write(&own, for_other_engine).unwrap();
        assert_eq!(rig.ask(COMPONENT).await, REJECTED);
        assert_eq!(rig.ask(COMPONENT).await, HIT);
    }

    #[tokio::test]
    async fn cache_file_writable_by_others_is_rejected() {
        let rig = Rig::new();
        rig.ask(COMPONENT).await;
        let file = rig.files().remove(0);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(rig.ask(COMPONENT).await, REJECTED);
        assert_eq!(rig.ask(COMPONENT).await, HIT, "it was replaced by a private one");

        let dir = rig.root.path().join("private/compiled");
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
        let private = rig.root.path().join("private");
        let without_cache = CompiledCache::new(
            ArtifactStore::open(Some(&private)),
            compilers(),
            rig.cache.stats.clone(),
        );
        assert!(!without_cache.artifacts.is_open());
        let digest = Sha256::digest(COMPONENT).into();
        let component = Arc::new(COMPONENT.to_vec());
        assert!(
            without_cache
                .get_or_compile(&rig.engine, &component, digest)
                .await
                .is_ok(),
            "a component compiles without a cache"
        );
    }
}
