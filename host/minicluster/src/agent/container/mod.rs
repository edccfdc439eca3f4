//! Runs tasks that have a container image, through the container runtime of this machine: Podman or
//! Docker.
//!
//! * [`task`], [`arguments`], [`inspect`] and [`trial_image`] do no I/O: they translate a
//!   `TaskInfo` into a [`Spec`], the specification into the runtime's arguments, and the runtime's
//!   output into status reports.
//! * [`find`] finds a runtime and tries it; [`Runtime`] calls it. Every call has a deadline.
//! * [`pull`] pulls images; [`Launcher`] bounds concurrent launches, owns the networks of task
//!   groups, and removes all containers of the cluster, including those of an earlier run.
//! * [`Container`] is the container of one running task.
//!
//! A task with a container is a `podman run` (or `docker run`) in the foreground. That command is
//! the process of the task: its output goes to the sandbox, and its exit status is the container's.

mod arguments;
mod find;
mod group;
mod inspect;
mod kernel_log;
mod launcher;
mod limits;
mod pull;
mod running;
mod runtime;
mod spec;
mod task;
mod trial_image;

pub(crate) use launcher::{ContainerError, Launcher};
pub(crate) use running::{Container, ContainerEnd, LimitExceeded, StartedContainer};
pub(crate) use spec::Containerizer;
pub(crate) use task::{Plan, has_image, plan};
