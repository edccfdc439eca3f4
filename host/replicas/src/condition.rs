//! The condition of a replica, derived from the state of its task.

use transom_cluster::v1::TaskState;

/// The condition of a replica (specification, part C, "Instance condition"). `Scheduled` and
/// `Provisioned` are internal: they precede the first status update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Its task is requested and not launched yet.
    Scheduled,
    /// Its task is launched; no status has arrived.
    Provisioned,
    /// The agent has the task.
    Staging,
    /// The executor starts it.
    Starting,
    /// It runs.
    Running,
    /// Its agent does not answer; the task may run.
    Unreachable,
    /// Its agent has not answered for so long that another replica replaces it. It may still return.
    UnreachableInactive,
    /// It is being killed.
    Killing,
    /// It was killed.
    Killed,
    /// It ended with exit code 0.
    Finished,
    /// It ended with another exit code, or for another reason.
    Failed,
    /// The master rejected it.
    Error,
    /// It is lost permanently, for example because its agent was removed from the cluster.
    Gone,
    /// It never started.
    Dropped,
    /// The master does not know it.
    Unknown,
}

impl Condition {
    /// All conditions; each has the position `self as usize`.
    pub const ALL: [Self; 15] = [
        Self::Scheduled,
        Self::Provisioned,
        Self::Staging,
        Self::Starting,
        Self::Running,
        Self::Unreachable,
        Self::UnreachableInactive,
        Self::Killing,
        Self::Killed,
        Self::Finished,
        Self::Failed,
        Self::Error,
        Self::Gone,
        Self::Dropped,
        Self::Unknown,
    ];

    /// Maps a task state to a condition; `reason` and `message` distinguish the meanings of a
    /// legacy `TASK_LOST`.
    pub fn of(state: &TaskState, reason: Option<&str>, message: Option<&str>) -> Self {
        match state {
            // A task in a state that this version does not know is alive, as in the scheduler.
            TaskState::Staging | TaskState::Other(_) => Self::Staging,
            TaskState::Starting => Self::Starting,
            TaskState::Running => Self::Running,
            TaskState::Killing => Self::Killing,
            TaskState::Finished => Self::Finished,
            TaskState::Failed => Self::Failed,
            TaskState::Killed => Self::Killed,
            TaskState::Error => Self::Error,
            TaskState::Lost => Self::of_lost(reason, message),
            TaskState::Dropped => Self::Dropped,
            TaskState::Unreachable => Self::Unreachable,
            TaskState::Gone | TaskState::GoneByOperator => Self::Gone,
            TaskState::Unknown => Self::Unknown,
        }
    }

    fn of_lost(reason: Option<&str>, message: Option<&str>) -> Self {
        // This is the only message that is ever parsed: masters before 1.1 give no other indication.
        if message.is_some_and(|message| message.starts_with("Reconciliation: Task is unknown to the")) {
            return Self::Unknown;
        }
        match reason {
            Some("REASON_TASK_UNKNOWN") => Self::Unknown,
            Some("REASON_RECONCILIATION" | "REASON_SLAVE_DISCONNECTED" | "REASON_SLAVE_REMOVED") => {
                Self::Unreachable
            }
            _ => Self::Gone,
        }
    }

