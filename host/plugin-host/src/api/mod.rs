//! The API that services call, and its state between calls.

pub(crate) mod agent_set;
mod attempt;
mod attempt_log;
pub(crate) mod explain;
pub(crate) mod extension_points;
mod matcher_chain;
pub(crate) mod plugins;
pub(crate) mod views;
