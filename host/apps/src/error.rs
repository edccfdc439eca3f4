//! Errors that keep the apps service from starting or stop it.

use std::net::SocketAddr;

use transom_store::typed;

/// Errors of the whole service. Errors of a single request are returned to its client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The port has no authentication yet, so the networks that may connect must be configured.
    #[error(
        "apps: {0} is reachable from other machines without authentication; set [apps] trusted_networks, or set [apps] \
         listener to a loopback address such as 127.0.0.1"
    )]
    Exposed(SocketAddr),
    /// Binding or serving the port failed.
    #[error("apps: HTTP server failed")]
    Web(#[source] transom_web::Error),
    /// Reading or writing the store failed at the start.
    #[error("apps: state store failed while {doing}")]
    Store {
        /// The operation that failed.
        doing: &'static str,
        /// The error of the store: any but a record that cannot be decoded.
        #[source]
        source: typed::Error,
    },
    /// A record in the store cannot be decoded.
    #[error("apps: record {key} in the state store cannot be decoded; it is damaged or of another version")]
    Record {
        /// The record's key.
        key: String,
        /// The error of the decoder.
        #[source]
        source: serde_json::Error,
    },
}

impl Error {
    /// The error of a store operation, for example "reading apps".
    pub(crate) fn of_store(doing: &'static str, error: typed::Error) -> Self {
        match error {
            typed::Error::Record { key, source } => Self::Record { key, source },
            source => Self::Store { doing, source },
        }
    }
}
