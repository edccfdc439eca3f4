//! How the plugin host fails: at start, and in answering a call.

use std::{path::PathBuf, time::Duration};

use serde::Serialize;

/// Why the plugin host could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine's configuration does not work on this machine.
    #[error("the WebAssembly engine could not be made")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The plugin directory cannot be read.
    #[error("the plugin directory {} cannot be read", path.display())]
    Directory {
        /// The directory as configured.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The thread that advances the engine's clock could not be started.
    #[error("the engine's clock thread could not be started")]
    Thread(#[source] std::io::Error),
    /// A configured public key is none.
    #[error("the public key {name} cannot be used: {message}")]
    PublicKey {
        /// Its name as configured.
        name: String,
        /// What is wrong with it, and what was expected.
        message: String,
    },
    /// The settings for registries do not work.
    #[error("components cannot be fetched from registries: {message}")]
    Registries {
        /// What is wrong.
        message: String,
    },
    /// The runtime is going down, or the host made a mistake.
    #[error("the plugin host broke off while it was starting")]
    Broke,
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call could not be answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case", tag = "error")]
pub enum CallError {
    /// No such plugin serves this extension point.
    #[error("no plugin `{name}` serves {point}: put {name}.wasm and {name}.toml into {}", dir.display())]
    Missing {
        /// The extension point: `matcher`, `filter`, `bootstrap`, `http`, `tcp`, `exec`, `plugin`.
        point: &'static str,
        /// The name looked for.
        name: String,
        /// The directory looked in.
        dir: PathBuf,
    },
    /// The component trapped; its instance was thrown away.
    #[error("plugin `{name}` trapped: {message}")]
    Trapped {
        /// The plugin.
        name: String,
        /// The trap, one line.
        message: String,
    },
    /// A call took longer than the plugin's wall-clock limit.
    #[error("plugin `{name}` took longer than {limit:?} (limits.wall-clock)")]
    TimedOut {
        /// The plugin.
        name: String,
        /// The limit that was reached.
        limit: Duration,
    },
    /// A call used more processor time than the plugin may.
    #[error("plugin `{name}` used more than {limit:?} of processor time in one call (limits.cpu)")]
    CpuExhausted {
        /// The plugin.
        name: String,
        /// The limit that was reached.
        limit: Duration,
    },
    /// The component asked for more memory than the plugin may have.
    #[error("plugin `{name}` asked for more than {limit} {what}")]
    OutOfMemory {
        /// The plugin.
        name: String,
        /// The limit that was reached.
        limit: u64,
        /// Of what, and which limit that is.
        what: &'static str,
    },
    /// Everything that may wait for this plugin waits already.
    #[error("plugin `{name}` is busy: {message}")]
    Busy {
        /// The plugin.
        name: String,
        /// Which bound was met.
        message: String,
    },
    /// The component answered in a way that its world does not allow.
    #[error("plugin `{name}` gave an answer that cannot be used: {message}")]
    Malformed {
        /// The plugin.
        name: String,
        /// What is wrong with it.
        message: String,
    },
    /// The plugin kept failing and was taken out of service.
    #[error(
        "plugin `{name}` is disabled, {point} does without it until a new {name}.wasm or {name}.toml is admitted: {reason}"
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

/// Why an operator's order was not carried out. What served goes on serving.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case", tag = "error")]
pub enum CommandError {
    /// No files and no records of that name.
    #[error("no plugin is called `{name}`")]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// The plugin has no such record of a version that served.
    #[error("plugin `{name}` has no record {record} of a version that was admitted")]
    NoRecord {
        /// The plugin.
        name: String,
        /// The record asked for.
        record: u64,
    },
    /// Nothing but the version that serves was ever admitted.
    #[error("plugin `{name}` has no other version to go back to")]
    NothingBefore {
        /// The plugin.
        name: String,
    },
    /// The component or the manifest of that record is not there any more.
    #[error("the files of record {record} of plugin `{name}` are not there: {message}")]
    NotKept {
        /// The plugin.
        name: String,
        /// The record.
        record: u64,
        /// What is missing, or why it is not trusted.
        message: String,
    },
    /// A later order to go back to a version of this plugin came before this one was done.
    #[error(
        "plugin `{name}`: a later order to roll it back came before this one was done; see its history for what serves"
    )]
    Overtaken {
        /// The plugin.
        name: String,
    },
    /// The version was not admitted again.
    #[error("plugin `{name}` is not admitted: {reason}")]
    Refused {
        /// The plugin.
        name: String,
        /// Why.
        reason: String,
    },
    /// No new version answers beside the one that serves.
    #[error("plugin `{name}` has no version to promote")]
    NoShadow {
        /// The plugin.
        name: String,
    },
    /// The daemon is stopping.
    #[error("the plugin host is stopping")]
    Stopped,
}
