//! Status updates of agents. Each is sent when the previous one is acknowledged, and is retried
//! until it is acknowledged itself.

use super::{
    Connection, Effect, FrameworkId, KillOrder, State, Task, TaskId, TaskKey, TaskState, epoch,
    model::{ExecutorKey, InFlight},
};
use crate::wire::json as doc;
use base64::Engine;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// Maximum delay between two retries.
pub(super) const MAX_RETRY_INTERVAL: Duration = Duration::from_mins(10);
/// Maximum pending updates of a task. Beyond it, a new update that is not terminal replaces the
/// last one.
const MAX_PENDING_UPDATES: usize = 100;

/// The last result of a check. The inner value is `None` before the first result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckResult {
    Command(Option<i32>),
    Http(Option<u16>),
    Tcp(Option<bool>),
}

impl CheckResult {
    /// `CheckStatusInfo`.
    fn message(self) -> Value {
        match self {
            Self::Command(None) => json!({"type": "COMMAND", "command": {}}),
            Self::Command(Some(code)) => json!({"type": "COMMAND", "command": {"exit_code": code}}),
            Self::Http(None) => json!({"type": "HTTP", "http": {}}),
            Self::Http(Some(code)) => json!({"type": "HTTP", "http": {"status_code": code}}),
            Self::Tcp(None) => json!({"type": "TCP", "tcp": {}}),
            Self::Tcp(Some(succeeded)) => json!({"type": "TCP", "tcp": {"succeeded": succeeded}}),
        }
    }
}

/// An agent's report about a task.
#[derive(Clone, Debug)]
pub(crate) struct AgentUpdate {
    pub(crate) state: TaskState,
    pub(crate) source: &'static str,
    pub(crate) message: Option<String>,
    pub(crate) reason: Option<&'static str>,
    pub(crate) healthy: Option<bool>,
    pub(crate) check: Option<CheckResult>,
    /// Whether the process was started, so that there is a container.
    pub(crate) has_container: bool,
    /// The network of a container that has its own address; `None` for the agent's network.
    pub(crate) network_info: Option<Value>,
    /// The fields that Docker's executor adds: the output of `inspect`, in base64, and labels.
    pub(crate) data: Option<String>,
    pub(crate) labels: Option<Value>,
    /// The resource whose limit ended the task.
    pub(crate) limitation: Option<Value>,
}

impl AgentUpdate {
    pub(crate) fn new(state: TaskState) -> Self {
        Self {
            state,
            source: "SOURCE_EXECUTOR",
            message: None,
            reason: None,
            healthy: None,
            check: None,
            has_container: true,
            network_info: None,
            data: None,
            labels: None,
            limitation: None,
        }
    }
}

impl State {
    /// Applies an update of the agent. Updates after a terminal one are dropped.
    pub(crate) fn agent_update(&mut self, key: &TaskKey, update: &AgentUpdate, now: Instant) {
        let Some(ip) = self
            .task_mut(key)
            .map(|task| task.agent.clone())
            .and_then(|agent| self.agent(&agent))
            .map(|agent| agent.addr.ip().to_string())
        else {
            return;
        };
        let Some(task) = self.task_mut(key) else { return };
        let status = status_message(task, update, &ip);
        self.queue_status(key, update.state, status, now);
    }

    /// Queues a status of a task, and sends it if no earlier one is pending.
    pub(super) fn queue_status(&mut self, key: &TaskKey, state: TaskState, status: Value, now: Instant) {
        let Some(task) = self.task_mut(key) else { return };
        if task.agent_state.is_terminal() {
            return;
        }
        let healthy = status["healthy"].as_bool();
        task.agent_state = state;
        record(&mut task.agent_statuses, status.clone());
        let is_terminal = state.is_terminal();
        if task.pending.len() >= MAX_PENDING_UPDATES && !is_terminal {
            task.pending.pop_back();
        }
        task.pending.push_back((state, status));
        let is_first = task.pending.len() == 1;
        let group_fails = is_terminal && task.is_in_group() && state != TaskState::Finished;
        if group_fails {
            self.kill_rest_of_group(key, healthy);
        }
        if is_first {
            self.forward(key, now);
        }
    }

