//! The rules of an operation: a pure function that returns its next step from its record and the
//! observed state.

use jiff::Timestamp;

use super::{Operation, Phase};
use crate::kind::PerKind;
use crate::settings::Engine;

/// A phase fails when this many of its one-off tasks are lost.
const MAX_LOST_TASKS: u32 = 3;
/// A phase that starts a kvstore, from the backup or with the former data, fails when this many tasks
/// of the kvstore have ended.
const MAX_KVSTORE_FAILURES: u32 = 3;

/// The observed state of tasks and data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observed {
    /// Tasks of servers that have not ended.
    pub(crate) servers: usize,
    /// Tasks of the datastore that have not ended.
    pub(crate) datastores: usize,
    /// Whether a member of the datastore is healthy.
    pub(crate) healthy: bool,
    /// Whether a server answers, or none is wanted.
    pub(crate) server_answers: bool,
    /// The number of tasks of the datastore that have ended in this phase.
    pub(crate) failures: u32,
    /// The one-off task of the phase.
    pub(crate) task: OneOffState,
    /// The result of reading the dump.
    pub(crate) read: Option<Result<(), String>>,
}

/// A one-off task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum OneOffState {
    /// It is not requested, or its request was lost when the leader changed.
    #[default]
    Missing,
    /// It waits for an offer.
    Pending,
    /// It runs, or its result is being read.
    Running,
    /// It has ended.
    Ended(OneOffOutcome),
}

/// The result that a one-off task has left in its sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OneOffOutcome {
    /// It succeeded, with the text of its result.
    Done(String),
    /// It failed and has changed nothing.
    Failed(String),
    /// It failed; the data were changed, and the former data were brought back.
    Undone(String),
    /// It failed; the data were changed, and the former data could not be brought back.
    Broken(String),
    /// It has left no result; the text is the reason of its end.
    Lost(String),
}

/// The next step of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Wait for the next event.
    Wait,
    /// Request the one-off task of the phase.
    Start,
    /// Request another one-off task, because the last one was lost.
    StartAgain,
    /// Enter this phase.
    Enter(Phase),
    /// Enter this phase because of this problem.
    Fail(Phase, String),
    /// End the operation with this result.
    End(Result<(), String>),
}

/// Computes the next step of an operation.
pub(crate) fn next_step(
    operation: &Operation,
    engine: Engine,
    observed: &Observed,
    now: Timestamp,
) -> NextStep {
    let overdue = operation.deadline <= now;
    let kvstore = engine == Engine::Kvstore;
    let failed = |problem: &str| NextStep::End(Err(problem.to_owned()));
    match operation.phase {
        Phase::Dump => match progress(operation, observed, overdue) {
            TaskProgress::Wait(next) => next,
            TaskProgress::Done => NextStep::Enter(Phase::Read),
            TaskProgress::Failure(problem, _) => NextStep::End(Err(problem)),
        },
        Phase::Read => match &observed.read {
            Some(result) => NextStep::End(result.clone()),
            None if overdue => failed("the dump was not read within the timeout"),
            None => NextStep::Wait,
        },
        Phase::Stop if observed.servers == 0 && (!kvstore || observed.datastores == 0) => {
            NextStep::Enter(Phase::Load)
        }
        Phase::Stop if overdue => failed("the servers did not end within the timeout"),
        Phase::Load if kvstore => load_kvstore(operation, observed, overdue),
        Phase::Load => load_sql(operation, observed, overdue),
        Phase::Withdraw if observed.datastores == 0 => NextStep::Enter(Phase::Revert),
        Phase::Withdraw if overdue => hold(operation, "the kvstore did not end within the timeout"),
        Phase::Revert => revert(operation, observed, overdue),
        Phase::Resume if observed.server_answers => NextStep::End(Ok(())),
        Phase::Resume if overdue => failed("the data is restored, but no server answered within the timeout"),
        Phase::Stop | Phase::Withdraw | Phase::Resume | Phase::Held => NextStep::Wait,
    }
}

/// The wanted counts while the operation is under way. While a backup is loaded only one member of the
/// datastore runs; the other members of a kvstore join it afterwards.
pub(crate) fn counts(operation: &Operation, engine: Engine, wanted: PerKind<u32>) -> PerKind<u32> {
    let datastore = match (operation.phase, engine) {
        (Phase::Stop, Engine::Kvstore) | (Phase::Withdraw, _) => 0,
        (Phase::Load, _) => 1,
        (Phase::Revert, _) => operation.former_members(),
        _ => wanted.datastore,
    };
    let server = if operation.stops_servers() {
        0
    } else {
        wanted.server
    };
    PerKind {
        datastore,
        server,
        ..wanted
    }
}

