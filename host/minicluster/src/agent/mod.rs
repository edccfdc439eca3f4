//! The agents' side: running tasks as process groups, checking them, and the agents' own HTTP ports.

pub(crate) mod check;
pub(crate) mod files;
pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod journal;
pub(crate) mod nested;
pub(crate) mod process;
pub(crate) mod runner;
pub(crate) mod sandbox;
pub(crate) mod views;
