//! Agents: registration, draining, deactivation, disconnection, return and removal.

use super::{
    Agent, AgentId, Connection, Effect, FrameworkId, KillOrder, MAX_COMPLETED_TASKS, Reply, State, TaskKey,
    TaskState, epoch, time_info,
};
use crate::{config::AgentConfig, state::operator_views, wire::json as doc};
use serde_json::{Value, json};
use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration, time::Instant};

impl State {
    /// The id of the next agent that registers for the first time.
    pub(crate) fn new_agent_id(&mut self) -> AgentId {
        let id = AgentId::from(format!("{}-S{}", self.master.id, self.next_agent));
        self.next_agent += 1;
        id
    }

    /// Registers a new agent.
    pub(crate) fn add_agent(
        &mut self,
        id: AgentId,
        config: AgentConfig,
        addr: SocketAddr,
        work_dir: PathBuf,
        now: Instant,
    ) {
        let total = config.resources();
        let (attributes, attributes_plain) = config.attribute_documents();
        let agent = Agent {
            id,
            config,
            addr,
            work_dir,
            registered: epoch(),
            connection: Connection::Connected,
            fault: None,
            deactivated: false,
            drain: None,
            attributes,
            attributes_plain,
            available: total.clone(),
            total,
            volumes: BTreeMap::new(),
        };
        self.register(agent, now);
    }

    /// Registers an agent without tasks and offers its resources.
    pub(super) fn register(&mut self, agent: Agent, now: Instant) {
        let id = agent.id.clone();
        self.agents.insert(id.clone(), agent);
        self.announce_agent(&id);
        self.allocate(now);
    }

    pub(super) fn announce_agent(&mut self, id: &AgentId) {
        if let Some(agent) = self.agents.get(id) {
            let agent = operator_views::agent_of_event(agent);
            self.announce(&json!({"type": "AGENT_ADDED", "agent_added": {"agent": agent}}));
        }
    }

    /// `DEACTIVATE_AGENT` and `REACTIVATE_AGENT`.
    pub(crate) fn set_deactivated(&mut self, id: &AgentId, deactivated: bool, now: Instant) -> Reply {
        let Some(agent) = self.agents.get_mut(id) else {
            return Reply::bad_request(format!("Agent {id} is not registered"));
        };
        agent.deactivated = deactivated;
        if deactivated {
            self.rescind_offers_on(id);
        } else {
            if let Some(agent) = self.agents.get_mut(id) {
                agent.drain = None;
            }
            self.allocate(now);
        }
        Reply::ok()
    }

    /// `DRAIN_AGENT`: stops offers of the agent and kills all its tasks.
    pub(crate) fn drain(&mut self, id: &AgentId, drain: &Value) -> Reply {
        let Some(agent) = self.agents.get_mut(id) else {
            return Reply::bad_request(format!("Agent {id} is not registered"));
        };
        if let Some(why) = self.maintenance.drain_rejection(agent) {
            return Reply::bad_request(why);
        }
        let grace = doc::find(drain, &["max_grace_period"]).and_then(duration);
        let mut config = doc::object(json!({"mark_gone": drain["mark_gone"].as_bool().unwrap_or(false)}));
        doc::put(
            &mut config,
            "max_grace_period",
            grace.map(|grace| json!({"nanoseconds": grace.as_nanos() as u64})),
        );
        agent.drain = Some((Value::Object(config), epoch(), false));
        agent.deactivated = true;
        self.rescind_offers_on(id);
        let order = KillOrder {
            grace,
            reason: Some("REASON_AGENT_DRAINING"),
            ..KillOrder::default()
        };
        for key in self.tasks_on(id) {
            self.order_kill(&key, order.clone());
        }
        self.check_drained(id);
        Reply::ok()
    }

    /// Marks a draining agent without tasks as drained.
    pub(super) fn check_drained(&mut self, id: &AgentId) {
        let has_tasks = self.tasks().any(|task| task.agent == *id);
        let Some(agent) = self.agents.get_mut(id) else {
            return;
        };
        let Some((config, _, is_done)) = &mut agent.drain else {
            return;
        };
        if has_tasks || *is_done {
            return;
        }
        *is_done = true;
        if config["mark_gone"] == true {
            self.mark_gone(id);
        }
    }

