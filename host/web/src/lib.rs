//! The common part of the daemon's HTTP ports: errors, shutdown, access control.
//!
//! * [`Listener`] binds a port early, with a clear error, or takes the socket that a supervisor has
//!   opened ([`adopt_sockets`]); [`serve`] serves it until shutdown.
//! * [`with_fallbacks`] adds JSON answers for unknown routes and methods.
//! * [`Json`] and [`Document`] parse bodies, large ones away from the threads that serve.
//!   [`ApiError`] is the error of a handler, with the body that clients of the app API read, of a
//!   bounded size.
//! * [`json_list`], [`json_list_after`], [`json_array`] and [`json_pieces`] write a long document while it is sent.
//! * [`check_target`] rejects paths that programs read differently, before anything else sees a
//!   request.
//! * [`Forwarder`] forwards requests to the leader, where several daemons share a store; a
//!   [`DaemonKey`] proves who forwards.
//! * A table of [`routes`] yields the router of a port, its access rules and its OpenAPI document.
//! * [`metrics`] renders a registry, [`RequestMetrics`] counts requests by route.
//! * A [`Folder`] serves the files of a user interface.
//! * A [`Certificate`] makes a port accept TLS only.
//! * [`PortConfig`] has the settings that all ports share: address, certificate, credentials,
//!   trusted networks, host names and origins. It binds a port and checks requests to it. Responses
//!   are compressed with gzip for clients that accept it. [`PortSettings`] makes one of a section of
//!   the settings.
//! * [`Connections`] closes idle connections for new ones, [`Shares`] divides the budgets of a port
//!   among its users, and wrong credentials are answered later and later.
//! * Each request that may change something is logged as an audit event, and its handler receives
//!   the [`Caller`].
//! * [`json_errors`] gives a JSON body to rejections by extractors, [`Problems`] lists what is
//!   wrong with a document.
//!
//! HTTP/2 is not supported yet. Routes, texts and statuses belong to each service.
//!
//! Failures: only binding returns an [`Error`]. Once a port serves, a broken connection affects no
//! other one and is logged at `debug`. Without free file descriptors, accepting pauses briefly and
//! a warning is logged.

#![forbid(unsafe_code)]

mod access;
mod answers;
mod api_error;
mod bodies;
mod certificate;
mod compression;
mod concurrency;
mod connections;
mod fallbacks;
mod folder;
mod forward;
mod guarded_body;
mod inherited;
mod json;
mod json_errors;
mod json_list;
mod large_body;
mod listener;
pub mod metrics;
mod network;
mod port;
mod port_metrics;
mod port_settings;
mod problems;
mod request_metrics;
mod request_trace;
pub mod routes;
mod serve;
mod shares;
mod target;
mod text;
mod throttle;

pub use access::{
    Access, AccessPolicy, AccessRules, AllowedHost, Authority, Caller, Credentials, DaemonKey, Denial,
    ForeignSite, Origin, Presented, Requirement, guarded,
};
pub use answers::budgeted;
pub use api_error::ApiError;
pub use certificate::{Certificate, TlsPem};
pub use connections::{ConnectionSlot, Connections};
pub use fallbacks::with_fallbacks;
pub use folder::Folder;
pub use forward::{DaemonTransport, ForwardError, Forwarder};
pub use inherited::{adopt_sockets, unused_sockets};
pub use json::{Document, Json};
pub use json_errors::json_errors;
pub use json_list::{json_array, json_list, json_list_after, json_pieces};
pub use listener::Listener;
pub use network::Network;
pub use port::{BoundPort, LoopbackTrust, PortConfig, Tls, TlsFiles};
pub use port_metrics::register_port_metrics;
pub use port_settings::PortSettings;
pub use problems::{MAX_PROBLEMS, Problem, Problems};
pub use request_metrics::RequestMetrics;
pub use serve::{Disconnect, Limits, body_limited, serve};
pub use shares::{Owner, Share, Shares};
pub use target::{InvalidTarget, check_target};
pub use text::truncated;

use std::net::{IpAddr, SocketAddr};

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a port could not be bound or served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Other machines can reach the port, and everybody could change things through it.
    #[error(
        "`{name}.listener` is {listener}: other machines can reach this port and change things through it; set \
         {name}.{} and {name}.{}, or name the networks that may use it, as {name}.trusted_networks = \
         [\"10.0.0.0/8\"], or use 127.0.0.1",
        .credential_keys[0], .credential_keys[1]
    )]
    Exposed {
        /// The section of the configuration.
        name: &'static str,
        /// The address.
        listener: IpAddr,
        /// The settings of user and password.
        credential_keys: [&'static str; 2],
    },
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
    /// The supervisor has opened this port at another address than that of the settings.
    #[error(
        "`{name}` has the address {addr} in the settings, and the socket that the supervisor has opened for it \
         (FileDescriptorName={name}) has {found}: set ListenStream={addr} in its socket unit, or disable that unit"
    )]
    Inherited {
        /// The listener's name.
        name: &'static str,
        /// The address of the settings.
        addr: SocketAddr,
        /// The address of the socket.
        found: SocketAddr,
    },
    /// The certificate or its key is invalid.
    #[error("`{key}`: {what}")]
    Certificate {
        /// The setting, such as `tls_certificate` or `tls_key`.
        key: &'static str,
        /// The error, with the name of the file if there is one.
        what: String,
    },
    /// A folder cannot be served.
    #[error("{} {what}", .path.display())]
    Folder {
        /// The folder.
        path: std::path::PathBuf,
        /// The fault, such as a missing file.
        what: &'static str,
        /// The error of the system.
        #[source]
        source: std::io::Error,
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
