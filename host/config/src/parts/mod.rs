//! The configurations of the parts of the daemon, each from its section of the settings.

pub mod cluster;
pub mod discovery;
pub mod plugins;
pub mod registries;
pub mod store;
pub mod workflow;
