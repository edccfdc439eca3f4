//! App definitions: their form, their parsing from a request, and their rules.
//!
//! A write goes JSON -> [`AppUpdate`] (shapes: types, limits, enumerations) -> [`App`] (defaults
//! filled, deprecated fields translated) -> [`rules::check`] (relations between fields). Each stage
//! is a pure function that reports all its problems.
//!
//! Definitions, parsing and rules are split by theme: `container`, `container_input`,
//! `container_rules`, and so on.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

mod app;
mod check;
mod check_input;
mod container;
mod container_input;
mod container_rules;
mod definition_settings;
mod effects;
mod group;
mod health_check;
mod input;
mod label;
pub(crate) mod lengths;
mod limits;
mod limits_input;
mod network;
mod network_input;
mod network_rules;
mod patch;
pub(crate) mod pod;
mod port;
mod port_input;
pub(crate) mod ports;
mod reader;
mod readiness;
mod resident_rules;
pub(crate) mod rules;
mod secret;
mod size;
mod spec;
mod volume;
mod volume_input;
mod volume_rules;

pub(crate) use app::{
    App, Artifact, Constraint, KillSelection, Residency, TaskLostBehavior, UnreachableStrategy,
    UpgradeStrategy, VersionInfo,
};
pub(crate) use check::{Check, CheckCommand, CheckKind, CheckPort, PluginCheck};
pub(crate) use container::{
    Container, Docker, Engine, IpcInfo, IpcMode, LinuxInfo, Parameter, PullConfig, Seccomp,
};
pub(crate) use definition_settings::DefinitionSettings;
pub(crate) use effects::Effect;
pub(crate) use group::{GroupUpdate, read_group};
pub(crate) use health_check::{HealthCheck, HealthProtocol, IpProtocol};
pub(crate) use input::{AppUpdate, Invalid, VERSION_WITH_OTHERS, read, read_in, read_patch};
pub(crate) use label::Selector;
pub(crate) use limits::{ExecutorResources, ResourceLimit, ResourceLimits};
pub(crate) use network::{Network, NetworkMode};
pub(crate) use network_input::BRIDGE;
pub(crate) use pod::Pod;
pub(crate) use port::{PortDefinition, PortMapping, Protocol};
pub(crate) use readiness::{ReadinessCheck, Scheme};
pub(crate) use rules::COMMAND_EXECUTOR;
pub(crate) use secret::{EnvValue, SecretDef};
pub(crate) use size::{Size, json_bytes};
pub(crate) use spec::Spec;
pub(crate) use volume::{
    CsiAccess, CsiCapability, CsiOptions, CsiProvider, CsiVolume, DiskKind, DvdiVolume, ExternalVolume,
    PersistentVolume, ReadMode, Volume,
};
pub(crate) use volume_rules::DRIVER;

#[cfg(test)]
mod definition_tests;
#[cfg(test)]
mod volume_tests;
