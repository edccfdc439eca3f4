//! Apps: long-running programs with checks, deployments and an event bus, over Marathon's HTTP API
//! (specification, part C).
//!
//! [`Config::bind`] binds the port. [`start()`] serves it and returns a handle and a [`Runner`].
//! The leader runs the apps with the runner. A standby forwards requests to the leader, and answers
//! reads itself while no leader answers (see `transom_framework`).
//!
//! # Structure
//!
//! * `model`: definitions, their parsing and their rules. `tree`: all definitions, and their edits.
//!   `deploy`: the steps of a deployment, and their next actions. All of these are pure and tested
//!   with tables of cases, as is the lifecycle of instances in [`transom_replicas`]. `instance`:
//!   the state that apps add to that lifecycle.
//! * `core`: one actor that owns apps, groups, instances and deployments; readers see snapshots.
//!   `task`: turns an instance into a task, and finds the addresses of its ports.
//! * `probes`: one schedule of all checks, health checks and readiness checks, made with the
//!   check-probe components. `health`: evaluates the results of health checks; pure.
//!   `core::probing`: the effects of results. `bus`: events, filtered by the events component;
//!   `callbacks`: posts them to URLs.
//! * `start`, `runner`: leading and standing by. `core::term`: the wiring of a term.
//!   `core::mirror`: the view of a standby.
//! * `core::failing`: why the instances of an app or pod fail, in one sentence for all who show it.
//! * [`migration`]: imports the state of a Marathon or of another store.
//! * `api`: HTTP, one file per resource, and its OpenAPI document, which is generated. `policies`: the
//!   plugins as traits, so that tests can script them.
//!
//! # Guarantees
//!
//! * A definition and its deployment are stored before the request is answered. After a restart,
//!   apps, instances and running deployments continue.
//! * Fields that are valid upstream but not supported yet are rejected by name (422), never
//!   dropped.
//! * Reads never wait for writers, and publishing an event never waits for a subscriber.
//! * A check never affects health, deployments or kills, except for a canary that continues
//!   automatically. Health checks and readiness checks do affect them.
//!
//! # Not here
//!
//! The scheduler and the attributes component decide on placement.
//!
//! # Failures
//!
//! Without the store, requests are rejected (503), nothing changes, and reads return the last known
//! state. If the store outage has ended the leader's term, writes wait for a while first. Without a
//! leader for any other reason, writes wait for a while and are then rejected (502). Without a
//! component, requests that need its decision are rejected (503, with its name) and its events are
//! not sent: there is no second implementation.

#![forbid(unsafe_code)]

mod api;
mod bus;
mod callbacks;
mod check_result;
mod config;
mod core;
mod deploy;
mod error;
mod explain;
mod health;
mod ids;
mod instance;
pub mod migration;
mod model;
mod policies;
mod probes;
mod runner;
pub mod settings;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
mod start;
mod summary;
mod task;
#[cfg(test)]
mod testing;
mod time;
mod tree;

pub use self::core::failing::Failing;
pub use self::core::term::Dependencies;
pub use api::unknown_fields::{Definition, UnknownField, unknown_fields};
pub use config::Config;
pub use error::Error;
pub use explain::Explainer;
pub use runner::Runner;
pub use settings::Settings;
pub use start::start;
pub use summary::{Numbers, RunningDeployment, Summary, SummaryReader};

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;
