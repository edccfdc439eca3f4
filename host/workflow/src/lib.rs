//! The workflow service: the tasks of a workflow engine as containers on the cluster, each of which
//! runs once (specification, part D).
//!
//! [`Settings::bind`] binds the port; [`start()`] serves it and returns a handle and a
//! [`Runner`], with which the leader runs the jobs. Other daemons forward requests to the leader
//! (see `transom_framework`).
//!
//! # Code map
//!
//! * `model`: jobs, and how they are parsed. `job_state`: the states that clients see. `launch`:
//!   how a job becomes a task. `pending_reason`: why a job is pending. All of these are pure, with
//!   tables of cases as tests.
//! * `core`: the actor that owns the active jobs. `job_index`: the snapshot for readers.
//! * `explain`: where a pending job may run, for the admin port.
//! * `start`, `runner`: leading and standing by. `core::term`: the wiring of a term. `api`: HTTP,
//!   one file for each resource. `dependencies`: traits of other services, so that tests can script
//!   them.
//!
//! # Promises
//!
//! * A job is stored before its request is answered. After a restart no job is lost and none runs
//!   twice: the scheduler knows the launched jobs, and the pending jobs are submitted again.
//! * Queueing an id again creates a new run. A look-up returns the newest run, and never the state
//!   of another one.
//! * A job has one of nine states; a final state never changes. Completed jobs are kept for a
//!   configured time.
//! * Only the matcher decides where a job may run.
//! * Arguments reach the program unchanged. A container receives no secret and no socket that its
//!   job did not request.
//!
//! # Not here
//!
//! When a task of a workflow runs, and whether it is retried, is up to the workflow engine.
//!
//! # Failures
//!
//! Without the store requests are rejected (503) and look-ups return the last known state. Without
//! a master jobs stay pending, and the queue reports that. Without a leader requests wait for an
//! election and are then rejected (502).

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

mod core;
mod dependencies;
mod error;
mod explain;
mod ids;
mod job_index;
mod job_state;
mod launch;
mod metrics;
mod model;
mod pending_reason;
mod python_json;
#[cfg(test)]
mod recorded_cases;
mod runner;
mod settings;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
mod start;
mod summary;
#[cfg(test)]
mod testing;

pub use self::core::persist::check_record;
pub use error::Error;
pub use explain::Explainer;
pub use runner::Runner;
pub use settings::{Settings, Variable};
pub use start::start;
pub use summary::{Numbers, Summary, SummaryReader};

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;
