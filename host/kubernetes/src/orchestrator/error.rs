//! Why the orchestrator's API did not do what it was asked. All texts are bounded.

use std::error::Error as StdError;

use http::StatusCode;
use serde::Deserialize;
use transom_common::{HostPort, error_chain};

use super::client_config::bounded;

/// Errors of the API.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OrchestratorError {
    /// No connection, a lost one, or a timeout.
    #[error("the orchestrator at {address} cannot be reached: {why}")]
    Unreachable {
        /// Where it was looked for.
        address: HostPort,
        /// The cause.
        why: String,
    },
    /// The TLS handshake failed: mostly a certificate of another authority or for another name.
    #[error("the orchestrator at {address} cannot be trusted: {why}")]
    Tls {
        /// Where it was looked for.
        address: HostPort,
        /// The cause.
        why: String,
    },
    /// The credentials of the client configuration are not valid (401), or not sufficient (403).
    #[error("the orchestrator rejects the credentials of the client configuration with {status}: {message}")]
    Unauthorized {
        /// The HTTP status.
        status: u16,
        /// Its reason.
        message: String,
    },
    /// Any other status that is no success.
    #[error("the orchestrator answers {status}: {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Its reason.
        message: String,
    },
    /// An answer that cannot be decoded, or is too large.
    #[error("the orchestrator's answer to {request} is invalid: {why}")]
    Nonsense {
        /// Method and path.
        request: String,
        /// The fault.
        why: String,
    },
}

/// The part of a `Status` object that explains it.
#[derive(Deserialize)]
struct Reason {
    message: String,
}

impl OrchestratorError {
    /// The error of an answer that is no success.
    pub(super) fn of_status(status: StatusCode, body: &[u8]) -> Self {
        let message = match serde_json::from_slice::<Reason>(body) {
            Ok(reason) => reason.message,
            // `/readyz` answers text.
            Err(_) => String::from_utf8_lossy(&body[..body.len().min(1024)]).into_owned(),
        };
        let (status, message) = (status.as_u16(), bounded(&message));
        match status {
            401 | 403 => Self::Unauthorized { status, message },
            _ => Self::Refused { status, message },
        }
    }

    /// The error of a request that got no answer.
    pub(super) fn of_transport(address: &HostPort, error: &(dyn StdError + 'static)) -> Self {
        let (address, why) = (address.clone(), bounded(&error_chain(error)));
        if is_tls(error) {
            Self::Tls { address, why }
        } else {
            Self::Unreachable { address, why }
        }
    }

    /// The HTTP status of a refusal.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Unauthorized { status, .. } | Self::Refused { status, .. } => Some(*status),
            Self::Unreachable { .. } | Self::Tls { .. } | Self::Nonsense { .. } => None,
        }
    }
}

/// Whether TLS failed. The source of an I/O error skips the error within it, so that is looked at
/// too.
fn is_tls(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let within = error
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        if error.is::<rustls::Error>() || within.is_some_and(|within| is_tls(within)) {
            return true;
        }
        next = error.source();
    }
    false
}
