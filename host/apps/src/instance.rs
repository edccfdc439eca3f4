//! One instance of an app. A succession of tasks can fill it, one at a time.

use std::sync::Arc;

use serde_json::{Value, json};
use transom_cluster::TaskId;
use transom_cluster::v1::{CheckStatusInfo, TaskState};
use transom_plugin_host::probe::{Failure, Outcome};
use transom_plugin_host::shown;
use transom_scheduler::TaskRecord;

use crate::bus::shapes::TaskFacts;
use crate::condition::Condition;
use crate::deploy::InstanceView;
use crate::ids::{AppId, InstanceId};
use crate::model::UnreachableStrategy;
use crate::time::Moment;

/// An instance and its current task.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) id: InstanceId,
    /// Number of the current task, counted from 1.
    pub(crate) incarnation: u32,
    /// The version of the app from which the task is launched.
    pub(crate) version: Moment,
    pub(crate) condition: Condition,
    /// The time of the last change of the condition.
    pub(crate) since: Moment,
    /// Whether it should run; false once it is being removed.
    pub(crate) wanted: bool,
    /// Whether the current task is being killed for a replacement, which is not a failure.
    pub(crate) killed: bool,
    /// The scheduler's task record, once the task is launched.
    pub(crate) record: Option<Arc<TaskRecord>>,
    /// The last result of this daemon's check.
    pub(crate) found: Option<Outcome>,
    /// The error of this daemon's check, if the last attempt failed.
    pub(crate) failure: Option<Failure>,
}

impl Instance {
    /// A new instance without a task.
    pub(crate) fn new(app: &AppId, version: Moment) -> Self {
        Self {
            id: InstanceId::new(app),
            incarnation: 1,
            version,
            condition: Condition::Scheduled,
            since: Moment::now(),
            wanted: true,
            killed: false,
            record: None,
            found: None,
            failure: None,
        }
    }

    /// The instance of a stored task.
    pub(crate) fn of_record(record: &Arc<TaskRecord>) -> Option<Self> {
        let (id, incarnation) = InstanceId::of_task(&record.id)?;
        let version = record.version.parse().ok()?;
        let since = Moment::from(record.started_at.unwrap_or(record.updated_at));
        let mut instance = Self {
            id,
            incarnation,
            version,
            condition: Condition::Provisioned,
            since,
            wanted: true,
            killed: false,
            record: None,
            found: None,
            failure: None,
        };
        instance.condition = condition_of(record);
        instance.wanted = !record.killing;
        instance.record = Some(Arc::clone(record));
        Some(instance)
    }

    /// The id of the current task.
    pub(crate) fn task(&self) -> TaskId {
        self.id.task(self.incarnation)
    }

    /// Whether `name` is the id of this instance or of its current task.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.id.as_str() == name || self.task().as_str() == name
    }

    /// Applies a task record from the scheduler. Returns whether the condition changed.
    pub(crate) fn update(&mut self, record: &Arc<TaskRecord>) -> bool {
        let condition = condition_of(record);
        self.record = Some(Arc::clone(record));
        let gave_up = self.condition == Condition::UnreachableInactive && condition == Condition::Unreachable;
        if condition == self.condition || gave_up {
            return false;
        }
        self.condition = condition;
        self.since = Moment::now();
        true
    }

    /// Prepares the next task of this instance.
    pub(crate) fn reschedule(&mut self, version: Moment) {
        self.incarnation += 1;
        self.version = version;
        self.condition = Condition::Scheduled;
        self.since = Moment::now();
        self.killed = false;
        self.record = None;
        self.found = None;
        self.failure = None;
    }

    /// Whether an unreachable instance is due to be replaced or removed.
    pub(crate) fn overdue(&self, strategy: UnreachableStrategy, now: Moment) -> Overdue {
        let UnreachableStrategy::Enabled {
            inactive_after_seconds,
            expunge_after_seconds,
        } = strategy
        else {
            return Overdue::No;
        };
        let waited = now.millis_since(self.since);
        match self.condition {
            Condition::Unreachable if waited >= i64::from(inactive_after_seconds) * 1000 => Overdue::GiveUp,
            // Upstream checks for these only periodically, first after five minutes: a restarted
            // agent gets its tasks back.
            Condition::UnreachableInactive
                if waited
                    >= (i64::from(expunge_after_seconds) - i64::from(inactive_after_seconds)) * 1000
                        + GRACE =>
            {
                Overdue::Forget
            }
            _ => Overdue::No,
        }
    }

    /// The instance as deployments see it. `config` is the app's current configuration.
    pub(crate) fn seen(&self, config: Moment) -> InstanceView {
        // An instance that was unreachable and returns is as old as its task, so that its
        // replacement is killed first.
        let started = self.record.as_ref().and_then(|record| record.started_at);
        let since = started
            .filter(|_| self.condition == Condition::Running)
            .map_or(self.since, Moment::from);
        InstanceView {
            id: self.id.clone(),
            condition: self.condition,
            since,
            wanted: self.wanted,
            old: self.version < config,
        }
    }

    /// The last check result, of this daemon or of the agent, in the form of `checkResult`.
    pub(crate) fn check_result(&self) -> Option<Value> {
        if let Some(found) = &self.found {
            return Some(outcome(found));
        }
        let status = self.record.as_ref()?.status.as_ref()?;
        status.check_status.as_ref().and_then(agent_result)
    }

    /// The fields of its events. `version` is the version as text, which the caller owns.
    pub(crate) fn facts<'a>(&'a self, app: &'a AppId, version: &'a str) -> TaskFacts<'a> {
        let record = self.record.as_deref();
        TaskFacts {
            app,
            instance: &self.id,
            version,
            agent: record.map(|record| record.agent.id.as_str()),
            host: record.map(|record| record.agent.hostname.as_str()),
            ports: record.map_or(&[], |record| &record.host_ports),
        }
    }
}

