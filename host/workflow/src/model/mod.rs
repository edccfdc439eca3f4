//! Jobs as clients define them, and how they are parsed. Pure.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

mod executor_config;
mod field_reader;
mod input;
mod memory;
mod mount;
mod port;
mod schema;
mod spec;

pub(crate) use executor_config::ExecutorConfig;
pub(crate) use input::{Request, read};
pub(crate) use memory::megabytes;
pub(crate) use mount::Mount;
pub(crate) use port::JobPort;
pub(crate) use schema::schema;
pub(crate) use spec::{Command, Containerizer, Key, Spec};
