//! RECONCILE: reports the latest state of known tasks, and the most precise state that can be
//! derived for unknown ones.

use super::{AgentId, Connection, FrameworkId, State, TaskId, TaskKey, TaskState, epoch, time_info};
use crate::wire::json as doc;
use serde_json::{Map, Value, json};

impl State {
    /// Reconciles the named tasks (explicit) or, if none is named, every task of the framework
    /// (implicit).
    pub(super) fn reconcile(&mut self, id: &FrameworkId, reconcile: &Value) {
        let named_tasks = doc::list(reconcile, &["tasks"]);
        if named_tasks.is_empty() {
            let tasks: Vec<TaskId> = self
                .frameworks
                .get(id)
                .into_iter()
                .flat_map(|framework| framework.tasks.keys().cloned())
                .collect();
            for task in tasks {
                self.reconcile_one(id, &task, None);
            }
            return;
        }
        for task in named_tasks {
            let task_id = TaskId::from(doc::text(task, &["task_id", "value"]).unwrap_or_default());
            let agent = doc::text(task, &["agent_id", "value"]).map(AgentId::from);
            self.reconcile_one(id, &task_id, agent.as_ref());
        }
    }

    /// Reconciles one task.
    pub(super) fn reconcile_one(&mut self, id: &FrameworkId, task: &TaskId, agent: Option<&AgentId>) {
        let key = TaskKey {
            framework: id.clone(),
            task: task.clone(),
        };
        let status = self
            .known_status(&key)
            .or_else(|| self.unknown_status(&key, agent));
        if let Some(status) = status {
            self.send(id, &json!({"type": "UPDATE", "update": {"status": status}}));
        }
    }

    fn known_status(&self, key: &TaskKey) -> Option<Value> {
        let task = self.task(key)?;
        let latest = task.statuses.last();
        let state = latest
            .and_then(|status| status["state"].as_str())
            .unwrap_or(task.state.as_str());
        let mut status = reconciliation_status(&key.task, state, "Reconciliation: Latest task state");
        status.insert("agent_id".to_owned(), doc::id(task.agent.as_str()));
        doc::put(&mut status, "executor_id", task.executor.as_deref().map(doc::id));
        if let Some(latest) = latest {
            doc::copy(
                latest,
                &mut status,
                &["healthy", "check_status", "container_status"],
            );
        }
        Some(Value::Object(status))
    }

    fn unknown_status(&self, key: &TaskKey, agent: Option<&AgentId>) -> Option<Value> {
        let framework = self.frameworks.get(&key.framework)?;
        if self.recovered_agents().next().is_some() {
            // One of those agents may still report the task.
            return None;
        }
        // The framework may not know the agent of its unreachable task, or may have omitted it.
        let unreachable_task = framework.unreachable_tasks.iter().find(|task| task.key == *key);
        let agent = agent.or(unreachable_task.map(|task| &task.agent));
        let unreachable = agent.and_then(|agent| self.unreachable_agents.get(agent));
        let (state, message) = match agent {
            Some(agent) if self.gone_agents.contains(agent) => {
                (TaskState::GoneByOperator, "Reconciliation: Task is gone")
            }
            Some(_) if unreachable.is_some() => {
                (TaskState::Unreachable, "Reconciliation: Task is unreachable")
            }
            Some(agent) => match self.agents.get(agent).map(|agent| agent.connection) {
                Some(Connection::Connected | Connection::Silent(_)) => {
                    (TaskState::Gone, "Reconciliation: Task is unknown to the agent")
                }
                // The agent may return and report the task, so it is not reconciled until then.
                Some(Connection::Broken(_)) => return None,
                None => (TaskState::Unknown, "Reconciliation: Task is unknown"),
            },
            None => (TaskState::Unknown, "Reconciliation: Task is unknown"),
        };
        let mut status = reconciliation_status(
            &key.task,
            state.for_framework(framework.is_partition_aware()).as_str(),
            message,
        );
        doc::put(
            &mut status,
            "agent_id",
            agent.map(|agent| doc::id(agent.as_str())),
        );
        doc::put(
            &mut status,
            "unreachable_time",
            unreachable.map(|since| time_info(*since)),
        );
        Some(Value::Object(status))
    }
}

fn reconciliation_status(task: &TaskId, state: &str, message: &str) -> Map<String, Value> {
    doc::object(json!({
        "task_id": doc::id(task.as_str()),
        "state": state,
        "message": message,
        "source": "SOURCE_MASTER",
        "reason": "REASON_RECONCILIATION",
        "timestamp": epoch(),
    }))
}
