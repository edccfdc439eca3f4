//! Why the job cannot start, or has stopped.

use std::net::SocketAddr;

/// What can go wrong with the job as a whole. What goes wrong with a request is answered to the request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody is asked for credentials, so it has to be said who may connect from other machines.
    #[error(
        "workflow: {0} can be reached from other machines, and everybody there could start programs in the cluster; set \
         [workflow] api_username and api_password, name the networks to be trusted in trusted_networks, or set listener \
         to a loopback address such as 127.0.0.1"
    )]
    Exposed(SocketAddr),
    /// The port could not be bound, or serving it failed.
    #[error("workflow: the HTTP port cannot be served")]
    Web(#[source] transom_web::Error),
    /// The store could not be read or written at the start.
    #[error("workflow: the store cannot be used: {doing}")]
    Store {
        /// What was being done.
        doing: &'static str,
        /// What the store said.
        #[source]
        source: transom_store::Error,
    },
    /// A record in the store cannot be read.
    #[error(
        "workflow: the record {key} in the store cannot be read; it was written by another version or is damaged"
    )]
    Record {
        /// The record's key.
        key: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}
