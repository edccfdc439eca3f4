//! Job D: workflow. A workflow engine's tasks as containers on the cluster, each of which runs once (specification, part D).
//!
//! [`Config::bind`] takes the port, [`Bound::start`] serves it and gives a [`Workflow`] handle and a [`Runner`]: the daemon that
//! leads the framework runs the jobs with it, every other one passes requests on to the leader.
//!
//! # How it is made
//!
//! * `model`: what a job is, and how a body becomes one. `state`: what clients see of the cluster's states. `launch`: how a job
//!   becomes a task. `reason`: why one waits. All of it pure, with tables of cases as tests.
//! * `survey`: which conditions no active agent satisfies, offered or not.
//! * `core`: one actor that owns the jobs that have not ended. `index`: what readers see, which is changed and never waited for.
//! * `runner`: leading and standing by. `api`: HTTP, a file for each resource. `seams`: the other sides as traits, so that
//!   tests can script them.
//!
//! # Promises
//!
//! * A job is in the store before its request is answered. After a restart none is lost and none is run twice: what was
//!   launched is the scheduler's to know, what waited is wanted again.
//! * Each time an id is queued is a run of its own. A look-up shows the newest, and never what another one has shown.
//! * A job shows one of nine states; once it shows a final one, that is its last. Ended jobs are remembered for a configured
//!   time.
//! * Where a job may run is the attribute matcher's decision alone.
//! * The arguments of a command reach the program as they were sent. No secret and no socket is in a container that did
//!   not ask for it.
//!
//! # Not here
//!
//! When a task of a workflow is to run, and again after it failed: the workflow engine's business.
//!
//! # How it fails
//!
//! Without the store requests are refused (503) and look-ups answered with the last known. Without a master jobs wait, and the
//! queue says so. Without a leader requests wait for a while and are refused (502).

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
mod config;
mod core;
mod dependencies;
mod error;
mod feasibility;
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
mod start;
#[cfg(test)]
mod testing;

pub use config::{Config, Defaults};
pub use error::Error;
pub use runner::Runner;
pub use start::{Bound, Workflow};
pub use transom_web::Credentials;

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;
