//! App definitions: their form, their parsing from a request, and their rules.
//!
//! A write goes JSON -> [`AppUpdate`] (shapes: types, limits, enumerations) -> [`App`] (defaults
//! filled, deprecated fields translated) -> [`rules::check`] (relations between fields). Each stage
//! is a pure function that reports all its problems. Fields that upstream has and this version does
//! not support are rejected by name ([`unsupported`]), never dropped.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

mod app;
mod check;
mod check_input;
mod health_check;
mod input;
mod label;
pub(crate) mod ports;
mod reader;
mod readiness;
pub(crate) mod rules;
mod unsupported;

pub(crate) use app::{
    App, Artifact, Constraint, Effect, KillSelection, PortDefinition, Protocol, UnreachableStrategy,
    UpgradeStrategy, VersionInfo,
};
pub(crate) use check::{Check, CheckCommand, CheckKind, CheckPort, PluginCheck};
pub(crate) use health_check::{HealthCheck, HealthProtocol, IpProtocol};
pub(crate) use input::{AppUpdate, Invalid, read};
pub(crate) use label::Selector;
pub(crate) use readiness::{ReadinessCheck, Scheme};
