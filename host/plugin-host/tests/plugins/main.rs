//! Tests of the plugin host with real components, through its public interface, and with servers on
//! loopback.
//!
//! The components are the first-party and hostile ones of the workspace. `cargo xtask plugins`
//! builds them under `target/components` (or `TRANSOM_COMPONENTS`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod admission;
mod attestations;
mod bundles;
mod canary;
mod canary_limits;
mod chain;
mod compiling;
mod counted;
mod directory;
mod explain;
mod firstparty;
mod hostile;
mod hostile_calls;
mod hostile_registry;
mod hostile_texts;
mod hostile_wat;
mod life;
mod limits;
mod many;
mod per_call;
mod reach;
mod recording;
mod records;
mod registry;
mod replay;
mod selftest;
mod shadow;
mod signatures;
mod sources;
mod support;
mod swap;
mod wasi;
mod workbench;
