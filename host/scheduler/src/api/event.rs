//! What the scheduler tells its job.

use std::sync::Arc;

use tokio::sync::mpsc;
use transom_cluster::{AgentId, ExecutorId, FrameworkId, v1};

use crate::TaskRecord;

/// One thing that happened. Everything an event tells is in the snapshots ([`crate::Scheduler::tasks`])
/// before the event arrives.
#[derive(Clone, Debug)]
pub enum Event {
    /// The cluster gave this framework a (new) id.
    Registered {
        /// The id, already stored.
        framework_id: FrameworkId,
        /// The leading master's host name and port, where told.
        master: Option<String>,
    },
    /// Subscribed again under the id had before.
    Reregistered {
        /// The leading master's host name and port, where told.
        master: Option<String>,
    },
    /// The subscription ended; it is being renewed.
    Disconnected,
    /// The cluster took the launch: the intent was stored, the offer accepted. Comes again after a restart if
    /// no status had come before it.
    Launched(Arc<TaskRecord>),
    /// A changed status, stored and acknowledged.
    Updated(Arc<TaskRecord>),
    /// An executor's message to the framework.
    Message {
        /// Where it runs.
        agent: AgentId,
        /// Who sent it.
        executor: ExecutorId,
        /// Base64, as on the wire.
        data: String,
    },
    /// The agent is gone or unreachable; its tasks' statuses follow by themselves.
    AgentLost(AgentId),
    /// A status of a task that no record knows: it was forgotten, after it had ended or while the cluster knew
    /// nothing of it. If it is there it is killed, and need not be released for that.
    Unknown {
        /// The status as it came, already acknowledged.
        status: Box<v1::TaskStatus>,
    },
}

/// The job's end of the event queue. Nothing is dropped: while the job takes no events, no further ones are
/// read from the cluster.
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
