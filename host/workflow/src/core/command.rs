//! The requests to the core, and the reasons for rejecting them.

use transom_common::trace::TraceContext;
use transom_framework::ActorError;

use crate::ids::JobId;
use crate::job_state::JobState;
use crate::model::Request;

/// Why a request is rejected.
#[derive(Clone, Debug)]
pub(crate) enum Rejection {
    /// A job with this id is active, and the request is `unique`.
    Exists(JobId),
    /// The maximum number of jobs is active.
    QueueFull(usize),
    /// The definitions of the active jobs and of the new one have more bytes than the maximum.
    QueueBytesFull { needed: usize, max: usize },
    /// The job does not exist.
    NoJob(JobId),
    /// The id is not valid, so no job has it.
    InvalidId(String),
    /// The core did not execute the request.
    Actor(ActorError),
}

impl From<ActorError> for Rejection {
    fn from(error: ActorError) -> Self {
        Self::Actor(error)
    }
}

/// One request to the core.
#[derive(Debug)]
pub(crate) enum Command {
    /// Queues a job; answered when the job is stored.
    Queue {
        request: Box<Request>,
        trace: TraceContext,
        reply: Reply<JobId>,
    },
    /// Kills a job's newest run; answered with the run's current state.
    Kill { id: JobId, reply: Reply<JobState> },
}

/// The channel for the reply.
pub(crate) type Reply<T> = transom_framework::Reply<T, Rejection>;
