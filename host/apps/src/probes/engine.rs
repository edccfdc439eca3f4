//! The task that carries out the schedule: starts attempts when they are due, and sends results to
//! the core in batches.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::{self, error::RecvError, error::TryRecvError};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use transom_cluster::agent::Agents;
use transom_plugin_host::Change;
use transom_plugin_host::probe::{Failure, Outcome, Reason};

use super::attempt::Probe;
use super::metrics::Metrics;
use super::wheel::{AttemptEnd, Lane, ProbeId};
use super::{AttemptResult, Report, Schedule};
use crate::policies::Policies;

/// The maximum number of results in one batch.
const MAX_BATCH_RESULTS: usize = 256;

/// The end of an attempt.
type FinishedAttempt = (Arc<Probe>, Result<Outcome, Failure>);

/// Carries out the schedule.
pub(super) struct Engine {
    schedule: Arc<Schedule>,
    policies: Arc<dyn Policies>,
    agents: Option<Agents>,
    reports: mpsc::Sender<Vec<Report>>,
    metrics: Metrics,
    attempts: JoinSet<FinishedAttempt>,
    under_way: HashMap<tokio::task::Id, RunningAttempt>,
    plugins: Replacements,
}

/// A running attempt.
struct RunningAttempt {
    id: ProbeId,
    lane: Lane,
    handle: AbortHandle,
    started: Instant,
    /// The number of the last replacement of a plugin before it began.
    replacements_before: u64,
}

/// The last replacement of each plugin. Replacements are numbered in their order.
#[derive(Default)]
struct Replacements {
    last: u64,
    of_plugin: HashMap<String, u64>,
    /// The number of the last time that notices were missed. They may have been about any plugin.
    of_any: u64,
}

impl Replacements {
    fn replaced_since(&self, plugin: &str, replacements_before: u64) -> bool {
        let replaced = self.of_plugin.get(plugin).copied().unwrap_or(0);
        replaced.max(self.of_any) > replacements_before
    }
}

/// A replacement of a plugin.
enum PluginReplacement {
    One(String),
    /// Notices were missed, so any plugin may have been replaced.
    Any,
}

impl Engine {
    pub(super) fn new(
        schedule: Arc<Schedule>,
        policies: Arc<dyn Policies>,
        agents: Option<Agents>,
        reports: mpsc::Sender<Vec<Report>>,
        metrics: Metrics,
    ) -> Self {
        Self {
            schedule,
            policies,
            agents,
            reports,
            metrics,
            attempts: JoinSet::new(),
            under_way: HashMap::new(),
            plugins: Replacements::default(),
        }
    }

    /// Runs until `token` is cancelled or the receiver of the results is dropped.
    pub(super) async fn run(mut self, token: CancellationToken) {
        let mut changes = self.policies.changes();
        loop {
            self.start_due();
            let due = self.schedule.lock().next_due().map(|due| self.schedule.at(due));
            let mut batch = Vec::new();
            tokio::select! {
                biased;
                () = token.cancelled() => break,
                replaced = next_replacement(&mut changes) => self.replaced(replaced, &mut batch),
                Some(ended) = self.attempts.join_next_with_id() => {
                    // Replacements come before the result, because the attempt may have called the
                    // earlier version.
                    self.handle_pending_replacements(&mut changes, &mut batch);
                    self.ended(ended, &mut batch);
                    while batch.len() < MAX_BATCH_RESULTS && let Some(ended) = self.attempts.try_join_next_with_id() {
                        self.ended(ended, &mut batch);
                    }
                }
                () = self.schedule.changed.notified() => {}
                () = sleep_until_due(due) => {}
            }
            if batch.is_empty() {
                continue;
            }
            tokio::select! {
                biased;
                () = token.cancelled() => break,
                sent = self.reports.send(batch) => if sent.is_err() { break },
            }
        }
        self.attempts.shutdown().await;
        self.metrics.record_sizes(0, 0);
    }

    fn start_due(&mut self) {
        let (starts, scheduled) = {
            let mut wheel = self.schedule.lock();
            self.abort_removed(&wheel);
            (wheel.start(self.schedule.now()), wheel.len())
        };
        for start in starts {
            let (purpose, _) = start.subject.labels();
            self.metrics
                .record_start(purpose, Duration::from_millis(start.late));
            let (policies, agents) = (Arc::clone(&self.policies), self.agents.clone());
            let (probe, previous) = (start.subject, start.previous);
            let handle = self.attempts.spawn(async move {
                let result = probe.attempt(previous, &*policies, agents.as_ref()).await;
                (probe, result)
            });
            self.under_way.insert(
                handle.id(),
                RunningAttempt {
                    id: start.id,
                    lane: start.lane,
                    handle,
                    started: Instant::now(),
                    replacements_before: self.plugins.last,
                },
            );
        }
        self.metrics.record_sizes(self.under_way.len(), scheduled);
    }

