//! The errors of calls to the orchestrator's API. The length of all their texts is limited.

use std::error::Error as StdError;

use http::StatusCode;
use serde::Deserialize;
use transom_common::{HostPort, error_chain};

use super::client_config::bounded;

/// Why a call to the API failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OrchestratorError {
    /// The connection failed or was lost, or the call timed out.
    #[error("the orchestrator at {address} cannot be reached: {why}")]
    Unreachable {
        /// The address that was called.
        address: HostPort,
        /// The cause.
        why: String,
    },
    /// The TLS handshake failed, usually because the certificate has another authority or name.
    #[error("TLS handshake with the orchestrator at {address} failed: {why}")]
    Tls {
        /// The address that was called.
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
    /// The API answered with any other status that is not a success.
    #[error("the orchestrator answered with status {status}: {message}")]
    Rejected {
        /// The HTTP status.
        status: u16,
        /// Its reason.
        message: String,
    },
    /// The answer cannot be decoded, or is too large.
    #[error("the orchestrator's answer to {request} is invalid: {why}")]
    Nonsense {
        /// Method and path.
        request: String,
        /// The fault.
        why: String,
    },
}

/// The part of a `Status` object that contains the reason.
#[derive(Deserialize)]
struct Reason {
    message: String,
}

impl OrchestratorError {
    /// The error for an answer whose status is not a success.
    pub(super) fn of_status(status: StatusCode, body: &[u8]) -> Self {
        let message = match serde_json::from_slice::<Reason>(body) {
            Ok(reason) => reason.message,
            // The body may be plain text, for example from `/readyz`.
            Err(_) => String::from_utf8_lossy(&body[..body.len().min(1024)]).into_owned(),
        };
        let (status, message) = (status.as_u16(), bounded(&message));
        match status {
            401 | 403 => Self::Unauthorized { status, message },
            _ => Self::Rejected { status, message },
        }
    }

    /// The error for a request without an answer.
    pub(super) fn of_transport(address: &HostPort, error: &(dyn StdError + 'static)) -> Self {
        let (address, why) = (address.clone(), bounded(&error_chain(error)));
        if is_tls(error) {
            Self::Tls { address, why }
        } else {
            Self::Unreachable { address, why }
        }
    }

    /// The HTTP status of a rejection.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Unauthorized { status, .. } | Self::Rejected { status, .. } => Some(*status),
            Self::Unreachable { .. } | Self::Tls { .. } | Self::Nonsense { .. } => None,
        }
    }
}

/// Whether TLS failed. The `source` of an I/O error skips the error that it contains, so the contained
/// error is checked as well.
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
