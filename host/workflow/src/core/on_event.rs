//! Handles the events of the scheduler and the timer.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use transom_cluster::TaskId;
use transom_cluster::v1::TaskState;
use transom_common::{ambient, error_chain};
use transom_scheduler::{Event, TaskRecord};

use super::persist::JobRecord;
use super::run::Cause;
use super::{Core, MAX_COMPLETED, MAX_COMPLETED_BYTES, MAX_EXPIRED_PER_TICK, run};
use crate::job_index::MAX_WAIT;
use crate::job_state::{JobState, from_task_state};
use crate::pending_reason;

impl Core {
    pub(super) fn handle_event(&mut self, event: &Event) {
        match event {
            Event::Launched(record) | Event::Updated(record) => {
                self.apply_record(record);
            }
            Event::NeverLaunched(task) => self.never_launched(task),
            Event::Rejected { task, reason } => {
                tracing::warn!(%task, error = error_chain(&**reason), "the scheduler rejected a request");
                // The job, if it is still pending, can never run.
                self.never_launched(task);
                if self.runs.get(task).is_some_and(|run| run.cluster.is_none()) {
                    self.finish(task, JobState::Error, Some(reason.to_string().into()));
                }
            }
            Event::Registered { framework_id, .. } => {
                tracing::info!(%framework_id, "framework registered");
            }
            Event::Reregistered { .. } => tracing::info!("framework re-registered"),
            Event::Disconnected => tracing::info!("subscription lost; jobs stay pending"),
            // Status updates of the agent's tasks follow.
            Event::AgentLost(agent) => tracing::info!(%agent, "agent lost"),
            // Jobs have no custom executors, no volumes and a single instance each, and the scheduler
            // kills unknown tasks.
            Event::Message { .. }
            | Event::ReservationChanged { .. }
            | Event::KillsSelected { .. }
            // Jobs are not moved for maintenance; they run to their end.
            | Event::MaintenanceDue(_)
            | Event::MaintenanceOver(_)
            | Event::Unknown { .. } => {}
        }
    }

    /// Applies a new record of a task to its run.
    pub(super) fn apply_record(&mut self, record: &Arc<TaskRecord>) {
        let task = &record.id;
        let now = ambient::now();
        let Some(run) = self.runs.get_mut(task) else {
            return self.handle_orphan(record);
        };
        if run.cluster.is_none() {
            let waited = Duration::try_from(now.duration_since(run.record.queued_at)).unwrap_or_default();
            self.metrics.pending_seconds.observe(waited.as_secs_f64());
            self.index.launched(task);
        }
        run.cluster = Some(Arc::clone(record));
        let state = from_task_state(
            run.state,
            &record.state,
            record.updated_at,
            now,
            self.config.unreachable_grace(),
        );
        if state.is_final() {
            return self.finish(task, state, None);
        }
        if state == run.state {
            let view = run.view(run.changed);
            return self.index.update(view);
        }
        self.last = self.last.next();
        (run.state, run.changed, run.at) = (state, self.last, now);
        let view = run.view(run.changed);
        self.index.update(view);
    }

    /// Handles the record of a task that is no active run: kills the task, or purges the record if
    /// the task has ended.
    fn handle_orphan(&mut self, record: &TaskRecord) {
        let task = &record.id;
        if record.is_terminal() {
            self.orphans.remove(task);
            match self.ending.get_mut(task) {
                Some(purge) => *purge = true,
                None => self.scheduler.purge(vec![task.clone()]),
            }
        } else if !record.killing {
            self.orphans.insert(task.clone());
            self.scheduler.kill(vec![task.clone()], None);
        }
    }

    /// Ends a run that was withdrawn before its launch.
    fn never_launched(&mut self, task: &TaskId) {
        let run = self.runs.get_mut(task);
        let outcome = run.and_then(|run| run.outcome_if_not_launched.take());
        if let Some((state, cause)) = outcome {
            self.finish(task, state, Some(cause));
        }
    }

    /// Ends a run. `cause` overrides that of the last status.
    ///
    /// Clients see the end immediately if the scheduler's task record contains it, and otherwise
    /// only after it is stored, so that a crash cannot change it.
    pub(super) fn finish(&mut self, task: &TaskId, state: JobState, cause: Option<Cause>) {
        let Some(run) = self.runs.remove(task) else { return };
        self.active_bytes -= run.spec.bytes();
        let launched = run.cluster.as_ref().and_then(|record| record.staged_at);
        let ran = launched.map(|at| ambient::now().duration_since(at));
        let ran = ran.map(|ran| Duration::try_from(ran).unwrap_or_default());
        self.metrics.completed(state, ran);
        let terminal = run.cluster.as_ref().map(|record| record.is_terminal());
        if terminal == Some(false) {
            // The task may still be running.
            self.orphans.insert(task.clone());
            self.scheduler.kill(vec![task.clone()], None);
        }
        let is_in_scheduler = terminal == Some(true);
        self.ending.insert(task.clone(), is_in_scheduler);
        let changed = is_in_scheduler.then(|| self.next_seq());
        let record = run.ended(state, cause, changed, ambient::now());
        if let (Some(end), Some(changed)) = (&record.end, changed) {
            self.index.end(run::ended_view(&record, end, changed));
        }
        self.end_writer.add(record);
    }