/// The progress of a phase's one-off task.
enum TaskProgress {
    Wait(NextStep),
    Done,
    /// It failed: the reason, and the state of the data.
    Failure(String, DataState),
}

/// The state of the data after a task that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataState {
    Unchanged,
    Unknown,
}

fn progress(operation: &Operation, observed: &Observed, overdue: bool) -> TaskProgress {
    // A task that was lost may have changed the data.
    let first = if operation.lost == 0 {
        DataState::Unchanged
    } else {
        DataState::Unknown
    };
    match &observed.task {
        OneOffState::Ended(OneOffOutcome::Done(_)) => TaskProgress::Done,
        OneOffState::Ended(OneOffOutcome::Failed(problem)) => TaskProgress::Failure(problem.clone(), first),
        OneOffState::Ended(OneOffOutcome::Undone(problem)) => {
            TaskProgress::Failure(format!("{problem}; the former data is back"), first)
        }
        OneOffState::Ended(OneOffOutcome::Broken(problem)) => {
            TaskProgress::Failure(problem.clone(), DataState::Unknown)
        }
        OneOffState::Ended(OneOffOutcome::Lost(problem))
            if overdue || operation.lost + 1 >= MAX_LOST_TASKS =>
        {
            TaskProgress::Failure(format!("its task was lost: {problem}"), DataState::Unknown)
        }
        OneOffState::Ended(OneOffOutcome::Lost(_)) => TaskProgress::Wait(NextStep::StartAgain),
        OneOffState::Missing | OneOffState::Pending if overdue => {
            TaskProgress::Failure("its task found no offer within the timeout".to_owned(), first)
        }
        OneOffState::Running if overdue => TaskProgress::Failure(
            "its task did not end within the timeout".to_owned(),
            DataState::Unknown,
        ),
        OneOffState::Missing => TaskProgress::Wait(NextStep::Start),
        OneOffState::Pending | OneOffState::Running => TaskProgress::Wait(NextStep::Wait),
    }
}

fn load_sql(operation: &Operation, observed: &Observed, overdue: bool) -> NextStep {
    let untouched = operation.task.is_none() && operation.lost == 0;
    if observed.task == OneOffState::Missing && !observed.healthy {
        return match (overdue, untouched) {
            (false, _) => NextStep::Wait,
            (true, true) => NextStep::End(Err("the datastore was not healthy within the timeout".to_owned())),
            (true, false) => hold(operation, "the datastore was not healthy within the timeout"),
        };
    }
    match progress(operation, observed, overdue) {
        TaskProgress::Wait(next) => next,
        TaskProgress::Done => NextStep::Enter(Phase::Resume),
        TaskProgress::Failure(problem, DataState::Unchanged) => NextStep::End(Err(problem)),
        TaskProgress::Failure(problem, DataState::Unknown) => hold(operation, &problem),
    }
}

fn load_kvstore(operation: &Operation, observed: &Observed, overdue: bool) -> NextStep {
    match health(operation, observed, overdue) {
        TaskProgress::Wait(next) => next,
        TaskProgress::Done => NextStep::Enter(Phase::Resume),
        TaskProgress::Failure(problem, _) => NextStep::Fail(
            Phase::Withdraw,
            format!("the kvstore did not start from the backup: {problem}"),
        ),
    }
}

fn revert(operation: &Operation, observed: &Observed, overdue: bool) -> NextStep {
    match health(operation, observed, overdue) {
        TaskProgress::Wait(next) => next,
        TaskProgress::Done => {
            let problem = operation.problem.clone().unwrap_or_default();
            NextStep::End(Err(format!("{problem}; the former data is back")))
        }
        TaskProgress::Failure(problem, _) => hold(operation, &problem),
    }
}

/// Whether a kvstore that starts becomes healthy, according to the one-off task that checks it.
fn health(operation: &Operation, observed: &Observed, overdue: bool) -> TaskProgress {
    if observed.failures >= MAX_KVSTORE_FAILURES {
        return TaskProgress::Failure(
            format!("its task failed {} times", observed.failures),
            DataState::Unknown,
        );
    }
    if observed.task == OneOffState::Missing && !observed.healthy {
        return if overdue {
            TaskProgress::Failure(
                "it was not healthy within the timeout".to_owned(),
                DataState::Unknown,
            )
        } else {
            TaskProgress::Wait(NextStep::Wait)
        };
    }
    progress(operation, observed, overdue)
}

fn hold(operation: &Operation, problem: &str) -> NextStep {
    let problem = match &operation.problem {
        Some(first) => format!("{first}; bringing the former data back failed: {problem}"),
        None => problem.to_owned(),
    };
    NextStep::Fail(Phase::Held, problem)
}

#[cfg(test)]
mod tests;
