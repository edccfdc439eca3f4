//! Background tasks of the directory: admissions, and rollbacks that operators requested.
//!
//! A plugin has at most one admission in progress. New files and rollbacks cancel it, its
//! compilation included. At most [`MAX_ADMISSIONS`] admissions run at a time over all plugins; the
//! others wait, and their files are read again when their turn comes. Rollbacks do not wait and use
//! their own compiler slots.

use tokio::sync::oneshot;
use tokio_util::sync::DropGuard;

use super::{Directory, files::Fingerprint, lifecycle::AdmissionResult};
use crate::{admission::Admitted, error::CommandError, origin::Origin, status::Change};

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
    pub(super) before: Option<Vec<String>>,
}

/// A rollback in progress.
pub(super) struct PendingRollback {
    pub(super) task: Task,
    pub(super) record: u64,
    pub(super) by: String,
    pub(super) answer: oneshot::Sender<Result<Change, CommandError>>,
    /// It cancelled an admission.
    pub(super) interrupted: bool,
}

/// The result of a background task.
#[allow(
    clippy::large_enum_variant,
    reason = "there are a few of these at a time, each moved once"
)]
pub(super) enum Completion {
    AdmissionResult(AdmissionResult),
    Returned(Result<Admitted, CommandError>),
}

/// A finished background task; no completion if it was cancelled or panicked.
pub(crate) struct FinishedTask {
    pub(super) name: String,
    pub(super) number: TaskNumber,
    pub(super) completion: Option<Completion>,
}

impl Task {
    pub(super) fn is(&self, number: TaskNumber) -> bool {
        self.number == number
    }
}

impl Directory {
    /// Runs `work` in the background; `self.tasks` yields its completion.
    pub(super) fn spawn_task(
        &mut self,
        name: &str,
        work: impl Future<Output = Completion> + Send + 'static,
    ) -> Task {
        self.last_task += 1;
        let number = TaskNumber(self.last_task);
        let runtime = self.runtime();
        let token = runtime.token.child_token();
        let stop = token.clone().drop_guard();
        let (tell, told) = oneshot::channel();
        // It calls guests.
        runtime.executor.spawn(&runtime.tracker, async move {
            if let Some(completion) = token.run_until_cancelled(work).await {
                // The directory's task may have ended.
                drop(tell.send(completion));
            }
        });
        let name = name.to_owned();
        self.tasks.spawn(async move {
            let completion = told.await.ok();
            FinishedTask {
                name,
                number,
                completion,
            }
        });
        Task { number, _stop: stop }
    }

    /// Whether another admission may start now.
    pub(super) fn has_capacity(&self) -> bool {
        self.admissions.len() < MAX_ADMISSIONS
    }

    /// Whether the admission of a plugin's files is in progress or queued.
    pub(super) fn is_pending(&self, name: &str) -> bool {
        self.admissions.contains_key(name) || self.waiting.contains_key(name)
    }

    /// Cancels the admission of a plugin's files; returns whether there was one.
    pub(super) fn cancel_pending(&mut self, name: &str) -> bool {
        let there = self.is_pending(name);
        if there {
            self.admissions.remove(name);
            self.waiting.remove(name);
            self.change_table(|table| {
                let _ = table.admitting.remove(name);
            });
        }
        there
    }
}
