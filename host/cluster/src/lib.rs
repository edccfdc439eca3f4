//! The cluster manager's HTTP API v1, typed: what masters and agents say, and a client that asks them.
//!
//! * [`v1`] has the messages, [`ids`] the names in them, [`state`] the older state document.
//! * [`Client`] finds the leading master and asks it: [`Client::subscribe`] for a framework ([`scheduler`]),
//!   [`Client::watch`] and the GET calls for an operator ([`operator`]), [`Client::agents`] for the agents ([`agent`]).
//! * [`Config::masters`] lists masters or names a path in ZooKeeper where they register; in the second case
//!   [`Client::leader_changes`] tells at once when another [`Master`] leads, and streams end by themselves.
//! * [`Client::state_as`] reads the older state document into whatever form the caller wants of it, the leader's whichever
//!   master is asked.
//! * [`recordio`] cuts a stream into records.
//! * [`Client::with_guard`] ties what is done in a framework's name to a [`LeadershipGuard`], for several processes of which one
//!   at a time may act.
//!
//! Promised: an event is given when its last byte has come, never when the next one begins. A stream that falls silent
//! is noticed by its heartbeats. Calls never use the subscription's connection. Everything that waits has a deadline,
//! everything that is received has a bound. Credentials never show in logs.
//!
//! Not done here: nothing is retried, and no state is kept between subscriptions. The one task in the background is that
//! which follows ZooKeeper; it ends with the last clone of the client, and [`Client::close`] waits for its end. Whoever calls decides what to do about an [`Error`]; [`Error::is_transient`] tells which are worth another try.
#![forbid(unsafe_code)]

pub mod agent;
mod client;
mod config;
mod detector;
mod error;
mod gzip;
mod http;
pub mod ids;
mod leadership_guard;
mod lenient;
mod login;
mod masters;
pub mod operator;
pub mod recordio;
pub mod scheduler;
pub mod state;
mod stream;
pub mod v1;

pub use agent::HostPort;
pub use client::Client;
pub use config::{Config, Credentials, ServiceAccount, Tls};
pub use detector::{Master, masked};
pub use error::{Error, Result, TransportError};
pub use ids::{
    AgentId, ContainerId, ExecutorId, FrameworkId, OfferId, OperationId, ResourceProviderId, TaskId,
};
pub use leadership_guard::LeadershipGuard;
pub use masters::{LeaderChanges, MasterChanges};
pub use scheduler::{Caller, Subscription};
