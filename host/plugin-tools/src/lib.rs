//! Tools for plugin authors, which need no daemon: [`Workbench`] admits, tests, measures and fuzzes
//! a component, [`Push`] pushes one to a registry and signs it.
//!
//! The commands `transom plugin check`, `test`, `bench`, `fuzz` and `push` use these. The plugin
//! host itself admits and runs a component (`transom_plugin_host::trial`), so that the result is
//! the same as in a daemon.

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests fail by panicking"
    )
)]

mod push;
mod sign;
pub mod workbench;

pub use push::{Push, PushError};
