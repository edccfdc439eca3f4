//! The Kubernetes service: a Kubernetes cluster as tasks of a framework (specification, part B).
//!
//! The framework runs a datastore, servers and agents of a Kubernetes distribution ("the
//! orchestrator") as containers, keeps them at their wanted counts, and serves an HTTP API. It
//! replaces m3s, which comments call "upstream", with a compatible API and the same containers.
//! [`Config::bind`] binds the port; [`start()`] serves it and returns a handle and a [`Runner`],
//! with which the leader runs the framework. Several frameworks can share a port, each below its own
//! path. Daemons that do not lead forward requests to the leader (see `transom_framework`).
//!
//! # Structure
//!
//! * `plan`: a pure function that computes the next steps from the wanted and the observed state, and
//!   is tested with tables of cases. `kind`: datastore, server and agent.
//! * `autoscale`: a pure function that computes the count of agents from the pods.
//! * `core`: one actor that owns members and wanted counts, carries the steps out, and publishes the
//!   view that requests read (`view`). Slow work runs in jobs, whose results are `core::job_result`.
//! * `task`: converts a member to a task, and defines the ports on which it listens.
//! * `bootstrap`: fetches the script that containers run first, prepares it for a container with the
//!   bootstrap component, and serves the result by digest.
//! * `secrets`: the secrets of the tasks: made once and stored.
//! * `kvstore`: the client of the datastore's own API, if it is an etcd cluster.
//! * `orchestrator`: the client of the Kubernetes API: client configuration, nodes, drains.
//! * `backup`: backups of the datastore, and their restore.
//! * `api`: HTTP on both prefixes, and its OpenAPI document.
//! * `explain`: explains where a pending member may run, for the admin port.
//! * `runner`, `start`: leading and standing by. [`import`]: imports the state of an m3s.
//!
//! # Guarantees
//!
//! * A wanted count is stored before the request is answered, and before a task starts or ends.
//! * A server starts when the datastore is healthy, an agent when a server's API answers.
//! * A kvstore of several members keeps its quorum: one member at a time joins, leaves or is replaced,
//!   and only while the others have the quorum.
//! * One running task at a time is replaced, and the next one only when as many nodes are ready as before.
//! * Of several servers the one that clients use is replaced last, when the client configuration of
//!   another server is served.
//! * An agent's node is drained before its task ends, for at most the drain timeout. While the API does
//!   not answer, a removal is delayed by at most the same timeout.
//! * One backup or restore at a time is under way; it continues after a crash. While a restore changes
//!   the datastore, no server runs.
//! * No task contains a credential of the state store.
//!
//! # Not here
//!
//! The scheduler decides on which agent of the cluster a task runs. [`transom_replicas`] defines the
//! lifecycle of a task after its launch.
//!
//! # Failures
//!
//! Without the store, requests that change something are rejected (503). Without the bootstrap
//! component, or if it rejects the script, servers and agents do not start, and `explain` shows the
//! reason. While the Kubernetes API does not answer, no agent is replaced for its node's state; a
//! server whose API does not answer for the node timeout is replaced. If the leader changes during a
//! requested uncordon, the next leader does not finish it.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "a test that fails may panic"
    )
)]

mod api;
mod autoscale;
mod backup;
mod bootstrap;
pub mod config;
mod core;
mod dependencies;
mod error;
mod explain;
pub mod import;
mod kind;
mod kvstore;
mod metrics;
mod orchestrator;
mod plan;
mod runner;
mod secrets;
pub mod settings;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
mod start;
mod summary;
mod task;
#[cfg(test)]
mod testing;
mod view;

pub use self::core::persist::check_record;
pub use config::Config;
pub use error::Error;
pub use explain::Explainer;
pub use kind::{Kind, PerKind};
pub use runner::Runner;
pub use settings::Settings;
pub use start::{Instance, Resources, start};
pub use summary::{Numbers, Summary, SummaryReader};
pub use view::Failing;

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;
