//! Job C: apps. Long-running programs that are kept running, with checks that look at them and a bus that tells of everything.
//! It answers Marathon's HTTP API (specification, part C).
//!
//! [`Config::bind`] takes the port, [`Bound::start`] serves it and gives an [`Apps`] handle and a [`Runner`]: the daemon that
//! leads the framework runs the apps with it, every other one stands by, answers reads and passes the rest on to the leader.
//!
//! # How it is made
//!
//! * `model`: definitions, how they are read and the rules they keep. `deploy`: what a deployment asks for next. `backoff`,
//!   `condition`, `instance`: the life of an instance. All of it pure, with tables of cases as tests.
//! * `core`: one actor that owns apps, instances and deployments; readers see snapshots. `task`: how an instance becomes a task.
//! * `checks`: looks at running instances, through check-probe components only. `bus`: events, filtered by the events component.
//! * `runner`: leading and standing by. `core::mirror`: what a daemon that stands by shows.
//! * `api`: HTTP, a file for each resource. `seams`: the plugins as traits, so that tests can script them.
//!
//! # Promises
//!
//! * A definition and its deployment are in the store before the request is answered. After a restart apps, instances and
//!   running deployments go on from there.
//! * Fields that are valid upstream and not supported yet are refused by name (422), never dropped.
//! * Reads never wait for writers, and publishing an event never waits for a subscriber.
//! * A check never touches health, deployments or kills.
//!
//! # Not here
//!
//! Containers, volumes, health and readiness checks, groups, pods, callback subscribers and resumable streams, yet. Where a task
//! may run is the scheduler's and the attributes component's business.
//!
//! # How it fails
//!
//! Without the store requests are refused (503), nothing changes and reads are answered with the last known; when it is away
//! for so long that nobody leads, writes wait for a while first. Without a leader for any other reason writes wait for a while
//! and are refused (502). Without a component what it decides is refused (503, named) or not told: there is no second
//! implementation.

#![forbid(unsafe_code)]

mod api;
mod backoff;
mod bus;
mod checks;
mod condition;
mod config;
mod core;
mod deploy;
mod error;
mod ids;
mod instance;
mod model;
mod problems;
mod runner;
mod seams;
mod start;
mod task;
#[cfg(test)]
mod testing;
mod time;

pub use bus::PlanForm;
pub use config::{Checks, Config, Events, Exec, Network};
pub use error::Error;
pub use runner::Runner;
pub use start::{Apps, Bound};

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;
