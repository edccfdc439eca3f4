//! The calls of executors: SUBSCRIBE, UPDATE and MESSAGE.

use super::SubscribedExecutor;
use crate::{
    state::operator_views,
    state::{
        AgentId, AgentUpdate, FrameworkId, MAX_STREAM_EVENTS, Reply, State, TaskId, TaskKey, TaskState,
        epoch,
        model::{ExecutorKey, ExecutorPhase, Stream},
        updates::{container_id_fields, process_fields},
    },
    wire::{json as doc, recordio},
};
use base64::Engine;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// Interval of `HEARTBEAT` events; the first comes after it.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_mins(30);

/// Checks the rules that the message tables cannot express.
pub(crate) fn validate(call: &Value) -> Result<(), String> {
    let reject = |what: &str| Err(format!("Failed to validate Executor::Call: {what}"));
    let Some(kind) = doc::text(call, &["type"]) else {
        return reject("Expecting 'type' to be present");
    };
    let part = kind.to_ascii_lowercase();
    if kind != "HEARTBEAT" && call.get(&part).is_none() {
        return reject(&format!("Expecting '{part}' to be present"));
    }
    if kind != "UPDATE" {
        return Ok(());
    }
    let status = &call["update"]["status"];
    let Some(uuid) = doc::text(status, &["uuid"]) else {
        return reject("Expecting 'uuid' to be present");
    };
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(uuid)
        .unwrap_or_default();
    if bytes.len() != 16 {
        return reject("Not a valid UUID");
    }
    let executor = doc::text(call, &["executor_id", "value"]).unwrap_or_default();
    let framework = doc::text(call, &["framework_id", "value"]).unwrap_or_default();
    if let Some(named) = doc::text(status, &["executor_id", "value"]).filter(|named| *named != executor) {
        return reject(&format!(
            "ExecutorID in Call: {executor} does not match ExecutorID in TaskStatus: {named}"
        ));
    }
    if doc::text(status, &["source"]) != Some("SOURCE_EXECUTOR") {
        return reject(&format!(
            "Received Call from executor {executor} of framework {framework} with invalid source, \
             expecting 'SOURCE_EXECUTOR'"
        ));
    }
    if doc::text(status, &["state"]) == Some("TASK_STAGING") {
        return reject(&format!(
            "Received TASK_STAGING from executor {executor} of framework {framework} which is not allowed"
        ));
    }
    Ok(())
}

/// The executor that makes a call.
enum Caller {
    /// In this container.
    Executor(FrameworkId, ExecutorKey, String),
    /// In this container. The master no longer knows it, and it has to shut down.
    Ending(String),
}

impl State {
    fn caller(&self, agent: &AgentId, call: &Value) -> Result<Caller, Reply> {
        let framework = FrameworkId::from(doc::text(call, &["framework_id", "value"]).unwrap_or_default());
        let id = doc::text(call, &["executor_id", "value"]).unwrap_or_default();
        let mut ending = self.ending_executors.iter();
        let ending = ending
            .find(|(_, item)| item.framework == framework && item.id == id && item.agent == *agent)
            .map(|(container, _)| Caller::Ending(container.clone()));
        let key = (agent.clone(), id.to_owned());
        let executor = self.executor(&framework, &key).filter(|executor| {
            let custom = executor.custom.as_ref();
            custom.is_some_and(|custom| custom.phase != ExecutorPhase::Planned)
        });
        if let Some(executor) = executor {
            return Ok(Caller::Executor(framework, key, executor.container.clone()));
        }
        if let Some(ending) = ending {
            return Ok(ending);
        }
        let is_framework_known = self.frameworks_of_agents().any(|item| {
            item.id == framework
                && (item.executors.keys().any(|(on, _)| on == agent)
                    || item.tasks.values().any(|task| task.agent == *agent))
        });
        Err(Reply::bad_request(if is_framework_known {
            "Executor cannot be found"
        } else {
            "Framework cannot be found"
        }))
    }

