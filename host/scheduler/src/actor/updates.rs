//! Statuses: stored, then told and acknowledged.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;
use transom_cluster::TaskId;
use transom_cluster::v1::{self, TaskState};

use super::{Actor, Inbound, MAX_CONCURRENT_CALLS};
use crate::error::error_chain;
use crate::store::transition::{self, Step};
use crate::{Event, Phase, TaskRecord};

/// What a batch of statuses comes to.
#[derive(Default)]
struct Outcome {
    changed: HashMap<TaskId, Arc<TaskRecord>>,
    events: Vec<Event>,
    /// Of tasks that should not be there: no record knows them, or it says that they have ended.
    orphans: Vec<v1::TaskStatus>,
    /// Released tasks whose agent is back, and which it may only now be possible to kill.
    returned: Vec<TaskId>,
    /// Tasks of which the master knows nothing, perhaps only because it has just begun: asked about again.
    unconfirmed_unknown: HashSet<TaskId>,
    duplicates: u64,
    unknown: u64,
}

impl Actor {
    /// Stores what came in and what is dirty to the store. When the store fails everything stays as it was, to
    /// be tried again.
    pub(super) async fn save(&mut self) {
        if (self.inbound.is_empty() && !self.ledger.is_dirty()) || self.store_retry.waits(Instant::now()) {
            return;
        }
        let outcome = self.apply_inbound(Timestamp::now());
        if let Err(error) = self
            .ledger
            .commit(outcome.changed.values().cloned().collect())
            .await
        {
            self.store_failed(&error);
            return;
        }
        while self.ledger.is_dirty() {
            if let Err(error) = self.ledger.commit(Vec::new()).await {
                self.store_failed(&error);
                return;
            }
        }
        self.store_succeeded();
        self.metrics.duplicate_status_updates.inc_by(outcome.duplicates);
        self.metrics.unknown_status_updates.inc_by(outcome.unknown);
        for record in outcome.changed.values() {
            self.after_change(record);
        }
        for task in outcome.returned {
            self.kills.at(task, Instant::now());
        }
        for status in &outcome.orphans {
            self.handle_orphan(status);
        }
        let statuses = self.statuses_taken(&outcome.unconfirmed_unknown);
        self.outbox.extend(outcome.events);
        // It is stored, so it may be told; the master, which is answered next, may take its time.
        self.publish_state();
        self.deliver();
        self.acknowledge(&statuses).await;
    }

    /// Applies the statuses to copies of the records, in order.
    fn apply_inbound(&self, now: Timestamp) -> Outcome {
        let mut outcome = Outcome::default();
        for inbound in &self.inbound {
            let status = match inbound {
                Inbound::Status(status) => status,
                Inbound::Notify(event) => {
                    outcome.events.push(event.clone());
                    continue;
                }
            };
            let known = outcome
                .changed
                .get(&status.task_id)
                .or_else(|| self.ledger.get(&status.task_id));
            let Some(record) = known else {
                outcome.unknown += 1;
                outcome.orphans.push(v1::TaskStatus::clone(status));
                outcome.events.push(Event::Unknown {
                    status: status.clone(),
                });
                continue;
            };
            if self.is_unconfirmed_unknown(record, status, now) {
                outcome.unconfirmed_unknown.insert(status.task_id.clone());
                continue;
            }
            match transition::apply(record, status, now) {
                Step::Duplicate => outcome.duplicates += 1,
                Step::Unchanged => {}
                Step::AlreadyTerminal => outcome.orphans.push(v1::TaskStatus::clone(status)),
                Step::Changed(next) => {
                    // The cluster took a launch of which ACCEPT's own answer did not tell.
                    let launched = record.phase == Phase::Intent && next.phase == Phase::Launched;
                    if next.killing
                        && record.state == TaskState::Unreachable
                        && transition::can_be_killed(&next.state)
                    {
                        outcome.returned.push(next.id.clone());
                    }
                    let next = Arc::new(*next);
                    if launched {
                        outcome.events.push(Event::Launched(Arc::clone(&next)));
                    }
                    outcome.events.push(Event::Updated(Arc::clone(&next)));
                    outcome.changed.insert(next.id.clone(), next);
                }
            }
        }
        outcome
    }

    /// Whether "unknown" may only mean that the master has just begun and its agents have not registered again:
    /// believed at once, it would make the job start a second instance of what runs.
    fn is_unconfirmed_unknown(&self, record: &TaskRecord, status: &v1::TaskStatus, now: Timestamp) -> bool {
        status.state == TaskState::Unknown
            && !record.is_terminal()
            && now.duration_since(self.subscription.since)
                < SignedDuration::try_from(self.times.patience()).unwrap_or(SignedDuration::MAX)
    }

    /// What a changed record means for kills and for those that wait.
    fn after_change(&mut self, record: &TaskRecord) {
        if transition::agent_is_away(record) {
            self.agent_lost(&record.agent.id);
        }
        if record.is_terminal() {
            self.kills.remove(&record.id);
            // The place it leaves, or the condition it no longer stands against, may be what others wait for.
            self.offer_demand.request_revive();
        } else if record.state == TaskState::Unreachable {
            // It stands against no condition any more.
            self.offer_demand.request_revive();
        }
        if !record.is_terminal() && record.killing && !self.kills.contains(&record.id) {
            self.kills.at(record.id.clone(), Instant::now());
        }
    }

    /// Empties the inbound queue: every status in it has been dealt with, so its task is no longer in doubt, but
    /// for those of which nothing has been learnt.
    fn statuses_taken(&mut self, unconfirmed: &HashSet<TaskId>) -> Vec<v1::TaskStatus> {
        let inbound = std::mem::take(&mut self.inbound);
        let statuses: Vec<_> = inbound
            .into_iter()
            .filter_map(|inbound| match inbound {
                Inbound::Status(status) => Some(*status),
                Inbound::Notify(_) => None,
            })
            .collect();
        for status in statuses
            .iter()
            .filter(|status| !unconfirmed.contains(&status.task_id))
        {
            self.reconcile_schedule.remove(&status.task_id);
        }
        statuses
    }

    /// A task that should not be there: killed as long as it can be. That it is there no more, or cannot be
    /// reached, ends that; if it comes back it reports again.
    fn handle_orphan(&mut self, status: &v1::TaskStatus) {
        let task = &status.task_id;
        if !transition::can_be_killed(&status.state) {
            if self.orphans.remove(task).is_some() {
                self.kills.remove(task);
            }
            return;
        }
        let orphan = self.orphans.entry(task.clone()).or_default();
        orphan.agent = status.agent_id.clone().or(orphan.agent.take());
        if !self.kills.contains(task) {
            tracing::warn!(%task, state = %status.state, "a task that should not be there is killed");
            self.kills.at(task.clone(), Instant::now());
        }
    }

    /// What does not reach the master comes again by itself.
    async fn acknowledge(&mut self, statuses: &[v1::TaskStatus]) {
        let Some(caller) = self.caller.clone() else { return };
        let mut calls = Vec::with_capacity(statuses.len());
        for status in statuses.iter().filter(|status| status.uuid.is_some()) {
            let caller = &caller;
            calls.push(async move { (status, caller.acknowledge(status).await) }.boxed());
        }
        let outcomes: Vec<_> = futures::stream::iter(calls)
            .buffer_unordered(MAX_CONCURRENT_CALLS)
            .collect()
            .await;
        for (status, outcome) in outcomes {
            if let Err(error) = outcome {
                self.metrics.call_failed("ACKNOWLEDGE");
                tracing::debug!(task = %status.task_id, error = error_chain(&error), "not acknowledged");
            }
        }
    }
}
