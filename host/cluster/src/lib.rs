//! The cluster manager's HTTP API v1, typed: the messages of masters and agents, and a client.
//!
//! * [`v1`] has the messages, [`ids`] the identifiers, [`state`] the older state document.
//! * [`Client`] finds the leading master: [`Client::subscribe`] for a framework ([`scheduler`]),
//!   [`Client::watch`] and the GET calls for an operator ([`operator`]), [`Client::agents`] for the
//!   agents ([`agent`]).
//! * [`Config::masters`] lists masters or names a path in ZooKeeper where they register; in the
//!   second case [`Client::leader_changes`] reports a new leading [`Master`] immediately, and
//!   streams from the old one end.
//! * [`Client::state_as`] parses the leader's state document as the type that the caller needs.
//! * [`recordio`] splits a stream into records.
//! * [`Client::with_guard`] restricts calls for a framework with a [`LeadershipGuard`], for several
//!   processes of which one is the leader.
//! * [`Config::transport`] takes the place of the network, and [`Config::detected`] that of ZooKeeper,
//!   for simulations.
//!
//! Guarantees: an event is returned when its last byte has arrived, and not only when the next one
//! begins. Missing heartbeats end a silent stream. Calls never use the subscription's connection.
//! Every wait has a timeout, every received size a limit. Credentials are never logged.
//!
//! Not done here: nothing is retried, and no state is kept between subscriptions. The only
//! background task follows ZooKeeper; it ends with the last clone of the client, and
//! [`Client::close`] waits for its end. The caller decides what to do about an [`Error`];
//! [`Error::is_transient`] marks those worth a retry.

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
mod transport;
pub mod v1;

pub use client::{Client, ListedFramework};
pub use config::{Config, Credentials, ServiceAccount, Tls};
pub use detector::{Master, View as MastersView};
pub use error::{Error, Result, TransportError};
pub use ids::{
    AgentId, ContainerId, ExecutorId, FrameworkId, OfferId, OperationId, ResourceProviderId, TaskId,
};
pub use leadership_guard::LeadershipGuard;
pub use masters::{LeaderChanges, MasterChanges};
pub use scheduler::{Caller, Subscription};
pub use transport::{Exchange, Transport};