    /// SUBSCRIBE of an executor, for the first time or again. A new stream ends the previous one.
    pub(crate) fn subscribe_executor(
        &mut self,
        agent: &AgentId,
        call: &Value,
        now: Instant,
    ) -> Result<SubscribedExecutor, Reply> {
        let caller = self.caller(agent, call)?;
        let (sender, events) = mpsc::channel(MAX_STREAM_EVENTS);
        let stream_id = crate::state::new_uuid().to_string();
        let subscribed = |container| SubscribedExecutor {
            container,
            stream_id: stream_id.clone(),
            events,
        };
        let (id, key, container) = match caller {
            Caller::Executor(id, key, container) => (id, key, container),
            Caller::Ending(container) => {
                send_shutdown(&sender);
                return Ok(subscribed(container));
            }
        };
        let Some(custom) = self.custom_mut(&id, &key) else {
            return Err(Reply::bad_request("Executor cannot be found"));
        };
        if custom.phase == ExecutorPhase::Terminating {
            send_shutdown(&sender);
            return Ok(subscribed(container));
        }
        custom.phase = ExecutorPhase::Running;
        custom.deadline = None;
        custom.stream = Some(Stream {
            id: stream_id.clone(),
            events: sender,
            next_heartbeat: now + HEARTBEAT_INTERVAL,
        });
        let subscribe = &call["subscribe"];
        let updates = doc::list(subscribe, &["unacknowledged_updates"]);
        let mut acknowledged = Vec::with_capacity(updates.len());
        for update in updates {
            acknowledged.extend(self.executor_status(&id, agent, &update["status"], now));
        }
        self.drop_unknown_tasks(&id, &key, doc::list(subscribe, &["unacknowledged_tasks"]), now);
        let idle = self
            .custom_mut(&id, &key)
            .is_some_and(|custom| !custom.was_sent_task && custom.queued.is_empty());
        if idle {
            // All its tasks were killed before it could receive one.
            self.shut_down(&container, now);
            return Ok(subscribed(container));
        }
        let event = self.subscribed_executor_event(&id, &key);
        self.send_first_events(&id, &key, &event, &acknowledged);
        Ok(subscribed(container))
    }

    fn subscribed_executor_event(&self, id: &FrameworkId, key: &ExecutorKey) -> Value {
        let executor = self.executor(id, key);
        let framework = self.framework_of_agents(id);
        let agent = self.agent(&key.0);
        json!({"type": "SUBSCRIBED", "subscribed": {
            "executor_info": executor.map(|executor| &executor.info),
            "framework_info": framework.map(|framework| &framework.info),
            "agent_info": agent.map(|agent| operator_views::agent_info(agent, false)),
            "container_id": executor.map(|executor| doc::id(&executor.container)),
        }})
    }

    /// Sends a newly subscribed executor its first events: SUBSCRIBED, the acknowledgements of its
    /// updates, and its tasks.
    fn send_first_events(
        &mut self,
        id: &FrameworkId,
        key: &ExecutorKey,
        event: &Value,
        acknowledgements: &[Value],
    ) {
        let Some(custom) = self.custom_mut(id, key) else {
            return;
        };
        custom.send(event);
        for event in acknowledgements {
            custom.send(event);
        }
        let queued = std::mem::take(&mut custom.queued);
        custom.was_sent_task |= !queued.is_empty();
        for task in queued {
            let task = TaskKey {
                framework: id.clone(),
                task,
            };
            let Some(info) = self.task_mut(&task).map(|task| task.info.clone()) else {
                continue;
            };
            if let Some(custom) = self.custom_mut(id, key) {
                custom.send(&json!({"type": "LAUNCH", "launch": {"task": info}}));
            }
        }
    }

    /// Reports tasks as dropped that were sent to an executor but that it does not list when it
    /// subscribes again.
    fn drop_unknown_tasks(&mut self, id: &FrameworkId, key: &ExecutorKey, known: &[Value], now: Instant) {
        let known: BTreeSet<&str> = known
            .iter()
            .filter_map(|task| doc::text(task, &["task_id", "value"]))
            .collect();
        let Some(framework) = self.framework_of_agents(id) else {
            return;
        };
        let state = TaskState::Dropped.for_framework(framework.is_partition_aware());
        let unknown: Vec<TaskKey> = framework
            .tasks
            .values()
            .chain(&framework.unreachable_tasks)
            .filter(|task| task.is_custom() && task.executor_key().as_ref() == Some(key))
            .filter(|task| task.agent_state == TaskState::Staging && !self.is_queued(task))
            .filter(|task| !known.contains(task.key.task.as_str()))
            .map(|task| task.key.clone())
            .collect();
        for task in unknown {
            let update = AgentUpdate {
                source: "SOURCE_AGENT",
                message: Some("Task launched during agent restart".to_owned()),
                reason: Some("REASON_AGENT_RESTARTED"),
                has_container: false,
                ..AgentUpdate::new(state)
            };
            self.agent_update(&task, &update, now);
        }
    }

