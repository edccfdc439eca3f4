//! Job A, discovery: DNS and HTTP lookups of what runs where (specification, part A).
//!
//! The operator stream of the cluster manager is turned into a [zone](zone::Zone): an immutable table of names that every
//! lookup reads without a lock and without waiting for anybody. The way of a change:
//!
//! 1. `watch` follows the stream, applies each event to a model of the [`cluster`] and makes a new zone a moment later.
//!    It opens a new subscription from time to time, because the stream does not tell everything.
//! 2. [`records`] says which names a model has, as a pure function; `labels` how texts become parts of names.
//! 3. `dns` and `http` answer from the newest zone.
//!
//! Promises: a task has records from its `TASK_RUNNING` until the update that ends it; an outage of the cluster manager
//! leaves the last good zone in service, for ever if need be, and the metrics say how old it is; before the first one
//! DNS answers SERVFAIL and HTTP 503. One entry that makes no sense is left out and counted, it never stops the others.
//!
//! How it fails: [`Config::start`] fails on settings that make no sense and on ports that are taken. Afterwards nothing
//! ends it but its token; trouble with the cluster manager is retried and logged once when it begins and ends;
//! [`source`] says when the state document is polled instead of the stream.

#![forbid(unsafe_code)]

mod changes;
pub mod cluster;
pub mod config;
pub mod dns;
mod error;
mod handle;
mod http;
pub mod labels;
pub mod listing;
mod map;
mod metrics;
pub mod records;
mod resolve;
pub mod rules;
mod shared;
pub mod source;
mod watch;
pub mod zone;

pub use config::{Config, IpSource, Told};
pub use dns::forward::ForwardPolicy;
pub use error::{Error, Result};
pub use handle::Discovery;
pub use source::Source;
