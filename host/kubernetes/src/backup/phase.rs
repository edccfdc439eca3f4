//! What an operation does next: a pure function of its record and the observed state.

use jiff::Timestamp;

use super::{Operation, Phase};
use crate::config::Engine;
use crate::kind::PerKind;

/// How many one-off tasks of a phase may be lost.
const MAX_LOST: u32 = 3;
/// How many tasks of the kvstore may fail with the backup, or with the former data.
const MAX_FAILURES: u32 = 3;

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
    pub(crate) answers: bool,
    /// How many tasks of the datastore have failed in this phase.
    pub(crate) failures: u32,
    /// The one-off task of the phase.
    pub(crate) task: Task,
    /// The result of reading the dump.
    pub(crate) read: Option<Result<(), String>>,
}

/// A one-off task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Task {
    /// It is not requested, or its request was lost with the former daemon.
    #[default]
    Missing,
    /// It waits for an offer.
    Pending,
    /// It runs, or its result is being read.
    Running,
    /// It has ended.
    Ended(Ending),
}

/// The result that a one-off task has left in its sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Success, with what the task says about it.
    Done(String),
    /// Nothing was changed.
    Failed(String),
    /// Something was changed and changed back.
    Undone(String),
    /// Something was changed, and the former data is not back.
    Broken(String),
    /// It has left none: why it ended.
    Lost(String),
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing, until something happens.
    Wait,
    /// Request the one-off task of the phase.
    Start,
    /// Its task was lost: request another one.
    StartAgain,
    /// The next phase.
    Enter(Phase),
    /// The next phase, because of this problem.
    Fail(Phase, String),
    /// It is over.
    End(Result<(), String>),
}

/// The next step of an operation.
pub(crate) fn next(operation: &Operation, engine: Engine, observed: &Observed, now: Timestamp) -> Next {
    let overdue = operation.until <= now;
    let kvstore = engine == Engine::Kvstore;
    let failed = |problem: &str| Next::End(Err(problem.to_owned()));
    match operation.phase {
        Phase::Dump => match progress(operation, observed, overdue) {
            Progress::Wait(next) => next,
            Progress::Done => Next::Enter(Phase::Read),
            Progress::Not(problem, _) => Next::End(Err(problem)),
        },
        Phase::Read => match &observed.read {
            Some(result) => Next::End(result.clone()),
            None if overdue => failed("the dump was not read within the timeout"),
            None => Next::Wait,
        },
        Phase::Stop if observed.servers == 0 && (!kvstore || observed.datastores == 0) => {
            Next::Enter(Phase::Load)
        }
        Phase::Stop if overdue => failed("the servers did not end within the timeout"),
        Phase::Load if kvstore => load_kvstore(operation, observed, overdue),
        Phase::Load => load_sql(operation, observed, overdue),
        Phase::Withdraw if observed.datastores == 0 => Next::Enter(Phase::Revert),
        Phase::Withdraw if overdue => held(operation, "the kvstore did not end within the timeout"),
        Phase::Revert => revert(operation, observed, overdue),
        Phase::Resume if observed.answers => Next::End(Ok(())),
        Phase::Resume if overdue => failed("the data is restored, but no server answered within the timeout"),
        Phase::Stop | Phase::Withdraw | Phase::Resume | Phase::Held => Next::Wait,
    }
}

/// The counts while the operation is under way. The members of a kvstore after the first one join
/// it when it is restored.
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

/// How far a phase's one-off task is.
enum Progress {
    Wait(Next),
    Done,
    /// Why not, and what is left.
    Not(String, Left),
}

/// The data after a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Unchanged,
    Unknown,
}

fn progress(operation: &Operation, observed: &Observed, overdue: bool) -> Progress {
    // An earlier task may have changed something.
    let first = if operation.lost == 0 {
        Left::Unchanged
    } else {
        Left::Unknown
    };
    match &observed.task {
        Task::Ended(Ending::Done(_)) => Progress::Done,
        Task::Ended(Ending::Failed(problem)) => Progress::Not(problem.clone(), first),
        Task::Ended(Ending::Undone(problem)) => {
            Progress::Not(format!("{problem}; the former data is back"), first)
        }
        Task::Ended(Ending::Broken(problem)) => Progress::Not(problem.clone(), Left::Unknown),
        Task::Ended(Ending::Lost(problem)) if overdue || operation.lost + 1 >= MAX_LOST => {
            Progress::Not(format!("its task was lost: {problem}"), Left::Unknown)
        }
        Task::Ended(Ending::Lost(_)) => Progress::Wait(Next::StartAgain),
        Task::Missing | Task::Pending if overdue => {
            Progress::Not("its task found no offer within the timeout".to_owned(), first)
        }
        Task::Running if overdue => Progress::Not(
            "its task did not end within the timeout".to_owned(),
            Left::Unknown,
        ),
        Task::Missing => Progress::Wait(Next::Start),
        Task::Pending | Task::Running => Progress::Wait(Next::Wait),
    }
}

fn load_sql(operation: &Operation, observed: &Observed, overdue: bool) -> Next {
    let untouched = operation.task.is_none() && operation.lost == 0;
    if observed.task == Task::Missing && !observed.healthy {
        return match (overdue, untouched) {
            (false, _) => Next::Wait,
            (true, true) => Next::End(Err("the datastore was not healthy within the timeout".to_owned())),
            (true, false) => held(operation, "the datastore was not healthy within the timeout"),
        };
    }
    match progress(operation, observed, overdue) {
        Progress::Wait(next) => next,
        Progress::Done => Next::Enter(Phase::Resume),
        Progress::Not(problem, Left::Unchanged) => Next::End(Err(problem)),
        Progress::Not(problem, Left::Unknown) => held(operation, &problem),
    }
}

fn load_kvstore(operation: &Operation, observed: &Observed, overdue: bool) -> Next {
    match health(operation, observed, overdue) {
        Progress::Wait(next) => next,
        Progress::Done => Next::Enter(Phase::Resume),
        Progress::Not(problem, _) => Next::Fail(
            Phase::Withdraw,
            format!("the kvstore did not start from the backup: {problem}"),
        ),
    }
}

fn revert(operation: &Operation, observed: &Observed, overdue: bool) -> Next {
    match health(operation, observed, overdue) {
        Progress::Wait(next) => next,
        Progress::Done => {
            let problem = operation.problem.clone().unwrap_or_default();
            Next::End(Err(format!("{problem}; the former data is back")))
        }
        Progress::Not(problem, _) => held(operation, &problem),
    }
}

/// Whether a kvstore that starts is healthy, as a one-off task finds out.
fn health(operation: &Operation, observed: &Observed, overdue: bool) -> Progress {
    if observed.failures >= MAX_FAILURES {
        return Progress::Not(
            format!("its task failed {} times", observed.failures),
            Left::Unknown,
        );
    }
    if observed.task == Task::Missing && !observed.healthy {
        return if overdue {
            Progress::Not("it was not healthy within the timeout".to_owned(), Left::Unknown)
        } else {
            Progress::Wait(Next::Wait)
        };
    }
    progress(operation, observed, overdue)
}

fn held(operation: &Operation, problem: &str) -> Next {
    let problem = match &operation.problem {
        Some(first) => format!("{first}; bringing the former data back failed: {problem}"),
        None => problem.to_owned(),
    };
    Next::Fail(Phase::Held, problem)
}

#[cfg(test)]
mod tests;