    /// Handles an executor that disconnected. Does nothing if the stream was replaced meanwhile.
    pub(crate) fn executor_stream_closed(&mut self, container: &str, stream_id: &str) {
        let stream = match self.executor_in(container) {
            Some((id, key)) => self.custom_mut(&id, &key).map(|custom| &mut custom.stream),
            None => self
                .ending_executors
                .get_mut(container)
                .map(|ending| &mut ending.stream),
        };
        if let Some(stream) = stream
            && stream.as_ref().is_some_and(|stream| stream.id == stream_id)
        {
            *stream = None;
        }
    }

    /// Every valid call except SUBSCRIBE and HEARTBEAT.
    pub(crate) fn executor_call(&mut self, agent: &AgentId, call: &Value, now: Instant) -> Reply {
        let (id, key) = match self.caller(agent, call) {
            Err(rejection) => return rejection,
            Ok(Caller::Executor(id, key, _)) => (id, key),
            // A real agent does the same while the framework terminates.
            Ok(Caller::Ending(_)) => return Reply::accepted(),
        };
        let registering = self.custom_mut(&id, &key).is_some_and(|custom| {
            matches!(
                custom.phase,
                ExecutorPhase::Registering | ExecutorPhase::Reregistering
            )
        });
        if registering {
            return Reply {
                status: 403,
                body: "Executor is not subscribed".to_owned(),
            };
        }
        if doc::text(call, &["type"]) == Some("UPDATE") {
            let acknowledged = self.executor_status(&id, agent, &call["update"]["status"], now);
            if let (Some(event), Some(custom)) = (acknowledged, self.custom_mut(&id, &key)) {
                custom.send(&event);
            }
        } else {
            self.executor_message(&id, &key, &call["message"]["data"]);
        }
        Reply::accepted()
    }

    /// Sends a framework a message of an executor.
    pub(in crate::state) fn executor_message(&mut self, id: &FrameworkId, key: &ExecutorKey, data: &Value) {
        let message =
            json!({"agent_id": doc::id(key.0.as_str()), "executor_id": doc::id(&key.1), "data": data});
        self.send_from(&key.0, id, json!({"type": "MESSAGE", "message": message}));
    }

    /// Handles the status of a task from its executor. Returns the acknowledgement to send, even
    /// for a repeated status or one that follows a terminal one.
    fn executor_status(
        &mut self,
        id: &FrameworkId,
        agent: &AgentId,
        status: &Value,
        now: Instant,
    ) -> Option<Value> {
        let key = TaskKey {
            framework: id.clone(),
            task: TaskId::from(doc::text(status, &["task_id", "value"]).unwrap_or_default()),
        };
        let named = doc::text(status, &["agent_id", "value"]);
        let state = doc::text(status, &["state"]).and_then(TaskState::named)?;
        let is_same_agent = named.is_none_or(|named| named == agent.as_str());
        let known = self
            .task_mut(&key)
            .is_some_and(|task| task.is_custom() && task.agent == *agent);
        if !is_same_agent || !known {
            tracing::warn!(task = %key.task, "ignoring an executor's status update for a task that its agent does not run");
            return None;
        }
        let acknowledged = json!({"type": "ACKNOWLEDGED", "acknowledged": {
            "task_id": status["task_id"], "uuid": status["uuid"],
        }});
        if !self.is_new(&key, &status["uuid"], state) {
            return Some(acknowledged);
        }
        if let Some(status) = self.complete_status(&key, status, state) {
            self.queue_status(&key, state, status, now);
        }
        Some(acknowledged)
    }

