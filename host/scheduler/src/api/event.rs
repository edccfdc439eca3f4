//! The events that a service receives.

use std::sync::Arc;

use tokio::sync::mpsc;
use transom_cluster::{AgentId, ExecutorId, FrameworkId, v1};

use crate::TaskRecord;

/// One event. The snapshots ([`crate::Scheduler::tasks`]) contain everything it reports before it
/// is delivered.
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
    /// An executor's message to the framework.
    Message {
        /// Its agent.
        agent: AgentId,
        /// The executor.
        executor: ExecutorId,
        /// Base64, as on the wire.
        data: String,
    },
    /// The agent is gone or unreachable; the statuses of its tasks follow.
    AgentLost(AgentId),
    /// A status of a task that is not in the store: it was purged. A live one is killed without a
    /// request of the service.
    Unknown {
        /// The status as it came, already acknowledged.
        status: Box<v1::TaskStatus>,
    },
}

/// The service's end of the event queue. Nothing is dropped: while the service reads no events,
/// none are read from the master.
#[derive(Debug)]
pub struct Events {
    pub(crate) receiver: mpsc::Receiver<Event>,
}

impl Events {
    /// The next event; `None` when the scheduler has stopped.
    pub async fn next(&mut self) -> Option<Event> {
        self.receiver.recv().await
    }
}
