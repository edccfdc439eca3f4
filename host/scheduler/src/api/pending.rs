//! What can be asked of the scheduler at any time: what waits and why, and how the connection stands.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use transom_cluster::{FrameworkId, TaskId};

/// A wanted task that has no place yet.
#[derive(Clone, Debug)]
pub struct PendingTask {
    /// Which task.
    pub task: TaskId,
    /// [`RunSpec::id`](crate::RunSpec::id).
    pub run_spec: String,
    /// [`RunSpec::version`](crate::RunSpec::version).
    pub version: String,
    /// Since when it has been wanted.
    pub since: Timestamp,
    /// Not to be launched before; `None` when that was never asked.
    pub not_before: Option<Timestamp>,
    /// Why, shared by all tasks of the run spec.
    pub reasons: Arc<Reasons>,
}

/// Why a run spec's tasks wait. An offer that fails for several reasons counts once for each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reasons {
    /// The last round: how often each reason was met. `Backoff`, `NoOffers`, `Disconnected`,
    /// `MatcherUnavailable` and `StoreUnavailable` stand for the round itself and count 1.
    pub last: BTreeMap<Reason, u32>,
    /// Offers looked at in the last round.
    pub last_offers: u32,
    /// The last round: how many agents each condition refused, by its index in
    /// [`RunSpec::constraints`](crate::RunSpec::constraints). A refusal by a rule of the matcher's own is in none of
    /// these, but in `message`.
    pub last_constraints: BTreeMap<u32, u32>,
    /// What more there is to say of the last round: the matcher's own error, or how many agents it refused by no
    /// condition.
    pub message: Option<String>,
    /// The sum of all rounds since the first of these tasks was wanted.
    pub total: BTreeMap<Reason, u64>,
    /// Offers looked at since then.
    pub total_offers: u64,
    /// Offers looked at since then in which no task of this run spec was launched.
    pub total_refused_offers: u64,
    /// Rounds in which these tasks were matched.
    pub rounds: u64,
}

/// Why an offer was refused, or why there was nothing to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[non_exhaustive]
pub enum Reason {
    /// No resource of the offer has a role that the run spec accepts.
    UnfulfilledRole,
    /// The agent is in a maintenance window.
    AgentMaintenance,
    /// A condition, or the matcher's own rules, refused the agent.
    UnfulfilledConstraint,
    /// Too few CPUs.
    InsufficientCpus,
    /// Too little memory.
    InsufficientMemory,
    /// Too little disk.
    InsufficientDisk,
    /// Too few GPUs.
    InsufficientGpus,
    /// Too few ports, or a fixed one is not on offer.
    InsufficientPorts,
    /// Its `not_before` has not come.
    Backoff,
    /// No offer has been there to be tried yet.
    NoOffers,
    /// There is no subscription to the cluster.
    Disconnected,
    /// The attribute matcher is missing or failed; nothing is launched without it.
    MatcherUnavailable,
    /// The state store does not take the intent; nothing is launched without it.
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
            Self::Backoff => "Backoff",
            Self::NoOffers => "NoOffers",
            Self::Disconnected => "Disconnected",
            Self::MatcherUnavailable => "MatcherUnavailable",
            Self::StoreUnavailable => "StoreUnavailable",
        }
    }
}

/// How the subscription stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionStatus {
    /// The framework's id, from the store or from the cluster.
    pub framework_id: Option<FrameworkId>,
    /// Subscribed now.
    pub connected: bool,
    /// The leading master's host name and port, of the present or the last subscription.
    pub master: Option<String>,
    /// Since when `connected` is as it is.
    pub since: Timestamp,
}
