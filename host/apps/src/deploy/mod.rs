//! Deployments: what has to be done to get from one definition to another, and how far it is.
//!
//! All of it is pure. [`plan`] makes the steps, [`scale`] and [`restart`] say which instances go and how many come, [`machine`]
//! looks at the instances and says what to do next and whether the step is done. The core does it.

pub(crate) mod machine;
pub(crate) mod plan;
pub(crate) mod restart;
pub(crate) mod scale;

pub(crate) use machine::InstanceView;
pub(crate) use plan::{ActionKind, Deployment, Step};
