//! What takes long: admitting a component, and having an earlier version return. Both are done aside from the directory's task, which
//! goes on with orders, with versions that fail and with other plugins meanwhile, and is told what came of it.
//!
//! A plugin has one admission under way at most. When its files change, or an operator goes back to an earlier version, what is under way is given
//! up, compiling included, and nothing comes of it. So many are under way over all plugins as [`MAX_ADMISSIONS`] says; the others wait, and are
//! read again when it is their turn. Returns that operators order wait for nobody, and compile in places of their own.

use tokio::sync::oneshot;
use tokio_util::sync::DropGuard;

use super::{Directory, files::Fingerprint, lifecycle::AdmissionResult};
use crate::{admission::Admitted, error::CommandError, origin::Origin, status::Change};

/// Admissions that are under way at once.
pub(super) const MAX_ADMISSIONS: usize = 4;

/// Tells what is under way from what was before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskNumber(u64);

/// What is under way; dropping it gives it up.
pub(super) struct Task {
    number: TaskNumber,
    _stop: DropGuard,
}

/// An admission that is under way.
pub(super) struct Admission {
    pub(super) task: Task,
    pub(super) files: Fingerprint,
    pub(super) origin: Origin,
    /// What the version before it imports, as it was asked with.
    pub(super) before: Option<Vec<String>>,
}

/// An order to go back that is under way.
pub(super) struct PendingRollback {
    pub(super) task: Task,
    pub(super) record: u64,
    pub(super) by: String,
    pub(super) answer: oneshot::Sender<Result<Change, CommandError>>,
    /// An admission was given up for it.
    pub(super) interrupted: bool,
}

/// What came of it.
#[allow(
    clippy::large_enum_variant,
    reason = "there are a few of these at a time, each moved once"
)]
pub(super) enum Completion {
    AdmissionResult(AdmissionResult),
    Returned(Result<Admitted, CommandError>),
}

/// Something ended, and what came of it; nothing where it was given up, or broke.
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
    /// Does this aside; how it ended is said by `self.tasks`.
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
        // Guests are entered there.
        runtime.executor.spawn(&runtime.tracker, async move {
            if let Some(completion) = token.run_until_cancelled(work).await {
                // The directory may have ended.
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

    /// Whether one more admission may begin, or has to wait for its turn.
    pub(super) fn has_capacity(&self) -> bool {
        self.admissions.len() < MAX_ADMISSIONS
    }

    /// Whether a plugin's files are not done with.
    pub(super) fn is_pending(&self, name: &str) -> bool {
        self.admissions.contains_key(name) || self.waiting.contains_key(name)
    }

    /// Gives up what is under way of a plugin's files; whether there was anything.
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
