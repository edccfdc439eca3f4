//! Status updates: stored, then delivered and acknowledged.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::FutureExt;
use jiff::Timestamp;
use tokio::time::Instant;
use transom_cluster::TaskId;
use transom_cluster::v1::{self, TaskState};
use transom_common::ambient;
use transom_common::error_chain;

use super::calls::make_calls;
use super::{Actor, Inbound};
use crate::store::transition::{self, StatusEffect};
use crate::{Event, Phase, TaskRecord};

/// The effects of a batch of statuses.
#[derive(Default)]
struct StatusEffects {
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
    pub(super) async fn save_statuses(&mut self) {
        self.statuses_saved_at = Instant::now();
        if (self.inbound.is_empty() && !self.ledger.is_dirty())
            || self.store_retry.is_backing_off(Instant::now())
        {
            return;
        }
        let effects = self.apply_inbound(ambient::now());
        if let Err(error) = self
            .ledger
            .commit(effects.changed.values().cloned().collect())
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
        self.metrics.duplicate_status_updates.inc_by(effects.duplicates);
        self.metrics.unknown_status_updates.inc_by(effects.unknown);
        for (record, first_run) in &effects.states {
            self.metrics.changed(record);
            self.launch_spans.changed(record);
            if *first_run {
                self.metrics.started(record);
            }
        }
        for record in effects.changed.values() {
            self.after_change(record);
        }
        for task in effects.returned {
            self.kills.schedule(task, Instant::now());
        }
        for status in &effects.orphans {
            self.handle_orphan(status);
        }
        let statuses = self.statuses_taken(&effects.unconfirmed_unknown);
        self.outbox.extend(effects.events);
        // The statuses are stored, so they may be delivered before the acknowledgement, which may
        // be slow.
        self.publish_state();
        self.deliver();
        self.acknowledge(&statuses).await;
    }

    /// Applies the statuses, in order, to copies of the records.
    fn apply_inbound(&self, now: Timestamp) -> StatusEffects {
        let mut effects = StatusEffects::default();
        for inbound in &self.inbound {
            let status = match inbound {
                Inbound::Status(status) => status,
                Inbound::Notify(event) => {
                    effects.events.push(event.clone());
                    continue;
                }
            };
            let known = effects
                .changed
                .get(&status.task_id)
                .or_else(|| self.ledger.get(&status.task_id));
            let Some(record) = known else {
                effects.unknown += 1;
                effects.orphans.push(v1::TaskStatus::clone(status));
                effects.events.push(Event::Unknown {
                    status: status.clone(),
                });
                continue;
            };
            if self.is_unconfirmed_unknown(record, status) {
                effects.unconfirmed_unknown.insert(status.task_id.clone());
                continue;
            }
            match transition::apply(record, status, now) {
                StatusEffect::Duplicate => effects.duplicates += 1,
                StatusEffect::Unchanged => {}
                StatusEffect::AlreadyTerminal => effects.orphans.push(v1::TaskStatus::clone(status)),
                StatusEffect::Changed(changed_record) => {
                    // The launch was accepted although the ACCEPT call failed.
                    let launched = record.phase == Phase::Intent && changed_record.phase == Phase::Launched;
                    if changed_record.killing
                        && record.state == TaskState::Unreachable
                        && transition::can_be_killed(&changed_record.state)
                    {
                        effects.returned.push(changed_record.id.clone());
                    }
                    let first_run = record.started_at.is_none() && changed_record.started_at.is_some();
                    let state_changed = record.state != changed_record.state;
                    let changed_record = Arc::new(*changed_record);
                    if state_changed {
                        effects.states.push((Arc::clone(&changed_record), first_run));
                    }
                    if launched {
                        effects.events.push(Event::Launched(Arc::clone(&changed_record)));
                    }
                    effects.events.push(Event::Updated(Arc::clone(&changed_record)));
                    effects.changed.insert(changed_record.id.clone(), changed_record);
                }
            }
        }
        effects
    }

    /// Whether `TASK_UNKNOWN` may only mean that the master has just started and its agents have
    /// not registered yet. If it were trusted, the service would start a second instance of a
    /// running task.
    fn is_unconfirmed_unknown(&self, record: &TaskRecord, status: &v1::TaskStatus) -> bool {
        status.state == TaskState::Unknown
            && !record.is_terminal()
            && self.subscribed_at.elapsed() < self.timeouts.unknown_grace()
    }

    /// Updates kills and the demand for offers after a record has changed.
    fn after_change(&mut self, record: &TaskRecord) {
        if transition::is_agent_away(record) {
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
            self.kills.schedule(record.id.clone(), Instant::now());
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
            self.kills.schedule(task.clone(), Instant::now());
        }
    }

    /// Acknowledges statuses. The master repeats a status whose acknowledgement is lost or not sent.
    async fn acknowledge(&mut self, statuses: &[v1::TaskStatus]) {
        let Some(caller) = self.caller.clone() else { return };
        let mut calls = Vec::with_capacity(statuses.len());
        for status in statuses.iter().filter(|status| status.uuid.is_some()) {
            calls.push((status, caller.acknowledge(status).boxed()));
        }
        for (status, result) in make_calls(calls).await {
            if let Some(Err(error)) = result {
                self.metrics.call_failed("ACKNOWLEDGE");
                tracing::debug!(task = %status.task_id, error = error_chain(&error), "ACKNOWLEDGE failed; the master sends the update again");
            }
        }
    }
}
