//! End-to-end tests of the real binary, in one program: a folder for each service, and a module for
//! each subject.
//!
//! They use the daemon as users do: by its commands, HTTP, DNS packets, and installed clients.
//! `apps::lifecycle` is the shortest overview.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod apps;
mod daemon;
mod discovery;
mod documentation;
mod events;
mod kubernetes;
mod plugins;
mod workflow;
