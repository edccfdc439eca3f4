//! Snapshots for readers: pending tasks with their reasons, and the subscription.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use transom_cluster::{FrameworkId, OfferId, TaskId, v1};

use crate::AgentLocation;

/// A requested task that is not launched yet.
#[derive(Clone, Debug)]
pub struct PendingTask {
    /// The task or group.
    pub task: TaskId,
    /// [`RunSpec::id`](crate::RunSpec::id).
    pub run_spec: String,
    /// [`RunSpec::version`](crate::RunSpec::version).
    pub version: String,
    /// When it was submitted.
    pub since: Timestamp,
    /// Earliest launch; `None`: immediately.
    pub not_before: Option<Timestamp>,
    /// Why it is pending. All tasks of the run spec share this value.
    pub reasons: Arc<Reasons>,
}

/// Why a run spec's tasks are pending. An offer that fails for several reasons counts once for
/// each.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Reasons {
    /// In the last round: how often each reason occurred. `Backoff`, `NoOffers`, `Disconnected`,
    /// `MatcherUnavailable` and `StoreUnavailable` apply to the round itself and count 1.
    pub last: BTreeMap<Reason, u32>,
    /// Offers matched in the last round.
    pub last_offers: u32,
    /// In the last round: how many agents each constraint rejected, by its index in
    /// [`RunSpec::constraints`](crate::RunSpec::constraints). Rejections by a rule of the matcher
    /// itself are only in `message`.
    pub last_constraints: BTreeMap<u32, u32>,
    /// Details of the last round: the error of the matcher, or how many agents a rule of the
    /// matcher itself rejected.
    pub message: Option<String>,
    /// The sum of all rounds since the first of these tasks was submitted.
    pub total: BTreeMap<Reason, u64>,
    /// Offers matched since then.
    pub total_offers: u64,
    /// Offers matched since then in which no task of this run spec was launched.
    pub total_refused_offers: u64,
    /// Rounds in which these tasks were matched.
    pub rounds: u64,
    /// Some offers of the last round that were not used for these tasks, at most
    /// [`Reasons::MAX_UNUSED_OFFERS`].
    pub unused_offers: Vec<Arc<UnusedOffer>>,
    /// When a task of this run spec was last launched while others were pending.
    pub last_used_at: Option<Timestamp>,
    /// When an offer was last not used for these tasks.
    pub last_unused_at: Option<Timestamp>,
}

impl Reasons {
    /// Maximum of [`Reasons::unused_offers`].
    pub const MAX_UNUSED_OFFERS: usize = 10;
}

/// An offer that was matched with a run spec and not used for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnusedOffer {
    /// Its id. The offer itself was declined or used for other tasks.
    pub offer: OfferId,
    /// Its agent.
    pub agent: Arc<AgentLocation>,
    /// The agent's attributes.
    pub attributes: Arc<[v1::Attribute]>,
    /// The resources as offered, without those that no task may use.
    pub resources: Vec<Arc<v1::Resource>>,
    /// Why it was not used.
    pub reasons: Vec<Reason>,
    /// When the offer was not used.
    pub at: Timestamp,
}

/// Why an offer was rejected, or why there was nothing to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[non_exhaustive]
pub enum Reason {
    /// No resource of the offer has a role that the run spec accepts.
    UnfulfilledRole,
    /// The agent is in a maintenance window.
    AgentMaintenance,
    /// A constraint, or a rule of the matcher itself, rejected the agent.
    UnfulfilledConstraint,
    /// Too few CPUs.
    InsufficientCpus,
    /// Too little memory.
    InsufficientMemory,
    /// Too little disk.
    InsufficientDisk,
    /// Too few GPUs.
    InsufficientGpus,
    /// Too few ports, or a fixed port is not offered.
    InsufficientPorts,
    /// The offer has GPUs, which are left to tasks that need them.
    DeclinedScarceResources,
    /// The instance has a reservation, and no offer contains its resources.
    NoCorrespondingReservationFound,
    /// Its `not_before` lies in the future.
    Backoff,
    /// No offer has arrived yet.
    NoOffers,
    /// Not subscribed to the master.
    Disconnected,
    /// The matcher is missing or failed; nothing is launched without it.
    MatcherUnavailable,
    /// The state store did not accept the intent; nothing is launched without it.
    StoreUnavailable,
}

impl Reason {
    /// The name as shown, for example `InsufficientCpus`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnfulfilledRole => "UnfulfilledRole",
            Self::AgentMaintenance => "AgentMaintenance",
            Self::UnfulfilledConstraint => "UnfulfilledConstraint",
            Self::InsufficientCpus => "InsufficientCpus",
            Self::InsufficientMemory => "InsufficientMemory",
            Self::InsufficientDisk => "InsufficientDisk",
            Self::InsufficientGpus => "InsufficientGpus",
            Self::InsufficientPorts => "InsufficientPorts",
            Self::DeclinedScarceResources => "DeclinedScarceResources",
            Self::NoCorrespondingReservationFound => "NoCorrespondingReservationFound",
            Self::Backoff => "Backoff",
            Self::NoOffers => "NoOffers",
            Self::Disconnected => "Disconnected",
            Self::MatcherUnavailable => "MatcherUnavailable",
            Self::StoreUnavailable => "StoreUnavailable",
        }
    }
}

/// The state of the subscription to the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionStatus {
    /// The framework's id, from the store or the master.
    pub framework_id: Option<FrameworkId>,
    /// Whether the framework is subscribed now.
    pub connected: bool,
    /// Host name and port of the leading master, of the current or the last subscription.
    pub master: Option<String>,
    /// When `connected` last changed.
    pub since: Timestamp,
}
