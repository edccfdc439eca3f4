//! The events that a service receives.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use tokio::sync::mpsc;
use transom_cluster::{AgentId, ExecutorId, FrameworkId, TaskId, v1};

use crate::{Error, KillChoice, Reservation, TaskRecord};

/// One event. The snapshots ([`SchedulerApi::tasks`](crate::SchedulerApi::tasks)) contain
/// everything it reports before it is delivered.
#[derive(Clone, Debug)]
pub enum Event {
    /// The cluster gave this framework a (new) id.
    Registered {
        /// The id, already stored.
        framework_id: FrameworkId,
        /// Host name and port of the leading master, if known.
        master: Option<String>,
    },
    /// Subscribed again under the id had before.
    Reregistered {
        /// Host name and port of the leading master, if known.
        master: Option<String>,
    },
    /// The subscription ended; it is being renewed.
    Disconnected,
    /// The master accepted the launch. Sent again after a restart if no status had arrived before
    /// it.
    Launched(Arc<TaskRecord>),
    /// A changed status. It is stored; the acknowledgement follows.
    Updated(Arc<TaskRecord>),
    /// A pending task or group was dropped: it was killed, or its builder no longer wants it. It
    /// was never launched and has no record.
    NeverLaunched(TaskId),
    /// A request that can never be carried out was dropped; others are not affected.
    Rejected {
        /// The task or group.
        task: TaskId,
        /// [`Error::BadGroup`] of a submission, [`Error::NotTerminal`] of a purge.
        reason: Arc<Error>,
    },
    /// A reservation was stored, was seen in an offer, is used by another task, is released, or was
    /// removed (`None`).
    ReservationChanged {
        /// Its key.
        key: String,
        /// As it is now.
        reservation: Option<Arc<Reservation>>,
    },
    /// The answer to [`SchedulerApi::select_kills`](crate::SchedulerApi::select_kills).
    KillsSelected {
        /// The question.
        choice: Arc<KillChoice>,
        /// The chosen candidates, at most as many as were asked for.
        kills: Vec<TaskId>,
    },
    /// An executor's message to the framework.
    Message {
        /// Its agent.
        agent: AgentId,
        /// The executor.
        executor: ExecutorId,
        /// Base64, as on the wire.
        data: String,
    },
    /// Maintenance of the agent is due: the service replaces its tasks there
    /// ([`MaintenanceMode::Evacuated`](crate::MaintenanceMode::Evacuated)). Tasks on the agent no
    /// longer count for constraints.
    MaintenanceDue(AgentId),
    /// Maintenance that was due was cancelled or is over, or the agent is gone.
    MaintenanceOver(AgentId),
    /// The agent is gone or unreachable; the statuses of its tasks follow.
    AgentLost(AgentId),
    /// A status of a task that is not in the store: it was purged. A live one is killed without a
    /// request of the service.
    Unknown {
        /// The status as it came, already acknowledged.
        status: Box<v1::TaskStatus>,
    },
}

/// The service's end of the event queue, a stream that ends when the scheduler has stopped. Nothing
/// is dropped: while the service reads no events, none are read from the master.
#[derive(Debug)]
pub struct Events(mpsc::Receiver<Event>);

/// Also for scripted schedulers.
impl From<mpsc::Receiver<Event>> for Events {
    fn from(receiver: mpsc::Receiver<Event>) -> Self {
        Self(receiver)
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.0.poll_recv(context)
    }
}
