//! What plugin authors use, without a daemon: [`Workbench`] admits, tests, measures and fuzzes a component,
//! [`Push`] puts one into a registry and signs it.
//!
//! The commands `transom plugin check`, `test`, `bench`, `fuzz` and `push` are made of these. A component
//! is admitted and run by the plugin host itself (`transom_plugin_host::trial`), so that the result
//! is what a daemon would see.

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
