//! The events that a service receives.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use tokio::sync::mpsc;
use transom_cluster::{AgentId, ExecutorId, FrameworkId, TaskId, v1};

use crate::{Error, KillChoice, Reservation, TaskRecord};

/// One event. Before it is delivered, the snapshots
/// ([`SchedulerApi::tasks`](crate::SchedulerApi::tasks)) contain everything that it reports.
#[derive(Clone, Debug)]
pub enum Event {
    /// The master assigned an id to this framework, which replaces an earlier one if there was any.
    Registered {
        /// The id, already stored.
        framework_id: FrameworkId,
        /// Host name and port of the leading master, if known.
        master: Option<String>,
    },
    /// The framework subscribed again under its earlier id.
    Reregistered {
        /// Host name and port of the leading master, if known.
        master: Option<String>,
    },
    /// The subscription ended. The scheduler renews it.
    Disconnected,
    /// The master accepted the launch. After a restart the event is sent again if no status had
    /// arrived before the restart.
    Launched(Arc<TaskRecord>),
    /// A changed status. It is stored, and acknowledged after this event.
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
        /// Its current record.
        reservation: Option<Arc<Reservation>>,
    },
    /// The answer to [`SchedulerApi::select_kills`](crate::SchedulerApi::select_kills).
    KillsSelected {
        /// The requested kill selection.
        choice: Arc<KillChoice>,
        /// The selected candidates, at most the requested number.
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
    /// Maintenance of the agent is due: the service has to replace its tasks there
    /// ([`MaintenanceMode::Evacuated`](crate::MaintenanceMode::Evacuated)). Tasks on the agent no
    /// longer count for constraints.
    MaintenanceDue(AgentId),
    /// Maintenance that was due was cancelled or is over, or the agent is lost.
    MaintenanceOver(AgentId),
    /// The agent is removed or unreachable. The statuses of its tasks follow.
    AgentLost(AgentId),
    /// A status of a task that is not in the store, for example because it was purged. The
    /// scheduler kills such a task if it is live, without a request of the service.
    Unknown {
        /// The status as received. It is already acknowledged.
        status: Box<v1::TaskStatus>,
    },
}

/// The service's end of the event queue, a stream that ends when the scheduler has stopped. Nothing
/// is dropped: while the service reads no events, none are read from the master.
#[derive(Debug)]
pub struct Events(mpsc::Receiver<Event>);

/// For scripted schedulers too.
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
