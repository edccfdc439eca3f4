//! What state an instance is in, read out of what the cluster says of its task.

use transom_cluster::v1::TaskState;

/// The condition of an instance (specification, part C, "Instance condition"). `Scheduled` and `Provisioned` are internal:
/// they are before the first word from the cluster, and no event tells of them.
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
    /// The condition that a task's state means; `reason` and `message` tell apart what a legacy `TASK_LOST` stands for.
    pub(crate) fn of(state: &TaskState, reason: Option<&str>, message: Option<&str>) -> Self {
        match state {
            // A state that this version does not know is live, too, as the scheduler has it.
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
        // The only text ever looked at: masters before 1.1 have no other way to say it.
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

    /// The name as events write it.
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

    /// Whether the task is over; its instance is scheduled anew or forgotten.
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

    /// Whether the next launch has to wait longer. Being killed is nobody's failure.
    pub(crate) fn is_failure(self) -> bool {
        matches!(
            self,
            Self::Finished | Self::Failed | Self::Error | Self::Gone | Self::Dropped
        )
    }

    /// Whether events may tell of it.
    pub(crate) fn is_public(self) -> bool {
        !matches!(self, Self::Scheduled | Self::Provisioned)
    }

    /// The smaller, the sooner it is killed when there are too many.
    pub(crate) fn kill_weight(self) -> u8 {
        match self {
            Self::Unreachable => 1,
            Self::Staging => 2,
            Self::Starting => 3,
            Self::Running => 4,
            // What is not launched yet costs nobody anything.
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