    /// `MARK_AGENT_GONE`: the agent and its tasks never return.
    pub(crate) fn mark_gone(&mut self, id: &AgentId) -> Reply {
        if !self.agents.contains_key(id) {
            return Reply::bad_request(format!("Agent {id} is not registered"));
        }
        self.rescind_offers_on(id);
        for key in self.tasks_on(id) {
            let aware = self
                .frameworks
                .get(&key.framework)
                .is_some_and(super::Framework::is_partition_aware);
            let reason = if aware {
                "REASON_AGENT_REMOVED_BY_OPERATOR"
            } else {
                "REASON_AGENT_REMOVED"
            };
            self.report_lost(
                &key,
                TaskState::GoneByOperator,
                reason,
                "Agent has been marked gone",
                None,
            );
            self.kill_process(&key);
            self.retire(&key, false);
        }
        for key in self.restore_unreachable_tasks(id) {
            self.kill_process(&key);
            self.retire(&key, false);
        }
        self.dismiss_executors_on(id, |_| true);
        self.gone_agents.push(id.clone());
        self.forget_agent(id);
        Reply::ok()
    }

    /// Unregisters the agent: its tasks become `TASK_LOST`, even for partition-aware frameworks,
    /// and operator streams report its removal.
    pub(crate) fn unregister_agent(&mut self, id: &AgentId) -> Result<(), String> {
        let agent = self.agents.get(id).filter(|agent| agent.fault.is_none());
        let Some(agent) = agent else {
            return Err(format!("Agent {id} is not registered, or cannot be reached"));
        };
        tracing::info!(agent = %agent.id, "agent unregisters");
        self.remove_agent(id, "the agent unregistered");
        Ok(())
    }

    /// Registers an agent without its disk: it has another id, and the former one at its address is
    /// removed. One that is unreachable, or that the master does not know yet, returns as it was.
    pub(crate) fn replace_agent(&mut self, id: &AgentId, now: Instant) {
        if !self.agents.contains_key(id) || self.unreachable_agents.contains_key(id) {
            return self.reconnect_agent(id, now);
        }
        if let Some(agent) = self.remove_agent(id, "a new agent registered at its address") {
            let id = self.new_agent_id();
            self.add_agent(id, agent.config, agent.addr, agent.work_dir, now);
        }
    }

    /// Removes a registered agent and kills its tasks, which become `TASK_LOST` even for
    /// partition-aware frameworks.
    pub(super) fn remove_agent(&mut self, id: &AgentId, cause: &str) -> Option<Agent> {
        let hostname = &self.agents.get(id)?.config.hostname;
        let message = format!("Agent {hostname} removed: {cause}");
        for key in self.tasks_on(id) {
            self.report_lost(&key, TaskState::Lost, "REASON_AGENT_REMOVED", &message, None);
            self.end_with_agent(&key);
            self.retire(&key, false);
        }
        self.dismiss_executors_on(id, |_| true);
        self.rescind_offers_on(id);
        let agent = self.forget_agent(id);
        self.announce(&json!({"type": "AGENT_REMOVED", "agent_removed": {"agent_id": doc::id(id.as_str())}}));
        agent
    }

    /// Kills the process of a task whose agent is removed. Its resources are free once the process
    /// has ended.
    pub(super) fn end_with_agent(&mut self, key: &TaskKey) {
        if self.drop_queued_launch(key) {
            self.release(key);
        } else {
            self.kill_process(key);
            self.release_after_exit(key);
        }
    }

    /// Breaks the connection to an agent: its offers are rescinded, and tasks of frameworks without
    /// checkpointing are lost.
    pub(crate) fn disconnect_agent(&mut self, id: &AgentId, now: Instant) {
        let timeout = self.config.agent_timeout;
        let Some(agent) = self
            .agents
            .get_mut(id)
            .filter(|agent| !matches!(agent.connection, Connection::Broken(_)))
        else {
            return;
        };
        let hostname = agent.config.hostname.clone();
        agent.connection = Connection::Broken(now + timeout);
        self.rescind_offers_on(id);
        for key in self.tasks_on(id) {
            let has_checkpoint = self
                .frameworks
                .get(&key.framework)
                .is_some_and(|framework| framework.info["checkpoint"] == true);
            if !has_checkpoint {
                self.report_lost(
                    &key,
                    TaskState::Lost,
                    "REASON_AGENT_DISCONNECTED",
                    &format!("Agent {hostname} disconnected"),
                    None,
                );
                self.kill_process(&key);
                self.release_after_exit(&key);
                self.retire(&key, false);
            }
        }
        self.dismiss_executors_on(id, |framework| framework.info["checkpoint"] != true);
    }

