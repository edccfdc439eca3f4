//! Why a framework stopped.

use transom_store::typed;

/// The error of a service that leads.
pub trait ServiceError: std::error::Error + Send + Sync + 'static {
    /// Whether a retry would fail in the same way, as for a record that cannot be decoded.
    fn is_permanent(&self) -> bool;
}

/// Why the stored state of a service cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Reading or writing the store failed.
    #[error("{service}: state store failed while {doing}")]
    Store {
        /// The service.
        service: &'static str,
        /// The operation that failed.
        doing: &'static str,
        /// The error of the store, except for records that cannot be decoded.
        #[source]
        source: typed::Error,
    },
    /// A record in the store cannot be decoded.
    #[error(
        "{service}: record {key} in the state store cannot be decoded; it is damaged or of another version"
    )]
    Record {
        /// The service.
        service: &'static str,
        /// The record's key.
        key: String,
        /// The error of the decoder.
        #[source]
        source: serde_json::Error,
    },
}

impl StateError {
    /// The error of a store operation of a service, for example "reading jobs".
    pub fn new(service: &'static str, doing: &'static str, error: typed::Error) -> Self {
        match error {
            typed::Error::Record { key, source } => Self::Record { service, key, source },
            source => Self::Store {
                service,
                doing,
                source,
            },
        }
    }

    /// Whether a retry would fail in the same way.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Record { .. })
    }
}

/// Why a framework stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The scheduler could not start.
    #[error("the scheduler of framework {framework} cannot start")]
    Scheduler {
        /// The framework.
        framework: String,
        /// The error of the scheduler.
        #[source]
        source: transom_scheduler::Error,
    },
    /// The service could not start to lead.
    #[error("the service of framework {framework} cannot lead")]
    Service {
        /// The framework.
        framework: String,
        /// See [`ServiceError::is_permanent`].
        permanent: bool,
        /// The error of the service.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The service ended although this daemon still leads.
    #[error("the service of framework {framework} stopped unexpectedly")]
    Stopped {
        /// The framework.
        framework: String,
    },
}

impl Error {
    /// Whether a retry would fail in the same way.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Scheduler { source, .. } => matches!(source, transom_scheduler::Error::Record { .. }),
            Self::Service { permanent, .. } => *permanent,
            Self::Stopped { .. } => true,
        }
    }
}

/// This crate's result.
pub type Result<T> = std::result::Result<T, Error>;
