//! Background tasks of the directory: admissions, and rollbacks that operators requested.
//!
//! A plugin has at most one admission in progress. New files and rollbacks cancel it, including its
//! compilation. At most [`MAX_ADMISSIONS`] admissions run at a time over all plugins; the others
//! are queued, and their files are read again when they start. Once the host serves calls,
//! admissions run at low priority, so that calls do not wait for them. Rollbacks are not queued,
//! run at normal priority and have separate compiler slots.

use tokio::{sync::oneshot, task::JoinSet};
use tokio_util::sync::DropGuard;
use transom_registry::Origin;

use super::{
    files::Fingerprint,
    pending_admission::{AdmissionResult, RestoreResult},
};
use crate::{
    error::CommandError,
    observe::status::Change,
    runtime::{executor::Priority, pool::Runtime},
};

/// Maximum number of concurrent admissions.
pub(super) const MAX_ADMISSIONS: usize = 4;

/// Identifies a background task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskNumber(u64);

/// A background task; dropping it cancels it.
pub(super) struct Task {
    number: TaskNumber,
    _stop: DropGuard,
}

/// An admission in progress.
pub(super) struct Admission {
    pub(super) task: Task,
    pub(super) files: Fingerprint,
    pub(super) origin: Origin,
    /// The imports of the previous version at the start of the admission.
    pub(super) previous_imports: Option<Vec<String>>,
}

/// A rollback in progress.
pub(super) struct PendingRollback {
    pub(super) task: Task,
    pub(super) record: u64,
    pub(super) by: String,
    pub(super) answer: oneshot::Sender<Result<Change, CommandError>>,
    /// Whether it cancelled an admission.
    pub(super) interrupted: bool,
}

/// The result of a background task.
#[allow(
    clippy::large_enum_variant,
    reason = "there are a few of these at a time, each moved once"
)]
pub(super) enum Completion {
    Admission(AdmissionResult),
    Rollback(RestoreResult),
}

/// A finished background task. It has no completion if it was cancelled or panicked.
pub(super) struct FinishedTask {
    pub(super) name: String,
    pub(super) number: TaskNumber,
    pub(super) completion: Option<Completion>,
}

/// The running background tasks.
#[derive(Default)]
pub(super) struct BackgroundTasks {
    running: JoinSet<FinishedTask>,
    last: u64,
}

impl Task {
    pub(super) fn is(&self, number: TaskNumber) -> bool {
        self.number == number
    }
}

impl BackgroundTasks {
    /// Runs `work` for a plugin in the background; [`BackgroundTasks::next`] returns its
    /// completion.
    pub(super) fn spawn(
        &mut self,
        runtime: &Runtime,
        name: &str,
        priority: Priority,
        work: impl Future<Output = Completion> + Send + 'static,
    ) -> Task {
        self.last += 1;
        let number = TaskNumber(self.last);
        let token = runtime.token.child_token();
        let stop = token.clone().drop_guard();
        let (sender, receiver) = oneshot::channel();
        let work = async move {
            if let Some(completion) = token.run_until_cancelled(work).await {
                // Sending fails if the directory's task has ended.
                drop(sender.send(completion));
            }
        };
        // Admissions and rollbacks run guest code, so they need the executor for guests.
        match priority {
            Priority::Background => runtime.executor.spawn_low(&runtime.tracker, work),
            Priority::Interactive => runtime.executor.spawn(&runtime.tracker, work),
        }
        let name = name.to_owned();
        self.running.spawn(async move {
            let completion = receiver.await.ok();
            FinishedTask {
                name,
                number,
                completion,
            }
        });
        Task { number, _stop: stop }
    }

    /// Returns the next task that ends. `None` if no task is running.
    pub(super) async fn next(&mut self) -> Option<FinishedTask> {
        self.running.join_next().await?.ok()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }
}
