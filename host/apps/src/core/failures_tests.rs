#![allow(clippy::unwrap_used, reason = "a test may panic")]
use serde_json::json;
use transom_cluster::v1::TaskStatus;

use super::*;
use crate::ids::{InstanceId, SpecId};
use crate::testing::{app, record};

/// The record of a task of `/a` with this last status.
fn ended(state: TaskState, reason: Option<&str>, message: &str) -> TaskRecord {
    let id = InstanceId::new(&SpecId::parse("/a").unwrap()).task(1);
    TaskRecord {
        state: state.clone(),
        status: Some(TaskStatus {
            state,
            reason: reason.map(str::to_owned),
            message: Some(message.to_owned()),
            ..TaskStatus::default()
        }),
        ..record(id)
    }
}

#[test]
fn cause_follows_from_state_and_reason() {
    let exited = "Command exited with status 3";
    for (state, reason, message, cause) in [
        (TaskState::Failed, None, exited, Cause::Ended),
        (
            TaskState::Failed,
            Some("REASON_COMMAND_EXECUTOR_FAILED"),
            exited,
            Cause::Ended,
        ),
        (
            TaskState::Finished,
            None,
            "Command exited with status 0",
            Cause::Ended,
        ),
        (
            TaskState::Failed,
            Some("REASON_CONTAINER_LIMITATION_MEMORY"),
            "Memory limit exceeded: Requested: 32MB Maximum Used: 32MB",
            Cause::Memory,
        ),
        (
            TaskState::Failed,
            Some("REASON_CONTAINER_LAUNCH_FAILED"),
            "Failed to launch container: no such image",
            Cause::Launch,
        ),
        (
            TaskState::Error,
            Some("REASON_TASK_INVALID"),
            "Task uses more",
            Cause::Rejected,
        ),
        (
            TaskState::Failed,
            Some("REASON_EXECUTOR_TERMINATED"),
            "Executor terminated",
            Cause::Other,
        ),
    ] {
        let failure = Failure::of(&ended(state, reason, message), false, None);
        assert_eq!((failure.cause, failure.message.as_str()), (cause, message));
    }
    let killed = ended(
        TaskState::Killed,
        None,
        "Command terminated with signal Terminated",
    );
    let failure = Failure::of(&killed, true, Some("503 Service Unavailable"));
    assert_eq!(
        (failure.cause, failure.message.as_str()),
        (Cause::Unhealthy, "503 Service Unavailable")
    );
}

#[test]
fn message_is_one_printable_line_of_bounded_length() {
    let memory = "Memory limit exceeded: 32MB\n\nMEMORY STATISTICS:\ncache 0\n";
    let long = "ä".repeat(1000);
    for (message, expected) in [
        (memory, "Memory limit exceeded: 32MB"),
        ("\u{1b}[2Jgone", "\\u{1b}[2Jgone"),
        (&*long, &long[..MAX_MESSAGE_CHARS * 2]),
        (" \n", "TASK_FAILED"),
    ] {
        let failure = Failure::of(&ended(TaskState::Failed, None, message), false, None);
        assert_eq!(failure.message, expected);
    }
    let unexplained = ended(TaskState::Failed, Some("REASON_IO_SWITCHBOARD_EXITED"), "");
    assert_eq!(
        Failure::of(&unexplained, false, None).message,
        "REASON_IO_SWITCHBOARD_EXITED"
    );
}

#[test]
fn row_counts_failures_until_none_follows_in_time() {
    let at = |seconds: i64| Moment::from(jiff::Timestamp::from_second(1_000_000 + seconds).unwrap());
    let mut row = None;
    let mut fail = |seconds: i64, agent: &str| {
        let failure = Failure::new(Cause::Ended, at(seconds), "Command exited with status 3", None);
        Failures::record(&mut row, failure, agent, at(seconds + 60));
        let row = row.as_ref().unwrap();
        (row.count, row.first, row.agents.join(" "))
    };
    assert_eq!(fail(0, "a"), (1, at(0), "a".to_owned()));
    assert_eq!(fail(60, "b"), (2, at(0), "b a".to_owned()));
    assert_eq!(fail(61, "a"), (3, at(0), "a b".to_owned()));
    fail(62, "c");
    assert_eq!(
        fail(63, "d"),
        (5, at(0), "d c a".to_owned()),
        "three agents are kept"
    );
    assert_eq!(fail(124, "a"), (1, at(124), "a".to_owned()), "another row");
}

#[test]
fn quiet_time_follows_from_the_longest_delay_and_the_health_checks() {
    let check = json!({"protocol": "TCP", "gracePeriodSeconds": 10, "intervalSeconds": 5, "timeoutSeconds": 2,
        "maxConsecutiveFailures": 2});
    let quiet = |longest_delay: u32, cause| {
        let spec = app(&json!({
            "id": "/a", "cmd": "sleep 1", "maxLaunchDelaySeconds": longest_delay, "healthChecks": [check],
        }));
        quiet_time(&spec.into(), cause).as_secs()
    };
    assert_eq!(quiet(2, Cause::Ended), 60);
    assert_eq!(quiet(120, Cause::Ended), 120);
    assert_eq!(quiet(3600, Cause::Ended), 300);
    assert_eq!(quiet(2, Cause::Unhealthy), 60 + 10 + 3 * (5 + 2));
}
