//! The master's HTTP side: routes, calls, and the documents it shows.

pub(crate) mod faults;
pub(crate) mod flags;
pub(crate) mod http;
mod maintenance;
pub(crate) mod metrics;
pub(crate) mod state_views;
