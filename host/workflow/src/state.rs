//! The states that clients see, and how they follow from what the cluster says. Pure.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use transom_cluster::v1::TaskState;

/// One of the nine states of the specification (part D, "Task state").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Shown {
    #[serde(rename = "TASK_STAGING")]
    Staging,
    #[serde(rename = "TASK_STARTING")]
    Starting,
    #[serde(rename = "TASK_RUNNING")]
    Running,
    #[serde(rename = "TASK_FINISHED")]
    Finished,
    #[serde(rename = "TASK_FAILED")]
    Failed,
    #[serde(rename = "TASK_ERROR")]
    Error,
    #[serde(rename = "TASK_KILLED")]
    Killed,
    #[serde(rename = "TASK_LOST")]
    Lost,
    #[serde(rename = "TASK_UNREACHABLE")]
    Unreachable,
}

impl Shown {
    /// As clients read it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Staging => "TASK_STAGING",
            Self::Starting => "TASK_STARTING",
            Self::Running => "TASK_RUNNING",
            Self::Finished => "TASK_FINISHED",
            Self::Failed => "TASK_FAILED",
            Self::Error => "TASK_ERROR",
            Self::Killed => "TASK_KILLED",
            Self::Lost => "TASK_LOST",
            Self::Unreachable => "TASK_UNREACHABLE",
        }
    }

    /// A run in this state never shows another one.
    pub(crate) fn is_final(self) -> bool {
        !matches!(self, Self::Staging | Self::Starting | Self::Running)
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a run that showed `before` shows now. `since`: when the cluster's state was first this one; `grace`: how long
/// an agent may be unreachable before its tasks are.
pub(crate) fn shown(
    before: Shown,
    state: &TaskState,
    since: Timestamp,
    now: Timestamp,
    grace: Duration,
) -> Shown {
    if before.is_final() {
        return before;
    }
    match state {
        TaskState::Staging => Shown::Staging,
        TaskState::Starting => Shown::Starting,
        TaskState::Running | TaskState::Killing => Shown::Running,
        TaskState::Finished => Shown::Finished,
        TaskState::Failed => Shown::Failed,
        TaskState::Killed => Shown::Killed,
        TaskState::Error => Shown::Error,
        TaskState::Lost
        | TaskState::Dropped
        | TaskState::Gone
        | TaskState::GoneByOperator
        | TaskState::Unknown => Shown::Lost,
        TaskState::Unreachable if is_over(since, now, grace) => Shown::Unreachable,
        // It may be back in a moment; and a state that this version does not know says nothing of its end.
        TaskState::Unreachable | TaskState::Other(_) => before,
    }
}

fn is_over(since: Timestamp, now: Timestamp, grace: Duration) -> bool {
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    passed >= grace
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn every_state_of_the_cluster_shows_as_one_of_nine() {
        let other = TaskState::Other("TASK_NEW".to_owned());
        let cases = [
            (TaskState::Staging, Shown::Staging),
            (TaskState::Starting, Shown::Starting),
            (TaskState::Running, Shown::Running),
            (TaskState::Killing, Shown::Running),
            (TaskState::Finished, Shown::Finished),
            (TaskState::Failed, Shown::Failed),
            (TaskState::Killed, Shown::Killed),
            (TaskState::Error, Shown::Error),
            (TaskState::Lost, Shown::Lost),
            (TaskState::Dropped, Shown::Lost),
            (TaskState::Gone, Shown::Lost),
            (TaskState::GoneByOperator, Shown::Lost),
            (TaskState::Unknown, Shown::Lost),
            (other, Shown::Starting),
        ];
        let grace = Duration::from_mins(1);
        for (state, expected) in cases {
            assert_eq!(
                shown(Shown::Starting, &state, at(0), at(0), grace),
                expected,
                "{state}"
            );
            // What is final stays.
            assert_eq!(
                shown(Shown::Killed, &state, at(0), at(0), grace),
                Shown::Killed,
                "{state}"
            );
        }
    }

    #[test]
    fn unreachable_shows_after_a_grace() {
        let grace = Duration::from_mins(1);
        for (now, expected) in [
            (0, Shown::Running),
            (59, Shown::Running),
            (60, Shown::Unreachable),
            // A clock that went back.
            (-5, Shown::Running),
        ] {
            let seen = shown(Shown::Running, &TaskState::Unreachable, at(0), at(now), grace);
            assert_eq!(seen, expected, "after {now} s");
        }
        let none = shown(
            Shown::Running,
            &TaskState::Unreachable,
            at(0),
            at(0),
            Duration::ZERO,
        );
        assert_eq!(none, Shown::Unreachable);
    }

    #[test]
    fn names_are_those_on_the_wire() {
        for state in [
            Shown::Staging,
            Shown::Starting,
            Shown::Running,
            Shown::Finished,
            Shown::Failed,
            Shown::Error,
            Shown::Killed,
            Shown::Lost,
            Shown::Unreachable,
        ] {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
    }
}
