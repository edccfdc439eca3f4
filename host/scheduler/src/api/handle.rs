//! The handle that jobs hold: questions are answered from snapshots, demands go to the actor.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;
use transom_cluster::TaskId;

use crate::{Error, PendingTask, Result, SubscriptionStatus, TaskRequest, Tasks};

/// A job's handle to its scheduler. Clones are cheap and speak to the same actor.
#[derive(Clone, Debug)]
pub struct Scheduler {
    pub(crate) shared: Arc<Shared>,
}

/// What the actor publishes and the handles read.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) tasks: ArcSwap<Tasks>,
    pub(crate) pending: ArcSwap<Vec<PendingTask>>,
    pub(crate) subscription: ArcSwap<SubscriptionStatus>,
    pub(crate) tracker: TaskTracker,
}

/// A demand and where its answer goes.
#[derive(Debug)]
pub(crate) enum Command {
    Submit(Vec<TaskRequest>, Reply),
    Kill(Vec<TaskId>, Option<Duration>, Reply),
    Purge(Vec<TaskId>, Reply),
}

pub(crate) type Reply = oneshot::Sender<Result<()>>;

impl Scheduler {
    /// Queues tasks for launch, in memory only: the job keeps what it wants and hands it over again after a
    /// restart. A task that has a record is not launched again, nor is a group of which any task has one; one
    /// that waits already gets the new specification. [`Error::BadGroup`]: nothing was queued.
    pub async fn submit(&self, tasks: Vec<TaskRequest>) -> Result<()> {
        self.request(|reply| Command::Submit(tasks, reply)).await
    }

    /// Lets tasks go: those that wait are dropped, those that were launched are killed, with repetition,
    /// until they are terminal. `grace`: how long a task may take to end by itself; `None`: its own kill
    /// policy. Ids that no record knows are killed too. A group goes as a whole: by its own id or, once it was
    /// launched, by any member's.
    pub async fn kill(&self, tasks: Vec<TaskId>, grace: Option<Duration>) -> Result<()> {
        self.request(|reply| Command::Kill(tasks, grace, reply)).await
    }

    /// Takes terminal records out of the store, for the id of a group all of its. [`Error::NotTerminal`] if one is not, and then none is taken;
    /// unknown ids are ignored.
    pub async fn purge(&self, tasks: Vec<TaskId>) -> Result<()> {
        self.request(|reply| Command::Purge(tasks, reply)).await
    }

    /// All records, terminal ones included until they are forgotten.
    pub fn tasks(&self) -> Arc<Tasks> {
        self.shared.tasks.load_full()
    }

    /// What has no place yet, in the order in which it is served, and why.
    pub fn pending(&self) -> Vec<PendingTask> {
        self.shared.pending.load().as_ref().clone()
    }

    /// How the subscription stands.
    pub fn subscription(&self) -> SubscriptionStatus {
        self.shared.subscription.load().as_ref().clone()
    }

    /// Returns when the token given at the start was cancelled and everything has ended.
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
