//! The plugin host against real components, through its public interface, with real servers on the
//! loopback.
//!
//! The components are those of the workspace, first-party and hostile, as `cargo xtask plugins`
//! leaves them under `target/components` (or where `TRANSOM_COMPONENTS` says).

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
mod hostile_registry;
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
