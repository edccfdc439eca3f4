//! The states that clients see, derived from the task states of Mesos. Pure.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use transom_cluster::v1::TaskState;

/// One of the nine states of the specification (part D, "Task state").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "State")]
pub(crate) enum JobState {
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

impl JobState {
    /// The name on the wire.
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

    /// A final state never changes.
    pub(crate) fn is_final(self) -> bool {
        !matches!(self, Self::Staging | Self::Starting | Self::Running)
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The state of a run whose state was `before`. `since`: when the task entered its current state;
/// `grace`: how long an agent may be unreachable before its jobs become `TASK_UNREACHABLE`.
pub(crate) fn from_task_state(
    before: JobState,
    state: &TaskState,
    since: Timestamp,
    now: Timestamp,
    grace: Duration,
) -> JobState {
    if before.is_final() {
        return before;
    }
    match state {
        TaskState::Staging => JobState::Staging,
        TaskState::Starting => JobState::Starting,
        TaskState::Running | TaskState::Killing => JobState::Running,
        TaskState::Finished => JobState::Finished,
        TaskState::Failed => JobState::Failed,
        TaskState::Killed => JobState::Killed,
        TaskState::Error => JobState::Error,
        TaskState::Lost
        | TaskState::Dropped
        | TaskState::Gone
        | TaskState::GoneByOperator
        | TaskState::Unknown => JobState::Lost,
        TaskState::Unreachable if has_elapsed(since, now, grace) => JobState::Unreachable,
        // The agent may return, and an unknown state is not necessarily final.
        TaskState::Unreachable | TaskState::Other(_) => before,
    }
}

fn has_elapsed(since: Timestamp, now: Timestamp, grace: Duration) -> bool {
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
    fn every_task_state_maps_to_one_of_nine() {
        let other = TaskState::Other("TASK_NEW".to_owned());
        let cases = [
            (TaskState::Staging, JobState::Staging),
            (TaskState::Starting, JobState::Starting),
            (TaskState::Running, JobState::Running),
            (TaskState::Killing, JobState::Running),
            (TaskState::Finished, JobState::Finished),
            (TaskState::Failed, JobState::Failed),
            (TaskState::Killed, JobState::Killed),
            (TaskState::Error, JobState::Error),
            (TaskState::Lost, JobState::Lost),
            (TaskState::Dropped, JobState::Lost),
            (TaskState::Gone, JobState::Lost),
            (TaskState::GoneByOperator, JobState::Lost),
            (TaskState::Unknown, JobState::Lost),
            (other, JobState::Starting),
        ];
        let grace = Duration::from_mins(1);
        for (state, expected) in cases {
            assert_eq!(
                from_task_state(JobState::Starting, &state, at(0), at(0), grace),
                expected,
                "{state}"
            );
            // A final state never changes.
            assert_eq!(
                from_task_state(JobState::Killed, &state, at(0), at(0), grace),
                JobState::Killed,
                "{state}"
            );
        }
    }

    #[test]
    fn unreachable_is_reported_after_the_grace_period() {
        let grace = Duration::from_mins(1);
        for (now, expected) in [
            (0, JobState::Running),
            (59, JobState::Running),
            (60, JobState::Unreachable),
            // The clock was set back.
            (-5, JobState::Running),
        ] {
            let state = from_task_state(JobState::Running, &TaskState::Unreachable, at(0), at(now), grace);
            assert_eq!(state, expected, "after {now} s");
        }
        let none = from_task_state(
            JobState::Running,
            &TaskState::Unreachable,
            at(0),
            at(0),
            Duration::ZERO,
        );
        assert_eq!(none, JobState::Unreachable);
    }

    #[test]
    fn state_names_match_the_wire_format() {
        for state in [
            JobState::Staging,
            JobState::Starting,
            JobState::Running,
            JobState::Finished,
            JobState::Failed,
            JobState::Error,
            JobState::Killed,
            JobState::Lost,
            JobState::Unreachable,
        ] {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
    }
}
