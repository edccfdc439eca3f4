//! Errors of the plugin host: at startup, of a call, and of an operator's command.

use std::{path::PathBuf, time::Duration};

use serde::Serialize;

use crate::name::VALID_NAMES;

/// Why the plugin host could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine cannot run with its configuration on this machine.
    #[error("cannot create the WebAssembly engine")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The plugin directory cannot be read.
    #[error("cannot read the plugin directory {}", path.display())]
    Directory {
        /// The directory as configured.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The thread that advances the engine's clock could not be started.
    #[error("cannot start the engine's clock thread")]
    Thread(#[source] std::io::Error),
    /// A configured public key, or a setting for registries, is invalid.
    #[error(transparent)]
    Registry(#[from] transom_registry::Error),
    /// The runtime is shutting down, or a task panicked.
    #[error("the plugin host failed during startup")]
    Broke,
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case", tag = "error")]
pub enum CallError {
    /// No such plugin serves this extension point.
    #[error("no plugin `{name}` serves {point}: put {name}.wasm and {name}.toml into {}", dir.display())]
    Missing {
        /// The extension point: `matcher`, `filter`, `bootstrap`, `http`, `tcp`, `exec`, `plugin`.
        point: &'static str,
        /// The configured name.
        name: String,
        /// The plugin directory.
        dir: PathBuf,
    },
    /// The component trapped; its instance was dropped.
    #[error("plugin `{name}` trapped: {message}")]
    Trapped {
        /// The plugin.
        name: String,
        /// The trap, one line.
        message: String,
    },
    /// A call exceeded the wall-clock limit.
    #[error("plugin `{name}` took longer than {limit:?} (limits.wall-clock)")]
    TimedOut {
        /// The plugin.
        name: String,
        /// The limit that was reached.
        limit: Duration,
    },
    /// A call exceeded the limit of processor time.
    #[error("plugin `{name}` used more than {limit:?} of processor time in one call (limits.cpu)")]
    CpuExhausted {
        /// The plugin.
        name: String,
        /// The limit that was reached.
        limit: Duration,
    },
    /// The component exceeded a memory limit.
    #[error("plugin `{name}` requested more than {limit} {what}")]
    OutOfMemory {
        /// The plugin.
        name: String,
        /// The limit that was reached.
        limit: u64,
        /// The unit, and the name of the limit.
        what: &'static str,
    },
    /// The queue of this plugin is full, or no instance was free in time.
    #[error("plugin `{name}` is busy: {message}")]
    Busy {
        /// The plugin.
        name: String,
        /// Which limit was reached.
        message: String,
    },
    /// The component returned a result that its world forbids.
    #[error("plugin `{name}` returned an invalid result: {message}")]
    Malformed {
        /// The plugin.
        name: String,
        /// The error, as text.
        message: String,
    },
    /// The plugin is disabled after repeated faults.
    #[error(
        "plugin `{name}` is disabled and calls of {point} fail until a new {name}.wasm or {name}.toml is admitted: {reason}"
    )]
    Disabled {
        /// The extension point, as in `Missing`.
        point: &'static str,
        /// The plugin.
        name: String,
        /// Why.
        reason: String,
    },
    /// The daemon is stopping.
    #[error("the plugin host is stopping")]
    Stopped,
}

impl CallError {
    /// The name of the plugin that the error concerns, if there is one.
    pub fn plugin(&self) -> Option<&str> {
        match self {
            CallError::Missing { name, .. }
            | CallError::Trapped { name, .. }
            | CallError::TimedOut { name, .. }
            | CallError::CpuExhausted { name, .. }
            | CallError::OutOfMemory { name, .. }
            | CallError::Busy { name, .. }
            | CallError::Malformed { name, .. }
            | CallError::Disabled { name, .. } => Some(name),
            CallError::Stopped => None,
        }
    }

    /// Whether it is a fault of the component. The other errors come from the host: the call did not
    /// reach the component, or the version is being stopped.
    pub fn is_fault(&self) -> bool {
        match self {
            CallError::Trapped { .. }
            | CallError::TimedOut { .. }
            | CallError::CpuExhausted { .. }
            | CallError::OutOfMemory { .. }
            | CallError::Malformed { .. } => true,
            CallError::Missing { .. }
            | CallError::Busy { .. }
            | CallError::Disabled { .. }
            | CallError::Stopped => false,
        }
    }
}

/// Why an operator's files were not written to the plugin directory. The directory is unchanged,
/// except after [`UploadError::Unwritable`]. Display is for an operator.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// The name is not a valid plugin name.
    #[error("invalid plugin name: expected {VALID_NAMES}")]
    Name,
    /// The upload contains neither a component nor a manifest.
    #[error("there is nothing to write: expected {0}.wasm, {0}.toml or both")]
    Nothing(String),
    /// The component would have no manifest.
    #[error(
        "{0}.toml is missing: a component needs a manifest, and the plugin directory has none of this name"
    )]
    NoManifest(String),
    /// The manifest would have no component.
    #[error(
        "{0}.wasm is missing: the manifest names no `source`, and the plugin directory has no component of this name"
    )]
    NoComponent(String),
    /// The upload has a component, and a manifest with a `source`.
    #[error("both {0}.wasm and a `source` in its manifest would exist: expected one of them")]
    TwoSources(String),
    /// The uploaded manifest is invalid.
    #[error("{name}.toml: {message}")]
    Manifest {
        /// The plugin.
        name: String,
        /// The key and the expected value.
        message: String,
    },
    /// The manifest in the plugin directory is invalid or cannot be read.
    #[error(
        "the plugin directory's {name}.toml: {message}; correct it, or upload a valid one with the component"
    )]
    Present {
        /// The plugin.
        name: String,
        /// The key and the expected value.
        message: String,
    },
    /// The component does not have the digest that the manifest pins.
    #[error("the digest of {name}.wasm is sha256:{found}, its manifest pins sha256:{pinned}")]
    Digest {
        /// The plugin.
        name: String,
        /// Digest of the component, hexadecimal.
        found: String,
        /// Digest in the manifest, hexadecimal.
        pinned: String,
    },
    /// A file exceeds its limit.
    #[error("{file} is larger than {limit} bytes ({setting})")]
    TooLarge {
        /// The file's name.
        file: String,
        /// The limit in bytes.
        limit: u64,
        /// The key of the manifest, or the meaning of the limit.
        setting: &'static str,
    },
    /// The file to replace is a link or not a regular file.
    #[error(
        "{file} in the plugin directory is {kind}, which an upload does not replace: expected a file, or none"
    )]
    NotAFile {
        /// The file's name.
        file: String,
        /// `a link`, `a folder`.
        kind: &'static str,
    },
    /// The directory is full.
    #[error("the plugin directory has {0} components, which is the most that it may have")]
    TooMany(usize),
    /// The directory cannot be written to.
    #[error("the plugin directory")]
    Unwritable(#[source] std::io::Error),
    /// The daemon is stopping.
    #[error("the plugin host is stopping")]
    Stopped,
}

