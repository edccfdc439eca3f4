//! The Kubernetes service: a Kubernetes cluster as tasks of a framework (specification, part B).
//!
//! The framework runs a datastore, servers and agents of a Kubernetes distribution ("the
//! orchestrator") as containers, keeps them at their wanted counts, and serves an HTTP API.
//! [`Config::bind`] binds the port; [`start()`] serves it and returns a handle and a [`Runner`],
//! with which the leader runs the framework. Other daemons forward requests to the leader (see
//! `transom_framework`).

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "a test that fails may panic"
    )
)]

mod api;
mod bootstrap;
pub mod config;
mod core;
mod dependencies;
mod error;
pub mod import;
mod kind;
mod metrics;
mod orchestrator;
mod plan;
mod runner;
mod start;
mod task;
#[cfg(test)]
mod testing;
mod view;

pub use config::Config;
pub use error::Error;
pub use kind::{Kind, PerKind};
pub use runner::Runner;
pub use start::start;

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;
