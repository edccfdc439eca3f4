//! Discovery: DNS and HTTP lookups of running tasks (specification, part A).
//!
//! The operator stream of the cluster manager becomes a [zone](zone::Zone): an immutable table of
//! names that lookups read without locks. The path of a change:
//!
//! 1. `cluster_follower` applies each event to a model of the [`cluster`] and publishes a new zone
//!    shortly after. It also opens a new subscription from time to time, because the stream does
//!    not report everything.
//! 2. [`records`] computes the records of a model with pure functions; `labels` turns texts into
//!    labels.
//! 3. `dns` and `http` answer from the newest zone. `listing` is its text, which responses share.
//!
//! Promises: a task has records from its `TASK_RUNNING` until the update that ends it. During an
//! outage of the cluster manager the last zone stays in service, and the metrics show its age;
//! before the first zone, DNS answers SERVFAIL and HTTP 503. An invalid entry is skipped and
//! counted.
//!
//! Failures: [`Config::start`] fails on invalid settings and on ports that are in use. After that
//! only the token ends discovery; errors of the cluster manager are retried, and logged once when
//! they begin and end. [`source`] decides when the state document is polled instead of the stream.

#![forbid(unsafe_code)]

mod changes;
pub mod cluster;
mod cluster_follower;
pub mod config;
pub mod dns;
pub mod enumerate;
mod error;
mod handle;
mod host_resolver;
mod http;
pub mod labels;
mod listing;
mod mesos_dns_json;
mod metrics;
mod problem;
pub mod records;
pub mod settings;
mod shared;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
pub mod source;
mod summary;
pub mod zone;
pub mod zone_config;

pub use config::{ClusterSettings, Config, ForwardPolicy, IpSource};
pub use error::{Error, Result};
pub use handle::Discovery;
pub use problem::Problem;
pub use settings::Settings;
pub use source::Source;
pub use summary::Summary;
