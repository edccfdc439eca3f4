//! The cluster manager's HTTP API v1, typed: what masters and agents say, and a client that asks them.
//!
//! * [`v1`] has the messages, [`ids`] the names in them, [`state`] the older state document.
//! * [`Client`] finds the leading master and asks it: [`Client::subscribe`] for a framework ([`scheduler`]),
//!   [`Client::watch`] and the GET calls for an operator ([`operator`]), [`Client::agents`] for the agents ([`agent`]).
//! * [`recordio`] cuts a stream into records.
//!
//! Promised: an event is given when its last byte has come, never when the next one begins. A stream that falls silent
//! is noticed by its heartbeats. Calls never use the subscription's connection. Everything that waits has a deadline,
//! everything that is received has a bound. Credentials never show in logs.
//!
//! Not done here: nothing is retried, no state is kept between subscriptions, no task is started in the background.
//! Whoever calls decides what to do about an [`Error`]; [`Error::is_transient`] tells which are worth another try.
#![forbid(unsafe_code)]

pub mod agent;
mod client;
mod config;
mod error;
mod http;
pub mod ids;
mod lenient;
pub mod operator;
pub mod recordio;
pub mod scheduler;
pub mod state;
mod stream;
pub mod v1;

pub use client::Client;
pub use config::{Config, Credentials, Tls};
pub use error::{Error, Result, TransportError};
pub use ids::{
    AgentId, ContainerId, ExecutorId, FrameworkId, OfferId, OperationId, ResourceProviderId, TaskId,
};
pub use scheduler::{Caller, Subscription};
