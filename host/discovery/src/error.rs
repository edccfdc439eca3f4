//! Why discovery cannot start.

use std::net::SocketAddr;

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Why discovery cannot start. Once it runs, it does not fail.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is invalid.
    #[error("[discovery] {key}: {what}")]
    Config {
        /// The setting's key.
        key: &'static str,
        /// The error and the expected value.
        what: String,
    },
    /// The DNS port cannot be bound.
    #[error(
        "`dns` cannot listen on {addr} ({protocol}); stop the program that uses the port or choose another with {}",
        setting(.protocol)
    )]
    Dns {
        /// The address.
        addr: SocketAddr,
        /// `UDP`, `TCP`, `TLS` or `HTTPS`.
        protocol: &'static str,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The HTTP port cannot be bound.
    #[error(transparent)]
    Http(#[from] transom_web::Error),
}

/// What moves the port of a protocol.
fn setting(protocol: &str) -> &'static str {
    match protocol {
        "TLS" => "`discovery.tls_port`",
        "HTTPS" => "`discovery.https_port`",
        _ => "`--port dns=N`",
    }
}
