//! The ways in which custom executors end: when they exit, by SHUTDOWN, by a timeout, or with their
//! framework or agent.

use crate::{
    state::{
        AgentFault, AgentId, AgentUpdate, Connection, Effect, Executor, Framework, FrameworkId, State,
        TaskKey, TaskState,
        model::{EndCause, EndingExecutor, ExecutorKey, ExecutorPhase},
        updates::executor_failure,
    },
    wire::{
        duration,
        recordio::{self, ConnectionCut},
        resources::Resources,
    },
};
use serde_json::{Value, json};
use std::time::Instant;

/// How the process of an executor ended.
#[derive(Debug, Default)]
pub(crate) struct ExecutorEnd {
    /// Its raw wait status; `None` without a process.
    pub(crate) status: Option<i32>,
    /// Why it could not be started.
    pub(crate) cause: Option<EndCause>,
}

impl State {
    /// Records that the process of an executor has started.
    pub(crate) fn executor_started(&mut self, container: &str, pid: u32) {
        if let Some((id, key)) = self.executor_in(container)
            && let Some(custom) = self.custom_mut(&id, &key)
        {
            custom.pid = Some(pid);
        }
    }

    /// Handles the end of an executor's process. Its tasks that have not ended fail.
    pub(crate) fn executor_ended(&mut self, container: &str, end: ExecutorEnd, now: Instant) {
        if let Some(ending) = self.ending_executors.remove(container) {
            return self.free_resources(&ending.agent, &ending.resources);
        }
        let Some((id, key)) = self.executor_in(container) else {
            return;
        };
        let Some(executor) = self.forget_executor(&id, &key) else {
            return;
        };
        let cause = executor.custom.and_then(|custom| custom.cause).or(end.cause);
        let cause = cause.unwrap_or_else(|| EndCause {
            state: TaskState::Failed,
            reason: "REASON_EXECUTOR_TERMINATED",
            message: "Executor terminated".to_owned(),
        });
        // A real agent sends this first, because the updates wait for its containerizer.
        self.report_exit(&id, &key, end.status.unwrap_or(-1));
        for task in self.unfinished(&id, container) {
            let update = AgentUpdate {
                source: "SOURCE_AGENT",
                message: Some(cause.message.clone()),
                reason: Some(cause.reason),
                has_container: false,
                ..AgentUpdate::new(cause.state)
            };
            self.agent_update(&task, &update, now);
        }
    }

    /// The tasks of the executor in this container that have not ended.
    fn unfinished(&self, id: &FrameworkId, container: &str) -> Vec<TaskKey> {
        let Some(framework) = self.framework_of_agents(id) else {
            return Vec::new();
        };
        framework
            .tasks
            .values()
            .chain(&framework.unreachable_tasks)
            .filter(|task| task.is_custom() && task.container == container && !task.agent_state.is_terminal())
            .map(|task| task.key.clone())
            .collect()
    }

    /// Removes an executor that has no process and frees its resources.
    pub(super) fn forget_executor(&mut self, id: &FrameworkId, key: &ExecutorKey) -> Option<Executor> {
        let known = self
            .frameworks
            .get_mut(id)
            .and_then(|framework| framework.executors.remove(key));
        let executor = known.or_else(|| self.forgotten_frameworks.get_mut(id)?.executors.remove(key))?;
        self.free_resources(&executor.agent, &executor.resources);
        Some(executor)
    }

    /// Notifies the framework that an executor has ended.
    pub(super) fn report_exit(&mut self, id: &FrameworkId, key: &ExecutorKey, status: i32) {
        self.send_from(&key.0, id, executor_failure(key, status));
    }

    /// Sends a framework an event of an agent immediately, or when the agent can be reached again.
    /// Events that an agent sends while its connection is broken are lost.
    pub(super) fn send_from(&mut self, agent: &AgentId, id: &FrameworkId, event: Value) {
        match self.agents.get(agent).map(|agent| agent.connection) {
            Some(Connection::Connected) => self.send(id, &event),
            Some(Connection::Silent(_)) => self.queue_order(agent, Effect::SendEvent(id.clone(), event)),
            Some(Connection::Broken(_)) | None => {}
        }
    }

    /// Requests an executor to shut down. It is killed after its grace period.
    pub(crate) fn shut_down(&mut self, container: &str, now: Instant) {
        let event = json!({"type": "SHUTDOWN"});
        if let Some(ending) = self.ending_executors.get_mut(container) {
            ending.deadline = Some(now + ending.grace);
            if let Some(stream) = &ending.stream {
                // If the stream is full or closed, the executor ends at its deadline.
                let _ = stream.events.try_send(Ok(recordio::record(&event)));
            }
            return;
        }
        let Some((id, key)) = self.executor_in(container) else {
            return;
        };
        let Some(grace) = self
            .executor(&id, &key)
            .map(|executor| self.shutdown_grace(&executor.info))
        else {
            return;
        };
        if let Some(custom) = self.custom_mut(&id, &key)
            && !matches!(custom.phase, ExecutorPhase::Planned | ExecutorPhase::Terminating)
        {
            custom.phase = ExecutorPhase::Terminating;
            custom.deadline = Some(now + grace);
            custom.send(&event);
        }
    }

