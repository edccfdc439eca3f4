//! Custom executors: programs of a framework that run its tasks, and that subscribe with their agent
//! at `/api/v1/executor`.
//!
//! The master plans an executor with the first task that names it. Its agent starts it when that
//! task arrives, keeps the tasks that arrive before it has subscribed, and sends it each later one.
//! It runs until it exits, its framework shuts it down, or its framework or agent is removed. This
//! module has the orders of the master, [`calls`] the calls of executors, and [`ends`] the ways in
//! which they end.

mod calls;
mod ends;

pub(crate) use calls::validate as validate_executor_call;
pub(crate) use ends::ExecutorEnd;

use super::{
    AgentId, AgentUpdate, Effect, Executor, Framework, FrameworkId, KillOrder, Launch, State, TaskId,
    TaskKey, TaskState,
    accepted::{Accepted, is_valid_id, with_framework},
    model::{CustomExecutor, ExecutorKey, ExecutorPhase},
};
use crate::wire::{
    duration, json as doc,
    recordio::{self, Event},
    resources::{Resources, allocated_to},
};
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// How long an executor of a framework that checkpoints waits for its agent to return.
const RECOVERY_TIMEOUT: Duration = Duration::from_mins(15);

/// A custom executor of a task that passed the checks of the master.
pub(super) struct PlannedExecutor {
    pub(super) id: String,
    /// `ExecutorInfo` as the API shows it.
    pub(super) info: Value,
    pub(super) resources: Resources,
    /// Whether it is already planned or running, so that the task's offers need not contain its
    /// resources.
    pub(super) exists: bool,
}

/// An open stream of an executor.
#[derive(Debug)]
pub(crate) struct SubscribedExecutor {
    pub(crate) container: String,
    pub(crate) stream_id: String,
    pub(crate) events: mpsc::Receiver<Event>,
}

impl CustomExecutor {
    /// Sends one event, if it is subscribed. A stream whose queue is full is closed.
    fn send(&mut self, event: &Value) {
        if let Some(stream) = &self.stream
            && stream.events.try_send(Ok(recordio::record(event))).is_err()
        {
            tracing::warn!("an executor's event stream closed: the client disconnected or reads too slowly");
            self.stream = None;
        }
    }
}

impl State {
    /// Checks the executor of a task as the master does.
    pub(super) fn plan_executor(&self, accepted: &Accepted, info: &Value) -> Result<PlannedExecutor, String> {
        let kind = doc::text(info, &["type"]);
        let command = info.get("command").is_some();
        match kind {
            Some("DEFAULT") if command => {
                return Err("'ExecutorInfo.command' must not be set for 'DEFAULT' executor".to_owned());
            }
            Some("CUSTOM") if !command => {
                return Err("'ExecutorInfo.command' must be set for 'CUSTOM' executor".to_owned());
            }
            _ => {}
        }
        let id = doc::text(info, &["executor_id", "value"]).unwrap_or_default();
        if !is_valid_id(id) {
            return Err(format!("Executor ID '{id}' is not a valid path component"));
        }
        let grace = doc::find(info, &["shutdown_grace_period", "nanoseconds"]).and_then(Value::as_i64);
        if grace.is_some_and(|grace| grace < 0) {
            return Err("ExecutorInfo's 'shutdown_grace_period' must be non-negative".to_owned());
        }
        let named = doc::text(info, &["framework_id", "value"]);
        if let Some(named) = named.filter(|named| *named != accepted.framework.as_str()) {
            return Err(format!(
                "ExecutorInfo has an invalid FrameworkID (Actual: {named} vs Expected: {})",
                accepted.framework
            ));
        }
        let resources = Resources::parse(doc::list(info, &["resources"]))
            .map_err(|why| format!("Executor uses invalid resources: {why}"))?;
        let mut info = with_framework(info, &accepted.framework);
        if let Some(resources) = info.get_mut("resources") {
            allocated_to(resources, &accepted.role);
        }
        let known = self
            .frameworks
            .get(&accepted.framework)
            .and_then(|framework| framework.executors.get(&(accepted.agent.clone(), id.to_owned())));
        if let Some(known) = known.filter(|known| known.info != info) {
            return Err(incompatible_error(&known.info, &info));
        }
        if kind.is_some_and(|kind| kind != "CUSTOM") {
            return Err("'ExecutorInfo.type' must be 'CUSTOM'".to_owned());
        }
        if !command {
            return Err("'ExecutorInfo.command' must be set".to_owned());
        }
        Ok(PlannedExecutor {
            id: id.to_owned(),
            info,
            resources,
            exists: known.is_some(),
        })
    }

    /// The executor as its agent knows it, which survives a restart of the master.
    fn executor(&self, id: &FrameworkId, key: &ExecutorKey) -> Option<&Executor> {
        let known = self.frameworks.get(id).and_then(|one| one.executors.get(key));
        known.or_else(|| self.forgotten_frameworks.get(id)?.executors.get(key))
    }

