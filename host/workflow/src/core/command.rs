//! The requests to the core, and why it rejects them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::ids::JobId;
use crate::job_state::JobState;
use crate::model::Request;

/// Why a request is rejected.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// A job with this id is active, and the request is `unique`.
    Exists(JobId),
    /// The maximum number of jobs is active.
    QueueFull(usize),
    /// The job does not exist.
    NoJob(JobId),
    /// The id is not valid, so no job has it.
    InvalidId(String),
    /// The store failed or timed out; nothing has changed here.
    Store(Arc<transom_store::typed::Error>),
    /// This daemon is stopping, or is no longer the leader.
    Stopped,
    /// The timeout has passed.
    TimedOut,
}

/// One request to the core.
#[derive(Debug)]
pub(crate) enum Command {
    /// Answered when the job is stored.
    Queue {
        request: Box<Request>,
        reply: Reply<JobId>,
    },
    /// Kills a job's newest run; answers its present state.
    Kill { id: JobId, reply: Reply<JobState> },
}

/// Where the reply goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// Sends a command to the core and waits for its reply, up to `timeout`.
pub(crate) async fn ask<T>(
    core: &mpsc::Sender<Command>,
    timeout: Duration,
    command: impl FnOnce(Reply<T>) -> Command,
) -> Result<T, Refusal> {
    let (reply, answer) = oneshot::channel();
    let asked = async {
        core.send(command(reply)).await.map_err(|_| Refusal::Stopped)?;
        answer.await.map_err(|_| Refusal::Stopped)?
    };
    tokio::time::timeout(timeout, asked)
        .await
        .unwrap_or(Err(Refusal::TimedOut))
}
