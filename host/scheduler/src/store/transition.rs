//! How a status changes a record, as one pure function. The action for a task in each state:
//!
//! | state | kind | meaning | action |
//! |---|---|---|---|
//! | `STAGING`, `STARTING`, `RUNNING`, `KILLING` and unknown names | live | it exists | reconciled periodically; if it was killed, killed again until it has ended |
//! | `UNREACHABLE` | live | its agent does not answer; it may run | the same, but it does not count as placed |
//! | `FINISHED`, `FAILED`, `KILLED`, `ERROR` | ended | final | kept until purged |
//! | `LOST`, `GONE`, `GONE_BY_OPERATOR`, `DROPPED`, `UNKNOWN` | missing | lost, agent removed, never launched, or unknown to the master | terminal: the service may replace it. But agents return, and masters recover |
//!
//! When an agent returns its tasks report again. It depends on the record:
//!
//! | record | the task reports a live state |
//! |---|---|
//! | unreachable | it is live as before |
//! | missing | it is live again; the service kills it if it was replaced; it is killed if that was requested before |
//! | ended | an orphan: killed until it has ended; the record stays |
//! | purged, or never stored | the same, and the service gets [`Event::Unknown`](crate::Event::Unknown) |
//!
//! An unreachable orphan is left alone until its agent is back, because a kill cannot reach it.
//!
//! A master without a registry reports `UNKNOWN` for every task until its agents have
//! re-registered. So shortly after a subscription this is not trusted for a live task, which is
//! reconciled again (`updates.rs`).

use jiff::Timestamp;
use transom_cluster::v1::{CheckStatusInfo, TaskState, TaskStatus};

use crate::store::intern;
use crate::{Phase, TaskRecord};

