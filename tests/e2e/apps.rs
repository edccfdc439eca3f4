//! Apps, pods and their tasks.

mod cli;
mod clients;
pub(crate) mod containers;
mod disks;
mod drain;
mod executors;
mod health;
mod import;
mod import_stored;
mod maintenance;
mod pods;
mod recorded_calls;
mod tasks;
