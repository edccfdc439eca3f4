//! Tasks as services describe them, and their conversion to the
//! [`TaskInfo`](transom_cluster::v1::TaskInfo) that is sent to the master.
//!
//! * [`Task`]: all of the following, with name, labels, limits and times
//! * [`Command`], [`Program`], [`Environment`]: what runs, with which variables and files
//! * [`Container`], [`Containerizer`], [`Image`], [`IpcMode`], [`Seccomp`]: the container
//! * [`Network`], [`ContainerNetwork`], [`PortMapping`]: the container's network
//! * [`Volume`], [`VolumeSource`], [`CsiVolume`]: mounts in the container
//! * [`Discovery`], [`Port`]: the discovery information of the task
//! * [`Check`], [`HealthCheck`], [`Probe`]: checks that the task's agent makes
//!
//! A service fills in plain structs and converts the [`Task`]. Semantics that are specific to
//! Marathon apps, Airflow jobs or Kubernetes stay in the service. Types of the cluster's API are
//! used directly where a struct of this crate would only repeat them
//! ([`Uri`](transom_cluster::v1::Uri), [`Visibility`](transom_cluster::v1::Visibility)).
//!
//! # Guarantees
//!
//! Everything here is pure: no clock, no I/O, no state. Equal tasks become equal messages:
//! variables and labels are sorted by name, all other lists keep their order. A conversion
//! validates nothing and cannot fail; the service has checked its definitions, and the master
//! checks the message.
//!
//! # Not here
//!
//! The scheduler adds the results of the placement: task id, agent and resources.

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