    /// Kills the executors whose deadline has passed, and sends the others their heartbeats.
    pub(in crate::state) fn run_executor_timers(&mut self, now: Instant) {
        let registration = self.config.executor_registration_timeout;
        let reregistration = self.config.executor_reregistration_timeout;
        let stopped = self.stopped_agents();
        let frameworks = self
            .frameworks
            .values_mut()
            .chain(self.forgotten_frameworks.values_mut());
        let executors = frameworks.flat_map(|framework| framework.executors.values_mut());
        let mut kills = Vec::new();
        for executor in executors.filter(|executor| !stopped.contains(&executor.agent)) {
            let Some(custom) = executor.custom.as_mut() else {
                continue;
            };
            if let Some(stream) = &mut custom.stream
                && stream.next_heartbeat <= now
            {
                stream.next_heartbeat = now + super::calls::HEARTBEAT_INTERVAL;
                custom.send(&json!({"type": "HEARTBEAT"}));
            }
            if custom.deadline.is_none_or(|deadline| deadline > now) {
                continue;
            }
            let cause = match custom.phase {
                ExecutorPhase::Registering => Some((
                    "REASON_EXECUTOR_REGISTRATION_TIMEOUT",
                    format!(
                        "Executor did not register within {}",
                        duration::text(registration)
                    ),
                )),
                ExecutorPhase::Reregistering => Some((
                    "REASON_EXECUTOR_REREGISTRATION_TIMEOUT",
                    format!(
                        "Executor did not reregister within {}",
                        duration::text(reregistration)
                    ),
                )),
                _ => None,
            };
            custom.cause = cause.map(|(reason, message)| EndCause {
                state: TaskState::Failed,
                reason,
                message,
            });
            custom.deadline = None;
            custom.phase = ExecutorPhase::Terminating;
            kills.push(executor.container.clone());
        }
        for (container, ending) in &mut self.ending_executors {
            if ending.deadline.is_some_and(|deadline| deadline <= now) {
                ending.deadline = None;
                kills.push(container.clone());
            }
        }
        self.effects.extend(kills.into_iter().map(Effect::KillExecutor));
    }

    /// The agents whose processes are killed or paused.
    fn stopped_agents(&self) -> Vec<AgentId> {
        let agents = self.agents.values().chain(self.awaited_agents.values());
        agents
            .filter(|agent| matches!(agent.fault, Some(AgentFault::Killed | AgentFault::Paused)))
            .map(|agent| agent.id.clone())
            .collect()
    }

    /// Ends an executor whose framework or agent is removed. Its resources, and those of its tasks,
    /// are free once its process has ended.
    fn dismiss(&mut self, framework: &FrameworkId, key: &ExecutorKey, executor: Executor, kill: bool) {
        let grace = self.shutdown_grace(&executor.info);
        let Some(custom) = executor
            .custom
            .filter(|custom| custom.phase != ExecutorPhase::Planned)
        else {
            return self.free_resources(&executor.agent, &executor.resources);
        };
        let ending = EndingExecutor {
            framework: framework.clone(),
            id: key.1.clone(),
            agent: executor.agent.clone(),
            resources: executor.resources,
            grace,
            stream: custom.stream,
            deadline: custom.deadline,
        };
        let container = executor.container;
        self.ending_executors.insert(container.clone(), ending);
        if kill {
            self.effects.push(Effect::KillExecutor(container));
        } else {
            self.send_order(&executor.agent, Effect::ShutDownExecutor(container));
        }
    }

    /// Ends an executor of a removed framework.
    pub(in crate::state) fn dismiss_executor(
        &mut self,
        framework: &FrameworkId,
        key: &ExecutorKey,
        executor: Executor,
    ) {
        self.dismiss(framework, key, executor, false);
    }

    /// Ends the custom executors of an agent, and no longer waits for those that it was to shut down.
    pub(in crate::state) fn dismiss_executors_on(
        &mut self,
        agent: &AgentId,
        is_selected: impl Fn(&Framework) -> bool,
    ) {
        let mut removed = Vec::new();
        for framework in self
            .frameworks
            .values_mut()
            .chain(self.forgotten_frameworks.values_mut())
        {
            if !is_selected(framework) {
                continue;
            }
            let id = framework.id.clone();
            let here = framework
                .executors
                .extract_if(.., |(on, _), executor| on == agent && executor.custom.is_some());
            removed.extend(here.map(|(key, executor)| (id.clone(), key, executor)));
        }
        for (id, key, executor) in removed {
            self.dismiss(&id, &key, executor, true);
        }
        self.kill_ending(agent);
    }

