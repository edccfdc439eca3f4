//! What can keep a minicluster from starting.

use std::{net::SocketAddr, path::PathBuf};

/// Starting failed. Once started, trouble with one task is told to its framework, never here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A port that is needed is taken or may not be used.
    #[error("the {what} cannot listen on {addr}")]
    Listen {
        /// Master or agent, with its host name.
        what: String,
        /// The address that was tried.
        addr: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The work directory, or something in it, cannot be made.
    #[error("cannot create {}", path.display())]
    WorkDir {
        /// What was to be made.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A value of the configuration makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The HTTP client for the agents' checks cannot be built.
    #[error("cannot build the HTTP client that runs checks")]
    CheckClient(#[source] reqwest::Error),
}

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;
