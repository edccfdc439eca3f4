//! Tasks with a container image: they run through the container runtime of this machine, Podman or
//! Docker.
//!
//! * [`task`], [`arguments`], [`inspect`] and [`trial_image`] are pure: from a `TaskInfo` to a
//!   [`Spec`], from it to the runtime's arguments, and from the runtime's answers to what is
//!   reported.
//! * [`find`] looks for a runtime and tries it; [`Runtime`] calls it. Every call has a deadline.
//! * [`pull`] gets images; [`Launcher`] bounds concurrent launches, keeps the networks of task
//!   groups, and removes all containers of the cluster, those of an earlier run as well.
//! * [`Container`] is the container of one running task.
//!
//! A task's container is a `podman run` (or `docker run`) in the foreground, which is the process
//! of the task: its output goes to the sandbox and its exit status is the container's.

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

pub(crate) use launcher::{Launcher, Refused};
pub(crate) use running::{Container, End, Limited, Started};
pub(crate) use spec::Containerizer;
pub(crate) use task::{Plan, has_image, plan};
