//! Why the service cannot start, or has stopped.

use std::net::SocketAddr;

use transom_store::typed;

/// Errors of the service. Errors of requests are in their responses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Without credentials, the trusted networks must be configured before other machines can
    /// connect.
    #[error(
        "workflow: {0} is reachable from other machines without authentication; set [workflow] api_username and \
         api_password, or trusted_networks, or set listener to a loopback address such as 127.0.0.1"
    )]
    Exposed(SocketAddr),
    /// The port could not be bound, or serving it failed.
    #[error("workflow: HTTP server failed")]
    Web(#[source] transom_web::Error),
    /// The store could not be read or written at the start.
    #[error("workflow: state store failed while {doing}")]
    Store {
        /// The operation.
        doing: &'static str,
        /// The error of the store: any but a record that cannot be decoded.
        #[source]
        source: typed::Error,
    },
    /// A record in the store cannot be read.
    #[error(
        "workflow: record {key} in the state store cannot be decoded; it is damaged or of another version"
    )]
    Record {
        /// The record's key.
        key: String,
        /// The decoding error.
        #[source]
        source: serde_json::Error,
    },
}

impl Error {
    /// The error of a store operation, for example "reading jobs".
    pub(crate) fn of_store(doing: &'static str, error: typed::Error) -> Self {
        match error {
            typed::Error::Record { key, source } => Self::Record { key, source },
            source => Self::Store { doing, source },
        }
    }
}