/// Why an operator's command failed. The serving version stays active.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case", tag = "error")]
pub enum CommandError {
    /// There are neither files nor records with this name.
    #[error("no plugin is named `{name}`")]
    Unknown {
        /// The requested name.
        name: String,
    },
    /// The plugin has no such record of an admitted version.
    #[error("plugin `{name}` has no record {record} of an admitted version")]
    NoRecord {
        /// The plugin.
        name: String,
        /// The requested record.
        record: u64,
    },
    /// No other version was admitted before.
    #[error("plugin `{name}` has no other version to roll back to")]
    NothingBefore {
        /// The plugin.
        name: String,
    },
    /// The component or the manifest of that record is missing.
    #[error("the files of record {record} of plugin `{name}` are missing: {message}")]
    NotKept {
        /// The plugin.
        name: String,
        /// The record.
        record: u64,
        /// The missing file, or why it is not trusted.
        message: String,
    },
    /// A later rollback of this plugin superseded this one.
    #[error("plugin `{name}`: a later rollback superseded this one; its history shows the serving version")]
    Overtaken {
        /// The plugin.
        name: String,
    },
    /// The version was rejected.
    #[error("plugin `{name}` was rejected: {reason}")]
    Rejected {
        /// The plugin.
        name: String,
        /// Why.
        reason: String,
    },
    /// Calls are not recorded.
    #[error("calls of plugin `{name}` are not recorded ({setting})")]
    NotRecorded {
        /// The plugin.
        name: String,
        /// The setting, or the key of the manifest.
        setting: &'static str,
    },
    /// The recorded calls cannot be read.
    #[error("plugin `{name}`: {message}")]
    Unreadable {
        /// The plugin.
        name: String,
        /// Why.
        message: String,
    },
    /// No version runs alongside the serving one.
    #[error("plugin `{name}` has no shadow and no canary to {what}")]
    NoCandidate {
        /// The plugin.
        name: String,
        /// `promote` or `abort`.
        what: &'static str,
    },
    /// The daemon is stopping.
    #[error("the plugin host is stopping")]
    Stopped,
}
