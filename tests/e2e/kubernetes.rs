//! Kubernetes as tasks of the cluster.

mod autoscale;
mod backup;
mod bootstrap;
pub(crate) mod cli;
mod containers;
mod failures;
mod instances;
mod kvstore;
mod kvstore_restore;
mod readme;
mod real;
mod rolling;
mod servers;
mod standby;
