//! Small types that every crate of the daemon needs, each defined once.
//!
//! * [`ambient`]: the time of day, chance and blocking threads, which a simulation replaces
//! * [`Backoff`]: exponential backoff with jitter
//! * [`Described`]: a metric family that is exported before its first series
//! * [`metrics`](metrics!): a struct of metrics, each declared in one place
//! * [`error_chain`]: an error and its sources as one line of a log
//! * [`HostPort`]: a host name or address with a port
//! * [`settings`](settings!): a struct of settings, each declared in one place with its bounds;
//!   [`schema`]: the schemas of their types
//! * [`OrderedReceiver`]: a receiver of a watch channel whose clones are woken in turn
//! * [`Secret`]: a text that is never shown
//! * [`text`]: text for logs and operators: bounded, on one line, without control characters
//! * [`ZooKeeperPath`]: a path in an ensemble; [`masked`]: an address without its password
//! * [`trace`]: the trace context of work, passed along through queues and actors
//!
//! Everything but `ambient`, `OrderedReceiver` and `trace` is pure: no clock, no I/O. A type that only one crate needs belongs
//! in that crate.

pub mod ambient;
mod backoff;
mod error_chain;
mod host_port;
mod metrics;
mod ordered_watch;
pub mod schema;
mod secret;
mod settings;
pub mod text;
pub mod trace;
mod zookeeper_path;

pub use backoff::Backoff;
pub use error_chain::error_chain;
pub use host_port::HostPort;
pub use metrics::{Described, Registered, durations};
pub use ordered_watch::OrderedReceiver;
pub use secret::Secret;
pub use settings::{Bounded, out_of_bounds};
pub use zookeeper_path::{ZooKeeperPath, masked};