    /// Kills a process even if its agent is unreachable, because the agent does so without an order
    /// from the master.
    fn kill_process(&mut self, key: &TaskKey) {
        let order = KillOrder {
            grace: Some(Duration::ZERO),
            ..KillOrder::default()
        };
        self.effects.push(Effect::Kill(key.clone(), order));
    }

    /// Reconnects the agent with its tasks.
    pub(crate) fn reconnect_agent(&mut self, id: &AgentId, now: Instant) {
        let Some(agent) = self
            .agents
            .get_mut(id)
            .filter(|agent| agent.connection != Connection::Connected)
        else {
            return;
        };
        if self.maintenance.is_down(agent) {
            return self.reject_agent(id);
        }
        agent.connection = Connection::Connected;
        let was_unreachable = self.unreachable_agents.remove(id).is_some();
        if was_unreachable {
            self.announce_agent(id);
            for key in self.restore_unreachable_tasks(id) {
                self.report_returned_task(&key);
            }
        }
        self.send_queued_orders(id);
        for key in self.tasks_on(id) {
            self.forward(&key, now);
        }
        self.allocate(now);
    }

    /// Marks agents as unreachable after their timeout, with their tasks.
    pub(super) fn mark_unreachable_agents(&mut self, now: Instant) {
        let timed_out: Vec<AgentId> = self
            .agents
            .values()
            .filter(|agent| match agent.connection {
                Connection::Broken(until) | Connection::Silent(until) => until <= now,
                Connection::Connected => false,
            })
            .map(|agent| agent.id.clone())
            .filter(|id| !self.unreachable_agents.contains_key(id))
            .collect();
        for id in timed_out {
            let time = epoch();
            self.unreachable_agents.insert(id.clone(), time);
            self.rescind_offers_on(&id);
            self.forget_answers(&id);
            if let Some(agent) = self.agents.get_mut(&id) {
                agent.connection = Connection::Broken(now);
            }
            for key in self.tasks_on(&id) {
                self.report_lost(
                    &key,
                    TaskState::Unreachable,
                    "REASON_AGENT_REMOVED",
                    "health check timed out",
                    Some(time),
                );
                self.retire(&key, true);
            }
            self.send_agent_failure(&id);
        }
    }

    pub(super) fn tasks_on(&self, id: &AgentId) -> Vec<TaskKey> {
        self.tasks()
            .filter(|task| task.agent == *id)
            .map(|task| task.key.clone())
            .collect()
    }

    /// Sends the master's own status of a lost task to operators and to the framework.
    fn report_lost(
        &mut self,
        key: &TaskKey,
        state: TaskState,
        reason: &str,
        message: &str,
        unreachable: Option<f64>,
    ) {
        let aware = self
            .frameworks
            .get(&key.framework)
            .is_some_and(super::Framework::is_partition_aware);
        let state = state.for_framework(aware);
        let Some(task) = self.task(key).filter(|task| !task.state.is_terminal()) else {
            return;
        };
        let mut status = doc::object(json!({
            "task_id": doc::id(key.task.as_str()),
            "state": state.as_str(),
            "message": message,
            "source": "SOURCE_MASTER",
            "reason": reason,
            "agent_id": doc::id(task.agent.as_str()),
            "timestamp": epoch(),
        }));
        doc::put(&mut status, "unreachable_time", unreachable.map(time_info));
        let status = Value::Object(status);
        self.record_by_master(key, state, &status);
        self.send(
            &key.framework,
            &json!({"type": "UPDATE", "update": {"status": status}}),
        );
    }

