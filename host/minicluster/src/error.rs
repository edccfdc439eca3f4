//! Errors that keep a minicluster from starting.

use std::{net::SocketAddr, path::PathBuf};

/// A failed start. Later failures of a task are reported to its framework instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A port cannot be opened: it is in use, or this process may not use it.
    #[error("the {what} cannot listen on {addr}")]
    Listen {
        /// The process that listens on it: the master, or an agent with its host name.
        what: String,
        /// The address.
        addr: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The work directory, or a file in it, cannot be created.
    #[error("cannot create {}", path.display())]
    WorkDir {
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A value of the configuration is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The container runtime that the setting names cannot run containers on this machine.
    #[error("images = \"{images}\": {why}")]
    Images {
        /// The setting.
        images: String,
        /// The reason.
        why: String,
    },
    /// The HTTP client for the agents' checks cannot be built.
    #[error("cannot build the HTTP client that runs checks")]
    CheckClient(#[source] reqwest::Error),
}

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;
