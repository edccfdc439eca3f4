//! The handle of a service, which reads from snapshots and adds requests to the queue of the actor.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;
use transom_cluster::TaskId;

use super::explanation::ExplanationRequest;
use super::request_queue::{Kill, RequestQueue};
use crate::{
    KillChoice, PendingExplanation, PendingSnapshot, PlacementOf, Reservations, SchedulerApi,
    SubscriptionStatus, TaskRequest, Tasks,
};

/// A service's handle to its scheduler: see [`SchedulerApi`]. Clones are cheap and share the actor.
#[derive(Clone, Debug)]
pub struct Scheduler {
    pub(crate) shared: Arc<Shared>,
}

/// The data that the actor publishes for the handles, and the requests that the handles add for the
/// actor.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) requests: RequestQueue,
    pub(crate) tasks: ArcSwap<Tasks>,
    pub(crate) pending: ArcSwap<PendingSnapshot>,
    pub(crate) reservations: ArcSwap<Reservations>,
    pub(crate) subscription: ArcSwap<SubscriptionStatus>,
    pub(crate) tracker: TaskTracker,
    /// Counts the turns of the actor.
    #[cfg(test)]
    pub(crate) turns: tokio::sync::watch::Sender<u64>,
}

impl Shared {
    fn kill(&self, tasks: &[TaskId], kill: Kill) {
        self.requests.add(|requests| {
            for task in tasks {
                requests.kill(task, kill);
            }
        });
    }
}

impl Scheduler {
    /// Waits until the scheduler has stopped after the cancellation of the token that it was
    /// started with.
    pub async fn stopped(&self) {
        self.shared.tracker.wait().await;
    }
}

impl SchedulerApi for Scheduler {
    fn submit(&self, tasks: Vec<TaskRequest>) {
        self.shared.requests.add(|requests| {
            for task in tasks {
                requests.submit(task);
            }
        });
    }

    fn kill(&self, tasks: Vec<TaskId>, grace: Option<Duration>) {
        let kill = Kill {
            grace,
            ..Kill::default()
        };
        self.shared.kill(&tasks, kill);
    }

    fn restart(&self, tasks: Vec<TaskId>, grace: Option<Duration>) {
        let kill = Kill {
            grace,
            restarting: true,
            ..Kill::default()
        };
        self.shared.kill(&tasks, kill);
    }

    fn select_kills(&self, choice: KillChoice) {
        self.shared
            .requests
            .add(|requests| requests.select_kills(Arc::new(choice)));
    }

    fn explain(&self, placement: PlacementOf) -> oneshot::Receiver<Option<PendingExplanation>> {
        let (response, explanation) = oneshot::channel();
        let request = ExplanationRequest { placement, response };
        self.shared.requests.add(|requests| requests.explain(request));
        explanation
    }

    fn purge(&self, tasks: Vec<TaskId>) {
        self.shared.requests.add(|requests| {
            for task in &tasks {
                requests.purge(task);
            }
        });
    }

    fn add_role(&self, role: &str) {
        self.shared.requests.add(|requests| {
            requests.roles.insert(role.to_owned());
        });
    }

    fn release_reservation(&self, key: &str) {
        self.shared.requests.add(|requests| {
            requests.releases.insert(key.to_owned());
        });
    }

    fn reservations(&self) -> Arc<Reservations> {
        self.shared.reservations.load_full()
    }

    fn tasks(&self) -> Arc<Tasks> {
        self.shared.tasks.load_full()
    }

    fn pending(&self) -> Arc<PendingSnapshot> {
        self.shared.pending.load_full()
    }

    fn subscription(&self) -> SubscriptionStatus {
        self.shared.subscription.load().as_ref().clone()
    }
}
