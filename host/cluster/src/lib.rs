//! The cluster manager's HTTP API v1, typed.
#![forbid(unsafe_code)]

mod error;
pub mod ids;
pub mod operator;
pub mod scheduler;
pub mod state;
pub mod v1;

pub use error::{Error, Result, TransportError};
pub use ids::{
    AgentId, ContainerId, ExecutorId, FrameworkId, OfferId, OperationId, ResourceProviderId, TaskId,
};
