//! One replica, and its current task as the scheduler sees it.

use jiff::Timestamp;
use transom_cluster::v1::{TaskState, TaskStatus};

use crate::Condition;

/// One of the equal copies of a run spec. Its tasks succeed each other, one at a time.
///
/// `V` identifies the definition from which a task is launched; this crate only stores and compares
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica<V> {
    /// The definition from which the current task is launched.
    pub version: V,
    /// Number of the current task, counted from 1.
    pub incarnation: u32,
    /// The state that the service wants it to reach.
    pub goal: Goal,
    /// Its condition, derived from the current task.
    pub condition: Condition,
    /// The time of the last change of the condition.
    pub since: Timestamp,
    /// When the current task was first seen running.
    pub started_at: Option<Timestamp>,
    /// Since when its agent does not answer; also while the condition is
    /// [`Condition::UnreachableInactive`].
    pub unreachable_since: Option<Timestamp>,
    /// Whether the current task is being killed so that the next one takes its place, which is not
    /// a failure.
    pub restarting: bool,
    /// Whether a task of the current version has run.
    pub has_run: bool,
    /// Whether a task of the current version was fit; see [`Replica::record_fitness`].
    pub has_been_fit: bool,
}

/// The result of the health and readiness checks of a running replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fitness {
    /// There are no such checks: a running replica is healthy.
    Unchecked,
    /// It is unhealthy or not ready, or its checks have no result yet.
    Unfit,
    /// It is healthy and ready.
    Fit,
}

/// The state that the service wants a replica to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// It runs, one task after the other.
    Running,
    /// Its task is killed and not replaced.
    Decommissioned,
}

/// A task as the scheduler last saw it.
#[derive(Clone, Copy, Debug)]
pub struct TaskView<'a> {
    /// The last known state; `Staging` before the first status.
    pub state: &'a TaskState,
    /// The last status; `None`: not launched, or launched without a status so far.
    pub status: Option<&'a TaskStatus>,
    /// Whether it has ended or is unknown to the master.
    pub terminal: bool,
    /// When it was first seen running.
    pub started_at: Option<Timestamp>,
    /// When the task last changed.
    pub updated_at: Timestamp,
    /// Whether the service has requested its kill.
    pub killing: bool,
    /// Whether the service has requested its kill so that the next task takes its place.
    pub restarting: bool,
}

impl<V> Replica<V> {
    /// A new replica, whose first task is not launched yet.
    pub fn new(version: V, now: Timestamp) -> Self {
        Self {
            version,
            incarnation: 1,
            goal: Goal::Running,
            condition: Condition::Scheduled,
            since: now,
            started_at: None,
            unreachable_since: None,
            restarting: false,
            has_run: false,
            has_been_fit: false,
        }
    }

    /// Rebuilds the replica of a stored task after a restart of the daemon. If the task was being
    /// killed, by the service or because its agent is drained, the replica is decommissioned, unless
    /// the kill was part of a restart of the replica.
    pub fn of_task(version: V, incarnation: u32, task: &TaskView<'_>) -> Self {
        let condition = task.condition();
        let unreachable_since = (condition == Condition::Unreachable).then(|| task.lost_at());
        let started_at = task.started_at;
        let since = match condition {
            Condition::Running => started_at,
            _ => unreachable_since,
        };
        Self {
            version,
            incarnation,
            goal: if (task.killing && !task.restarting) || task.is_ending_on_drained_agent() {
                Goal::Decommissioned
            } else {
                Goal::Running
            },
            condition,
            since: since.unwrap_or(task.updated_at),
            started_at,
            unreachable_since,
            restarting: task.killing && task.restarting,
            has_run: started_at.is_some(),
            has_been_fit: false,
        }
    }

    /// Records the result of its checks. Scaling does not wait for a replica that was fit once.
    pub fn record_fitness(&mut self, fitness: Fitness) {
        self.has_been_fit |= fitness == Fitness::Fit && self.condition == Condition::Running;
    }

    /// Whether its goal is to run.
    pub fn is_wanted(&self) -> bool {
        self.goal == Goal::Running
    }

    /// The start of its age for the kill selection. While its task runs, this is the start of the
    /// task. So a replica that was unreachable for a while is still older than its replacement.
    pub fn active_since(&self) -> Timestamp {
        self.started_at
            .filter(|_| self.condition == Condition::Running)
            .unwrap_or(self.since)
    }

    /// Updates the condition from the task. Returns whether the condition has changed.
    pub(crate) fn observe(&mut self, task: &TaskView<'_>, now: Timestamp) -> bool {
        self.started_at = task.started_at;
        let condition = task.condition();
        self.has_run |= condition == Condition::Running || task.started_at.is_some();
        let still_inactive =
            self.condition == Condition::UnreachableInactive && condition == Condition::Unreachable;
        if condition == self.condition || still_inactive {
            return false;
        }
        self.condition = condition;
        self.since = now;
        self.unreachable_since = (condition == Condition::Unreachable).then_some(now);
        true
    }

