//! Tasks as services describe them, and the [`TaskInfo`](transom_cluster::v1::TaskInfo) that the
//! master gets.
//!
//! * [`Task`]: everything below, with name, labels, limits and times
//! * [`Command`], [`Program`], [`Environment`]: what runs, with which variables and files
//! * [`Container`], [`Containerizer`], [`Image`], [`IpcMode`], [`Seccomp`]: the container
//! * [`Network`], [`ContainerNetwork`], [`PortMapping`]: the container's network
//! * [`Volume`], [`VolumeSource`], [`CsiVolume`]: mounts in the container
//! * [`Discovery`], [`Port`]: what DNS and other programs learn about the task
//! * [`Check`], [`HealthCheck`], [`Probe`]: checks that the task's agent makes
//!
//! A service fills in plain structs and converts the [`Task`]; what only Marathon's apps, Airflow's
//! jobs or Kubernetes mean by a field stays in the service. Types of the cluster's API are used
//! directly where a struct of our own would repeat them ([`Uri`](transom_cluster::v1::Uri),
//! [`Visibility`](transom_cluster::v1::Visibility)).
//!
//! # Guarantees
//!
//! Everything here is pure: no clock, no I/O, no state. Equal tasks become equal messages:
//! variables and labels are sorted by name, all else keeps its order. Nothing is validated, and
//! nothing fails; the service has checked its definitions, and the master checks the message.
//!
//! # Not here
//!
//! The scheduler adds what the placement decides: task id, agent and resources.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

mod check;
mod command;
mod container;
mod discovery;
mod network;
mod task;
mod volume;

pub use check::{Check, HealthCheck, Probe, ProbeTimes};
pub use command::{Command, Environment, Program};
pub use container::{Container, Containerizer, Image, IpcMode, Seccomp};
pub use discovery::{Discovery, Port};
pub use network::{ContainerNetwork, Network, PortMapping};
pub use task::{Limit, Limits, Task};
pub use volume::{CsiAccess, CsiVolume, Volume, VolumeSource};
