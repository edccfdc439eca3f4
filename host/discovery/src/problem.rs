//! What makes records incomplete although a master answers, for `/ready`, the overview and the log.

use std::fmt;
use std::sync::{Mutex, PoisonError};

/// A reason for which records are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The first zone waits for this many agents, which have not registered with a new leader.
    AwaitedAgents(usize),
    /// Resources are used, but no task is listed.
    HiddenTasks,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AwaitedAgents(agents) => write!(
                f,
                "a new master leads, and {agents} of its agents have not registered yet; the first records wait for them"
            ),
            Self::HiddenTasks => write!(
                f,
                "the cluster runs tasks, but the master lists none: its ACLs must allow the principal of \
                 `cluster.principal` to view frameworks, tasks and executors (`view_frameworks`, `view_tasks`, \
                 `view_executors`)"
            ),
        }
    }
}

/// The present problem, shared between the follower and readers.
#[derive(Debug, Default)]
pub(crate) struct PresentProblem(Mutex<Option<Problem>>);

impl PresentProblem {
    pub(crate) fn get(&self) -> Option<Problem> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the problem and logs it if it is of another kind than the last one.
    pub(crate) fn set(&self, problem: Option<Problem>) {
        let mut present = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *present, problem);
        if before.as_ref().map(std::mem::discriminant) == problem.as_ref().map(std::mem::discriminant) {
            return;
        }
        match (problem, before) {
            (Some(problem), _) => tracing::warn!(%problem, "the cluster's records are incomplete"),
            (None, Some(Problem::HiddenTasks)) => tracing::info!("the master lists tasks again"),
            (None, _) => tracing::info!("the agents have registered, or the time for it has passed"),
        }
    }
}