/// The effect of a status on a record.
#[derive(Debug, PartialEq)]
pub(crate) enum StatusEffect {
    /// A status with the same uuid was handled before.
    Duplicate,
    /// The status repeats what the record contains.
    Unchanged,
    /// The new record.
    Changed(Box<TaskRecord>),
    /// No change, because the task has ended according to the record.
    AlreadyTerminal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StateKind {
    Live,
    Ended,
    Missing,
}

fn kind(state: &TaskState) -> StateKind {
    match state {
        TaskState::Finished | TaskState::Failed | TaskState::Killed | TaskState::Error => StateKind::Ended,
        TaskState::Lost
        | TaskState::Dropped
        | TaskState::Gone
        | TaskState::GoneByOperator
        | TaskState::Unknown => StateKind::Missing,
        _ => StateKind::Live,
    }
}

/// Whether a kill can reach an orphaned task in this state.
pub(crate) fn can_be_killed(state: &TaskState) -> bool {
    kind(state) == StateKind::Live && *state != TaskState::Unreachable
}

/// Whether a task in this state exists, as far as is known.
pub(crate) fn is_live(state: &TaskState) -> bool {
    kind(state) == StateKind::Live
}

/// Whether this state is final.
pub(crate) fn has_ended(state: &TaskState) -> bool {
    kind(state) == StateKind::Ended
}

/// Whether the last status shows that the agent is unreachable, unknown to the master, or draining.
pub(crate) fn is_agent_away(record: &TaskRecord) -> bool {
    matches!(
        record.state,
        TaskState::Unreachable | TaskState::Gone | TaskState::GoneByOperator | TaskState::Unknown
    ) || record.is_drained()
}

/// Whether the task counts as placed on its agent: it has not ended, and the agent is not away.
pub(crate) fn is_placed(record: &TaskRecord) -> bool {
    !record.is_terminal() && !is_agent_away(record)
}

/// Applies `status`, received at `now`.
pub(crate) fn apply(record: &TaskRecord, status: &TaskStatus, now: Timestamp) -> StatusEffect {
    let last_status = record.status.as_ref();
    if status.uuid.is_some() && status.uuid == last_status.and_then(|last_status| last_status.uuid.clone()) {
        return StatusEffect::Duplicate;
    }
    let (old_kind, new_kind) = (kind(&record.state), kind(&status.state));
    let is_first_status = last_status.is_none();
    match (old_kind, new_kind) {
        (StateKind::Ended, _) if !is_first_status => return StatusEffect::AlreadyTerminal,
        (StateKind::Missing, StateKind::Missing) if !is_first_status => return StatusEffect::Unchanged,
        _ => {}
    }
    let mut merged = merge(last_status, status);
    if status.uuid.is_none() && is_repetition(last_status, &merged) {
        return StatusEffect::Unchanged;
    }
    let mut next = record.clone();
    next.phase = if new_kind == StateKind::Live {
        Phase::Launched
    } else {
        Phase::Terminal
    };
    next.state = status.state.clone();
    next.updated_at = now;
    next.staged_at = record
        .staged_at
        .or(Some(now).filter(|_| new_kind == StateKind::Live));
    if status.state == TaskState::Running {
        next.started_at = record.started_at.or(Some(now));
    }
    intern::shrink(&mut merged, &record.id, &record.agent.id);
    next.status = Some(merged);
    StatusEffect::Changed(Box::new(next))
}

/// The new status merged with the known one; see "Statuses" in the documentation of the crate.
fn merge(last_status: Option<&TaskStatus>, new: &TaskStatus) -> TaskStatus {
    let mut merged = new.clone();
    let Some(last_status) = last_status else {
        return merged;
    };
    merged.uuid = merged.uuid.or_else(|| last_status.uuid.clone());
    merged.container_status = merged
        .container_status
        .or_else(|| last_status.container_status.clone());
    merged.executor_id = merged.executor_id.or_else(|| last_status.executor_id.clone());
    merged.agent_id = merged.agent_id.or_else(|| last_status.agent_id.clone());
    if new.state != TaskState::Starting {
        merged.healthy = merged.healthy.or(last_status.healthy);
        if !merged.check_status.as_ref().is_some_and(has_result) {
            merged.check_status = last_status.check_status.clone().or(merged.check_status);
        }
    }
    merged
}

/// Whether a check status has a result. Without one, its part is empty.
fn has_result(check: &CheckStatusInfo) -> bool {
    check
        .command
        .as_ref()
        .is_some_and(|command| command.exit_code.is_some())
        || check.http.as_ref().is_some_and(|http| http.status_code.is_some())
        || check.tcp.as_ref().is_some_and(|tcp| tcp.succeeded.is_some())
}

/// Whether a status of the master itself (an answer to reconciliation) repeats the known one.
/// Message and reason are ignored, because the master does not keep them.
fn is_repetition(last_status: Option<&TaskStatus>, merged: &TaskStatus) -> bool {
    last_status.is_some_and(|last_status| {
        last_status.state == merged.state
            && last_status.healthy == merged.healthy
            && last_status.check_status == merged.check_status
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::record;
    use transom_cluster::v1::{CheckStatusCommand, CheckStatusHttp};

    fn status(state: TaskState, uuid: Option<&str>) -> TaskStatus {
        TaskStatus {
            task_id: "t".into(),
            state,
            uuid: uuid.map(str::to_owned),
            ..TaskStatus::default()
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn changed(record: &TaskRecord, status: &TaskStatus) -> TaskRecord {
        match apply(record, status, at(9)) {
            StatusEffect::Changed(next) => *next,
            other => panic!("{other:?} for {status:?}"),
        }
    }

    /// Applies every state after every other one. `L`: live, `T`: terminal, `.`: no change, `K`: an
    /// orphan to be killed, `e`: a repeated end.
    #[test]
    fn apply_handles_every_state_after_every_other() {
        use TaskState::{
            Dropped, Error, Failed, Finished, Gone, GoneByOperator, Killed, Killing, Lost, Running, Staging,
            Starting, Unknown, Unreachable,
        };
        let new = TaskState::Other("TASK_NEW".to_owned());
        let next = [
            Staging,
            Starting,
            Running,
            Killing,
            new.clone(),
            Unreachable,
            Finished,
            Failed,
            Killed,
            Error,
            Lost,
            Gone,
            GoneByOperator,
            Dropped,
            Unknown,
        ];
        let table = [
            (None, "LLLLLL TTTT TTTTT"),
            (Some(Staging), "LLLLLL TTTT TTTTT"),
            (Some(Starting), "LLLLLL TTTT TTTTT"),
            (Some(Running), "LLLLLL TTTT TTTTT"),
            (Some(Killing), "LLLLLL TTTT TTTTT"),
            (Some(new), "LLLLLL TTTT TTTTT"),
            (Some(Unreachable), "LLLLLL TTTT TTTTT"),
            (Some(Lost), "LLLLLL TTTT ....."),
            (Some(Gone), "LLLLLL TTTT ....."),
            (Some(GoneByOperator), "LLLLLL TTTT ....."),
            (Some(Dropped), "LLLLLL TTTT ....."),
            (Some(Unknown), "LLLLLL TTTT ....."),
            (Some(Finished), "KKKKKe eeee eeeee"),
            (Some(Failed), "KKKKKe eeee eeeee"),
            (Some(Killed), "KKKKKe eeee eeeee"),
            (Some(Error), "KKKKKe eeee eeeee"),
        ];
        for (from, expected) in table {
            let mut before = record("t");
            if let Some(from) = &from {
                before = changed(&before, &status(from.clone(), Some("first")));
            }
            let code = |to: &TaskState| match apply(&before, &status(to.clone(), Some("second")), at(9)) {
                StatusEffect::Changed(next) => {
                    assert_eq!(next.state, *to);
                    match next.phase {
                        Phase::Launched => 'L',
                        Phase::Terminal => 'T',
                        Phase::Intent => panic!("{from:?} -> {to} is no intent any more"),
                    }
                }
                StatusEffect::Unchanged => '.',
                StatusEffect::AlreadyTerminal if can_be_killed(to) => 'K',
                StatusEffect::AlreadyTerminal => 'e',
                StatusEffect::Duplicate => panic!("{from:?} -> {to} is no duplicate status"),
            };
            let codes: String = next.iter().map(code).collect();
            assert_eq!(codes, expected.replace(' ', ""), "from {from:?}");
        }
    }

    #[test]
    fn agent_is_away_for_lost_and_draining_agents() {
        for (state, reason, away) in [
            (TaskState::Unreachable, None, true),
            (TaskState::Gone, None, true),
            (TaskState::GoneByOperator, None, true),
            (TaskState::Unknown, None, true),
            (TaskState::Killed, Some("REASON_AGENT_DRAINING"), true),
            (TaskState::Killed, Some("REASON_EXECUTOR_TERMINATED"), false),
            (TaskState::Killed, None, false),
            (TaskState::Running, None, false),
            // An invalid offer does not affect its agent.
            (TaskState::Dropped, Some("REASON_INVALID_OFFERS"), false),
        ] {
            let lost = TaskStatus {
                reason: reason.map(str::to_owned),
                ..status(state.clone(), Some("a"))
            };
            let record = changed(&record("t"), &lost);
            assert_eq!(is_agent_away(&record), away, "{state} {reason:?}");
        }
    }

    #[test]
    fn same_uuid_is_a_duplicate_after_a_status_without_one() {
        let first = status(TaskState::Running, Some("a"));
        let running = changed(&record("t"), &first);
        assert_eq!(apply(&running, &first, at(9)), StatusEffect::Duplicate);
        let lost = changed(&running, &status(TaskState::Unreachable, None));
        assert_eq!(apply(&lost, &first, at(9)), StatusEffect::Duplicate);
        let again = changed(&lost, &status(TaskState::Running, Some("b")));
        assert_eq!(again.state, TaskState::Running);
    }

    #[test]
    fn status_without_uuid_counts_only_when_it_changes_something() {
        let running = changed(&record("t"), &status(TaskState::Running, Some("a")));
        assert_eq!(
            apply(&running, &status(TaskState::Running, None), at(9)),
            StatusEffect::Unchanged
        );
        let healthy = TaskStatus {
            healthy: Some(true),
            ..status(TaskState::Running, None)
        };
        assert_eq!(changed(&running, &healthy).healthy(), Some(true));
    }

    #[test]
    fn first_status_of_an_intent_counts_even_if_staging() {
        let intent = record("t");
        assert_eq!(intent.phase, Phase::Intent);
        let staged = changed(&intent, &status(TaskState::Staging, None));
        assert_eq!(
            (staged.phase, staged.staged_at, staged.started_at),
            (Phase::Launched, Some(at(9)), None)
        );
        let running = changed(&staged, &status(TaskState::Running, None));
        assert_eq!(running.started_at, Some(at(9)));
    }

    #[test]
    fn check_results_are_kept_until_the_task_restarts() {
        let http = |status_code| CheckStatusInfo {
            http: Some(CheckStatusHttp { status_code }),
            ..CheckStatusInfo::default()
        };
        let with = |state, check: Option<CheckStatusInfo>, healthy, uuid| TaskStatus {
            check_status: check,
            healthy,
            ..status(state, Some(uuid))
        };
        let seen = changed(
            &record("t"),
            &with(TaskState::Running, Some(http(Some(200))), Some(true), "a"),
        );
        let result = |record: &TaskRecord| record.status.clone().unwrap().check_status;

        let without = changed(&seen, &with(TaskState::Running, None, None, "b"));
        assert_eq!(
            (result(&without), without.healthy()),
            (Some(http(Some(200))), Some(true))
        );
        let empty = changed(
            &seen,
            &with(TaskState::Killing, Some(http(None)), Some(false), "c"),
        );
        assert_eq!(
            (result(&empty), empty.healthy()),
            (Some(http(Some(200))), Some(false))
        );
        let other = changed(&seen, &with(TaskState::Running, Some(http(Some(500))), None, "d"));
        assert_eq!(result(&other), Some(http(Some(500))));
        let changed_again = changed(&seen, &with(TaskState::Starting, Some(http(None)), None, "e"));
        assert_eq!(
            (result(&changed_again), changed_again.healthy()),
            (Some(http(None)), None)
        );

        let exit = CheckStatusInfo {
            command: Some(CheckStatusCommand { exit_code: Some(0) }),
            ..CheckStatusInfo::default()
        };
        assert!(has_result(&exit) && !has_result(&http(None)));
    }
}