    fn custom_mut(&mut self, id: &FrameworkId, key: &ExecutorKey) -> Option<&mut CustomExecutor> {
        let known = self
            .frameworks
            .get_mut(id)
            .and_then(|one| one.executors.get_mut(key));
        let executor = known.or_else(|| self.forgotten_frameworks.get_mut(id)?.executors.get_mut(key))?;
        executor.custom.as_mut()
    }

    /// The framework and the key of the executor in this container.
    fn executor_in(&self, container: &str) -> Option<(FrameworkId, ExecutorKey)> {
        self.frameworks_of_agents().find_map(|framework| {
            let mut executors = framework.executors.iter();
            let (key, _) = executors.find(|(_, executor)| executor.container == container)?;
            Some((framework.id.clone(), key.clone()))
        })
    }

    /// The framework as agents know it, even if the master has forgotten it.
    fn framework_of_agents(&self, id: &FrameworkId) -> Option<&Framework> {
        self.frameworks
            .get(id)
            .or_else(|| self.forgotten_frameworks.get(id))
    }

    /// Handles a task that has reached its agent: sends it to its executor, which is started if it
    /// does not run.
    pub(crate) fn deliver_task(&mut self, key: &TaskKey, now: Instant) {
        let Some(task) = self.task_mut(key) else { return };
        let Some(executor) = task.executor_key() else {
            return;
        };
        let (info, container) = (task.info.clone(), task.container.clone());
        let timeout = self.config.executor_registration_timeout;
        let earlier = self.has_earlier_run(key, &executor, &container);
        let Some(custom) = self.custom_mut(&key.framework, &executor) else {
            return self.drop_task(key, "Executor terminated", now);
        };
        match custom.phase {
            ExecutorPhase::Planned if earlier => {
                self.drop_task(
                    key,
                    "Master wants to launch executor, but one already exists",
                    now,
                );
                self.forget_executor(&key.framework, &executor);
                self.report_exit(&key.framework, &executor, -1);
            }
            ExecutorPhase::Planned => {
                custom.phase = ExecutorPhase::Registering;
                custom.deadline = Some(now + timeout);
                custom.queued.push(key.task.clone());
                if let Some(launch) = self.executor_launch(key, &executor) {
                    self.effects.push(Effect::StartExecutor(Box::new(launch)));
                }
            }
            ExecutorPhase::Registering | ExecutorPhase::Reregistering => custom.queued.push(key.task.clone()),
            ExecutorPhase::Running => {
                custom.was_sent_task = true;
                custom.send(&json!({"type": "LAUNCH", "launch": {"task": info}}));
            }
            ExecutorPhase::Terminating => self.drop_task(key, "Executor terminating", now),
        }
    }

    /// Whether an earlier executor with the same id has ended but its tasks are not acknowledged yet.
    fn has_earlier_run(&self, key: &TaskKey, executor: &ExecutorKey, container: &str) -> bool {
        self.framework_of_agents(&key.framework).is_some_and(|framework| {
            let mut tasks = framework.tasks.values();
            tasks.any(|task| {
                task.is_custom()
                    && task.executor_key().as_ref() == Some(executor)
                    && task.container != container
            })
        })
    }

    /// Reports a task that its agent cannot launch.
    fn drop_task(&mut self, key: &TaskKey, why: &str, now: Instant) {
        let aware = self
            .framework_of_agents(&key.framework)
            .is_some_and(Framework::is_partition_aware);
        let update = AgentUpdate {
            source: "SOURCE_AGENT",
            message: Some(why.to_owned()),
            reason: Some("REASON_EXECUTOR_TERMINATED"),
            has_container: false,
            ..AgentUpdate::new(TaskState::Dropped.for_framework(aware))
        };
        self.agent_update(key, &update, now);
    }

