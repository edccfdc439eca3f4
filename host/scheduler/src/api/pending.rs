//! Snapshots for readers: pending tasks with their reasons, and the subscription.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use transom_cluster::{FrameworkId, OfferId, TaskId, v1};

use crate::{AgentLocation, Reason};

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

    /// The sentence before the first round.
    pub const NOT_MATCHED: &str = "not matched with any offer yet";

    /// The last round in one sentence: its reasons, most frequent first, and its details.
    pub fn sentence(&self) -> String {
        let mut parts: Vec<String> = self
            .most_frequent()
            .map(|(reason, count)| reason.counted(count, self.last_offers))
            .collect();
        parts.extend(self.message.clone());
        if parts.is_empty() {
            parts.push(Self::NOT_MATCHED.to_owned());
        }
        parts.join("; ")
    }

    /// What an operator can do about the reasons of the last round, the most frequent first.
    pub fn advice(&self) -> Vec<&'static str> {
        let mut advice = Vec::new();
        for (reason, _) in self.most_frequent() {
            if !advice.contains(&reason.words().advice) {
                advice.push(reason.words().advice);
            }
        }
        advice
    }

    fn most_frequent(&self) -> impl Iterator<Item = (Reason, u32)> {
        let mut last: Vec<_> = self
            .last
            .iter()
            .map(|(reason, count)| (*reason, *count))
            .collect();
        last.sort_by_key(|(_, count)| Reverse(*count));
        last.into_iter()
    }
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
