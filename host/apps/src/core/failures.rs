//! Failures of an app's or pod's tasks in a row, as the store keeps them. Pure.
//!
//! A row ends when no failure follows for [`quiet_time`] after the delay of the next launch, or with
//! another configuration. It is part of the app's record, so it continues after a restart.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use transom_cluster::v1::TaskState;
use transom_cluster::{ExecutorId, TaskId};
use transom_common::HostPort;
use transom_plugin_host::printable;
use transom_scheduler::TaskRecord;

use crate::model::Spec;
use crate::time::Moment;

/// The bounds of [`quiet_time`]. A task that runs for a minute before it fails is still in a row, and
/// a task that has recovered is not reported for longer than five.
const MIN_QUIET: Duration = Duration::from_mins(1);
const MAX_QUIET: Duration = Duration::from_mins(5);
/// The number of agents that are kept.
const MAX_AGENTS: usize = 3;
/// The maximum number of characters of a message.
const MAX_MESSAGE_CHARS: usize = 500;

/// Failures in a row, and the last of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failures {
    pub(crate) count: u32,
    pub(crate) first: Moment,
    /// The row ends then, unless another failure follows.
    pub(crate) until: Moment,
    pub(crate) last: Failure,
    /// The host names of the last agents, newest first.
    pub(crate) agents: Vec<String>,
}

/// A failure of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) at: Moment,
    pub(crate) cause: Cause,
    /// The words of its source: one printable line.
    pub(crate) message: String,
    /// Where its output is; `None` if the address of the agent is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sandbox: Option<Sandbox>,
}

/// The sandbox of a task that has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sandbox {
    /// The address of the agent's HTTP API.
    pub(crate) agent: HostPort,
    pub(crate) task: TaskId,
    /// The executor of a task in a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) executor: Option<ExecutorId>,
}

impl Sandbox {
    fn of(record: &TaskRecord) -> Option<Self> {
        Some(Self {
            agent: record.agent.endpoint.clone()?,
            task: record.id.clone(),
            executor: record.group.as_ref().map(|group| group.executor.clone()),
        })
    }
}

/// How a task failed, by the fields of its last status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cause {
    /// It ended, with a status or by a signal.
    Ended,
    /// Its agent ended it because of its memory limit.
    Memory,
    /// Its container was not started.
    Launch,
    /// The master rejected it.
    Rejected,
    /// It was killed because a health check failed.
    Unhealthy,
    /// Another reason, which the message names.
    Other,
}

impl Failure {
    /// The failure of the task that this record shows. `killed_by_check`: its agent killed it because
    /// of a health check, whose `answer` is the last known.
    pub(crate) fn of(record: &TaskRecord, killed_by_check: bool, answer: Option<&str>) -> Self {
        let status = record.status.as_ref();
        let reason = status.and_then(|status| status.reason.as_deref());
        let message = status
            .and_then(|status| status.message.as_deref())
            .unwrap_or_default();
        let cause = match (&record.state, reason) {
            _ if killed_by_check => Cause::Unhealthy,
            (TaskState::Error, _) => Cause::Rejected,
            (_, Some("REASON_CONTAINER_LIMITATION_MEMORY")) => Cause::Memory,
            (_, Some("REASON_CONTAINER_LAUNCH_FAILED")) => Cause::Launch,
            (TaskState::Finished, _) | (TaskState::Failed, None | Some("REASON_COMMAND_EXECUTOR_FAILED")) => {
                Cause::Ended
            }
            _ => Cause::Other,
        };
        let message = answer.filter(|_| killed_by_check).unwrap_or(message);
        let message = match (message.trim(), reason) {
            ("", None) => record.state.as_str(),
            ("", Some(reason)) => reason,
            (message, _) => message,
        };
        Self::new(cause, record.updated_at.into(), message, Some(record))
    }

    pub(crate) fn new(cause: Cause, at: Moment, message: &str, record: Option<&TaskRecord>) -> Self {
        Self {
            at,
            cause,
            message: first_line(message),
            sandbox: record.and_then(Sandbox::of),
        }
    }
}

/// The first line of a text, printable and of bounded length.
pub(crate) fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let cut: String = line.chars().take(MAX_MESSAGE_CHARS).collect();
    printable(cut.trim_end()).into_owned()
}

impl Failures {
    /// Adds a failure on an agent to the row, or begins the next one. `until` is when the row ends
    /// unless another one follows.
    pub(crate) fn record(row: &mut Option<Self>, failure: Failure, agent: &str, until: Moment) {
        let current = row.take().filter(|row| failure.at <= row.until);
        let (count, first, agents) = current.map_or((0, failure.at, Vec::new()), |row| {
            (row.count, row.first, row.agents)
        });
        let others = agents.into_iter().filter(|other| other != agent);
        *row = Some(Self {
            count: count.saturating_add(1),
            first,
            until,
            agents: std::iter::once(agent.to_owned())
                .chain(others)
                .take(MAX_AGENTS)
                .collect(),
            last: failure,
        });
    }
}

/// How long a row continues without a failure after the delay of the next launch: as long as the
/// delay grows, which is `maxLaunchDelaySeconds`, within bounds. If a health check ended the task, the
/// time that the next one has until its checks end it is added.
pub(crate) fn quiet_time(spec: &Spec, cause: Cause) -> Duration {
    let longest_delay = Duration::try_from_secs_f64(spec.backoff().max_delay).unwrap_or(MAX_QUIET);
    let quiet = longest_delay.clamp(MIN_QUIET, MAX_QUIET);
    if cause != Cause::Unhealthy {
        return quiet;
    }
    let checks = spec.health_checks().iter().map(|check| {
        let attempts = u64::from(check.max_consecutive_failures) + 1;
        let attempt = u64::from(check.interval_seconds) + u64::from(check.timeout_seconds);
        u64::from(check.grace_period_seconds).saturating_add(attempts.saturating_mul(attempt))
    });
    quiet.saturating_add(Duration::from_secs(checks.max().unwrap_or(0)))
}

#[cfg(test)]
#[path = "failures_tests.rs"]
mod tests;
