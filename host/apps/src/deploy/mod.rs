//! Deployments: the steps from one definition to another, and their progress.
//!
//! All of it is pure. [`plan`] computes the steps. [`scale`] and [`restart`] select the instances
//! to remove and count those to start. [`machine`] computes the next actions from the instances and
//! decides whether the step is done. The core executes them.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

pub(crate) mod machine;
pub(crate) mod plan;
pub(crate) mod restart;
pub(crate) mod scale;

pub(crate) use machine::InstanceView;
pub(crate) use plan::{ActionKind, Deployment, Step};
