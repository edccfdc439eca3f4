//! Pod definitions: containers that run together on one agent.
//!
//! A write goes JSON -> [`PodInput`] (shapes) -> [`Pod`] (defaults filled) -> [`rules::check`]
//! (relations between fields), as for apps. Parts that both have (networks, secrets, constraints,
//! limits and so on) share their types and rules.

mod checks;
mod container_input;
mod container_rules;
mod containers;
mod definition;
mod effects;
mod input;
pub(crate) mod rules;

pub(crate) use checks::{HealthProbe, PodCheck, PodHealthCheck};
pub(crate) use containers::{
    Endpoint, Exec, Image, ImageKind, Lifecycle, PodContainer, PodResources, VolumeMount,
};
pub(crate) use definition::{Backoff, Placement, Pod, PodVolume, Scaling, Scheduling};
pub(crate) use input::{PodInput, read_pod};

#[cfg(test)]
mod tests;