    /// Whether an update is not a repetition, and its executor has received the task. A terminal
    /// update of a task that is still queued removes it from the queue.
    fn is_new(&mut self, key: &TaskKey, uuid: &Value, state: TaskState) -> bool {
        let Some(task) = self.task_mut(key) else {
            return false;
        };
        let executor = task.executor_key();
        let is_repeated = task.agent_state.is_terminal()
            || task.agent_statuses.iter().any(|item| item["uuid"] == *uuid)
            || task.pending.iter().any(|(_, item)| item["uuid"] == *uuid);
        let custom = executor.and_then(|executor| self.custom_mut(&key.framework, &executor));
        let queued = custom.is_some_and(|custom| {
            let before = custom.queued.len();
            if state.is_terminal() {
                custom.queued.retain(|queued| *queued != key.task);
                return false;
            }
            custom.queued[..before].contains(&key.task)
        });
        !is_repeated && !queued
    }

    /// Adds the fields that the agent adds to a status.
    fn complete_status(&mut self, key: &TaskKey, status: &Value, state: TaskState) -> Option<Value> {
        let executor = self.task_mut(key)?.executor_key()?;
        let pid = self.custom_mut(&key.framework, &executor)?.pid;
        let agent = self.agent(&executor.0)?;
        let (ip, draining) = (agent.addr.ip().to_string(), agent.drain.is_some());
        let task = self.task_mut(key)?;
        task.pid = pid;
        let mut complete = doc::object(status.clone());
        complete
            .entry("agent_id")
            .or_insert_with(|| doc::id(executor.0.as_str()));
        complete.entry("timestamp").or_insert_with(|| json!(epoch()));
        if draining && matches!(state, TaskState::Killing | TaskState::Killed) {
            complete.insert("reason".to_owned(), json!("REASON_AGENT_DRAINING"));
        }
        let mut process = process_fields(task, None, &ip);
        if !doc::list(&status["container_status"], &["network_infos"]).is_empty() {
            process.remove("network_infos");
        }
        let mut container_status = doc::object(status["container_status"].clone());
        container_status.extend(container_id_fields(task));
        container_status.extend(process);
        complete.insert("container_status".to_owned(), Value::Object(container_status));
        Some(Value::Object(complete))
    }
}

/// Sends SHUTDOWN, and no other event, to an executor that has to end.
fn send_shutdown(events: &mpsc::Sender<recordio::Event>) {
    // The queue is new, so it fits.
    let _ = events.try_send(Ok(recordio::record(&json!({"type": "SHUTDOWN"}))));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_calls_are_rejected_with_the_agents_messages() {
        let update = |status: Value| {
            json!({"type": "UPDATE", "executor_id": {"value": "e"}, "framework_id": {"value": "f"},
                   "update": {"status": status}})
        };
        let uuid = "AAAAAAAAAAAAAAAAAAAAAA==";
        let from = "SOURCE_EXECUTOR";
        let cases = [
            (json!({}), "Expecting 'type' to be present"),
            (
                json!({"type": "SUBSCRIBE"}),
                "Expecting 'subscribe' to be present",
            ),
            (json!({"type": "UPDATE"}), "Expecting 'update' to be present"),
            (json!({"type": "MESSAGE"}), "Expecting 'message' to be present"),
            (update(json!({})), "Expecting 'uuid' to be present"),
            (update(json!({"uuid": "AAAA"})), "Not a valid UUID"),
            (
                update(json!({"uuid": uuid, "executor_id": {"value": "x"}})),
                "ExecutorID in Call: e does not match ExecutorID in TaskStatus: x",
            ),
            (
                update(json!({"uuid": uuid})),
                "Received Call from executor e of framework f with invalid source, expecting 'SOURCE_EXECUTOR'",
            ),
            (
                update(json!({"uuid": uuid, "source": from, "state": "TASK_STAGING"})),
                "Received TASK_STAGING from executor e of framework f which is not allowed",
            ),
        ];
        for (call, expected) in cases {
            let expected = format!("Failed to validate Executor::Call: {expected}");
            assert_eq!(validate(&call), Err(expected), "{call}");
        }
        let valid = update(json!({"uuid": uuid, "source": from, "state": "TASK_RUNNING"}));
        assert_eq!(validate(&valid), Ok(()));
        assert_eq!(validate(&json!({"type": "HEARTBEAT"})), Ok(()));
    }
}
