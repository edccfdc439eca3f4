//! Errors of fetching a component.

use std::{net::SocketAddr, time::Duration};

use super::image_manifest::NoComponent;

/// Why a component was not fetched. Display is for an operator. The same cause gives an equal
/// error, so that a repeated failure is logged once.
#[allow(missing_docs, reason = "the texts say it")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    #[error("cannot reach {host}: {message}")]
    Unreachable { host: String, message: String },
    #[error("it took longer than {0:?} (plugins.oci.timeout_seconds)")]
    TimedOut(Duration),
    #[error("{host} denies access: {message}")]
    Denied { host: String, message: String },
    #[error("not found on {host}: {message}")]
    NotFound { host: String, message: String },
    #[error("unexpected status {status} from {host}: {message}")]
    Status {
        host: String,
        status: u16,
        message: String,
    },
    #[error("{host} names the token server {realm}, which is not contacted: {expected}")]
    Realm {
        host: String,
        realm: String,
        expected: &'static str,
    },
    #[error("{host} is not contacted for {registry}: {address} is {what}")]
    Guarded {
        registry: String,
        /// The server, as the source, a redirect or a token challenge names it.
        host: String,
        address: SocketAddr,
        /// Why the address is guarded, and what allows it if anything does.
        what: String,
    },
    #[error("invalid {what} from {host}: {message}")]
    InvalidAnswer {
        what: &'static str,
        host: String,
        message: String,
    },
    #[error("{what} from {host} has more than {limit} bytes")]
    TooLong {
        what: &'static str,
        host: String,
        limit: u64,
    },
    #[error("{0}")]
    NoComponent(#[from] NoComponent),
    #[error("the component has {found} bytes, at most {limit} are allowed (limits.size)")]
    TooLarge { found: u64, limit: u64 },
    #[error("{what} has the digest {found}, not {expected}")]
    Digest {
        what: &'static str,
        found: String,
        expected: String,
    },
    #[error("internal error in the plugin host (fetch panicked); please report it")]
    Panicked,
}

impl FetchError {
    /// Whether the error is temporary: a retry soon may succeed without a change on either side.
    pub fn is_temporary(&self) -> bool {
        match self {
            FetchError::Unreachable { .. } | FetchError::TimedOut(_) | FetchError::Panicked => true,
            FetchError::Status { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }
}
