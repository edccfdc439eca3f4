//! The common part of the daemon's HTTP ports: errors, shutdown, access control.
//!
//! * [`Listener`] binds a port early, with a clear error; [`serve`] serves it until shutdown.
//! * [`layers`] adds JSON answers for unknown routes and methods, and a log line per request.
//! * [`Json`] parses bodies, [`ApiError`] is the error of a handler, with the body that clients of
//!   the app API read.
//! * [`Forwarder`] forwards requests to the leader, where several daemons share a store.
//! * [`metrics`] renders a registry.
//! * A [`Certificate`] makes a port accept TLS only.
//! * [`trusted`] restricts a port to the configured networks.
//! * [`guarded`] rejects requests from web pages of other sites, and host names that are not the
//!   port's.
//! * [`json_errors`] gives a JSON body to rejections by extractors.
//! * [`Credentials`] checks HTTP basic authentication; each port decides where to require it.
//!
//! Not done here: no HTTP/2 yet; routes, texts and statuses belong to each service.
//!
//! Failures: only binding returns an [`Error`]. Once a port serves, a broken connection ends alone
//! and is logged at `debug`; without free file descriptors accepting pauses briefly and a warning
//! is logged.

#![forbid(unsafe_code)]

mod access;
mod api_error;
mod certificate;
mod credentials;
mod fallbacks;
mod forward;
mod json;
mod json_errors;
mod listener;
pub mod metrics;
mod networks;
mod serve;
mod stream;

pub use access::{Access, AllowedHost, Origin, guarded};
pub use api_error::ApiError;
pub use certificate::Certificate;
pub use credentials::{Credentials, Presented};
pub use fallbacks::with_fallbacks;
pub use forward::{ForwardError, Forwarder};
pub use json::Json;
pub use json_errors::json_errors;
pub use listener::Listener;
pub use networks::{allow_networks, is_within};
pub use serve::{Limits, serve};

use std::net::SocketAddr;

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a port could not be bound or served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another socket listens there.
    #[error(
        "port {} on {} is in use, so `{name}` cannot listen there; stop the other program or choose a port with `--port {name}=N`",
        .addr.port(), .addr.ip()
    )]
    Taken {
        /// The listener's name in `--port`.
        name: &'static str,
        /// The requested address.
        addr: SocketAddr,
    },
    /// The address cannot be bound: no permission, or not an address of this machine.
    #[error("`{name}` cannot listen on {addr}; check the address, or move it with `--port {name}=N`")]
    Bind {
        /// The listener's name in `--port`.
        name: &'static str,
        /// The requested address.
        addr: SocketAddr,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The certificate or its key is invalid.
    #[error("`{key}`: {what}")]
    Certificate {
        /// The setting: `tls_certificate` or `tls_key`.
        key: &'static str,
        /// The error, with the file's name.
        what: String,
    },
    /// The name of this daemon is invalid for forwarding.
    #[error("cannot forward requests as {own:?}; check the configured hostname")]
    Forwarder {
        /// The host and port that were given for this daemon.
        own: String,
        /// Why it is invalid.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
