//! Replays requests that were recorded from a real master and agents against any other master, and
//! compares the answers with the recordings.
//!
//! Compared are the status line, the relevant headers (Content-Type, Allow, WWW-Authenticate, the
//! presence of a Mesos-Stream-Id), the keys and types of JSON values at every depth, the text of
//! errors without ids.
//! Not compared are values, and keys that depend on the site; [`compare::SITE_KEYS`] and
//! [`compare::OPTIONAL_KEYS`] list these.
//! Differences in [`compare::BUILD_KEYS`] are reported separately.
//!
//! The master needs at least one agent with about two CPUs, 1 GB and a few hundred ports free, and
//! should be fresh: tasks of other frameworks, also of an earlier run, are in the same documents
//! and are compared too. The run subscribes its own frameworks, launches tasks that sleep, and
//! tears everything down. It takes a few seconds.
//!
//! A failed step leaves an outcome with the reason; later steps that need it fail too. [`replay`]
//! itself only fails when there are no recordings or no master.

mod agent;
pub mod client;
pub mod compare;
mod documents;
mod framework;
mod recording;
mod run;
mod scheduler;

pub use run::{Error, Outcome, replay};