    /// The name that Marathon's events use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "Scheduled",
            Self::Provisioned => "Provisioned",
            Self::Staging => "Staging",
            Self::Starting => "Starting",
            Self::Running => "Running",
            Self::Unreachable => "Unreachable",
            Self::UnreachableInactive => "UnreachableInactive",
            Self::Killing => "Killing",
            Self::Killed => "Killed",
            Self::Finished => "Finished",
            Self::Failed => "Failed",
            Self::Error => "Error",
            Self::Gone => "Gone",
            Self::Dropped => "Dropped",
            Self::Unknown => "Unknown",
        }
    }

    /// The conditions of a launched task that does not run yet.
    pub const LAUNCHING: [Self; 3] = [Self::Provisioned, Self::Staging, Self::Starting];

    /// Whether the task is launched and does not run yet.
    pub fn is_launching(self) -> bool {
        Self::LAUNCHING.contains(&self)
    }

    /// Whether the agent of the task does not answer. The task may run, and its end may never be
    /// reported.
    pub fn is_unreachable(self) -> bool {
        matches!(self, Self::Unreachable | Self::UnreachableInactive)
    }

    /// Whether the task is terminal. Its replica then gets the next task or is removed.
    pub fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Killed
                | Self::Finished
                | Self::Failed
                | Self::Error
                | Self::Gone
                | Self::Dropped
                | Self::Unknown
        )
    }

    /// Whether this counts as a failure for the backoff. A killed task has not failed.
    pub fn is_failure(self) -> bool {
        matches!(
            self,
            Self::Finished | Self::Failed | Self::Error | Self::Gone | Self::Dropped
        )
    }

    /// Whether clients may see this condition: not before the first status.
    pub fn is_public(self) -> bool {
        !matches!(self, Self::Scheduled | Self::Provisioned)
    }

    /// Replicas with a smaller weight are killed first when there are too many.
    pub(crate) fn kill_weight(self) -> u8 {
        match self {
            Self::Unreachable => 1,
            // Clients are told that a provisioned replica is staging.
            Self::Provisioned | Self::Staging => 2,
            Self::Starting => 3,
            Self::Running => 4,
            // Removing a replica that is not launched yet interrupts no work.
            Self::Scheduled => 0,
            _ => 5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_have_their_positions_in_the_list() {
        for (position, condition) in Condition::ALL.into_iter().enumerate() {
            assert_eq!(condition as usize, position, "{condition:?}");
        }
    }

    #[test]
    fn every_task_state_has_a_condition() {
        use Condition as C;
        use TaskState as S;
        // Condition, whether it is terminal, whether it counts as a failure, the kill weight.
        for (state, condition, terminal, failure, weight) in [
            (S::Staging, C::Staging, false, false, 2),
            (S::Starting, C::Starting, false, false, 3),
            (S::Running, C::Running, false, false, 4),
            (S::Killing, C::Killing, false, false, 5),
            (S::Finished, C::Finished, true, true, 5),
            (S::Failed, C::Failed, true, true, 5),
            (S::Killed, C::Killed, true, false, 5),
            (S::Error, C::Error, true, true, 5),
            (S::Lost, C::Gone, true, true, 5),
            (S::Dropped, C::Dropped, true, true, 5),
            (S::Unreachable, C::Unreachable, false, false, 1),
            (S::Gone, C::Gone, true, true, 5),
            (S::GoneByOperator, C::Gone, true, true, 5),
            (S::Unknown, C::Unknown, true, false, 5),
        ] {
            let found = C::of(&state, None, None);
            assert_eq!(found, condition, "{state}");
            assert_eq!(found.is_terminal(), terminal, "{state}");
            assert_eq!(found.is_failure(), failure, "{state}");
            assert_eq!(found.kill_weight(), weight, "{state}");
            assert!(found.is_public(), "{state}");
        }
        for (unlaunched, weight) in [(C::Scheduled, 0), (C::Provisioned, 2)] {
            assert!(!unlaunched.is_public() && !unlaunched.is_terminal());
            assert_eq!(unlaunched.kill_weight(), weight);
        }
    }

    #[test]
    fn unrecognized_task_state_is_not_terminal() {
        let new = Condition::of(&TaskState::Other("TASK_NEW".to_owned()), None, None);
        assert!(!new.is_terminal(), "{new:?}");
        assert!(Condition::of(&TaskState::Unknown, None, None).is_terminal());
    }

    #[test]
    fn lost_task_is_unknown_unreachable_or_gone() {
        for (reason, message, expected) in [
            (
                None,
                Some("Reconciliation: Task is unknown to the agent"),
                Condition::Unknown,
            ),
            (Some("REASON_TASK_UNKNOWN"), None, Condition::Unknown),
            (Some("REASON_RECONCILIATION"), None, Condition::Unreachable),
            (Some("REASON_SLAVE_DISCONNECTED"), None, Condition::Unreachable),
            (Some("REASON_SLAVE_REMOVED"), None, Condition::Unreachable),
            (Some("REASON_INVALID_OFFERS"), None, Condition::Gone),
            (None, None, Condition::Gone),
        ] {
            assert_eq!(
                Condition::of(&TaskState::Lost, reason, message),
                expected,
                "{reason:?} {message:?}"
            );
        }
    }
}
