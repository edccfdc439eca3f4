//! Compiled components: their file format and the checks before they are loaded.
//!
//! Loading compiled code is `unsafe`: bytes from another origin can do anything to this process. A
//! [`CompiledArtifact`] therefore exists in two cases only: an engine of this process has just
//! compiled it, or a file names the same component and engine and its content matches the digest in
//! its header. The private directory ensures that only the daemon wrote the file. The compile
//! process, which runs this program, sends the same format through a pipe.
#![allow(unsafe_code, reason = "one call, at the end of the checks described above")]

use std::hash::{Hash, Hasher};

use sha2::{Digest, Sha256};
use transom_common::text::{hex, one_line};
use wasmtime::{Engine as Wasmtime, component::Component};

use super::{CompileError, Compiled, Engine, resource_check};

/// The first bytes of a file. They change with the file's layout.
const MAGIC: &[u8; 16] = b"transom-code-1\0\0";
/// The header contains the magic, the digest of the component, the hash of the engine and the digest of
/// the code.
const HEADER_BYTES: usize = 16 + 3 * 32;

type Sha256Digest = [u8; 32];

/// Compiled code that this engine may load.
pub(crate) struct CompiledArtifact(pub(super) Vec<u8>);

/// The source of an artifact (the component's digest) and its target (the engine's compatibility
/// hash).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArtifactKey {
    pub(crate) component: Sha256Digest,
    pub(crate) engine: Sha256Digest,
}

/// Why a cached file is rejected. Display is for a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CacheRejection {
    #[error("it is not a compiled component of this daemon")]
    Foreign,
    #[error("it was compiled from another component")]
    Component,
    #[error("it was compiled for another engine")]
    Engine,
    #[error("its content does not match its digest")]
    Content,
}

impl ArtifactKey {
    pub(crate) fn new(component: &[u8], engine: Sha256Digest) -> ArtifactKey {
        ArtifactKey {
            component: Sha256::digest(component).into(),
            engine,
        }
    }

    /// The file's name.
    pub(crate) fn name(&self) -> String {
        format!("{}-{}", hex(&self.component), hex(&self.engine[..16]))
    }
}

impl CompiledArtifact {
    /// Returns the header of the artifact's file. The code follows it in the file.
    pub(crate) fn header(&self, key: &ArtifactKey) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&key.component);
        header.extend_from_slice(&key.engine);
        header.extend_from_slice(&Sha256::digest(&self.0));
        header
    }

    pub(crate) fn code(&self) -> &[u8] {
        &self.0
    }

    /// Verifies a file's content against `key` and its digest.
    pub(crate) fn verified(mut file: Vec<u8>, key: &ArtifactKey) -> Result<CompiledArtifact, CacheRejection> {
        if file.len() < HEADER_BYTES || file[..16] != MAGIC[..] {
            return Err(CacheRejection::Foreign);
        }
        if file[16..48] != key.component {
            return Err(CacheRejection::Component);
        }
        if file[48..80] != key.engine {
            return Err(CacheRejection::Engine);
        }
        let written: Sha256Digest = std::array::from_fn(|at| file[80 + at]);
        file.drain(..HEADER_BYTES);
        if Sha256::digest(&file)[..] != written {
            return Err(CacheRejection::Content);
        }
        Ok(CompiledArtifact(file))
    }
}

impl Engine {
    /// The compatibility hash of this engine: version, target, features and settings.
    pub(crate) fn compatibility(&self) -> Sha256Digest {
        compatibility(&self.wasmtime)
    }

    /// Compiles without a limit: for tests and benchmarks.
    #[cfg(test)]
    pub(crate) fn precompile(component: &[u8]) -> Result<CompiledArtifact, CompileError> {
        super::precompile::precompile(component)
    }

    /// Loads compiled code, if its instances fit into the pool.
    pub(crate) fn load(&self, artifact: &CompiledArtifact) -> Result<Compiled, CompileError> {
        deserialize(&self.wasmtime, artifact)
            .map(Compiled)
            .map_err(|error| {
                let why = one_line(&error.root_cause().to_string());
                match resource_check::too_large(artifact, deserialize, &why) {
                    Some(unfit) => unfit.into(),
                    None => CompileError::Invalid(one_line(&format!("{error:#}"))),
                }
            })
    }
}

pub(super) fn compatibility(engine: &Wasmtime) -> Sha256Digest {
    let mut hasher = Sha256Hasher(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.0.finalize().into()
}

fn deserialize(engine: &Wasmtime, artifact: &CompiledArtifact) -> wasmtime::Result<Component> {
    // SAFETY: a `CompiledArtifact` is created in two places only: by `precompile`, and by `verified`,
    // which accepts only bytes that `precompile` created, earlier or in the compile process.
    unsafe { Component::deserialize(engine, &artifact.0) }
}

/// Hashes with SHA-256: the standard hasher has 64 bits and may change.
struct Sha256Hasher(Sha256);

impl Hasher for Sha256Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest = self.0.clone().finalize();
        u64::from_le_bytes(std::array::from_fn(|at| digest[at]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl CompiledArtifact {
        /// Bytes that no compiler created. The engine checks the header and rejects them.
        pub(crate) fn garbage() -> CompiledArtifact {
            CompiledArtifact(b"garbage".to_vec())
        }
    }

    fn key(component: u8, engine: u8) -> ArtifactKey {
        ArtifactKey {
            component: [component; 32],
            engine: [engine; 32],
        }
    }

    #[test]
    fn artifact_is_accepted_only_for_its_key_and_content() {
        let artifact = CompiledArtifact(b"code".to_vec());
        let mut file = artifact.header(&key(1, 2));
        file.extend_from_slice(artifact.code());
        let verdict = |file: &[u8], key: &ArtifactKey| {
            CompiledArtifact::verified(file.to_vec(), key)
                .map(|it| it.0)
                .err()
        };
        assert_eq!(verdict(&file, &key(1, 2)), None);
        assert_eq!(verdict(&file, &key(3, 2)), Some(CacheRejection::Component));
        assert_eq!(verdict(&file, &key(1, 3)), Some(CacheRejection::Engine));
        for at in 0..file.len() {
            let mut broken = file.clone();
            broken[at] ^= 1;
            assert!(verdict(&broken, &key(1, 2)).is_some(), "byte {at}");
        }
        for length in 0..file.len() {
            assert!(verdict(&file[..length], &key(1, 2)).is_some(), "{length} bytes");
        }
        assert_eq!(verdict(b"\x7fELF", &key(1, 2)), Some(CacheRejection::Foreign));
    }

    #[test]
    fn serving_engine_loads_artifacts_of_the_compiling_engine() {
        let engine = Engine::new(1).unwrap();
        let artifact = Engine::precompile(b"\0asm\x0d\0\x01\0").unwrap();
        assert!(engine.load(&artifact).is_ok());
        assert_eq!(engine.compatibility(), Engine::new(1).unwrap().compatibility());
        assert_ne!(engine.compatibility(), [0; 32]);
        // The engine rejects invalid code even if `verified` was bypassed.
        assert!(engine.load(&CompiledArtifact::garbage()).is_err());
    }
}
