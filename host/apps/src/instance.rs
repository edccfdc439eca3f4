//! One instance of an app: a place in the app's number that a succession of tasks fills.

use std::sync::Arc;

use serde_json::{Value, json};
use transom_cluster::TaskId;
use transom_cluster::v1::{CheckStatusInfo, TaskState};
use transom_plugins::probe::{Failure, Outcome};
use transom_plugins::shown;
use transom_scheduler::TaskRecord;

use crate::bus::shapes::TaskFacts;
use crate::condition::Condition;
use crate::deploy::InstanceView;
use crate::ids::{AppId, InstanceId};
use crate::model::UnreachableStrategy;
use crate::time::Moment;

/// An instance and its present task.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) id: InstanceId,
    /// Which task of the instance this is, from 1.
    pub(crate) incarnation: u32,
    /// The version of the app that the task is launched from.
    pub(crate) version: Moment,
    pub(crate) condition: Condition,
    /// Since when the condition is what it is.
    pub(crate) since: Moment,
    /// Meant to run; false once it is being ended for good.
    pub(crate) wanted: bool,
    /// Whether the present task is killed to be replaced, which is not its failure.
    pub(crate) killed: bool,
    /// What the scheduler knows of the task, once it is launched.
    pub(crate) record: Option<Arc<TaskRecord>>,
    /// What this side's check found last.
    pub(crate) found: Option<Outcome>,
    /// Why this side's check could not tell, when the last look could not.
    pub(crate) failure: Option<Failure>,
}

impl Instance {
    /// A new instance that waits for its first task.
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

    /// The instance that a stored task belongs to.
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

    /// The present task.
    pub(crate) fn task(&self) -> TaskId {
        self.id.task(self.incarnation)
    }

    /// Whether a client means this instance by `name`: the id of its present task, or its own.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.id.as_str() == name || self.task().as_str() == name
    }

    /// Takes in what the scheduler says of the task; whether the condition changed.
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

    /// Makes room for the next task of this instance.
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

    /// What becomes of an instance that nobody hears from, by now: given up, forgotten, or nothing.
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
            // Upstream looks for these only now and then, first after five minutes: an agent that restarts gets its tasks back.
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

    /// As deployments see it. `config` is the app's present configuration.
    pub(crate) fn seen(&self, config: Moment) -> InstanceView {
        // One that nobody heard of for a while is as old as its task, so that its replacement is the one to go.
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

    /// What a check found last, whoever looked, in the shape of `checkResult`.
    pub(crate) fn check_result(&self) -> Option<Value> {
        if let Some(found) = &self.found {
            return Some(outcome(found));
        }
        let status = self.record.as_ref()?.status.as_ref()?;
        status.check_status.as_ref().and_then(agent_result)
    }

    /// What events tell of it. `version` is the version as text, which the caller keeps.
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

/// How long an instance that was given up is still remembered, in milliseconds, beyond its strategy.
const GRACE: i64 = 300_000;

/// What to do about an instance that nobody hears from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    No,
    /// Replace it, but take it back if it returns in time.
    GiveUp,
    Forget,
}

fn condition_of(record: &TaskRecord) -> Condition {
    let Some(status) = &record.status else {
        // An intent, or a launch that nothing was heard of since.
        return if record.is_terminal() {
            Condition::Dropped
        } else {
            Condition::Provisioned
        };
    };
    if let (TaskState::Other(_), Some(_)) = (&record.state, record.started_at) {
        // Whatever it is about to become, it has run and is there.
        return Condition::Running;
    }
    Condition::of(&record.state, status.reason.as_deref(), status.message.as_deref())
}

/// A result of this side's probes.
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

/// A guest's document with the characters escaped that a terminal would act on.
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

/// A result of the agent's check; `None` before the first one.
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