    /// Aborts the attempts of removed probes, so that waiting probes can start.
    fn abort_removed(&self, wheel: &super::Wheel<Arc<Probe>>) {
        if wheel.removed_running() == 0 {
            return;
        }
        for attempt in self
            .under_way
            .values()
            .filter(|attempt| !wheel.contains(attempt.id))
        {
            attempt.handle.abort();
        }
    }

    fn ended(
        &mut self,
        ended: Result<(tokio::task::Id, FinishedAttempt), JoinError>,
        batch: &mut Vec<Report>,
    ) {
        let (task, result) = match ended {
            Ok((task, end)) => (task, Some(end)),
            Err(error) => {
                if error.is_panic() {
                    tracing::error!(%error, "a probe panicked");
                }
                (error.id(), None)
            }
        };
        let Some(attempt) = self.under_way.remove(&task) else {
            return;
        };
        let Some((probe, result)) = result else {
            let now = self.schedule.now();
            self.schedule
                .lock()
                .ended(attempt.id, attempt.lane, AttemptEnd::Failed, now);
            return;
        };
        let attempt_end = match &result {
            Ok(outcome) => AttemptEnd::Completed(outcome.clone()),
            Err(failure) if failure.reason == Reason::Plugin => AttemptEnd::PluginFailed,
            Err(_) => AttemptEnd::Failed,
        };
        self.metrics
            .ended(probe.labels(), probe.outcome(&result), attempt.started.elapsed());
        if let Err(failure) = &result {
            tracing::debug!(
                task = %probe.record.id, purpose = ?probe.purpose, reason = ?failure.reason,
                message = failure.message, "probe could not be made"
            );
        }
        let plugin_failed = attempt_end == AttemptEnd::PluginFailed;
        let (now, mut wheel) = (self.schedule.now(), self.schedule.lock());
        let Some(subject) = wheel.ended(attempt.id, attempt.lane, attempt_end, now) else {
            return;
        };
        batch.push(Report {
            probe: subject,
            result: AttemptResult::Ended(result),
        });
        if plugin_failed {
            let plugin = self.policies.prober(&probe.kind());
            if self.plugins.replaced_since(&plugin, attempt.replacements_before) {
                let retried = wheel.retry_failed(|id, _| id == attempt.id, now);
                batch.extend(retried.into_iter().map(obsolete_report));
            }
        }
    }

    fn handle_pending_replacements(
        &mut self,
        changes: &mut broadcast::Receiver<Change>,
        batch: &mut Vec<Report>,
    ) {
        loop {
            match changes.try_recv() {
                Ok(change) => {
                    if let Some(name) = replaced(change) {
                        self.replaced(PluginReplacement::One(name), batch);
                    }
                }
                Err(TryRecvError::Lagged(_)) => self.replaced(PluginReplacement::Any, batch),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    /// Repeats the probes that failed in the earlier version of a replaced plugin.
    fn replaced(&mut self, replaced: PluginReplacement, batch: &mut Vec<Report>) {
        self.plugins.last += 1;
        let name = match replaced {
            PluginReplacement::One(name) => {
                self.plugins.of_plugin.insert(name.clone(), self.plugins.last);
                Some(name)
            }
            PluginReplacement::Any => {
                self.plugins.of_any = self.plugins.last;
                None
            }
        };
        let affected = |_: ProbeId, probe: &Arc<Probe>| {
            name.as_ref()
                .is_none_or(|name| self.policies.prober(&probe.kind()) == *name)
        };
        let now = self.schedule.now();
        let retried = self.schedule.lock().retry_failed(affected, now);
        batch.extend(retried.into_iter().map(obsolete_report));
    }
}

fn obsolete_report(probe: Arc<Probe>) -> Report {
    Report {
        probe,
        result: AttemptResult::Obsolete,
    }
}

async fn sleep_until_due(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => pending().await,
    }
}

/// The plugin of which another version serves all tasks, or a share of them as a canary.
fn replaced(change: Change) -> Option<String> {
    match change {
        Change::Admitted { name, .. }
        | Change::RolledBack { name, .. }
        | Change::Canary { name, .. }
        | Change::Promoted { name, .. }
        | Change::Aborted { name, .. } => Some(name),
        Change::Rejected { .. }
        | Change::Shadowing { .. }
        | Change::Removed { .. }
        | Change::Disabled { .. } => None,
    }
}

async fn next_replacement(changes: &mut broadcast::Receiver<Change>) -> PluginReplacement {
    loop {
        match changes.recv().await {
            Ok(change) => {
                if let Some(name) = replaced(change) {
                    return PluginReplacement::One(name);
                }
            }
            Err(RecvError::Lagged(_)) => return PluginReplacement::Any,
            // The plugin host has stopped, so there are no more replacements.
            Err(RecvError::Closed) => pending().await,
        }
    }
}
