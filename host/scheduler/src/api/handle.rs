//! The handle of a service: reads come from snapshots, requests go to the actor.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;
use transom_cluster::TaskId;

use crate::{Error, PendingTask, Result, SubscriptionStatus, TaskRequest, Tasks};

/// A service's handle to its scheduler. Clones are cheap and share the actor.
#[derive(Clone, Debug)]
pub struct Scheduler {
    pub(crate) shared: Arc<Shared>,
}

/// Published by the actor, read by the handles.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) tasks: ArcSwap<Tasks>,
    pub(crate) pending: ArcSwap<Vec<PendingTask>>,
    pub(crate) subscription: ArcSwap<SubscriptionStatus>,
    pub(crate) tracker: TaskTracker,
}

/// A request and where its reply goes.
#[derive(Debug)]
pub(crate) enum Command {
    Submit(Vec<TaskRequest>, Reply),
    Kill(Vec<TaskId>, Option<Duration>, Reply),
    Purge(Vec<TaskId>, Reply),
}

pub(crate) type Reply = oneshot::Sender<Result<()>>;

impl Scheduler {
    /// Queues tasks for launch, in memory only: the service submits them again after a restart. A
    /// task that is in the store is not launched again, nor is a group of which any task is; a
    /// pending one gets the new specification. On [`Error::BadGroup`] nothing was queued.
    pub async fn submit(&self, tasks: Vec<TaskRequest>) -> Result<()> {
        self.request(|reply| Command::Submit(tasks, reply)).await
    }

    /// Drops pending tasks and kills launched ones, repeatedly, until they are terminal. `grace`:
    /// the kill grace period; `None`: the kill policy of the task. Ids that are not in the store
    /// are killed too. A group is killed as a whole: by its own id or, once launched, by the id of
    /// any member.
    pub async fn kill(&self, tasks: Vec<TaskId>, grace: Option<Duration>) -> Result<()> {
        self.request(|reply| Command::Kill(tasks, grace, reply)).await
    }

    /// Deletes the records of terminal tasks; the id of a group stands for all of its tasks.
    /// [`Error::NotTerminal`] if one is not terminal, and then none is deleted; unknown ids are
    /// ignored.
    pub async fn purge(&self, tasks: Vec<TaskId>) -> Result<()> {
        self.request(|reply| Command::Purge(tasks, reply)).await
    }

    /// All records, including terminal ones until they are purged.
    pub fn tasks(&self) -> Arc<Tasks> {
        self.shared.tasks.load_full()
    }

    /// The pending tasks in the order in which they are matched, and why they are pending.
    pub fn pending(&self) -> Vec<PendingTask> {
        self.shared.pending.load().as_ref().clone()
    }

    /// The state of the subscription.
    pub fn subscription(&self) -> SubscriptionStatus {
        self.shared.subscription.load().as_ref().clone()
    }

    /// Returns when everything has ended after the token given at the start was cancelled.
    pub async fn stopped(&self) {
        self.shared.tracker.wait().await;
    }

    async fn request(&self, command: impl FnOnce(Reply) -> Command) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.shared
            .commands
            .send(command(reply))
            .await
            .map_err(|_| Error::Stopped)?;
        answer.await.map_err(|_| Error::Stopped)?
    }
}
