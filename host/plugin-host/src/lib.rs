//! The plugin host: runs sandboxed WebAssembly components behind plain Rust types.
//!
//! A plugin is `NAME.wasm` with an operator's manifest `NAME.toml`. [`Config::start`] admits the
//! plugins of a directory and watches it. A new version is admitted in the background and then
//! replaces the old one atomically; calls in progress finish on the version that they started on. A
//! rejected component leaves the old version serving; the log, the metrics, [`Plugins::list`] and
//! [`Plugins::changes`] report the reason.
//!
//! Guarantees: a component can only connect to, run or read what its manifest grants; it cannot
//! exceed its [`Limits`] of processor time, wall-clock time, memory, output, steps and log lines;
//! and it cannot block other plugins. A failed call returns a [`CallError`] that names the plugin
//! and the remedy. No policy has a second, native implementation.
//!
//! A version that fails soon after its activation is rolled back automatically. A version that
//! fails repeatedly and has no predecessor is disabled. Every admission is recorded
//! ([`Plugins::history`]), and an operator can roll back to any record ([`Plugins::rollback`]).
//! With `rollout = "shadow"` a new version first runs as a shadow and is compared with the serving
//! one; with `rollout = "canary"` it first answers a share of the calls ([`Rollout`]).
//!
//! A sample of the calls of each plugin is recorded with their answers ([`Recording`]). Plugins are
//! pure, so a new version can answer the same calls again ([`Plugins::recorded_calls`]); with
//! `rollout = "replay"` it serves only if its answers equal the recorded ones.
//!
//! A manifest may name a registry instead of a file, and operators may require signatures
//! ([`Registries`], [`Signatures`]). Compilation runs in the background, with limits of time
//! and memory, in a separate process ([`Compiler`]).
//!
//! Folders; each uses only those after it: `api`, `lifecycle`, `storage`, `self_test`, `runtime`,
//! `network`, `observe`, `manifest`, `documents`, `worlds`. [`trial`] is for tools that test a component
//! without a daemon. `documents` converts the types of `worlds` from and to those of
//! [`transom_plugin_cases`].

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests fail by panicking"
    )
)]

mod api;
mod config;
mod documents;
mod error;
mod fault;
mod lifecycle;
mod manifest;
mod name;
mod network;
mod observe;
mod runtime;
mod self_test;
#[cfg(feature = "simulation")]
pub mod simulation;
mod storage;
pub mod trial;
mod worlds;

pub use api::plugins::Plugins;
pub use config::{Bindings, CompileProcess, Compiler, Config, Recording};
pub use error::{CallError, CommandError, Error, Result, UploadError};
pub use lifecycle::directory::upload::Uploaded;
pub use manifest::{
    check_manifest,
    limits::{Instances, Limits},
    probation::Probation,
    units::parse_duration,
};
pub use name::{VALID_NAMES, is_name};
pub use observe::{
    recent_log::LogLine,
    status::{Change, Difference, Recorded, Rollout, RolloutKind, State, Status, Trap},
};
pub use runtime::engine::compile_standard_input;
pub use storage::{
    admission_record::{AdmissionOutcome, AdmissionRecord},
    history::{Durability, check_record},
    staged_files::{PluginFiles, StagedFiles},
};
pub use transom_common::text::{printable, printable_json};
pub use transom_plugin_cases::{CallRecord, RecordedCalls};
pub use transom_registry::{
    Attestation, FetchStatus, Login, PublicKey, Registries, Signatures, SourceStatus,
    network::{Reserved, Server},
};
pub use worlds::{bootstrap, probe};

pub mod explain {
    //! Explanations for operators: what plugins decide and why. The calls count neither in the
    //! plugins' metrics nor for their health, and are not recorded.

    pub use crate::api::explain::{
        CanaryAnswer, CanaryVersion, PluginFailure,
        filter::{
            EventExample, EventOutcome, FilterExplainer, FilterExplanation, KindOutcomes, OutcomeExamples,
        },
        matcher::{MatcherExplanation, Rejections, ValueCount},
        probe::{ProbeTranscript, TranscriptStep},
    };
}

pub mod matcher {
    //! Placement: calls to the `attribute-matcher` component.
    //!
    //! An [`AgentSet`] keeps the agents, the other types mirror the WIT package `transom:matcher`.

    pub use crate::{api::agent_set::AgentSet, worlds::matcher::*};
}

pub mod events {
    //! Event filtering: calls to the `event-filter` component.
    //!
    //! A [`View`] decides, the other types mirror the WIT package `transom:events`.

    pub use crate::{api::views::View, worlds::events::*};
}
