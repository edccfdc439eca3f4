//! What requests ask of the core, and how it refuses.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::ids::JobId;
use crate::job_state::JobState;
use crate::model::Request;

/// Why a request is not carried out.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// A job with this id lives, and the client wanted it to be the only one.
    Exists(JobId),
    /// There are so many jobs already.
    QueueFull(usize),
    /// Nothing is known of it.
    NoJob(JobId),
    /// It is called as no job can be.
    InvalidId(String),
    /// The store did not take it; nothing has changed.
    Store(Arc<transom_store::Error>),
    /// This daemon is stopping, or does not lead any more.
    Stopped,
    /// It took too long.
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
    /// Ends a job's newest run; answers the state it shows now.
    Kill { id: JobId, reply: Reply<JobState> },
}

/// Where an answer goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// Asks the core and waits for its answer, within `patience`.
pub(crate) async fn ask<T>(
    core: &mpsc::Sender<Command>,
    patience: Duration,
    command: impl FnOnce(Reply<T>) -> Command,
) -> Result<T, Refusal> {
    let (reply, answer) = oneshot::channel();
    let asked = async {
        core.send(command(reply)).await.map_err(|_| Refusal::Stopped)?;
        answer.await.map_err(|_| Refusal::Stopped)?
    };
    tokio::time::timeout(patience, asked)
        .await
        .unwrap_or(Err(Refusal::TimedOut))
}