    /// Sends the first pending update, or sends it again.
    pub(super) fn forward(&mut self, key: &TaskKey, now: Instant) {
        let retry = self.config.update_retry;
        let Some(task) = self.task_mut(key) else { return };
        let Some((_, status)) = task.pending.front().cloned() else {
            return;
        };
        let (agent, latest, wait) = (
            task.agent.clone(),
            task.agent_state,
            task.in_flight
                .as_ref()
                .map_or(retry, |in_flight| (in_flight.wait * 2).min(MAX_RETRY_INTERVAL)),
        );
        let is_retry = task.in_flight.is_some();
        task.in_flight = Some(InFlight {
            retry_at: now + wait,
            wait,
        });
        if self
            .agents
            .get(&agent)
            .is_none_or(|agent| agent.connection != Connection::Connected)
        {
            return;
        }
        if self.faults.lose_updates > 0 {
            self.faults.lose_updates -= 1;
            return;
        }
        if let Some(task) = self.task_mut(key) {
            task.state = latest;
            record(&mut task.statuses, status.clone());
        }
        if latest.is_terminal() {
            self.release(key);
        }
        if !is_retry {
            self.announce_update(&key.framework, &status, latest);
        }
        self.send(
            &key.framework,
            &json!({"type": "UPDATE", "update": {"status": status}}),
        );
    }

    /// Frees a task's resources, once.
    pub(super) fn release(&mut self, key: &TaskKey) {
        let Some(task) = self.task_mut(key).filter(|task| !task.released) else {
            return;
        };
        task.released = true;
        let (agent, resources) = (task.agent.clone(), task.resources.clone());
        self.free_resources(&agent, &resources);
    }

    /// Handles a task that is completed before its process has ended. Its resources stay occupied
    /// until the process ends, so that no other task gets its ports.
    pub(super) fn release_after_exit(&mut self, key: &TaskKey) {
        let Some(task) = self.task_mut(key).filter(|task| !task.released) else {
            return;
        };
        if task.agent_state.is_terminal() {
            return self.release(key);
        }
        if task.is_custom() {
            return self.release_after_executor_exit(key);
        }
        task.released = true;
        let occupied = (task.agent.clone(), task.resources.clone());
        self.lingering.insert(key.clone(), occupied);
    }

    /// Handles the end of a task's process: frees resources that it still occupied after the end of
    /// the task.
    pub(crate) fn process_ended(&mut self, key: &TaskKey) {
        if let Some((agent, resources)) = self.lingering.remove(key) {
            self.free_resources(&agent, &resources);
        }
    }

    /// ACKNOWLEDGE: sends the next pending update; after the last one of a terminal task, the task
    /// is completed.
    pub(super) fn acknowledge(&mut self, id: &FrameworkId, acknowledge: &Value, now: Instant) {
        let task_id = TaskId::from(doc::text(acknowledge, &["task_id", "value"]).unwrap_or_default());
        let key = TaskKey {
            framework: id.clone(),
            task: task_id,
        };
        let Some(task) = self.task_mut(&key) else { return };
        let acknowledged = task.in_flight.is_some()
            && task
                .pending
                .front()
                .is_some_and(|(_, status)| status["uuid"] == acknowledge["uuid"]);
        if !acknowledged {
            return;
        }
        task.in_flight = None;
        let is_terminal = task
            .pending
            .pop_front()
            .is_some_and(|(state, _)| state.is_terminal());
        if is_terminal {
            self.complete(&key);
        } else {
            self.forward(&key, now);
        }
    }

    /// Moves a task to the completed ones and, if it was the last one of a group, ends its executor.
    fn complete(&mut self, key: &TaskKey) {
        self.release(key);
        let Some(task) = self
            .frameworks
            .get_mut(&key.framework)
            .and_then(|framework| framework.tasks.remove(&key.task))
        else {
            return;
        };
        let executor = task.executor_key().filter(|_| task.is_in_group());
        let agent = task.agent.clone();
        self.add_completed_task(task);
        if let Some(executor) = executor {
            self.end_executor(&key.framework, &executor);
        }
        self.check_drained(&agent);
    }

    /// Ends an executor that has no tasks, and sends the framework an event.
    fn end_executor(&mut self, id: &FrameworkId, key: &ExecutorKey) {
        let Some(framework) = self.frameworks.get_mut(id) else {
            return;
        };
        let busy = framework
            .tasks
            .values()
            .any(|task| task.agent == key.0 && task.executor.as_ref() == Some(&key.1));
        if busy {
            return;
        }
        let Some(executor) = framework.executors.remove(key) else {
            return;
        };
        self.free_resources(&executor.agent, &executor.resources);
        self.send(id, &executor_failure(key, 0));
    }

    /// Kills the rest of a group after one of its tasks failed or was killed.
    fn kill_rest_of_group(&mut self, key: &TaskKey, healthy: Option<bool>) {
        let Some(task) = self.task_mut(key) else { return };
        let (agent, executor) = (task.agent.clone(), task.executor.clone());
        let id = &key.framework;
        let Some(framework) = self
            .frameworks
            .get(id)
            .or_else(|| self.forgotten_frameworks.get(id))
        else {
            return;
        };
        let others: Vec<TaskKey> = framework
            .tasks
            .values()
            .filter(|other| {
                other.agent == agent
                    && other.executor == executor
                    && other.key != *key
                    && !other.agent_state.is_terminal()
            })
            .map(|other| other.key.clone())
            .collect();
        let order = KillOrder {
            healthy: healthy.filter(|healthy| !healthy),
            ..KillOrder::default()
        };
        self.effects
            .extend(others.into_iter().map(|other| Effect::Kill(other, order.clone())));
    }