/// Time for which an inactive instance is kept beyond its strategy, in milliseconds.
const GRACE: i64 = 300_000;

/// The action for an unreachable instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    No,
    /// Replace it, but accept it again if it returns in time.
    GiveUp,
    Forget,
}

fn condition_of(record: &TaskRecord) -> Condition {
    let Some(status) = &record.status else {
        // An intent, or a launch without a status update so far.
        return if record.is_terminal() {
            Condition::Dropped
        } else {
            Condition::Provisioned
        };
    };
    if let (TaskState::Other(_), Some(_)) = (&record.state, record.started_at) {
        // A task in an unknown state that has started is still alive.
        return Condition::Running;
    }
    Condition::of(&record.state, status.reason.as_deref(), status.message.as_deref())
}

/// Formats a result of this daemon's probes.
fn outcome(found: &Outcome) -> Value {
    match found {
        Outcome::Http(status) => json!({"http": {"statusCode": status}}),
        Outcome::Tcp(succeeded) => json!({"tcp": {"succeeded": succeeded}}),
        Outcome::Command(code) => json!({"command": {"exitCode": code}}),
        Outcome::Custom(text) => {
            json!({"plugin": serde_json::from_str(text).map_or(Value::Null, escaped)})
        }
    }
}

/// A component's document with terminal control characters escaped.
fn escaped(document: Value) -> Value {
    match document {
        Value::String(text) => Value::String(shown(&text).into_owned()),
        Value::Array(items) => items.into_iter().map(escaped).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(name, value)| (shown(&name).into_owned(), escaped(value)))
            .collect(),
        other => other,
    }
}

/// The result of the agent's check; `None` before the first one.
fn agent_result(status: &CheckStatusInfo) -> Option<Value> {
    let http = status
        .http
        .as_ref()
        .and_then(|http| http.status_code)
        .map(|code| json!({"http": {"statusCode": code}}));
    let tcp = || {
        status
            .tcp
            .as_ref()
            .and_then(|tcp| tcp.succeeded)
            .map(|yes| json!({"tcp": {"succeeded": yes}}))
    };
    let command = || {
        status
            .command
            .as_ref()
            .and_then(|command| command.exit_code)
            .map(|code| json!({"command": {"exitCode": code}}))
    };
    http.or_else(tcp).or_else(command)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn check_results_have_one_shape_whoever_looked() {
        let suite: Value = serde_json::from_str(include_str!("../tests/fixtures/checks.json")).unwrap();
        let mut replayed = 0;
        for case in suite["cases"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|case| case["kind"] == "check-result")
        {
            let given = &case["input"]["mesos_check_status"];
            let snake = given
                .to_string()
                .replace("statusCode", "status_code")
                .replace("exitCode", "exit_code");
            let agent: CheckStatusInfo = serde_json::from_str(&snake).unwrap();
            let ours = match (&given["http"], &given["tcp"], &given["command"]) {
                (Value::Object(http), _, _) => Outcome::Http(http["statusCode"].as_u64().unwrap() as u16),
                (_, Value::Object(tcp), _) => Outcome::Tcp(tcp["succeeded"].as_bool().unwrap()),
                (_, _, command) => Outcome::Command(command["exitCode"].as_i64().unwrap() as i32),
            };
            let expected = &case["expect"]["task_json_field"]["checkResult"];
            assert_eq!(&agent_result(&agent).unwrap(), expected, "{}", case["id"]);
            assert_eq!(&outcome(&ours), expected, "{}", case["id"]);
            replayed += 1;
        }
        assert_eq!(replayed, 4);
        let empty: CheckStatusInfo = serde_json::from_str(r#"{"type":"HTTP","http":{}}"#).unwrap();
        assert_eq!(agent_result(&empty), None);
    }

    #[test]
    fn a_guests_words_in_a_result_are_escaped() {
        let found =
            Outcome::Custom(r#"{"a\u202e": ["\u001b[2J", {"b": "\u009b2J ä\n"}], "n": 1}"#.to_owned());
        let expected = json!({"plugin": {"a\\u{202e}": ["\\u{1b}[2J", {"b": "\\u{9b}2J ä\\u{a}"}], "n": 1}});
        assert_eq!(outcome(&found), expected);
    }

    #[test]
    fn who_is_not_heard_of() {
        let app = AppId::parse("/a").unwrap();
        let mut instance = Instance::new(&app, Moment::now());
        let after = |seconds: i64, instance: &Instance| instance.since.plus_millis(seconds * 1000);
        let strategy = UnreachableStrategy::Enabled {
            inactive_after_seconds: 10,
            expunge_after_seconds: 30,
        };
        assert_eq!(instance.overdue(strategy, after(1000, &instance)), Overdue::No);
        instance.condition = Condition::Unreachable;
        assert_eq!(instance.overdue(strategy, after(9, &instance)), Overdue::No);
        assert_eq!(instance.overdue(strategy, after(10, &instance)), Overdue::GiveUp);
        instance.condition = Condition::UnreachableInactive;
        assert_eq!(instance.overdue(strategy, after(100, &instance)), Overdue::No);
        assert_eq!(instance.overdue(strategy, after(320, &instance)), Overdue::Forget);
    }
}