    /// Moves a running task to the unreachable ones, from which it can return, or to the completed
    /// ones.
    fn retire(&mut self, key: &TaskKey, unreachable: bool) {
        let Some(framework) = self.frameworks.get_mut(&key.framework) else {
            return;
        };
        let Some(task) = framework.tasks.remove(&key.task) else {
            return;
        };
        if !unreachable {
            let executor = task.executor_key();
            let group = executor.clone().filter(|_| task.is_in_group());
            let ended = group.and_then(|executor| framework.executors.remove(&executor));
            self.add_completed_task(task);
            if let Some(executor) = ended {
                self.free_resources(&executor.agent, &executor.resources);
            } else if let Some(executor) = executor {
                self.drop_planned(&key.framework, &executor);
            }
            return;
        }
        framework.unreachable_tasks.push_back(task);
        if framework.unreachable_tasks.len() > MAX_COMPLETED_TASKS {
            framework.unreachable_tasks.pop_front();
        }
    }

    /// Moves an agent's unreachable tasks back to the running ones.
    fn restore_unreachable_tasks(&mut self, id: &AgentId) -> Vec<TaskKey> {
        let mut returned_keys = Vec::new();
        for framework in self.frameworks.values_mut() {
            let (returned, rest) = std::mem::take(&mut framework.unreachable_tasks)
                .into_iter()
                .partition(|task| task.agent == *id);
            framework.unreachable_tasks = rest;
            let returned: std::collections::VecDeque<super::Task> = returned;
            for mut task in returned {
                task.state = task.agent_state;
                // As recorded from a real master: the statuses that the master made meanwhile are
                // dropped, and reconciliation must not repeat them.
                task.statuses.clone_from(&task.agent_statuses);
                returned_keys.push(task.key.clone());
                framework.tasks.insert(task.key.task.clone(), task);
            }
        }
        returned_keys
    }

    /// Updates a task whose agent was unreachable: the task has returned, was never launched, or
    /// has ended meanwhile. In the last case its agent reports the end.
    pub(super) fn report_returned_task(&mut self, key: &TaskKey) {
        if self.drop_queued_launch(key) {
            let why = "Task is unknown to the agent";
            self.report_lost(key, TaskState::Dropped, "REASON_RECONCILIATION", why, None);
            self.release(key);
            return self.retire(key, false);
        }
        let Some(task) = self.task(key).filter(|task| !task.agent_state.is_terminal()) else {
            return;
        };
        let added = json!({"type": "TASK_ADDED", "task_added": {"task": operator_views::task(task)}});
        let status = json!({
            "task_id": doc::id(key.task.as_str()),
            "state": task.state.as_str(),
            "message": "Unreachable agent re-reregistered",
            "source": "SOURCE_MASTER",
            "reason": "REASON_AGENT_REREGISTERED",
            "agent_id": doc::id(task.agent.as_str()),
            "timestamp": epoch(),
        });
        let mut status = doc::object(status);
        if let Some(latest) = task.agent_statuses.last() {
            doc::copy(latest, &mut status, &["healthy", "container_status"]);
        }
        self.announce(&added);
        self.send(
            &key.framework,
            &json!({"type": "UPDATE", "update": {"status": status}}),
        );
    }

    fn forget_agent(&mut self, id: &AgentId) -> Option<Agent> {
        let agent = self.agents.remove(id);
        self.unreachable_agents.remove(id);
        self.forget_answers(id);
        self.send_agent_failure(id);
        agent
    }

    fn send_agent_failure(&mut self, id: &AgentId) {
        let ids: Vec<FrameworkId> = self.frameworks.keys().cloned().collect();
        for framework in ids {
            self.send(
                &framework,
                &json!({"type": "FAILURE", "failure": {"agent_id": doc::id(id.as_str())}}),
            );
        }
    }
}

/// Parses `{"seconds": n}`, protobuf's `Duration`, or `{"nanoseconds": n}`, the API's own form.
fn duration(value: &Value) -> Option<Duration> {
    let seconds = value
        .get("seconds")
        .and_then(Value::as_u64)
        .map(Duration::from_secs);
    let nanoseconds = value
        .get("nanoseconds")
        .and_then(Value::as_u64)
        .map(Duration::from_nanos);
    seconds.or(nanoseconds)
}
