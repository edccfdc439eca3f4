//! Demands on their way to the scheduler.
//!
//! The scheduler delivers events only as fast as the core receives them, so the core must never
//! wait for the scheduler. Demands are collected here, one entry per task, and a separate task
//! sends and retries them until the scheduler accepts them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use transom_scheduler::error_chain;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use transom_cluster::TaskId;
use transom_scheduler::{SchedulerApi, TaskRequest};

/// Delay after a demand that was not accepted.
const PAUSE: Duration = Duration::from_millis(500);

/// Demands that are not sent yet. Bounded by the number of tasks.
#[derive(Debug, Default)]
pub(super) struct Demands {
    want: BTreeMap<TaskId, TaskRequest>,
    release: BTreeSet<TaskId>,
    forget: BTreeSet<TaskId>,
}

impl Demands {
    pub(super) fn want(&mut self, wanted: TaskRequest) {
        self.want.insert(wanted.id.clone(), wanted);
    }

    pub(super) fn release(&mut self, task: TaskId) {
        self.want.remove(&task);
        self.release.insert(task);
    }

    pub(super) fn forget(&mut self, task: TaskId) {
        self.forget.insert(task);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.want.is_empty() && self.release.is_empty() && self.forget.is_empty()
    }
}

/// Sends demands, in order, until the core ends.
pub(super) async fn run(
    scheduler: Arc<dyn SchedulerApi>,
    mut demands: mpsc::Receiver<Demands>,
    token: CancellationToken,
) {
    loop {
        let Demands {
            want,
            release,
            forget,
        } = tokio::select! {
            () = token.cancelled() => return,
            received = demands.recv() => match received {
                Some(demands) => demands,
                None => return,
            },
        };
        want_all(&*scheduler, &token, want.into_values().collect()).await;
        let release: Vec<TaskId> = release.into_iter().collect();
        if !release.is_empty() {
            let refused = insist(&token, "release", || scheduler.kill(release.clone(), None)).await;
            if let Err(error) = refused {
                tracing::error!(
                    error = error_chain(&error),
                    tasks = release.len(),
                    "the scheduler rejected a kill"
                );
            }
        }
        // A record that cannot be deleted must not block the others; it is retried after the next
        // restart.
        for task in forget {
            if let Err(error) = scheduler.purge(vec![task.clone()]).await {
                tracing::warn!(%task, error = error_chain(&error), "purging a completed task failed; retried after the next restart");
            }
        }
    }
}

/// Submits tasks. A task that the scheduler rejects for good is skipped, so that it does not block
/// the others.
async fn want_all(scheduler: &dyn SchedulerApi, token: &CancellationToken, tasks: Vec<TaskRequest>) {
    let mut batches = vec![tasks];
    while let Some(batch) = batches.pop() {
        if batch.is_empty() {
            continue;
        }
        let Err(error) = insist(token, "want", || scheduler.submit(batch.clone())).await else {
            continue;
        };
        match batch.as_slice() {
            [task] => {
                tracing::error!(task = %task.id, error = error_chain(&error), "the scheduler rejected a task");
            }
            _ => batches.extend(batch.into_iter().map(|task| vec![task])),
        }
    }
}

/// Repeats a demand until the scheduler accepts it or rejects it for good.
async fn insist<F>(
    token: &CancellationToken,
    what: &str,
    mut demand: impl FnMut() -> F,
) -> transom_scheduler::Result<()>
where
    F: Future<Output = transom_scheduler::Result<()>>,
{
    while !token.is_cancelled() {
        match demand().await {
            Ok(()) => return Ok(()),
            Err(error) if error.is_permanent() => return Err(error),
            Err(error) => tracing::warn!(
                what,
                error = error_chain(&error),
                "scheduler request failed; retrying"
            ),
        }
        tokio::select! {
            () = token.cancelled() => {}
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::sync::Mutex;

    use async_trait::async_trait;
    use serde_json::json;
    use transom_scheduler::{Error, PendingTask, SubscriptionStatus, Tasks};

    use super::*;
    use crate::task::{LaunchSettings, run_spec};
    use crate::testing::TEST_TIMEOUT;

    /// Always rejects the task `bad`, and is unavailable for one call.
    #[derive(Debug, Default)]
    struct Picky {
        taken: Mutex<Vec<TaskId>>,
        released: Mutex<Vec<TaskId>>,
        away: Mutex<bool>,
    }

    #[async_trait]
    impl SchedulerApi for Picky {
        async fn submit(&self, tasks: Vec<TaskRequest>) -> transom_scheduler::Result<()> {
            if tasks.iter().any(|task| task.id.as_str() == "bad") {
                return Err(Error::BadGroup {
                    group: "bad".into(),
                    wrong: "has no members",
                });
            }
            if std::mem::take(&mut *self.away.lock().unwrap()) {
                return Err(Error::StoreTimeout {
                    doing: "testing",
                    seconds: 1,
                });
            }
            self.taken
                .lock()
                .unwrap()
                .extend(tasks.into_iter().map(|task| task.id));
            Ok(())
        }

        async fn kill(&self, tasks: Vec<TaskId>, _: Option<Duration>) -> transom_scheduler::Result<()> {
            self.released.lock().unwrap().extend(tasks);
            Ok(())
        }

        async fn purge(&self, _: Vec<TaskId>) -> transom_scheduler::Result<()> {
            Ok(())
        }

        fn tasks(&self) -> Arc<Tasks> {
            Arc::default()
        }

        fn pending(&self) -> Vec<PendingTask> {
            Vec::new()
        }

        fn subscription(&self) -> SubscriptionStatus {
            SubscriptionStatus {
                framework_id: None,
                connected: true,
                master: None,
                since: jiff::Timestamp::UNIX_EPOCH,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_is_never_taken_holds_up_no_other() {
        let app = Arc::new(crate::testing::app(&json!({"id": "/a", "cmd": "sleep 1"})));
        let spec = run_spec(&app, &LaunchSettings::default());
        let wanted = |id: &str| TaskRequest {
            id: id.into(),
            spec: Arc::clone(&spec),
            not_before: None,
            priority: 0,
        };
        let mut demands = Demands::default();
        for id in ["a", "bad", "c"] {
            demands.want(wanted(id));
        }
        demands.release("d".into());
        let picky = Arc::new(Picky {
            away: Mutex::new(true),
            ..Picky::default()
        });
        let (sender, receiver) = mpsc::channel(1);
        sender.send(demands).await.unwrap();
        drop(sender);
        let scheduler: Arc<dyn SchedulerApi> = picky.clone();
        let running = run(scheduler, receiver, CancellationToken::new());
        tokio::time::timeout(TEST_TIMEOUT, running).await.unwrap();
        let mut taken = picky.taken.lock().unwrap().clone();
        taken.sort();
        assert_eq!(taken, [TaskId::from("a"), TaskId::from("c")]);
        assert_eq!(*picky.released.lock().unwrap(), [TaskId::from("d")]);
    }
}
