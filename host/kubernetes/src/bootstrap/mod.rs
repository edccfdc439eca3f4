//! The script that the containers of servers and agents run first.
//!
//! [`source::Source`] fetches it, bounded in size and time, and keeps it for a while. The bootstrap
//! component prepares it for each container ([`prepare`]). [`Scripts`] serves what the component
//! returned to the cluster's fetcher.

mod prepare;
pub(crate) mod scripts;
mod source;

pub(crate) use prepare::{Bootstrap, NotPrepared, PluginBootstrap, Prepared};
pub(crate) use scripts::Scripts;
