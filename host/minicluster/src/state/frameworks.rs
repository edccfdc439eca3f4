//! Subscriptions: subscribing, failover, disconnection and removal of frameworks.

use super::{
    Framework, FrameworkId, KillOrder, MAX_COMPLETED_FRAMEWORKS, MAX_STREAM_EVENTS, Reply, State, TaskKey,
    TaskState, epoch,
    model::{Stream, lists_capability},
};
use crate::wire::{
    json as doc,
    recordio::{self, Event},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// Maximum failover timeout; a longer one is reduced to it.
const MAX_FAILOVER_TIMEOUT: Duration = Duration::from_hours(8784);

/// An open stream. `framework` is `None` if the stream only sends an ERROR and ends.
#[derive(Debug)]
pub(crate) struct Subscribed {
    pub(crate) framework: Option<FrameworkId>,
    pub(crate) stream_id: String,
    pub(crate) events: mpsc::Receiver<Event>,
}

impl State {
    /// SUBSCRIBE, for the first time or again. An invalid framework receives a stream with one
    /// ERROR event.
    pub(crate) fn subscribe(&mut self, call: &Value, now: Instant) -> Subscribed {
        let stream_id = super::new_uuid().to_string();
        let (sender, events) = mpsc::channel(MAX_STREAM_EVENTS);
        let requested_id = doc::text(call, &["framework_id", "value"])
            .filter(|id| !id.is_empty())
            .map(FrameworkId::from);
        let info = &call["subscribe"]["framework_info"];
        let error_message = framework_info_error(info).or_else(|| {
            let removed = requested_id.as_ref().is_some_and(|id| {
                self.completed_frameworks
                    .iter()
                    .any(|framework| framework.id == *id)
            });
            removed.then(|| "Framework has been removed".to_owned())
        });
        if let Some(message) = error_message {
            // The queue is empty, so the event always fits. The sender is dropped by this function,
            // and the stream ends after the event.
            let _ = sender.try_send(Ok(recordio::record(
                &json!({"type": "ERROR", "error": {"message": message}}),
            )));
            return Subscribed {
                framework: None,
                stream_id,
                events,
            };
        }
        let id = requested_id.unwrap_or_else(|| self.new_framework_id());
        let stream = Stream {
            id: stream_id.clone(),
            events: sender,
            next_heartbeat: now + self.config.heartbeat,
        };
        let info = with_defaults(info, &id);
        let suppressed = doc::list(call, &["subscribe", "suppressed_roles"])
            .iter()
            .filter_map(|r| r.as_str().map(str::to_owned))
            .collect();
        let constraints = call["subscribe"]
            .get("offer_constraints")
            .cloned()
            .unwrap_or_else(|| json!({}));
        self.attach_stream(&id, info, constraints, suppressed, stream);
        self.send(&id, &self.subscribed_event(&id));
        self.send(&id, &json!({"type": "HEARTBEAT"}));
        self.resend_pending(&id, now);
        self.allocate(now);
        Subscribed {
            framework: Some(id),
            stream_id,
            events,
        }
    }

    fn subscribed_event(&self, id: &FrameworkId) -> Value {
        json!({"type": "SUBSCRIBED", "subscribed": {
            "framework_id": doc::id(id.as_str()),
            "heartbeat_interval_seconds": self.config.heartbeat.as_secs_f64(),
            "master_info": self.master_info(),
        }})
    }

    fn new_framework_id(&mut self) -> FrameworkId {
        let id = format!("{}-{:04}", self.master.id, self.next_framework);
        self.next_framework += 1;
        FrameworkId::from(id)
    }

    /// Replaces the framework's stream; the earlier one receives an error and ends.
    fn attach_stream(
        &mut self,
        id: &FrameworkId,
        info: Value,
        constraints: Value,
        suppressed: BTreeSet<String>,
        stream: Stream,
    ) {
        let time = epoch();
        if self.frameworks.contains_key(id) {
            self.send(
                id,
                &json!({"type": "ERROR", "error": {"message": "Framework failed over"}}),
            );
            self.withdraw_offers_of(id);
            if let Some(framework) = self.frameworks.get_mut(id) {
                framework.info = info;
                framework.offer_constraints = constraints;
                framework.suppressed = suppressed;
                framework.filters.clear();
                framework.reregistered = time;
                framework.stream = Some(stream);
                framework.recovered = false;
                framework.failover_deadline = None;
            }
            self.announce_framework(id, "FRAMEWORK_UPDATED", "framework_updated");
            return;
        }
        let framework = Framework {
            stream: Some(stream),
            suppressed,
            ..Framework::new(id.clone(), info, constraints)
        };
        self.frameworks.insert(id.clone(), framework);
        self.announce_framework(id, "FRAMEWORK_ADDED", "framework_added");
    }

    /// Sends one event. A stream whose queue is full is closed, as if the framework had
    /// disconnected.
    pub(crate) fn send(&mut self, id: &FrameworkId, event: &Value) {
        let Some(framework) = self.frameworks.get_mut(id) else {
            return;
        };
        let Some(stream) = &framework.stream else { return };
        if stream.events.try_send(Ok(recordio::record(event))).is_err() {
            tracing::warn!(framework = %id, "event stream closed: the client disconnected or reads too slowly");
            self.disconnect(id, Instant::now());
        }
    }

    /// Handles a client that disconnected. Does nothing if the stream was replaced meanwhile.
    pub(crate) fn stream_closed(&mut self, id: &FrameworkId, stream_id: &str, now: Instant) {
        let current = self
            .frameworks
            .get(id)
            .and_then(|framework| framework.stream.as_ref());
        if current.is_some_and(|stream| stream.id == stream_id) {
            self.disconnect(id, now);
        }
    }

    /// Removes the stream and the offers and starts the failover timeout; zero removes the
    /// framework immediately.
    fn disconnect(&mut self, id: &FrameworkId, now: Instant) {
        self.withdraw_offers_of(id);
        let Some(framework) = self.frameworks.get_mut(id) else {
            return;
        };
        framework.stream = None;
        framework.filters.clear();
        let timeout = failover_timeout(&framework.info);
        framework.failover_deadline = Some(now + timeout);
        if timeout.is_zero() {
            self.remove_framework(id);
        }
    }

    /// Removes a framework: its stream, its tasks and finally their processes.
    pub(crate) fn remove_framework(&mut self, id: &FrameworkId) {
        self.withdraw_offers_of(id);
        for key in self.tasks_of(id) {
            self.end_with_framework(&key);
        }
        let unreachable: Vec<TaskKey> = self.frameworks.get(id).map_or_else(Vec::new, |framework| {
            framework
                .unreachable_tasks
                .iter()
                .map(|task| task.key.clone())
                .collect()
        });
        for key in unreachable {
            self.kill_unreported(&key, None);
            self.release_after_exit(&key);
        }
        let Some(mut framework) = self.frameworks.remove(id) else {
            return;
        };
        for (key, executor) in std::mem::take(&mut framework.executors) {
            if executor.custom.is_some() {
                self.dismiss_executor(id, &key, executor);
            } else {
                self.free_resources(&executor.agent, &executor.resources);
            }
        }
        framework.stream = None;
        framework.failover_deadline = None;
        framework.unregistered = epoch();
        self.announce(
            &json!({"type": "FRAMEWORK_REMOVED", "framework_removed": {"framework_info": framework.info}}),
        );
        self.completed_frameworks.push_back(framework);
        if self.completed_frameworks.len() > MAX_COMPLETED_FRAMEWORKS
            && let Some(oldest) = self.completed_frameworks.pop_front()
        {
            self.forget_answers_of(&oldest.id);
        }
    }

    /// Ends one task of a removed framework: reports it on the operator streams, kills it, and
    /// stores it as completed.
    fn end_with_framework(&mut self, key: &TaskKey) {
        let Some(task) = self.task(key) else { return };
        if !task.state.is_terminal() {
            let status = json!({
                "task_id": doc::id(key.task.as_str()),
                "state": TaskState::Killed.as_str(),
                "message": format!("Framework {} removed", key.framework),
                "source": "SOURCE_MASTER",
                "reason": "REASON_FRAMEWORK_REMOVED",
                "agent_id": doc::id(task.agent.as_str()),
                "timestamp": epoch(),
            });
            self.record_by_master(key, TaskState::Killed, &status);
        }
        self.kill_unreported(key, None);
        self.release_after_exit(key);
        let Some(task) = self
            .frameworks
            .get_mut(&key.framework)
            .and_then(|framework| framework.tasks.remove(&key.task))
        else {
            return;
        };
        self.add_completed_task(task);
    }

    /// Kills the process of a completed task without reporting it.
    pub(super) fn kill_unreported(&mut self, key: &TaskKey, grace: Option<Duration>) {
        let order = KillOrder {
            grace,
            ..KillOrder::default()
        };
        self.order_kill(key, order);
    }

    /// Adds a task to the framework's completed tasks, of which the oldest one is dropped if there
    /// are too many.
    pub(super) fn add_completed_task(&mut self, task: super::Task) {
        let Some(framework) = self.frameworks.get_mut(&task.key.framework) else {
            return;
        };
        framework.completed_tasks.push_back(task);
        if framework.completed_tasks.len() > self.max_completed_tasks {
            framework.completed_tasks.pop_front();
        }
    }

    /// `UPDATE_FRAMEWORK`: 200, or 400 for a change that is not allowed.
    pub(crate) fn update_framework(&mut self, id: &FrameworkId, update: &Value, now: Instant) -> Reply {
        let Some(framework) = self.frameworks.get_mut(id) else {
            return Reply::bad_request("Framework cannot be found");
        };
        let info = with_defaults(&update["framework_info"], id);
        let change = framework_info_error(&info).or_else(|| forbidden_change(&framework.info, &info));
        if let Some(what) = change {
            return Reply::bad_request(format!("FrameworkInfo update is not valid: {what}"));
        }
        framework.info = info;
        framework.suppressed = doc::list(update, &["suppressed_roles"])
            .iter()
            .filter_map(|role| role.as_str().map(str::to_owned))
            .collect();
        framework.offer_constraints = update
            .get("offer_constraints")
            .cloned()
            .unwrap_or_else(|| json!({}));
        self.announce_framework(id, "FRAMEWORK_UPDATED", "framework_updated");
        self.allocate(now);
        Reply::ok()
    }
}

/// The failover timeout of a framework.
pub(super) fn failover_timeout(info: &Value) -> Duration {
    let timeout = doc::number(info, &["failover_timeout"]).unwrap_or(0.0);
    Duration::try_from_secs_f64(timeout.max(0.0))
        .unwrap_or(MAX_FAILOVER_TIMEOUT)
        .min(MAX_FAILOVER_TIMEOUT)
}

/// `FrameworkInfo` as the API shows it: with the id and the defaults of mandatory fields.
fn with_defaults(info: &Value, id: &FrameworkId) -> Value {
    let mut info = doc::object(info.clone());
    info.insert("id".to_owned(), doc::id(id.as_str()));
    info.entry("failover_timeout").or_insert(json!(0.0));
    info.entry("checkpoint").or_insert(json!(false));
    info.retain(|_, value| !value.as_array().is_some_and(Vec::is_empty));
    Value::Object(info)
}

/// The ERROR message for an invalid `FrameworkInfo`.
fn framework_info_error(info: &Value) -> Option<String> {
    let multi_role = lists_capability(info, "MULTI_ROLE");
    let roles = doc::list(info, &["roles"]);
    if !multi_role && !roles.is_empty() {
        return Some(
            "'FrameworkInfo.roles' must not be set when the framework is not MULTI_ROLE capable".to_owned(),
        );
    }
    if multi_role && info.get("role").is_some() {
        return Some(
            "'FrameworkInfo.role' must not be set when the framework is MULTI_ROLE capable".to_owned(),
        );
    }
    let names: Vec<&str> = roles.iter().filter_map(Value::as_str).collect();
    if names.iter().collect::<BTreeSet<_>>().len() != names.len() {
        return Some("'FrameworkInfo.roles' must not contain duplicate items".to_owned());
    }
    if let Some(error) = names.iter().find_map(|role| role_error(role)) {
        return Some(format!("'FrameworkInfo.roles' contains invalid role: {error}"));
    }
    let single = info.get("role").and_then(Value::as_str).and_then(role_error);
    if let Some(error) = single {
        return Some(format!("'FrameworkInfo.role' is not a valid role: {error}"));
    }
    let timeout = doc::number(info, &["failover_timeout"]).unwrap_or(0.0);
    (timeout < 0.0).then(|| format!("'FrameworkInfo.failover_timeout' has an invalid value: {timeout}"))
}

fn role_error(role: &str) -> Option<String> {
    if role == "*" {
        return None;
    }
    if role.is_empty() {
        return Some("Empty role name is invalid".to_owned());
    }
    if role.starts_with('/') || role.ends_with('/') {
        return Some(format!("Role '{role}' cannot start or end with a slash"));
    }
    if role.contains("//") {
        return Some(format!("Role '{role}' cannot contain two adjacent slashes"));
    }
    role.split('/').find_map(|component| match component {
        "." | ".." | "*" => Some(format!(
            "Role '{role}' cannot include '{component}' as a component"
        )),
        component if component.starts_with('-') => Some(format!(
            "Role component '{component}' is invalid because it begins with a dash"
        )),
        component if component.contains(|c: char| c.is_whitespace() || c == '\u{7f}') => Some(format!(
            "Role component '{component}' is invalid because it contains backspace or whitespace"
        )),
        _ => None,
    })
}

/// The first changed field that must not change.
fn forbidden_change(old: &Value, new: &Value) -> Option<String> {
    ["principal", "user", "checkpoint"].iter().find_map(|field| {
        let (old, new) = (display_text(old.get(*field)), display_text(new.get(*field)));
        (old != new).then(|| {
            format!(
                "Updating 'FrameworkInfo.{field}' is unsupported; attempted to update from '{old}' to '{new}'"
            )
        })
    })
}

fn display_text(value: Option<&Value>) -> String {
    match value {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_frameworks_are_rejected_with_the_masters_messages() {
        let multi = json!([{"type": "MULTI_ROLE"}]);
        let cases = [
            (
                json!({"roles": ["a"]}),
                Some("'FrameworkInfo.roles' must not be set when the framework is not MULTI_ROLE capable"),
            ),
            (
                json!({"role": "a/../b"}),
                Some(
                    "'FrameworkInfo.role' is not a valid role: Role 'a/../b' cannot include '..' as a component",
                ),
            ),
            (
                json!({"role": "a", "capabilities": multi}),
                Some("'FrameworkInfo.role' must not be set when the framework is MULTI_ROLE capable"),
            ),
            (json!({"roles": ["a/b", "c"], "capabilities": multi}), None),
            (json!({"role": "*"}), None),
            (json!({}), None),
        ];
        for (info, expected) in cases {
            assert_eq!(framework_info_error(&info).as_deref(), expected, "{info}");
        }
    }

    #[test]
    fn checkpoint_cannot_change() {
        let found = forbidden_change(&json!({"checkpoint": true}), &json!({"checkpoint": false}));
        assert_eq!(
            found.unwrap(),
            "Updating 'FrameworkInfo.checkpoint' is unsupported; attempted to update from 'true' to 'false'"
        );
    }
}
