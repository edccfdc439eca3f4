//! The scheduler's interface to a service as a trait, so that the tests of services can script a
//! scheduler.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use transom_cluster::TaskId;

use crate::{
    KillChoice, PendingExplanation, PendingSnapshot, PlacementOf, Reservations, SubscriptionStatus,
    TaskRequest, Tasks,
};

/// The scheduler as a service uses it. It is implemented by [`Scheduler`](crate::Scheduler) and by
/// scripted schedulers in tests. The other half of the interface is [`Events`](crate::Events).
///
/// No function waits or fails. Requests are kept in memory, merged per task, and carried out in
/// order by the scheduler, which repeats them while the store or the master rejects them. Their
/// results are events. After a restart the service submits its requests again.
pub trait SchedulerApi: Debug + Send + Sync {
    /// Requests launches. A task that is in the store is not launched again, nor is a group of
    /// which any task is; a pending one gets the new specification. A request that can never be
    /// carried out is an [`Event::Rejected`](crate::Event::Rejected).
    fn submit(&self, tasks: Vec<TaskRequest>);

    /// Withdraws tasks. A pending task is dropped and reported by
    /// [`Event::NeverLaunched`](crate::Event::NeverLaunched). A launched task is killed,
    /// repeatedly, until it is terminal. `grace` is the grace period of the kill; if it is `None`,
    /// the kill policy of the task applies. Ids that are not in the store are killed too. A group
    /// is killed as a whole: by its own id or, once launched, by the id of any member.
    fn kill(&self, tasks: Vec<TaskId>, grace: Option<Duration>);

    /// Kills tasks as [`SchedulerApi::kill`] does, and marks their records
    /// ([`TaskRecord::restarting`](crate::TaskRecord::restarting)), so that the service knows after
    /// a restart that it has to launch others in their places. A later kill removes the mark.
    fn restart(&self, tasks: Vec<TaskId>, grace: Option<Duration>);

    /// Requests the kill selection of a run spec that is scaled down. The answer is an
    /// [`Event::KillsSelected`](crate::Event::KillsSelected); nothing is killed. The request waits
    /// while the matcher fails or the framework is not subscribed. A later request for the same run
    /// spec id replaces it. Candidates that have ended are not selected.
    fn select_kills(&self, choice: KillChoice);

    /// Requests the explanation of a placement, for an operator. The matchers are called with the
    /// same input as in a round. The answer is `None` if the task is not pending. The channel is
    /// closed if too many such requests wait, or when the scheduler stops.
    fn explain(&self, placement: PlacementOf) -> oneshot::Receiver<Option<PendingExplanation>>;

    /// Deletes the records of terminal tasks. The id of a group stands for all of its tasks.
    /// Unknown ids are ignored. A task that is not terminal keeps its record, and is reported by an
    /// [`Event::Rejected`](crate::Event::Rejected).
    fn purge(&self, tasks: Vec<TaskId>);

    /// Releases a reservation, which otherwise outlives its tasks and requests, including killed
    /// ones. Its volumes are destroyed with their data, and its resources are unreserved, as soon
    /// as its task has ended and the master offers them. The task is not killed. Until then
    /// [`Reservation::releasing`](crate::Reservation::releasing) is set, also after a restart, and
    /// nothing is launched with the reservation. Then its record is deleted, and a pending request
    /// with the same key reserves other resources. Unknown keys are ignored.
    fn release_reservation(&self, key: &str);

    /// All reservations by key. A reservation exists until it is released, or dropped because its
    /// resources were not reserved in time.
    fn reservations(&self) -> Arc<Reservations>;

    /// Adds a role to those that the framework subscribes with, until this scheduler stops. The
    /// roles of submitted run specs are added automatically. A role that no framework may have is
    /// ignored.
    fn add_role(&self, role: &str);

    /// All records, including terminal ones until they are purged.
    fn tasks(&self) -> Arc<Tasks>;

    /// The pending tasks, and why they are pending. A submitted task is listed as soon as the
    /// scheduler has taken the request.
    fn pending(&self) -> Arc<PendingSnapshot>;

    /// The state of the subscription.
    fn subscription(&self) -> SubscriptionStatus;
}
