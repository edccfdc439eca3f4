//! Why the service cannot start, or has stopped.

use transom_framework::{ServiceError, StateError};
use transom_store::typed;

/// Errors of the service. Errors of requests are in their responses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The port could not be bound, or serving it failed.
    #[error("workflow: the HTTP port cannot be used")]
    Web(#[source] transom_web::Error),
    /// The stored state cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
}

impl Error {
    /// The error of a store operation, for example "reading jobs".
    pub(crate) fn of_store(doing: &'static str, error: typed::Error) -> Self {
        StateError::new("workflow", doing, error).into()
    }
}

impl ServiceError for Error {
    fn is_permanent(&self) -> bool {
        matches!(self, Self::State(error) if error.is_permanent())
    }
}
