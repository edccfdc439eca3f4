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
    #[error("plugin `{name}` asked for more than {limit} bytes of memory (limits.memory, limits.table)")]
    OutOfMemory {
        /// The plugin.
        name: String,
        /// The limit that was reached, in bytes of linear memory or elements of a table.
        limit: u64,
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
    /// The daemon is stopping.
    #[error("the plugin host is stopping")]
    Stopped,
}
