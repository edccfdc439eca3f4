//! Status updates: stored, then delivered and acknowledged.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;
use transom_cluster::TaskId;
use transom_cluster::v1::{self, TaskState};
use transom_common::error_chain;

use super::{Actor, Inbound, MAX_CONCURRENT_CALLS};
use crate::store::transition::{self, Step};
use crate::{Event, Phase, TaskRecord};

/// The effects of a batch of statuses.
#[derive(Default)]
struct Outcome {
    changed: HashMap<TaskId, Arc<TaskRecord>>,
    events: Vec<Event>,
    /// Statuses of orphaned tasks.
    orphans: Vec<v1::TaskStatus>,
    /// Killed tasks whose agent has returned, so that a kill can reach them only now.
    returned: Vec<TaskId>,
    /// Tasks that were reported as `TASK_UNKNOWN` shortly after a subscription. They are reconciled
    /// again.
    unconfirmed_unknown: HashSet<TaskId>,
    /// Records whose state changed, each with whether its task runs for the first time.
    states: Vec<(Arc<TaskRecord>, bool)>,
    duplicates: u64,
    unknown: u64,
}

impl Actor {
    /// Stores the received statuses and the dirty records. If the store fails, nothing changes, and
    /// the next turn retries.
    pub(super) async fn save(&mut self) {
        if (self.inbound.is_empty() && !self.ledger.is_dirty())
            || self.store_retry.is_backing_off(Instant::now())
        {
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
        for (record, first_run) in &outcome.states {
            self.metrics.changed(record);
            self.starts.changed(record);
            if *first_run {
                self.metrics.started(record);
            }
        }
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
        // The statuses are stored, so they may be delivered before the acknowledgement, which may
        // be slow.
        self.publish_state();
        self.deliver();
        self.acknowledge(&statuses).await;
    }

    /// Applies the statuses, in order, to copies of the records.
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
                    // The launch was accepted although the ACCEPT call failed.
                    let launched = record.phase == Phase::Intent && next.phase == Phase::Launched;
                    if next.killing
                        && record.state == TaskState::Unreachable
                        && transition::can_be_killed(&next.state)
                    {
                        outcome.returned.push(next.id.clone());
                    }
                    let first_run = record.started_at.is_none() && next.started_at.is_some();
                    let state_changed = record.state != next.state;
                    let next = Arc::new(*next);
                    if state_changed {
                        outcome.states.push((Arc::clone(&next), first_run));
                    }
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

    /// Whether `TASK_UNKNOWN` may only mean that the master has just started and its agents have
    /// not registered yet. If it were trusted, the service would start a second instance of a
    /// running task.
    fn is_unconfirmed_unknown(&self, record: &TaskRecord, status: &v1::TaskStatus, now: Timestamp) -> bool {
        status.state == TaskState::Unknown
            && !record.is_terminal()
            && now.duration_since(self.subscription.since)
                < SignedDuration::try_from(self.times.unknown_grace()).unwrap_or(SignedDuration::MAX)
    }

    /// Updates kills and the demand for offers after a record has changed.
    fn after_change(&mut self, record: &TaskRecord) {
        if transition::agent_is_away(record) {
            self.agent_lost(&record.agent.id);
        }
        if record.is_terminal() {
            self.kills.remove(&record.id);
            // Pending tasks may need its resources, or may have been blocked by it through a
            // constraint.
            self.offer_demand.request_revive();
        } else if record.state == TaskState::Unreachable {
            // It no longer counts for constraints.
            self.offer_demand.request_revive();
        }
        if !record.is_terminal() && record.killing && !self.kills.contains(&record.id) {
            self.kills.at(record.id.clone(), Instant::now());
        }
    }

    /// Empties the inbound queue. The tasks of its statuses need no further reconciliation, except
    /// those in `unconfirmed`.
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

    /// Kills an orphaned task as long as a kill can reach it. If the task has ended or is
    /// unreachable, the kills stop; if it returns, it reports again.
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
            tracing::warn!(%task, state = %status.state, "killing an orphaned task");
            self.kills.at(task.clone(), Instant::now());
        }
    }

    /// Acknowledges statuses. The master repeats a status whose acknowledgement is lost.
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
                tracing::debug!(task = %status.task_id, error = error_chain(&error), "ACKNOWLEDGE failed; the master sends the update again");
            }
        }
    }
}
