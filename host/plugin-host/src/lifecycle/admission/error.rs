//! Why a component does not serve.

use transom_registry::{FetchError, signatures::SignatureError};

use super::replayed::ReplayRejection;
use crate::{
    error::CallError,
    manifest::{ManifestError, imports::ImportError, schema::SchemaError},
    name::VALID_NAMES,
    runtime::{
        engine::{CompileError, ExceedsPool, WorldMismatch},
        executor::BlockingTaskError,
    },
    self_test::SelfTestFailure,
    storage::{call_log::LogError, compiled_cache::NotCompiled},
    worlds::about::ConfigError,
};

/// Why a component does not serve. Display is for an operator.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdmissionError {
    #[error("{0}.toml is missing: a component needs a manifest")]
    NoManifest(String),
    #[error("cannot read {what}: {message}")]
    Unreadable { what: String, message: String },
    #[error("manifest: {0}")]
    Manifest(#[from] ManifestError),
    #[error("it has {found} bytes, at most {limit} are allowed (limits.size)")]
    TooLarge { found: u64, limit: u64 },
    #[error("both {0}.wasm and a `source` in its manifest exist: remove one of them")]
    TwoSources(String),
    #[error("cannot fetch it from {from}: {error}")]
    NotFetched { from: String, error: FetchError },
    #[error("its digest is sha256:{found}, the manifest pins sha256:{pinned}")]
    Digest { found: String, pinned: String },
    #[error("{0}")]
    SignatureError(#[from] SignatureError),
    #[error("{0}")]
    Compile(#[from] NotCompiled),
    #[error("{0}")]
    WorldMismatch(#[from] WorldMismatch),
    #[error("{0}")]
    Imports(#[from] ImportError),
    #[error("{0}")]
    ExceedsPool(#[from] ExceedsPool),
    #[error("it does not link: {0}")]
    Link(String),
    #[error("its trial instance failed: {0}")]
    Trial(#[from] CallError),
    #[error("{0}")]
    Schema(#[from] SchemaError),
    #[error("it rejects its configuration: {}", ConfigError::list(.0))]
    Config(Vec<ConfigError>),
    #[error("{0}")]
    SelfTest(#[from] SelfTestFailure),
    #[error("{0}")]
    Replay(#[from] ReplayRejection),
    #[error("{0}")]
    CallLog(#[from] LogError),
    #[error("its world differs from that of the serving version, so the two cannot be compared (rollout)")]
    OtherWorld,
    #[error("the directory has more than {0} components")]
    TooMany(usize),
    #[error("{0}")]
    BlockingTaskError(#[from] BlockingTaskError),
    #[error("invalid plugin name: expected {VALID_NAMES}")]
    Name,
}

/// When a rejected component is retried although its files have not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// At the next scan.
    AtNextScan,
    /// When an operator requests a scan.
    OnRescan,
}

impl AdmissionError {
    /// When the component is retried. `None`: only when its files change.
    pub(crate) fn retry(&self) -> Option<Retry> {
        match self {
            AdmissionError::Compile(NotCompiled::Compile(error)) if error.is_temporary() => {
                Some(Retry::AtNextScan)
            }
            AdmissionError::Schema(SchemaError::NotEvaluated(_)) => Some(Retry::AtNextScan),
            // A replay may succeed when there are other calls.
            AdmissionError::BlockingTaskError(_)
            | AdmissionError::Compile(
                NotCompiled::BlockingTaskError(_) | NotCompiled::Compile(CompileError::TimedOut(_)),
            )
            | AdmissionError::Replay(_)
            | AdmissionError::CallLog(_) => Some(Retry::OnRescan),
            _ => None,
        }
    }
}
