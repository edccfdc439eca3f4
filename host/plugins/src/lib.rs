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
//! A version that fails soon after it replaced another gives way to that one by itself; one that answers nothing any more, with none to return
//! to, is disabled. What happened to a plugin is written down ([`Plugins::history`]), and an operator can go back to any record of it
//! ([`Plugins::rollback`]). Where its manifest says so, a new version first answers beside the one that serves, and is compared with it.
//!
//! A manifest may name a registry in place of the file, and an operator may have every component signed ([`Registries`], [`Signatures`]).
//!
//! Compiling is bounded in time, and done aside: what goes on with it is said at the top of `engine::compiler`. Not here: compiling in a process
//! of its own.
//!
//! The crate, from the outside in; each line uses the lines below it:
//!
//! * `host` ([`Plugins`]), `agent_set`, `views`, `attempt`: asking, and what is kept between two questions
//! * `directory`, `admission`, `imports`, `schema`, `selftest`, `points`, `table`: from files to versions that serve, and from an extension
//!   point to one of them
//! * `sources`, `trust`: components from registries, and who has to have signed what is admitted
//! * `history`, `records`, `kept`, `cache`, `shelf`: what outlives a version or the daemon
//! * `pool`: the instances of a version, each owned by one task or made for one call; `lanes`: the threads that these run on; `health`,
//!   `stats`, `quantiles`, `shadow`: how it is doing, and
//!   how another does beside it
//! * `engine`: the only place that names wasmtime; `net`: the input and output that probes ask for
//! * `plugin`, `manifest`, `origin`, `grants`, `limits`: what a plugin is, where it is from and what it may do
//! * `reserved`: the daemon's own ports, its store and its masters, which no broad grant opens
//! * [`workbench`]: all of this without a daemon, for those who write plugins
//! * [`probe`], [`matcher`], [`events`], [`bootstrap`]: what is asked and answered, in plain types

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
    //! Which agents may run a task: what is asked of the `attribute-matcher` component.
    //!
    //! An [`AgentSet`] holds the agents, the other types mirror the WIT package `transom:matcher`.

    pub use crate::{agent_set::AgentSet, types::matcher::*};
}

pub mod events {
    //! What a subscriber of the event stream sees: what is asked of the `event-filter` component.
    //!
    //! A [`View`] asks, the other types mirror the WIT package `transom:events`.

    pub use crate::{types::events::*, views::View};
}
