//! Replays requests that were recorded from a real master and agents against any other master, and
//! compares the answers with the recordings.
//!
//! The comparison covers the status line, the relevant headers (Content-Type, Allow,
//! WWW-Authenticate, the presence of a Mesos-Stream-Id), the keys and types of JSON values at every
//! depth, and the text of errors without ids. It does not cover values, and keys that depend on the
//! site, which [`compare::SITE_KEYS`] and [`compare::OPTIONAL_KEYS`] list. Differences in
//! [`compare::BUILD_KEYS`] are reported separately.
//!
//! The master needs at least one agent with about two CPUs, 1 GB and a few hundred ports free. It
//! should be newly started: its documents contain the tasks of other frameworks and of earlier
//! runs, which are compared, too. The run subscribes its own frameworks, launches tasks that sleep,
//! and tears the frameworks down. It takes a few seconds.
//!
//! A failed step causes an outcome with the reason; later steps that need it fail, too. [`replay`]
//! itself fails only if the recordings or the master are missing.

mod agent;
pub mod client;
pub mod compare;
mod documents;
mod framework;
mod recording;
mod run;
mod scheduler;

pub use run::{Error, Outcome, replay};
