//! Tasks that carry out what the core requests elsewhere: requests to the scheduler, and the
//! cleanup after runs that have ended.
//!
//! The scheduler delivers events only as fast as the core reads them, so the core must never wait
//! for the scheduler. Nor does it wait until the end of a run is stored: until then the scheduler's
//! record has it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use transom_scheduler::error_chain;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use transom_cluster::TaskId;
use transom_scheduler::{SchedulerApi, TaskRequest};

use super::Ended;
use super::persist::{JobRecord, Repository};

/// Pause after a failure.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Requests to the scheduler that were not sent yet. Bounded by the number of jobs.
#[derive(Debug, Default)]
pub(super) struct Demands {
    submit: Vec<TaskRequest>,
    kill: BTreeSet<TaskId>,
}

impl Demands {
    pub(super) fn submit(&mut self, wanted: TaskRequest) {
        self.submit.push(wanted);
    }

    /// Withdraws a request. False: it was sent already.
    pub(super) fn withdraw(&mut self, task: &TaskId) -> bool {
        let before = self.submit.len();
        self.submit.retain(|wanted| wanted.id != *task);
        self.submit.len() < before
    }

    pub(super) fn kill(&mut self, task: TaskId) {
        self.kill.insert(task);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.submit.is_empty() && self.kill.is_empty()
    }
}

/// Sends requests, in order, until the core ends. `never_launched` gets the killed tasks that were
/// not launched: the scheduler sends no event for them.
pub(super) async fn send_demands(
    scheduler: Arc<dyn SchedulerApi>,
    mut demands: mpsc::Receiver<Demands>,
    never_launched: mpsc::Sender<Vec<TaskId>>,
    token: CancellationToken,
) {
    while let Some(Some(next)) = token.run_until_cancelled(demands.recv()).await {
        let Demands { submit, kill } = next;
        if !submit.is_empty() {
            retry_until_done(&token, "submit", || scheduler.submit(submit.clone())).await;
        }
        let kill: Vec<TaskId> = kill.into_iter().collect();
        if kill.is_empty() {
            continue;
        }
        retry_until_done(&token, "kill", || scheduler.kill(kill.clone(), None)).await;
        // A launched task is in the snapshot by now: it is published before the scheduler takes the
        // next request.
        let tasks = scheduler.tasks();
        let gone: Vec<TaskId> = kill
            .into_iter()
            .filter(|task| !tasks.contains_key(task))
            .collect();
        if !gone.is_empty() && !token.is_cancelled() {
            // An error means that the core has ended.
            let _ = never_launched.send(gone).await;
        }
    }
}

/// Pending cleanup of runs that have ended. Bounded by the number of jobs.
#[derive(Debug, Default)]
pub(super) struct Cleanup {
    /// Stored first, so that the end of a run is stored before the scheduler's record is purged.
    pub(super) store: Vec<JobRecord>,
    pub(super) purge: Vec<TaskId>,
}

impl Cleanup {
    pub(super) fn is_empty(&self) -> bool {
        self.store.is_empty() && self.purge.is_empty()
    }
}

/// Runs until the core ends. `stored_ends` gets the runs whose end is stored.
pub(super) async fn run_cleanup(
    scheduler: Arc<dyn SchedulerApi>,
    repository: Repository,
    mut cleanup: mpsc::Receiver<Cleanup>,
    stored_ends: mpsc::Sender<Vec<Ended>>,
    token: CancellationToken,
) {
    while let Some(Some(next)) = token.run_until_cancelled(cleanup.recv()).await {
        let Cleanup { store, purge } = next;
        if !store.is_empty() {
            retry_until_done(&token, "store the end of jobs", || repository.put(&store)).await;
        }
        if token.is_cancelled() {
            return;
        }
        if !purge.is_empty() && scheduler.purge(purge.clone()).await.is_err() {
            // One that cannot be purged must not block the others; it is retried after the next
            // restart.
            for task in purge {
                if let Err(error) = scheduler.purge(vec![task.clone()]).await {
                    tracing::warn!(%task, error = error_chain(&error), "purging a completed task failed; retried after the next restart");
                }
            }
        }
        let ends = store
            .into_iter()
            .filter_map(|record| Some((record.end?.at, record.id, record.task)));
        // An error means that the core has ended.
        let _ = stored_ends.send(ends.collect()).await;
    }
}

async fn retry_until_done<F, E>(token: &CancellationToken, what: &str, mut demand: impl FnMut() -> F)
where
    F: Future<Output = Result<(), E>>,
    E: std::error::Error + 'static,
{
    while !token.is_cancelled() {
        match demand().await {
            Ok(()) => return,
            Err(error) => tracing::warn!(what, error = error_chain(&error), "write failed; retrying"),
        }
        let _ = token
            .run_until_cancelled(tokio::time::sleep(RETRY_INTERVAL))
            .await;
    }
}
