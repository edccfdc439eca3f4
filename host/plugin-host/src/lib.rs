//! The plugin host: runs sandboxed WebAssembly components behind plain Rust types.
//!
//! A plugin is `NAME.wasm` with an operator's manifest `NAME.toml`. [`Config::start`] admits the
//! plugins of a directory and watches it. A new version is admitted in the background and then
//! replaces the old one atomically; calls in progress finish on the version that they started on. A
//! refused component leaves the old version serving; the log, the metrics, [`Plugins::list`] and
//! [`Plugins::changes`] report the reason.
//!
//! Promises: a component reaches only what its manifest grants; it cannot exceed its [`Limits`] of
//! processor time, wall-clock time, memory, output, steps and log lines; and it cannot block other
//! plugins. A failed call returns a [`CallError`] that names the plugin and the remedy. No policy
//! has a second, native implementation.
//!
//! A version that fails soon after its activation is rolled back automatically; one that only fails
//! and has no predecessor is disabled. Every admission is recorded ([`Plugins::history`]), and an
//! operator can roll back to any record ([`Plugins::rollback`]). With `rollout = "shadow"` a new
//! version first runs as a shadow and is compared with the serving one.
//!
//! A manifest may name a registry instead of a file, and operators may require signatures
//! ([`Registries`], [`Signatures`]). Compilation has a time limit and runs in the background (see
//! `engine::compiler`), but not in a separate process.
//!
//! The modules, from the outside in; each line uses the lines below it:
//!
//! * `host` ([`Plugins`]), `agent_set`, `views`, `attempt`: the API and its state between calls
//! * `directory`, `admission`, `imports`, `schema`, `selftest`, `extension_points`, `table`: from
//!   files to serving versions, and from an extension point to its version
//! * `sources`, `trust`: components from registries, and their signatures
//! * `history`, `admission_record`, `version_store`, `cache`, `private_dir`: persistent state
//! * `pool`: the instances of a version; `executor`: their threads; `health`, `version_stats`,
//!   `latency_histogram`, `shadow`: faults, measurements and comparison of versions
//! * `engine`: the only module that uses wasmtime; `net`: the network access of probes
//! * `version_context`, `manifest`, `origin`, `grants`, `limits`: what a plugin is, its source and
//!   its permissions
//! * `reserved`: the daemon's own ports, its store and its masters, which broad grants exclude
//! * [`workbench`]: admission, tests and benchmarks without a daemon, for plugin authors
//! * [`probe`], [`matcher`], [`events`], [`bootstrap`]: the types of each world

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
mod admission_record;
mod agent_mirror;
mod agent_set;
mod attempt;
#[cfg(feature = "bench")]
pub mod bench;
mod cache;
mod config;
mod directory;
mod engine;
mod error;
mod executor;
mod extension_points;
mod fault;
mod grants;
mod guest_log;
mod health;
mod history;
mod host;
mod imports;
mod latency_histogram;
mod limits;
mod manifest;
mod metrics;
mod net;
mod origin;
mod pool;
mod private_dir;
mod reserved;
mod schema;
mod selftest;
mod shadow;
mod sources;
mod status;
mod table;
mod text;
mod trust;
mod types;
mod units;
mod version_context;
mod version_stats;
mod version_store;
mod views;
pub mod workbench;
mod world;

pub use admission_record::{AdmissionRecord, Outcome};
pub use config::{Bindings, Config};
pub use error::{CallError, CommandError, Error, Result};
pub use health::Probation;
pub use history::Durability;
pub use host::Plugins;
pub use limits::{Instances, Limits};
pub use reserved::{Reserved, Server};
pub use sources::{Login, Push, PushError, Registries};
pub use status::{Change, Difference, Fetching, Shadow, Source, State, Status, Trap};
pub use text::{shown, shown_json};
pub use trust::{PublicKey, Signatures};
pub use types::{bootstrap, probe};

pub mod matcher {
    //! Placement: calls to the `attribute-matcher` component.
    //!
    //! An [`AgentSet`] holds the agents, the other types mirror the WIT package `transom:matcher`.

    pub use crate::{agent_set::AgentSet, types::matcher::*};
}

pub mod events {
    //! Event filtering: calls to the `event-filter` component.
    //!
    //! A [`View`] decides, the other types mirror the WIT package `transom:events`.

    pub use crate::{types::events::*, views::View};
}
