//! Launches tasks on a Mesos cluster: one actor per framework turns the task requests of a service
//! into accepted offers, and the master's events into stored, ordered events.
//!
//! A service (apps, workflow) holds a [`Scheduler`] and the one [`Events`]. It
//! [`submit`](SchedulerApi::submit)s tasks, follows their events, [`kill`](SchedulerApi::kill)s
//! them and finally [`purge`](SchedulerApi::purge)s their records. Requests never wait: they are
//! queued inside, merged per task, and repeated while the store or the master is unavailable.
//! [`SchedulerApi::tasks`], [`SchedulerApi::pending`] and [`SchedulerApi::subscription`] read
//! immutable snapshots and never wait either.
//!
//! # Promises
//!
//! * An intent is stored before its offer is accepted, so every launched task is known after a
//!   restart. The outcome of an intent is reconciled with the master, never guessed; no intent is
//!   accepted twice.
//! * A status is stored before the service receives it and before it is acknowledged. A repeated
//!   status (same `uuid`) is acknowledged again but not delivered again.
//! * Events are never dropped: while the service reads none, none are read from the master.
//! * No request is lost and none holds up another. One that can never be carried out is an
//!   [`Event::Rejected`]; a task that is withdrawn before its launch is an
//!   [`Event::NeverLaunched`].
//! * Only the matcher decides where a task may run. Without it nothing is launched, and
//!   [`SchedulerApi::pending`] reports that.
//! * An orphaned task (not in the store, or completed according to its record) is killed until it
//!   is gone.
//! * While the store is unavailable nothing is launched or acknowledged; both continue afterwards.
//!
//! # Not here
//!
//! Restarts, backoff and health are up to the service. Requests are not stored: the service submits
//! them again after a restart.
//!
//! # Statuses
//!
//! [`TaskRecord::status`] is the last status, merged: `healthy`, `check_status` and
//! `container_status` are kept when a later status lacks them (a `check_status` without a result
//! counts as missing) until the task reports `TASK_STARTING`; `uuid` is that of the last status
//! that had one. `TASK_UNKNOWN` counts as terminal. A task that the master lost, forgot or dropped
//! becomes live again when it reports, and is killed again if it was killed before; a task that
//! ended stays ended. `store/transition.rs` has the table of all states.
//!
//! # Groups
//!
//! A [`TaskRequest`] whose [`RunSpec::build`] is [`Build::Group`] is several tasks on one agent
//! under one default executor. They are matched together, stored in one batch, launched by one
//! `LAUNCH_GROUP` and killed together. Each has its own record, which names the group, and its own
//! events.
//!
//! # Store
//!
//! `<prefix>/framework-id` holds the framework's id as text, `<prefix>/tasks/<task id>` a
//! [`TaskRecord`] as JSON.
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
mod api;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod bench;
mod config;
mod error;
mod matching;
mod metrics;
mod store;
mod subscription;
#[cfg(test)]
mod testing;

pub use api::event::{Event, Events};
pub use api::handle::Scheduler;
pub use api::pending::{PendingTask, Reason, Reasons, SubscriptionStatus};
pub use api::record::{Phase, TaskRecord, Tasks};
pub use api::request::{
    AgentLocation, Build, BuildGroup, BuildTask, Group, GroupPlacement, InGroup, Member, MemberPlacement,
    Placement, PortRequest, RunSpec, TaskRequest,
};
pub use api::scheduler_api::SchedulerApi;
pub use config::Config;
pub use error::{Error, Result};
pub use matching::agents::to_matcher_agent;
pub use metrics::Metrics;
