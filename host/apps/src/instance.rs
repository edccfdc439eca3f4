//! One instance of an app. A succession of tasks can fill it, one at a time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use transom_cluster::TaskId;
use transom_cluster::v1::CheckStatusInfo;
use transom_plugin_host::probe::{Failure, Outcome};
use transom_plugin_host::shown;
use transom_replicas::{Condition, Fitness, Member, Replica, TaskView};
use transom_scheduler::TaskRecord;

use crate::bus::shapes::TaskFacts;
use crate::health::HealthState;
use crate::ids::{AppId, InstanceId};
use crate::model::App;
use crate::time::Moment;

/// An instance: the life of a replica, and what the service knows about its current task.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) id: InstanceId,
    /// Its condition and current task. The version is that of the app from which the task is
    /// launched.
    pub(crate) replica: Replica<Moment>,
    /// The scheduler's task record, once the task is launched.
    pub(crate) record: Option<Arc<TaskRecord>>,
    /// The last result of this daemon's check.
    pub(crate) found: Option<Outcome>,
    /// The error of this daemon's check, if the last attempt failed.
    pub(crate) failure: Option<Failure>,
    /// The results of each health check of its definition; empty without health checks.
    pub(crate) health: Vec<HealthState>,
    /// The result of its readiness check, since the first attempt.
    pub(crate) readiness: Option<Arc<Readiness>>,
}

/// The result of a readiness check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// The name of the check.
    pub(crate) name: String,
    /// Whether the response meant that the task is ready.
    pub(crate) ready: bool,
    /// The last response, if the check shows it.
    pub(crate) response: Option<Response>,
}

/// A response to a readiness check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Response {
    pub(crate) status: u16,
    #[serde(default)]
    pub(crate) content_type: String,
    #[serde(default)]
    pub(crate) body: String,
}

impl Instance {
    /// A new instance without a task.
    pub(crate) fn new(app: &AppId, version: Moment, now: Moment) -> Self {
        Self {
            id: InstanceId::new(app),
            replica: Replica::new(version, now.timestamp()),
            record: None,
            found: None,
            failure: None,
            health: Vec::new(),
            readiness: None,
        }
    }

    /// The instance of a stored task.
    pub(crate) fn of_record(record: &Arc<TaskRecord>) -> Option<Self> {
        let (id, incarnation) = InstanceId::of_task(&record.id)?;
        let version = record.version.parse().ok()?;
        Some(Self {
            id,
            replica: Replica::of_task(version, incarnation, &view(record)),
            record: Some(Arc::clone(record)),
            found: None,
            failure: None,
            health: Vec::new(),
            readiness: None,
        })
    }

    /// The condition of the instance.
    pub(crate) fn condition(&self) -> Condition {
        self.replica.condition
    }

    /// The version of the app from which the current task is launched.
    pub(crate) fn version(&self) -> Moment {
        self.replica.version
    }

    /// The id of the current task.
    pub(crate) fn task(&self) -> TaskId {
        self.id.task(self.replica.incarnation)
    }

    /// Whether `name` is the id of this instance or of its current task.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.id.as_str() == name || self.task().as_str() == name
    }

    /// Replaces the replica. With the next task, what was known about the last one is dropped.
    pub(crate) fn set_replica(&mut self, replica: Replica<Moment>) {
        if replica.incarnation != self.replica.incarnation {
            self.record = None;
            self.found = None;
            self.failure = None;
            self.health = Vec::new();
            self.readiness = None;
        }
        self.replica = replica;
    }

    /// The instance as deployments see it. `outdated`: its configuration is not the app's.
    pub(crate) fn member(&self, outdated: bool, fitness: Fitness) -> Member<InstanceId> {
        self.replica.member(self.id.clone(), outdated, fitness)
    }

    /// Whether all its health checks say that it is healthy. `None`: there are none, or not all of
    /// them have a result and those that have one are successes.
    pub(crate) fn is_healthy(&self) -> Option<bool> {
        let mut known = self.health.iter().filter(|state| state.is_known());
        if known.any(|state| !state.is_alive()) {
            return Some(false);
        }
        let all = !self.health.is_empty() && self.health.iter().all(HealthState::is_alive);
        all.then_some(true)
    }

    /// Whether its readiness check has succeeded.
    pub(crate) fn is_ready(&self) -> bool {
        self.readiness.as_ref().is_some_and(|readiness| readiness.ready)
    }

    /// What its checks say, with those of this definition. `new`: it has to be ready.
    pub(crate) fn fitness(&self, definition: &App, new: bool) -> Fitness {
        let health = !definition.health_checks.is_empty();
        let readiness = new && !definition.readiness_checks.is_empty();
        if !health && !readiness {
            return Fitness::Unchecked;
        }
        let healthy = !health || self.is_healthy() == Some(true);
        if healthy && (!readiness || self.is_ready()) {
            Fitness::Fit
        } else {
            Fitness::Unfit
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

/// The task of a record, as the life of its replica takes it.
pub(crate) fn view(record: &TaskRecord) -> TaskView<'_> {
    TaskView {
        state: &record.state,
        status: record.status.as_ref(),
        terminal: record.is_terminal(),
        started_at: record.started_at,
        updated_at: record.updated_at,
        killing: record.killing,
    }
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
    fn check_results_of_agent_and_plugin_have_the_same_shape() {
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
    fn control_characters_in_a_plugin_result_are_escaped() {
        let found =
            Outcome::Custom(r#"{"a\u202e": ["\u001b[2J", {"b": "\u009b2J ä\n"}], "n": 1}"#.to_owned());
        let expected = json!({"plugin": {"a\\u{202e}": ["\\u{1b}[2J", {"b": "\\u{9b}2J ä\\u{a}"}], "n": 1}});
        assert_eq!(outcome(&found), expected);
    }
}
