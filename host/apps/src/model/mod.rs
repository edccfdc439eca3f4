//! App definitions: what one is, how it is read from a request, and the rules it has to keep.
//!
//! A write goes JSON -> [`AppUpdate`] (shapes: types, limits, enumerations) -> [`App`] (defaults filled, deprecated fields
//! translated) -> [`rules::check`] (everything that relates fields to each other). Each stage is a pure function that reports
//! all it finds. What upstream knows and this version does not is refused by name ([`unsupported`]), never dropped.

mod app;
mod check;
mod check_input;
mod input;
mod label;
pub(crate) mod ports;
mod reader;
pub(crate) mod rules;
mod unsupported;

pub(crate) use app::{
    App, Artifact, Constraint, KillSelection, PortDefinition, Protocol, UnreachableStrategy, UpgradeStrategy,
    VersionInfo,
};
pub(crate) use check::{Check, CheckCommand, CheckKind, CheckPort};
pub(crate) use input::{AppUpdate, Invalid, read};
pub(crate) use label::Selector;
