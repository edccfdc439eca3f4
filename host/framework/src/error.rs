//! Why a framework stopped.

/// The error of a service that leads.
pub trait ServiceError: std::error::Error + Send + Sync + 'static {
    /// Whether a retry would fail in the same way, as for a record that cannot be decoded.
    fn is_permanent(&self) -> bool;
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
