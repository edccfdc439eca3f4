//! Replays requests that were recorded from a real master and agents against any other master, and compares the
//! answers with the recordings.
//!
//! What is compared: the status line, the headers that matter (Content-Type, Allow, WWW-Authenticate, whether there
//! is a Mesos-Stream-Id), the keys and kinds of JSON values at every depth, the text of errors with ids left out.
//! What is not: values, and what depends on the site; [`compare::SITE_KEYS`] and [`compare::OPTIONAL_KEYS`] list it.
//! Differences in [`compare::BUILD_KEYS`] are reported separately.
//!
//! The master needs at least one agent with about two processors, 1 GB and a few hundred ports free, and should be
//! fresh: other frameworks' tasks, also those of an earlier run, stand in the same documents and are compared too.
//! The run subscribes frameworks of its own, launches tasks that sleep, and tears everything down. It takes a few
//! seconds.
//!
//! A step that fails leaves an outcome that says why; later steps that need it fail too. [`replay`] itself only fails
//! when there are no recordings or no master.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "a failing test may say so"
    )
)]

mod agent;
pub mod client;
pub mod compare;
mod documents;
mod framework;
mod recording;
mod run;
mod scheduler;

pub use run::{Error, Outcome, replay};
