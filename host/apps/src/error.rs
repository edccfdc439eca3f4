//! Errors that keep the apps service from starting or stop it.

use transom_framework::{ServiceError, StateError};
use transom_store::typed;

/// Errors of the whole service. Errors of a single request are returned to its client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Binding or serving the port failed.
    #[error("apps: the HTTP port cannot be used")]
    Web(#[source] transom_web::Error),
    /// The stored state cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// A later version wrote the records.
    #[error(
        "apps: the records in the state store have format {found}, and this version of transom knows formats up to \
         {known}: use the version that wrote them, or a later one"
    )]
    Format {
        /// The format in the store.
        found: u32,
        /// The latest format that this version knows.
        known: u32,
    },
    /// The store contains only a part of the records that were being copied into it.
    #[error(
        "apps: the state store has only a part of the records of {origin}, because `transom apps import` was \
         interrupted: repeat that command"
    )]
    Incomplete {
        /// The origin of the records.
        origin: String,
    },
}

impl Error {
    /// The error of a store operation, for example "reading apps".
    pub(crate) fn of_store(doing: &'static str, error: typed::Error) -> Self {
        StateError::new("apps", doing, error).into()
    }
}

impl ServiceError for Error {
    fn is_permanent(&self) -> bool {
        match self {
            Self::State(error) => error.is_permanent(),
            Self::Format { .. } | Self::Incomplete { .. } => true,
            Self::Web(_) => false,
        }
    }
}
