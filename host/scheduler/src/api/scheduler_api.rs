//! What a service does with its scheduler, as a trait, so that the tests of services can script
//! one.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use transom_cluster::TaskId;

use crate::{
    KillChoice, PendingExplanation, PendingTask, PlacementOf, Reservations, SubscriptionStatus, TaskRequest,
    Tasks,
};

/// The scheduler as a service sees it. Implemented by [`Scheduler`](crate::Scheduler) and by
/// scripted schedulers in tests; the other half are the [`Events`](crate::Events).
///
/// No function waits or fails. Requests are kept in memory, merged per task, and carried out in
/// order by the scheduler, which repeats what the store or the master does not take. Their results
/// are events. The service submits again after a restart.
pub trait SchedulerApi: Debug + Send + Sync {
    /// Requests launches. A task that is in the store is not launched again, nor is a group of
    /// which any task is; a pending one gets the new specification. A request that can never be
    /// carried out is an [`Event::Rejected`](crate::Event::Rejected).
    fn submit(&self, tasks: Vec<TaskRequest>);

    /// Withdraws tasks. A pending one is dropped and reported by
    /// [`Event::NeverLaunched`](crate::Event::NeverLaunched). A launched one is killed, repeatedly,
    /// until it is terminal. `grace`: the kill grace period; `None`: the kill policy of the task.
    /// Ids that are not in the store are killed too. A group is killed as a whole: by its own id
    /// or, once launched, by the id of any member.
    fn kill(&self, tasks: Vec<TaskId>, grace: Option<Duration>);

    /// Kills tasks as [`SchedulerApi::kill`] does, and notes in their records
    /// ([`TaskRecord::restarting`](crate::TaskRecord::restarting)) that the service launches others
    /// in their places, so that it finds that after a restart. A later kill removes the note.
    fn restart(&self, tasks: Vec<TaskId>, grace: Option<Duration>);

    /// Asks the matcher which instances of a run spec to kill when it is scaled down; the answer is
    /// an [`Event::KillsSelected`](crate::Event::KillsSelected), and nothing is killed. While the
    /// matcher fails or there is no subscription, the question waits. A later question about the
    /// same run spec id replaces it. Candidates that have ended are not chosen.
    fn select_kills(&self, choice: KillChoice);

    /// Asks about a placement, for an operator. The matchers are asked what a round asks them. `None`:
    /// the task is not pending. The answer is closed if too many such questions wait, or when the
    /// scheduler stops.
    fn explain(&self, placement: PlacementOf) -> oneshot::Receiver<Option<PendingExplanation>>;

    /// Deletes the records of terminal tasks; the id of a group stands for all of its tasks.
    /// Unknown ids are ignored. A task that is not terminal keeps its record, and is an
    /// [`Event::Rejected`](crate::Event::Rejected).
    fn purge(&self, tasks: Vec<TaskId>);

    /// Gives up a reservation, which otherwise outlives its tasks and requests, killed ones
    /// included: its volumes are destroyed with their data, and its resources are unreserved, as
    /// soon as its task has ended and the master offers them. The task is not killed. Until then
    /// [`Reservation::releasing`](crate::Reservation::releasing) is set, also after a restart, and
    /// nothing is launched with it; then the record is deleted, and a pending request with the same
    /// key reserves other resources. Unknown keys are ignored.
    fn release_reservation(&self, key: &str);

    /// All reservations by key. They exist until they are released, or were not reserved in time.
    fn reservations(&self) -> Arc<Reservations>;

    /// Adds a role to those that the framework subscribes with, for as long as this scheduler runs.
    /// The roles of submitted run specs are added without it. A role that no framework may have is
    /// ignored.
    fn add_role(&self, role: &str);

    /// All records, including terminal ones until they are purged.
    fn tasks(&self) -> Arc<Tasks>;

    /// The pending tasks in the order in which they are matched, and why they are pending. A
    /// submitted task is listed as soon as the scheduler has taken the request.
    fn pending(&self) -> Vec<PendingTask>;

    /// The state of the subscription.
    fn subscription(&self) -> SubscriptionStatus;
}