    /// Records a status that the master made itself, and sends it to the operators but not to the
    /// framework.
    pub(super) fn record_by_master(&mut self, key: &TaskKey, state: TaskState, status: &Value) {
        if let Some(task) = self.task_mut(key) {
            task.state = state;
            record(&mut task.statuses, status.clone());
        }
        self.announce_update(&key.framework, status, state);
    }

    /// Sends a framework that subscribed again its unacknowledged updates immediately.
    pub(super) fn resend_pending(&mut self, id: &FrameworkId, now: Instant) {
        for key in self.tasks_of(id) {
            self.forward(&key, now);
        }
    }

    /// Sends updates whose retry is due.
    pub(super) fn retry_updates(&mut self, now: Instant) {
        let due: Vec<TaskKey> = self
            .tasks()
            .filter(|task| {
                task.in_flight
                    .as_ref()
                    .is_some_and(|in_flight| in_flight.retry_at <= now)
            })
            .map(|task| task.key.clone())
            .collect();
        for key in due {
            self.forward(&key, now);
        }
    }
}

/// `FAILURE` of an executor; `status` is the raw wait status of its process.
pub(super) fn executor_failure(key: &ExecutorKey, status: i32) -> Value {
    let failure =
        json!({"agent_id": doc::id(key.0.as_str()), "executor_id": doc::id(&key.1), "status": status});
    json!({"type": "FAILURE", "failure": failure})
}

/// Appends a status. As in the master, it replaces the previous one if both have the same state.
fn record(statuses: &mut Vec<Value>, status: Value) {
    match statuses.last_mut() {
        Some(last) if last["state"] == status["state"] => *last = status,
        _ => statuses.push(status),
    }
}

fn status_message(task: &Task, update: &AgentUpdate, ip: &str) -> Value {
    let mut status = doc::object(json!({
        "task_id": doc::id(task.key.task.as_str()),
        "state": update.state.as_str(),
        "source": update.source,
        "agent_id": doc::id(task.agent.as_str()),
        "executor_id": doc::id(task.executor_id()),
        "timestamp": epoch(),
        "uuid": base64::engine::general_purpose::STANDARD.encode(super::new_uuid().as_bytes()),
    }));
    doc::put(
        &mut status,
        "message",
        update.message.as_ref().map(|message| json!(message)),
    );
    doc::put(&mut status, "reason", update.reason.map(|reason| json!(reason)));
    doc::put(
        &mut status,
        "healthy",
        update.healthy.map(|healthy| json!(healthy)),
    );
    doc::put(
        &mut status,
        "check_status",
        update.check.map(CheckResult::message),
    );
    for (key, value) in [("labels", &update.labels), ("limitation", &update.limitation)] {
        doc::put(&mut status, key, value.clone());
    }
    doc::put(&mut status, "data", update.data.as_ref().map(|data| json!(data)));
    if update.has_container {
        let container = container_status(task, update, ip);
        status.insert("container_status".to_owned(), Value::Object(container));
    }
    Value::Object(status)
}

/// The status of the task's container. When the process of a task in a group has ended, its
/// container has neither network nor process.
fn container_status(task: &Task, update: &AgentUpdate, ip: &str) -> Map<String, Value> {
    let mut status = container_id_fields(task);
    if !(task.is_in_group() && update.state.is_terminal()) {
        status.extend(process_fields(task, update.network_info.clone(), ip));
    }
    status
}

/// The id of the task's container.
pub(super) fn container_id_fields(task: &Task) -> Map<String, Value> {
    let mut id = doc::object(doc::id(&task.container));
    doc::put(&mut id, "parent", task.parent.as_deref().map(doc::id));
    doc::object(json!({ "container_id": id }))
}

/// The process in the task's container and its network, which is the agent's unless the container
/// has its own.
pub(super) fn process_fields(task: &Task, network: Option<Value>, ip: &str) -> Map<String, Value> {
    let agent_network = || json!({"ip_addresses": [{"protocol": "IPv4", "ip_address": ip}]});
    let network = network.unwrap_or_else(agent_network);
    let mut status = doc::object(json!({ "network_infos": [network] }));
    doc::put(&mut status, "executor_pid", task.pid.map(|pid| json!(pid)));
    status
}
