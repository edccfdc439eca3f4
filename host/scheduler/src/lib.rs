//! Launches tasks on a Mesos cluster: one actor per framework turns the task requests of a service
//! into accepted offers, and the master's events into stored, ordered events.
//!
//! A service (apps, workflow) holds a [`Scheduler`] and the one [`Events`]. It
//! [`submit`](SchedulerApi::submit)s tasks, follows their events, [`kill`](SchedulerApi::kill)s
//! them and finally [`purge`](SchedulerApi::purge)s their records. Requests never wait: they are
//! queued in the scheduler, merged per task, and repeated while the store or the master is
//! unavailable. [`SchedulerApi::tasks`], [`SchedulerApi::pending`] and
//! [`SchedulerApi::subscription`] read immutable snapshots and never wait either.
//!
//! # Guarantees
//!
//! * An intent is stored before its offer is accepted, so every launched task is known after a
//!   restart. The outcome of an intent is reconciled with the master, never guessed; no intent is
//!   accepted twice.
//! * A status is stored before the service receives it and before it is acknowledged. A repeated
//!   status (same `uuid`) is acknowledged again but not delivered again.
//! * Events are never dropped: while the service reads none, none are read from the master.
//! * No request is lost, and none delays another. One that can never be carried out is an
//!   [`Event::Rejected`]; a task that is withdrawn before its launch is an
//!   [`Event::NeverLaunched`].
//! * Only the matcher decides where a task may run, and which instances are killed when a run spec
//!   with constraints is scaled down. Without it nothing is launched, and
//!   [`SchedulerApi::pending`] reports that.
//! * An orphaned task (not in the store, or completed according to its record) is killed repeatedly
//!   until it has ended.
//! * While the store is unavailable nothing is launched or acknowledged; both continue afterwards.
//! * A reservation is stored before its resources are reserved. Its volumes are destroyed only when
//!   it is released, or when nothing was ever launched with it. Reserved resources without a record
//!   are removed if they carry the label of this framework's id; those of other frameworks stay.
//!
//! # Out of scope
//!
//! Restarts, backoff and health checks are the responsibility of the service. Requests are not
//! stored: the service submits them again after a restart.
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
//! # Roles
//!
//! [`RunSpec::role`] is the role to which the used offers are allocated. A role that the framework
//! does not have is added by `UPDATE_FRAMEWORK`, which is repeated while the master rejects it, and
//! is part of later subscriptions once it was accepted. After a restart the roles of reservations
//! are added again; those of tasks are added when the service submits tasks or calls
//! [`SchedulerApi::add_role`]. With several roles, those without pending tasks are suppressed.
//! Masters before 1.9 do not support the call, so all roles must be in the configuration there.
//!
//! # Volumes
//!
//! An instance whose [`RunSpec::volumes`] is not empty is launched in two steps. The first offer
//! that matches is answered with `RESERVE` of all its resources and `CREATE` of its volumes, after
//! the [`Reservation`] was stored. The next offer that contains them is used for the launch. All
//! later requests with the same [`TaskRequest::reservation`] are launched with the same resources,
//! and so on the same agent, for whose offer they wait if necessary. They must not need more than
//! was reserved. The matcher is called each time; the other reservations of the run spec count as
//! placed instances.
//!
//! The resources carry labels: `transom_framework_id`, `transom_reservation` (the key) and
//! `transom_reservation_id`, which differs for each attempt. Labels of Marathon
//! (`marathon_framework_id`, `marathon_task_id`) belong to a record with an empty id, if there is
//! one. Tasks without volumes use none of these resources.
//!
//! | record | the master offers | action |
//! |---|---|---|
//! | not yet seen | its resources and volumes | it is seen; its task is launched |
//! | not yet seen | nothing within [`Config::reservation_timeout`], or no volumes | the record is deleted, other resources are reserved |
//! | seen | nothing: its agent is away | it waits |
//! | released | its resources, and its task has ended | `DESTROY`, `UNRESERVE`, then the record is deleted |
//! | released | nothing for 10 minutes after its task ended | the record is deleted |
//! | none, or of another attempt | resources with the labels of this framework | `DESTROY`, `UNRESERVE` |
//!
//! # Maintenance
//!
//! The master announces maintenance by offers with a window and by inverse offers for agents whose
//! resources are in use. [`MaintenanceMode`] decides whether tasks are launched on such an agent and
//! whether they stay. After a restart the windows are known as soon as the master has repeated its
//! inverse offers.
//!
//! # Store
//!
//! `<prefix>/framework-id` holds the framework's id as text, `<prefix>/tasks/<task id>` a
//! [`TaskRecord`] and `<prefix>/reservations/<key>` a [`Reservation`], both as JSON.
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
mod retry;
mod store;
mod subscription;
#[cfg(test)]
mod testing;

pub use api::event::{Event, Events};
pub use api::explanation::{PendingExplanation, PlacementOf};
pub use api::handle::Scheduler;
pub use api::pending::{PendingTask, Reasons, SubscriptionStatus, UnusedOffer};
pub use api::reason::{Reason, ReasonKind, ReasonWords};
pub use api::record::{Phase, TaskRecord, Tasks};
pub use api::request::{
    AgentLocation, Amounts, Build, BuildGroup, BuildTask, ExecutorResources, Group, GroupPlacement, InGroup,
    KillChoice, Member, MemberPlacement, Placement, PortRequest, RunSpec, TaskRequest,
};
pub use api::scheduler_api::SchedulerApi;
pub use api::volume::{DiskKind, LocalVolume, PathConstraint, Reservation, Reservations, VolumeRequest};
pub use api::waiting::{Waiting, waiting};
pub use config::{Config, MaintenanceMode};
pub use error::{Error, Result};
pub use matching::agents::to_matcher_agent;
pub use matching::matchers::Matchers;
pub use matching::queue::{PendingSnapshot, PendingSpec};
pub use metrics::Metrics;
pub use store::records::{FRAMEWORK_ID_KEY, Launched, normalized};
