//! From wanted tasks to running ones: one actor per framework turns what a job wants into accepted offers,
//! and what the cluster says into stored, ordered events.
//!
//! A job (apps, workflow, ...) holds a [`Scheduler`] and the one [`Events`]. It [`submit`](Scheduler::submit)s
//! tasks, follows them by events, [`kill`](Scheduler::kill)s and finally [`purge`](Scheduler::purge)s
//! them. Questions ([`Scheduler::tasks`], [`Scheduler::pending`], [`Scheduler::subscription`]) are answered
//! from immutable snapshots and never wait.
//!
//! # Promises
//!
//! * An intent is in the store before the offer is accepted, so no task of ours is ever launched that a
//!   restart would not know. What became of an intent is asked of the cluster (reconciliation), never
//!   guessed, and no intent is accepted twice.
//! * A status is in the store before the job hears of it, and before it is acknowledged. A
//!   repeated status (same `uuid`) is acknowledged again and not told again.
//! * Events are never dropped: while the job takes none, none are read from the cluster.
//! * The attribute matcher decides where a task may run. Without it nothing is launched, and
//!   [`Scheduler::pending`] says so.
//! * A task that should not be there (no record knows it, or its record says that it has ended) is killed until
//!   it is there no more.
//! * While the store is away nothing is launched and nothing acknowledged; both go on when it is back.
//!
//! # Not here
//!
//! Whether a task should run again, backoff, health: the job's business. Demand is not stored: the job hands
//! it over again after a restart.
//!
//! # Statuses
//!
//! [`TaskRecord::status`] is the last status, merged: `healthy`, `check_status` and `container_status` of an
//! earlier one stay when a later one has none (a `check_status` without a result counts as none), until the
//! task reports `TASK_STARTING`, which begins it anew; `uuid` is that of the last status that had one.
//! `TASK_UNKNOWN` counts as terminal. A task that the cluster had lost, forgotten or dropped and that reports
//! again is live again, and killed again if it was released; a task that ended stays ended. The table of all
//! states stands at the top of `transition.rs`.
//!
//! # Groups
//!
//! A [`TaskRequest`] whose [`RunSpec::build`] is [`Build::Group`] is several tasks on one agent under one default
//! executor. They find their place together, their intents are stored in one batch, they are launched by one
//! `LAUNCH_GROUP`, and a release of one is a release of all. Each has a record of its own, which names the
//! group, and is told of by events of its own.
//!
//! # Store
//!
//! `<prefix>/framework-id` holds the framework's id as text, `<prefix>/tasks/<task id>` a [`TaskRecord`] as
//! JSON.
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
pub use api::service_handle::ServiceHandle;
pub use config::Config;
pub use error::{Error, Result};
pub use matching::agents::to_matcher_agent;
pub use metrics::Metrics;
