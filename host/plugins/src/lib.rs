//! The plugin host: runs sandboxed WebAssembly components and answers for them in plain Rust types.
//!
//! A plugin is `NAME.wasm` with an operator's `NAME.toml` beside it. [`Config::start`] admits what is in the directory and watches it: what
//! changes there is admitted aside from traffic and then replaces the old version at once, while calls in progress finish on the one
//! they began with. What is refused leaves the old version serving and says why, in the log, the metrics, [`Plugins::list`] and
//! [`Plugins::changes`].
//!
//! Promises: a component reaches nothing that its manifest does not grant; it cannot use more processor time, wall-clock time, memory, output,
//! steps or log than its [`Limits`]; and whatever it does, other plugins answer meanwhile. When a call cannot be answered, [`CallError`]
//! names the plugin and what to do. There is no second, native implementation of anything that a plugin decides.
//!
//! Not here: keeping records of admissions, compiling in a process of its own, going back to the last version by itself.
//!
//! The crate, from the outside in:
//!
//! * `host` ([`Plugins`]), [`probe`], [`matcher`], [`events`], [`bootstrap`]: what is asked, in plain types
//! * `directory`, `admission`, `manifest`, `table`: from files to versions that serve
//! * `pool`: the instances of a version, each owned by one task
//! * `attempt`, `net`, `grants`: the input and output that probes ask for
//! * `engine`: the only place that names wasmtime

#![deny(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests fail by panicking"
    )
)]

mod admission;
mod attempt;
pub mod bootstrap;
mod config;
mod directory;
mod engine;
mod error;
pub mod events;
mod fleet;
mod grants;
mod guest_log;
mod host;
mod limits;
mod manifest;
pub mod matcher;
mod metrics;
mod net;
mod plugin;
mod pool;
pub mod probe;
mod status;
mod table;
mod units;

pub use config::{Config, Uses};
pub use error::{CallError, Error, Result};
pub use host::Plugins;
pub use limits::Limits;
pub use status::{Change, State, Status};