    /// The same replica with its next task, which is not launched yet.
    pub(crate) fn with_next_task(&self, version: V, now: Timestamp) -> Self
    where
        V: PartialEq,
    {
        let same = self.version == version;
        Self {
            incarnation: self.incarnation + 1,
            has_run: self.has_run && same,
            has_been_fit: self.has_been_fit && same,
            ..Self::new(version, now)
        }
    }
}

impl TaskView<'_> {
    /// The condition of a replica with this task.
    pub fn condition(&self) -> Condition {
        let Some(status) = self.status else {
            // The task is stored as an intent, or it is launched and has sent no status update.
            return if self.terminal {
                Condition::Dropped
            } else {
                Condition::Provisioned
            };
        };
        if let (TaskState::Other(_), Some(_)) = (self.state, self.started_at) {
            // A task in an unknown state that has started is still alive.
            return Condition::Running;
        }
        Condition::of(self.state, status.reason.as_deref(), status.message.as_deref())
    }

    /// Whether it is being ended because an operator drains its agent.
    pub(crate) fn is_ending_on_drained_agent(&self) -> bool {
        *self.state == TaskState::Killing && self.status.is_some_and(TaskStatus::is_agent_draining)
    }

    /// Whether its agent has killed it because the agent's own health check failed: nobody else requested
    /// the kill, and the executor reports it as unhealthy.
    pub fn is_killed_by_check(&self) -> bool {
        *self.state == TaskState::Killed
            && !self.killing
            && self
                .status
                .is_some_and(|status| status.healthy == Some(false) && !status.is_agent_draining())
    }

    /// When the agent of an unreachable task stopped answering.
    fn lost_at(&self) -> Timestamp {
        self.status
            .and_then(|status| status.unreachable_time.as_ref())
            .and_then(|time| Timestamp::from_nanosecond(i128::from(time.nanoseconds)).ok())
            .unwrap_or(self.updated_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom_cluster::v1::TimeInfo;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn view<'a>(state: &'a TaskState, status: Option<&'a TaskStatus>) -> TaskView<'a> {
        TaskView {
            state,
            status,
            terminal: state.is_terminal(),
            started_at: None,
            updated_at: at(50),
            killing: false,
            restarting: false,
        }
    }

    #[test]
    fn task_without_a_status_is_provisioned_or_dropped() {
        let task = view(&TaskState::Staging, None);
        assert_eq!(task.condition(), Condition::Provisioned);
        let ended = TaskView {
            terminal: true,
            ..task
        };
        assert_eq!(ended.condition(), Condition::Dropped);
    }

    #[test]
    fn task_in_an_unknown_state_is_alive() {
        let state = TaskState::Other("TASK_NEW".to_owned());
        let status = TaskStatus::default();
        let task = view(&state, Some(&status));
        assert_eq!(task.condition(), Condition::Staging);
        let started = TaskView {
            started_at: Some(at(10)),
            ..task
        };
        assert_eq!(started.condition(), Condition::Running);
    }

    #[test]
    fn rebuilt_replica_has_the_times_of_its_condition() {
        let lost = TaskStatus {
            unreachable_time: Some(TimeInfo {
                nanoseconds: 40_000_000_000,
            }),
            ..TaskStatus::default()
        };
        let plain = TaskStatus::default();
        let started = Some(at(10));
        for (state, status, started_at, since, unreachable_since) in [
            (TaskState::Running, &plain, started, at(10), None),
            (TaskState::Staging, &plain, None, at(50), None),
            (TaskState::Killing, &plain, started, at(50), None),
            (TaskState::Unreachable, &lost, started, at(40), Some(at(40))),
            // Old versions of the cluster manager do not send the time.
            (TaskState::Unreachable, &plain, started, at(50), Some(at(50))),
        ] {
            let task = TaskView {
                started_at,
                ..view(&state, Some(status))
            };
            let replica = Replica::of_task((), 3, &task);
            assert_eq!((replica.incarnation, replica.goal), (3, Goal::Running));
            assert_eq!(
                (replica.since, replica.started_at),
                (since, started_at),
                "{state}"
            );
            assert_eq!(replica.unreachable_since, unreachable_since, "{state}");
        }
        let killed = TaskView {
            killing: true,
            ..view(&TaskState::Running, Some(&plain))
        };
        assert_eq!(Replica::of_task((), 1, &killed).goal, Goal::Decommissioned);
        let replaced = TaskView {
            restarting: true,
            ..killed
        };
        let replica = Replica::of_task((), 1, &replaced);
        assert_eq!((replica.goal, replica.restarting), (Goal::Running, true));
    }

    #[test]
    fn replica_that_returns_is_as_old_as_its_task() {
        let (running, unreachable) = (TaskState::Running, TaskState::Unreachable);
        let status = TaskStatus::default();
        let task = |state| TaskView {
            started_at: Some(at(10)),
            ..view(state, Some(&status))
        };
        let mut replica = Replica::of_task((), 1, &task(&running));
        assert!(replica.observe(&task(&unreachable), at(60)));
        assert_eq!(replica.active_since(), at(60));
        assert!(replica.observe(&task(&running), at(70)));
        assert_eq!((replica.since, replica.active_since()), (at(70), at(10)));
        assert_eq!(replica.unreachable_since, None);
    }
}
