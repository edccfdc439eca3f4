//! The operator API.
mod types;
pub use types::{
    Agent, DrainConfig, DrainInfo, Event, Executor, Framework, GetAgents, GetExecutors, GetFrameworks,
    GetState, GetTasks, TaskUpdated,
};
