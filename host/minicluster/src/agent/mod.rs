//! The agents. Each runs tasks as process groups or containers, checks them, and has its own HTTP
//! port.

pub(crate) mod check;
pub(crate) mod container;
pub(crate) mod executor;
pub(crate) mod executor_api;
pub(crate) mod files;
pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod journal;
pub(crate) mod nested;
pub(crate) mod process;
pub(crate) mod runner;
pub(crate) mod sandbox;
pub(crate) mod views;