    fn kill_ending(&mut self, agent: &AgentId) {
        let ending = self
            .ending_executors
            .iter()
            .filter(|(_, ending)| ending.agent == *agent);
        let kills = ending.map(|(container, _)| Effect::KillExecutor(container.clone()));
        self.effects.extend(kills);
    }

    /// Kills the executors of a killed agent.
    pub(in crate::state) fn kill_executors_on(&mut self, agent: &AgentId) {
        let kills: Vec<Effect> = self
            .frameworks_of_agents()
            .flat_map(|framework| framework.executors.values())
            .filter(|executor| executor.agent == *agent && executor.custom.is_some())
            .map(|executor| Effect::KillExecutor(executor.container.clone()))
            .collect();
        self.effects.extend(kills);
        self.kill_ending(agent);
    }

    /// Disconnects the executors of a killed agent, which wait for its return.
    pub(in crate::state) fn disconnect_executors_on(&mut self, agent: &AgentId) {
        let frameworks = self
            .frameworks
            .values_mut()
            .chain(self.forgotten_frameworks.values_mut());
        for executor in frameworks.flat_map(|framework| framework.executors.values_mut()) {
            let Some(custom) = executor.custom.as_mut().filter(|_| executor.agent == *agent) else {
                continue;
            };
            if let Some(stream) = custom.stream.take() {
                // Queued, so that the events before it are still delivered. A full or closed stream
                // ends anyway.
                let _ = stream.events.try_send(Err(ConnectionCut));
            }
            if matches!(custom.phase, ExecutorPhase::Running | ExecutorPhase::Registering) {
                custom.phase = ExecutorPhase::Reregistering;
            }
            custom.deadline = None;
        }
    }

    /// Gives the executors of an agent that has returned a limited time to subscribe again.
    pub(in crate::state) fn expect_executors_on(&mut self, agent: &AgentId, now: Instant) {
        let deadline = now + self.config.executor_reregistration_timeout;
        let frameworks = self
            .frameworks
            .values_mut()
            .chain(self.forgotten_frameworks.values_mut());
        for executor in frameworks.flat_map(|framework| framework.executors.values_mut()) {
            let custom = executor.custom.as_mut().filter(|_| executor.agent == *agent);
            if let Some(custom) = custom
                && matches!(
                    custom.phase,
                    ExecutorPhase::Reregistering | ExecutorPhase::Terminating
                )
            {
                custom.deadline = Some(deadline);
            }
        }
    }

    /// Adds the resources of a task to those of its executor, which has to end before they are free.
    pub(in crate::state) fn release_after_executor_exit(&mut self, key: &TaskKey) {
        let Some(task) = self.task_mut(key) else { return };
        let (container, resources) = (task.container.clone(), task.resources.clone());
        if let Some(ending) = self.ending_executors.get_mut(&container) {
            ending.resources.add(&resources);
        } else if !self.add_to_executor(key, &resources) {
            return self.release(key);
        }
        if let Some(task) = self.task_mut(key) {
            task.released = true;
        }
    }

    fn add_to_executor(&mut self, key: &TaskKey, resources: &Resources) -> bool {
        let Some(executor) = self.task_mut(key).and_then(|task| task.executor_key()) else {
            return false;
        };
        let id = &key.framework;
        let known = self
            .frameworks
            .get_mut(id)
            .and_then(|framework| framework.executors.get_mut(&executor));
        let executor_entry = match known {
            Some(known) => Some(known),
            None => self
                .forgotten_frameworks
                .get_mut(id)
                .and_then(|framework| framework.executors.get_mut(&executor)),
        };
        let running = executor_entry.filter(|executor| {
            let custom = executor.custom.as_ref();
            custom.is_some_and(|custom| custom.phase != ExecutorPhase::Planned)
        });
        let Some(executor) = running else { return false };
        executor.resources.add(resources);
        true
    }

    /// Removes an executor none of whose tasks has reached its agent.
    pub(in crate::state) fn drop_planned(&mut self, id: &FrameworkId, key: &ExecutorKey) {
        let planned = self.executor(id, key).is_some_and(|executor| {
            let custom = executor.custom.as_ref();
            custom.is_some_and(|custom| custom.phase == ExecutorPhase::Planned)
        });
        let has_tasks = self.framework_of_agents(id).is_some_and(|framework| {
            framework
                .tasks
                .values()
                .any(|task| task.executor_key().as_ref() == Some(key))
        });
        if planned && !has_tasks {
            self.forget_executor(id, key);
        }
    }
}
