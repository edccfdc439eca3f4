//! Why the service cannot start, or has stopped.

use transom_framework::ServiceError;
use transom_store::typed;

/// Errors of the service. Errors of requests are in their responses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The port could not be bound, or serving it failed.
    #[error("kubernetes: the HTTP port cannot be used")]
    Web(#[source] transom_web::Error),
    /// The HTTP client could not be created.
    #[error("kubernetes: the HTTP client cannot be created")]
    Client(#[source] reqwest::Error),
    /// The certificates of the kvstore could not be made.
    #[error("kubernetes: the certificates of the kvstore cannot be made")]
    Certificates(#[source] rcgen::Error),
    /// The store could not be read or written at the start.
    #[error("kubernetes: state store failed while {doing}")]
    Store {
        /// The operation.
        doing: &'static str,
        /// The error of the store, except that a record cannot be decoded.
        #[source]
        source: typed::Error,
    },
    /// A record in the store cannot be read.
    #[error(
        "kubernetes: record {key} in the state store cannot be decoded; it is damaged or of another version"
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
    /// The error of a store operation, for example "reading the wanted counts".
    pub(crate) fn of_store(doing: &'static str, error: typed::Error) -> Self {
        match error {
            typed::Error::Record { key, source } => Self::Record { key, source },
            source => Self::Store { doing, source },
        }
    }
}

impl ServiceError for Error {
    fn is_permanent(&self) -> bool {
        matches!(self, Self::Record { .. })
    }
}