    /// The input with which the agent runs the executor of a task.
    fn executor_launch(&self, key: &TaskKey, executor_key: &ExecutorKey) -> Option<Launch> {
        let executor = self.executor(&key.framework, executor_key)?;
        let framework = self.framework_of_agents(&key.framework)?;
        let command = &executor.info["command"];
        let user = doc::text(command, &["user"])
            .or_else(|| doc::text(&framework.info, &["user"]))
            .unwrap_or_default();
        let task = framework.tasks.get(&key.task)?;
        let mut volumes = self.volume_links(&executor.agent, &executor.resources);
        volumes.extend(self.volume_links(&executor.agent, &task.resources));
        let mut info = doc::object(json!({ "command": command }));
        doc::copy(&executor.info, &mut info, &["container"]);
        let addr = self.agent(&executor.agent).map(|agent| agent.addr);
        Some(Launch {
            key: TaskKey {
                framework: key.framework.clone(),
                task: TaskId::from(executor_key.1.clone()),
            },
            agent: executor.agent.clone(),
            agent_addr: addr.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0))),
            info: Value::Object(info),
            executor_id: executor_key.1.clone(),
            container: executor.container.clone(),
            directory: executor.directory.clone(),
            user: user.to_owned(),
            volumes,
            supports_killing_state: false,
            group: None,
            in_executor: false,
            is_executor: true,
            variables: self.variables(&framework.info, &executor.info),
        })
    }

    /// The environment variables that inform an executor of its agent's settings.
    fn variables(&self, framework: &Value, executor: &Value) -> Vec<(&'static str, String)> {
        let checkpoint = framework["checkpoint"] == true;
        let mut variables = vec![
            ("MESOS_CHECKPOINT", if checkpoint { "1" } else { "0" }.to_owned()),
            ("MESOS_HTTP_COMMAND_EXECUTOR", "0".to_owned()),
            (
                "MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD",
                duration::text(self.shutdown_grace(executor)),
            ),
        ];
        if checkpoint {
            let backoff = self.config.executor_reregistration_timeout;
            variables.push(("MESOS_RECOVERY_TIMEOUT", duration::text(RECOVERY_TIMEOUT)));
            variables.push(("MESOS_SUBSCRIPTION_BACKOFF_MAX", duration::text(backoff)));
        }
        variables
    }

    /// The time between SHUTDOWN and SIGKILL.
    fn shutdown_grace(&self, executor: &Value) -> Duration {
        let own = doc::find(executor, &["shutdown_grace_period", "nanoseconds"]).and_then(Value::as_u64);
        own.map_or(self.config.executor_shutdown_grace, Duration::from_nanos)
    }

    /// Has the task's executor kill it. A task that the executor has not received is killed by the
    /// agent.
    pub(crate) fn kill_in_executor(&mut self, key: &TaskKey, order: &KillOrder, now: Instant) {
        let Some(task) = self.task_mut(key).filter(|task| task.is_custom()) else {
            return;
        };
        let Some(executor) = task.executor_key() else {
            return;
        };
        // When the agent dies with all of its tasks, the executor itself is killed.
        if order.is_crash {
            return;
        }
        let Some(custom) = self.custom_mut(&key.framework, &executor) else {
            return;
        };
        match custom.phase {
            ExecutorPhase::Terminating => {}
            ExecutorPhase::Running => {
                let mut kill = doc::object(json!({"task_id": doc::id(key.task.as_str())}));
                let grace = order
                    .grace
                    .map(|grace| json!({"grace_period": {"nanoseconds": grace.as_nanos() as u64}}));
                doc::put(&mut kill, "kill_policy", grace);
                custom.send(&json!({"type": "KILL", "kill": kill}));
            }
            ExecutorPhase::Planned | ExecutorPhase::Registering | ExecutorPhase::Reregistering => {
                custom.queued.retain(|queued| *queued != key.task);
                let update = AgentUpdate {
                    source: "SOURCE_AGENT",
                    message: Some("Killed before delivery to the executor".to_owned()),
                    reason: Some("REASON_TASK_KILLED_DURING_LAUNCH"),
                    has_container: false,
                    ..AgentUpdate::new(TaskState::Killed)
                };
                self.agent_update(key, &update, now);
            }
        }
    }

    /// Sends a framework's message to its executor if that is subscribed, otherwise drops it.
    /// `line` is the message's line in the agent's journal.
    pub(crate) fn deliver_message(&mut self, agent: &AgentId, line: &Value) {
        let framework = FrameworkId::from(line["framework"].as_str().unwrap_or_default());
        let executor = line["executor"].as_str().unwrap_or_default();
        let key = (agent.clone(), executor.to_owned());
        let custom = self.custom_mut(&framework, &key);
        if let Some(custom) = custom.filter(|custom| custom.phase == ExecutorPhase::Running) {
            custom.send(&json!({"type": "MESSAGE", "message": {"data": line["data"]}}));
        }
    }

    /// Whether a task waits on its agent for its executor to subscribe.
    pub(crate) fn is_queued(&self, task: &super::Task) -> bool {
        let executor = task
            .executor_key()
            .and_then(|key| self.executor(&task.key.framework, &key));
        executor
            .and_then(|executor| executor.custom.as_ref())
            .is_some_and(|custom| custom.queued.contains(&task.key.task))
    }
}

/// The error text for an `ExecutorInfo` that differs from the one of the running executor with the
/// same id.
pub(super) fn incompatible_error(existing: &Value, requested: &Value) -> String {
    let line = "------------------------------------------------------------\n";
    format!(
        "ExecutorInfo is not compatible with existing ExecutorInfo with same ExecutorID.\n{line}\
         Existing ExecutorInfo:\n{existing}\n{line}ExecutorInfo:\n{requested}\n{line}"
    )
}
