//! The common part of services with a framework: an elected leader, forwarding to it, and running
//! the framework while the lease is held.
//!
//! * [`Leader`]: which daemon leads, and the handles that only the leader has.
//! * [`Forwarding`]: a middleware that serves a request, redirects it or forwards it to the leader.
//! * [`daemon_key`]: the key by which the daemons of a site recognise each other's requests.
//! * [`Framework`] runs a scheduler and a [`FrameworkService`] while this daemon leads.
//!   [`Abdication`] releases the lease.
//! * [`ServiceHandle`]: the running service, as the rest of the daemon uses it. [`serve`] serves a
//!   port for one service, [`ServicePort`] a port that several services share.
//! * [`ask`] sends a request to an actor and waits for the [`Reply`].
//! * [`feasibility`] finds what pending tasks need and no agent has.
//! * [`Explain`] explains to operators what plugins decide about tasks and events.
//!
//! A service implements [`FrameworkService`] and wires these together in its `start.rs`. The rules,
//! records and routes of a service are in its own crate.
//!
//! # Failures
//!
//! If the stored state cannot be read because the store is unavailable, the daemon campaigns again.
//! A record that cannot be decoded ends the service ([`ServiceError::is_permanent`]). If a part of a
//! service ends unexpectedly, the whole service ends, and [`ServiceHandle::stopped`] returns.

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

mod actor;
mod daemon_key;
mod error;
mod explain;
pub mod feasibility;
mod forwarding;
mod framework;
mod leader;
mod service;

pub use actor::{ActorError, Reply, ask};
pub use daemon_key::{check_record, daemon_key};
pub use error::{Error, Result, ServiceError, StateError};
pub use explain::{
    EventsExplanation, Explain, ExplainDecisions, PlacementExplanation, ProbeExplanation, explain_pending,
    explain_run_spec,
};
pub use forwarding::{Forwarding, RequestedUri, Route};
pub use framework::{Abdication, Framework, FrameworkService, LeaderTerm, RunningTerm};
pub use leader::{InstalledHandles, Leader, LeaderAddress, LeaderHandles, NoLeader};
pub use service::{FrameworkStatus, Routes, ServiceHandle, ServicePort, serve};
