//! The condition of an instance, derived from the state of its task.

use transom_cluster::v1::TaskState;

/// The condition of an instance (specification, part C, "Instance condition"). `Scheduled` and
/// `Provisioned` are internal: they precede the first status update, and no event shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Scheduled,
    Provisioned,
    Staging,
    Starting,
    Running,
    Unreachable,
    UnreachableInactive,
    Killing,
    Killed,
    Finished,
    Failed,
    Error,
    Gone,
    Dropped,
    Unknown,
}

impl Condition {
    /// Maps a task state to a condition; `reason` and `message` distinguish the meanings of a
    /// legacy `TASK_LOST`.
    pub(crate) fn of(state: &TaskState, reason: Option<&str>, message: Option<&str>) -> Self {
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
        // The only message that is ever parsed: masters before 1.1 report this in no other way.
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

    /// The name in events.
    pub(crate) fn as_str(self) -> &'static str {
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

    /// Whether the task is terminal. Its instance is then rescheduled or removed.
    pub(crate) fn is_terminal(self) -> bool {
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
    pub(crate) fn is_failure(self) -> bool {
        matches!(
            self,
            Self::Finished | Self::Failed | Self::Error | Self::Gone | Self::Dropped
        )
    }

    /// Whether events may show this condition.
    pub(crate) fn is_public(self) -> bool {
        !matches!(self, Self::Scheduled | Self::Provisioned)
    }

    /// Instances with a smaller weight are killed first when an app has too many.
    pub(crate) fn kill_weight(self) -> u8 {
        match self {
            Self::Unreachable => 1,
            Self::Staging => 2,
            Self::Starting => 3,
            Self::Running => 4,
            // Removing an instance that is not launched yet interrupts no work.
            Self::Scheduled | Self::Provisioned => 0,
            _ => 5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_is_not_known_is_no_end() {
        let new = Condition::of(&TaskState::Other("TASK_NEW".to_owned()), None, None);
        assert!(!new.is_terminal(), "{new:?}");
        assert!(Condition::of(&TaskState::Unknown, None, None).is_terminal());
    }

    #[test]
    fn what_a_lost_task_means() {
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
