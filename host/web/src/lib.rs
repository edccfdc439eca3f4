//! What every HTTP port of the daemon shares, so that all of them fail, stop and defend themselves in one way.
//!
//! * [`Listener`] takes a port early and says clearly when it cannot; [`serve`] answers on it until it is told to stop.
//! * [`layers`] gives a router JSON answers for unknown routes and methods, and a log line a request.
//! * [`Json`] reads bodies, [`ApiError`] is what a handler fails with: the error bodies that clients of the app API read.
//! * [`Forwarder`] passes requests on to the daemon that leads, where several share a store.
//! * [`metrics`] renders a registry.
//! * A [`Certificate`] makes a port speak TLS, and nothing else.
//! * [`trusted`] answers only the networks that the configuration names.
//! * [`guarded`] refuses what web pages of other sites send, and host names that are not the port's.
//! * [`json_errors`] gives a JSON body to what extractors refuse.
//! * [`Credentials`] compares HTTP basic authentication; who needs it is the port's decision.
//!
//! What it does not do: no HTTP/2 yet; a job's own routes, texts and statuses stay with it.
//!
//! How it fails: binding is the only thing that returns an [`Error`]. Once a port serves, a broken connection ends alone
//! and is logged at `debug`; running out of file descriptors pauses accepting for a moment and is logged as a warning.

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

/// Why a port could not be taken or served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something else listens there.
    #[error(
        "port {} on {} is in use, so `{name}` cannot listen there; stop the other program or choose a port with `--port {name}=N`",
        .addr.port(), .addr.ip()
    )]
    Taken {
        /// The listener's name, as `--port` knows it.
        name: &'static str,
        /// Where it should have listened.
        addr: SocketAddr,
    },
    /// The address cannot be listened on: no permission, not an address of this machine.
    #[error("`{name}` cannot listen on {addr}; check the address, or move it with `--port {name}=N`")]
    Bind {
        /// The listener's name, as `--port` knows it.
        name: &'static str,
        /// Where it should have listened.
        addr: SocketAddr,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("`{key}`: {what}")]
    Certificate {
        /// The setting: `tls_certificate` or `tls_key`.
        key: &'static str,
        /// What is wrong, and with which file.
        what: String,
    },
    /// Requests cannot be passed on in this name.
    #[error("cannot forward requests as {own:?}; check the configured hostname")]
    Forwarder {
        /// Host and port of this daemon, as it should have been called.
        own: String,
        /// What is wrong with it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
