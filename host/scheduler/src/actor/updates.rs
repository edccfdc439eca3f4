//! Statuses: stored, then told and acknowledged.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;
use transom_cluster::TaskId;
use transom_cluster::v1::{self, TaskState};

use super::{Actor, Inbound, SIDE_BY_SIDE};
use crate::link::chain;
use crate::transition::{self, Step};
use crate::{Event, Phase, TaskRecord};

/// What a batch of statuses comes to.
#[derive(Default)]
struct Outcome {
    changed: HashMap<TaskId, Arc<TaskRecord>>,
    events: Vec<Event>,
    /// Of tasks that should not be there: no record knows them, or it says that they have ended.
    strays: Vec<v1::TaskStatus>,
    /// Released tasks whose agent is back, and which it may only now be possible to kill.
    returned: Vec<TaskId>,
    /// Tasks of which the master knows nothing, perhaps only because it has just begun: asked about again.
    too_early: HashSet<TaskId>,
    duplicates: u64,
    unknown: u64,
}

impl Actor {
    /// Stores what came in and what is owed to the store. When the store fails everything stays as it was, to
    /// be tried again.
    pub(super) async fn save(&mut self) {
        if (self.inbound.is_empty() && !self.ledger.owes()) || self.store_retry.waits(Instant::now()) {
            return;
        }
        let outcome = self.judge_inbound(Timestamp::now());
        if let Err(error) = self
            .ledger
            .commit(outcome.changed.values().cloned().collect())
            .await
        {
            self.store_failed(&error);
            return;
        }
        while self.ledger.owes() {
            if let Err(error) = self.ledger.commit(Vec::new()).await {
                self.store_failed(&error);
                return;
            }
        }
        self.store_works();
        self.metrics.duplicate_status_updates.inc_by(outcome.duplicates);
        self.metrics.unknown_status_updates.inc_by(outcome.unknown);
        for record in outcome.changed.values() {
            self.follow_up(record);
        }
        for task in outcome.returned {
            self.kills.at(task, Instant::now());
        }
        for status in &outcome.strays {
            self.meet_stray(status);
        }
        let statuses = self.statuses_taken(&outcome.too_early);
        self.outbox.extend(outcome.events);
        // It is stored, so it may be told; the master, which is answered next, may take its time.
        self.publish_what_is_told();
        self.deliver();
        self.acknowledge(&statuses).await;
    }

    /// Applies the statuses to copies of the records, in order.
    fn judge_inbound(&self, now: Timestamp) -> Outcome {
        let mut outcome = Outcome::default();
        for inbound in &self.inbound {
            let status = match inbound {
                Inbound::Status(status) => status,
                Inbound::Tell(event) => {
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
                outcome.strays.push(v1::TaskStatus::clone(status));
                outcome.events.push(Event::Unknown {
                    status: status.clone(),
                });
                continue;
            };
            if self.is_too_early(record, status, now) {
                outcome.too_early.insert(status.task_id.clone());
                continue;
            }
            match transition::apply(record, status, now) {
                Step::Duplicate => outcome.duplicates += 1,
                Step::Unchanged => {}
                Step::AfterTheEnd => outcome.strays.push(v1::TaskStatus::clone(status)),
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
    fn is_too_early(&self, record: &TaskRecord, status: &v1::TaskStatus, now: Timestamp) -> bool {
        status.state == TaskState::Unknown
            && !record.is_terminal()
            && now.duration_since(self.connection.since)
                < SignedDuration::try_from(self.times.patience()).unwrap_or(SignedDuration::MAX)
    }

    /// What a changed record means for kills and for those that wait.
    fn follow_up(&mut self, record: &TaskRecord) {
        if transition::agent_is_away(record) {
            self.agent_lost(&record.agent.id);
        }
        if record.is_terminal() {
            self.kills.remove(&record.id);
            // The place it leaves, or the condition it no longer stands against, may be what others wait for.
            self.appetite.whet();
        } else if record.state == TaskState::Unreachable {
            // It stands against no condition any more.
            self.appetite.whet();
        }
        if !record.is_terminal() && record.killing && !self.kills.contains(&record.id) {
            self.kills.at(record.id.clone(), Instant::now());
        }
    }

    /// Empties the inbound queue: every status in it has been dealt with, so its task is no longer in doubt, but
    /// for those of which nothing has been learnt.
    fn statuses_taken(&mut self, doubtful: &HashSet<TaskId>) -> Vec<v1::TaskStatus> {
        let inbound = std::mem::take(&mut self.inbound);
        let statuses: Vec<_> = inbound
            .into_iter()
            .filter_map(|inbound| match inbound {
                Inbound::Status(status) => Some(*status),
                Inbound::Tell(_) => None,
            })
            .collect();
        for status in statuses
            .iter()
            .filter(|status| !doubtful.contains(&status.task_id))
        {
            self.doubts.remove(&status.task_id);
        }
        statuses
    }

    /// A task that should not be there: killed as long as it can be. That it is there no more, or cannot be
    /// reached, ends that; if it comes back it reports again.
    fn meet_stray(&mut self, status: &v1::TaskStatus) {
        let task = &status.task_id;
        if !transition::can_be_killed(&status.state) {
            if self.strays.remove(task).is_some() {
                self.kills.remove(task);
            }
            return;
        }
        let stray = self.strays.entry(task.clone()).or_default();
        stray.agent = status.agent_id.clone().or(stray.agent.take());
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
            .buffer_unordered(SIDE_BY_SIDE)
            .collect()
            .await;
        for (status, outcome) in outcomes {
            if let Err(error) = outcome {
                self.metrics.call_failed("ACKNOWLEDGE");
                tracing::debug!(task = %status.task_id, error = chain(&error), "not acknowledged");
            }
        }
    }
}