    /// Handles runs whose ends are stored: shows the ends to clients, and purges the scheduler's
    /// task records.
    pub(super) fn ends_stored(&mut self, records: Vec<JobRecord>) {
        let mut purge = Vec::new();
        for record in records {
            if self.ending.remove(&record.task) == Some(true) {
                purge.push(record.task.clone());
            }
            let Some(end) = &record.end else { continue };
            if end.changed.is_none() {
                let changed = self.next_seq();
                self.index.end(run::ended_view(&record, end, changed));
            }
            let run = self.completed_run(&record, end.at);
            self.completed_bytes += run.bytes;
            self.completed.push_back(run);
        }
        self.scheduler.purge(purge);
    }

    /// Handles timeouts and expiry.
    pub(super) async fn tick(&mut self, now: Timestamp) {
        let grace = self.config.unreachable_grace();
        let (mut lost, mut late) = (Vec::new(), Vec::new());
        for (task, run) in &self.runs {
            match &run.cluster {
                Some(record) if record.state == TaskState::Unreachable => {
                    let state = from_task_state(run.state, &record.state, record.updated_at, now, grace);
                    if state.is_final() {
                        lost.push((task.clone(), state));
                    }
                }
                None if run.outcome_if_not_launched.is_none() => {
                    let waited = now.duration_since(run.record.queued_at).as_secs_f64();
                    if let Some(limit) = run.spec.max_wait.filter(|limit| waited >= *limit) {
                        late.push((task.clone(), limit));
                    }
                }
                _ => {}
            }
        }
        for (task, state) in lost {
            self.finish(&task, state, None);
        }
        self.cancel_late(late);
        self.delete_expired(now).await;
        self.run_specs.sweep();
        self.update_gauges();
        self.publish_pending_constraints();
    }

    /// Ends the runs that were pending for too long, with the reason why they were pending.
    fn cancel_late(&mut self, late: Vec<(TaskId, f64)>) {
        if late.is_empty() {
            return;
        }
        let pending = self.scheduler.pending();
        for (task, limit) in late {
            let Some(run) = self.runs.get(&task) else { continue };
            let reasons = pending.get(&task).map(|pending| pending.reasons);
            let why = pending_reason::of_job(&run.spec, &self.config, reasons.as_deref(), &self.feasibility);
            let cause = Cause {
                message: format!("not launched within {limit} s (max_wait): {}", why.message),
                reason: Some(MAX_WAIT),
            };
            self.cancel(&task, JobState::Failed, cause);
        }
    }

    /// Deletes expired runs. The core waits for this write, so that no new run gets a task id whose
    /// record is being deleted.
    async fn delete_expired(&mut self, now: Timestamp) {
        let is_old = |at: Timestamp| {
            Duration::try_from(now.duration_since(at)).unwrap_or_default()
                >= self.config.completed_retention()
        };
        let surplus = surplus(
            self.completed.iter().map(|run| run.bytes),
            self.completed.len().saturating_sub(MAX_COMPLETED),
            self.completed_bytes.saturating_sub(MAX_COMPLETED_BYTES),
        );
        let mut to_delete: Vec<TaskId> = std::mem::take(&mut self.unconfirmed);
        let unconfirmed = to_delete.len();
        let expired = self.completed.iter().enumerate().take(MAX_EXPIRED_PER_TICK);
        let expired = expired.take_while(|(index, run)| *index < surplus || is_old(run.at));
        to_delete.extend(expired.map(|(_, run)| run.task.clone()));
        if to_delete.is_empty() {
            return;
        }
        if let Err(error) = self.repository.delete(&to_delete).await {
            tracing::warn!(
                error = error_chain(&error),
                "deleting expired jobs from the store failed; retrying"
            );
            to_delete.truncate(unconfirmed);
            self.unconfirmed = to_delete;
            return;
        }
        for run in self.completed.drain(..to_delete.len() - unconfirmed) {
            self.completed_bytes -= run.bytes;
            self.stored_ids.remove(&run.task);
            self.index.remove(&run.id, &run.task);
        }
    }
}

/// How many of the oldest entries are deleted so that their number shrinks by `count` and their
/// bytes by `bytes`.
fn surplus(sizes: impl Iterator<Item = usize>, count: usize, bytes: usize) -> usize {
    let mut freed = 0;
    let by_bytes = sizes.take_while(|size| {
        let is_over = freed < bytes;
        freed += size;
        is_over
    });
    by_bytes.count().max(count)
}

#[cfg(test)]
mod surplus_tests {
    use super::surplus;

    #[test]
    fn oldest_completed_jobs_are_deleted_by_count_and_by_bytes() {
        let sizes = [10, 20, 30, 40];
        for (count, bytes, expected) in [
            (0, 0, 0),
            (3, 0, 3),
            (0, 1, 1),
            (0, 10, 1),
            (0, 11, 2),
            (1, 100, 4),
        ] {
            assert_eq!(
                surplus(sizes.into_iter(), count, bytes),
                expected,
                "{count} entries, {bytes} bytes"
            );
        }
    }
}
