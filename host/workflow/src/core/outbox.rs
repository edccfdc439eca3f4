//! What the core wants done elsewhere, by tasks of their own: demands on the scheduler, and what is left to do about runs
//! that have ended.
//!
//! The scheduler hands out events only as fast as the core takes them, so the core must never wait for the scheduler.
//! Nor does it wait for the store to remember an end: until it does, the scheduler's record tells of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use transom_cluster::TaskId;
use transom_scheduler::{SchedulerApi, TaskRequest};

use super::Ended;
use super::persist::{JobRecord, Repository};

/// Pause after something that was not taken.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Demands that were not passed on yet. Bounded by the number of jobs.
#[derive(Debug, Default)]
pub(super) struct Demands {
    want: Vec<TaskRequest>,
    release: BTreeSet<TaskId>,
}

impl Demands {
    pub(super) fn submit(&mut self, wanted: TaskRequest) {
        self.want.push(wanted);
    }

    /// Takes a demand back. False: it was passed on already.
    pub(super) fn withdraw(&mut self, task: &TaskId) -> bool {
        let before = self.want.len();
        self.want.retain(|wanted| wanted.id != *task);
        self.want.len() < before
    }

    pub(super) fn kill(&mut self, task: TaskId) {
        self.release.insert(task);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.want.is_empty() && self.release.is_empty()
    }
}

/// Passes demands on, in order, until the core ends. `never_launched` gets the released tasks that had not been launched: the
/// scheduler says nothing more of those.
pub(super) async fn send_demands(
    scheduler: Arc<dyn SchedulerApi>,
    mut demands: mpsc::Receiver<Demands>,
    never_launched: mpsc::Sender<Vec<TaskId>>,
    token: CancellationToken,
) {
    while let Some(Some(next)) = token.run_until_cancelled(demands.recv()).await {
        let Demands { want, release } = next;
        if !want.is_empty() {
            retry_until_done(&token, "want", || scheduler.submit(want.clone())).await;
        }
        let release: Vec<TaskId> = release.into_iter().collect();
        if release.is_empty() {
            continue;
        }
        retry_until_done(&token, "release", || scheduler.kill(release.clone(), None)).await;
        // What is launched has a record before it is released: records are shown before the next demand is taken.
        let tasks = scheduler.tasks();
        let gone: Vec<TaskId> = release
            .into_iter()
            .filter(|task| !tasks.contains_key(task))
            .collect();
        if !gone.is_empty() && !token.is_cancelled() {
            // The core has ended when it takes no more.
            let _ = never_launched.send(gone).await;
        }
    }
}

/// What is left to do about runs that have ended. Bounded by the number of jobs.
#[derive(Debug, Default)]
pub(super) struct Cleanup {
    /// Stored first, so that a run's end is known when the scheduler's record of it goes.
    pub(super) store: Vec<JobRecord>,
    pub(super) forget: Vec<TaskId>,
}

impl Cleanup {
    pub(super) fn is_empty(&self) -> bool {
        self.store.is_empty() && self.forget.is_empty()
    }
}

/// Tidies up until the core ends. `stored_ends` gets the runs whose end is stored.
pub(super) async fn run_cleanup(
    scheduler: Arc<dyn SchedulerApi>,
    repository: Repository,
    mut cleanup: mpsc::Receiver<Cleanup>,
    stored_ends: mpsc::Sender<Vec<Ended>>,
    token: CancellationToken,
) {
    while let Some(Some(next)) = token.run_until_cancelled(cleanup.recv()).await {
        let Cleanup { store, forget } = next;
        if !store.is_empty() {
            retry_until_done(&token, "store the end of jobs", || repository.put(&store)).await;
        }
        if token.is_cancelled() {
            return;
        }
        if !forget.is_empty() && scheduler.purge(forget.clone()).await.is_err() {
            // One that is not to be forgotten must not keep the others; it is tried again after the next restart.
            for task in forget {
                if let Err(error) = scheduler.purge(vec![task.clone()]).await {
                    tracing::warn!(%task, %error, "purging a completed task failed; retried after the next restart");
                }
            }
        }
        let ends = store
            .into_iter()
            .filter_map(|record| Some((record.end?.at, record.id, record.task)));
        // The core has ended when it takes no more.
        let _ = stored_ends.send(ends.collect()).await;
    }
}

async fn retry_until_done<F, E>(token: &CancellationToken, what: &str, mut demand: impl FnMut() -> F)
where
    F: Future<Output = Result<(), E>>,
    E: std::fmt::Display,
{
    while !token.is_cancelled() {
        match demand().await {
            Ok(()) => return,
            Err(error) => tracing::warn!(what, %error, "write failed; retrying"),
        }
        let _ = token
            .run_until_cancelled(tokio::time::sleep(RETRY_INTERVAL))
            .await;
    }
}
