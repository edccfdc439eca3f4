//! Why the job cannot start, or has stopped.

use std::net::SocketAddr;

/// What can go wrong with the job as a whole. What goes wrong with a request is answered to the request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody is asked for credentials yet, so it has to be said who may connect from other machines.
    #[error(
        "apps: {0} is reachable from other machines without authentication; set [apps] trusted_networks, or set [apps] \
         listener to a loopback address such as 127.0.0.1"
    )]
    Exposed(SocketAddr),
    /// The port could not be bound, or serving it failed.
    #[error("apps: HTTP server failed")]
    Web(#[source] transom_web::Error),
    /// The store could not be read or written at the start.
    #[error("apps: state store failed while {doing}")]
    Store {
        /// What was being done.
        doing: &'static str,
        /// What the store said.
        #[source]
        source: transom_store::Error,
    },
    /// A record in the store cannot be read.
    #[error("apps: record {key} in the state store cannot be decoded; it is damaged or of another version")]
    Record {
        /// The record's key.
        key: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}
