//! The script that the containers of servers and agents run first.
//!
//! [`source::Source`] fetches the script, with limits of size and time, and caches it. The bootstrap
//! component prepares it for each container ([`prepare`]). [`Scripts`] serves the prepared scripts to
//! the cluster's fetcher.

mod prepare;
pub(crate) mod scripts;
mod source;

#[cfg(feature = "simulation")]
pub(crate) use prepare::notifications;
pub(crate) use prepare::{Bootstrap, PluginBootstrap, Prepared, ScriptError};
pub(crate) use scripts::Scripts;

#[cfg(test)]
mod tests;
