//! KILL and SHUTDOWN.

use super::{AgentId, Effect, FrameworkId, KillOrder, State, TaskId, TaskKey};
use crate::wire::json as doc;
use serde_json::Value;
use std::time::Duration;

impl State {
    /// Kills a task and its group. A kill of an unknown task is answered like its reconciliation.
    pub(super) fn kill(&mut self, id: &FrameworkId, kill: &Value) {
        let task_id = TaskId::from(doc::text(kill, &["task_id", "value"]).unwrap_or_default());
        let agent = doc::text(kill, &["agent_id", "value"]).map(AgentId::from);
        let key = TaskKey {
            framework: id.clone(),
            task: task_id,
        };
        let Some(task) = self.task(&key) else {
            return self.reconcile_one(id, &key.task, agent.as_ref());
        };
        let group = task.executor_key().filter(|_| task.is_in_group());
        let order = KillOrder {
            grace: grace(&kill["kill_policy"]),
            ..KillOrder::default()
        };
        let Some((agent, executor)) = group else {
            self.order_kill(&key, order);
            return;
        };
        self.kill_executor(id, &agent, &executor, &order);
    }

    /// SHUTDOWN kills all tasks of a group's executor. A custom executor shuts down itself.
    pub(super) fn shutdown_executor(&mut self, id: &FrameworkId, shutdown: &Value) {
        let agent = AgentId::from(doc::text(shutdown, &["agent_id", "value"]).unwrap_or_default());
        let executor = doc::text(shutdown, &["executor_id", "value"]).unwrap_or_default();
        let custom = self
            .frameworks
            .get(id)
            .and_then(|framework| framework.executors.get(&(agent.clone(), executor.to_owned())))
            .filter(|executor| executor.custom.is_some())
            .map(|executor| executor.container.clone());
        if let Some(container) = custom {
            return self.send_order(&agent, Effect::ShutDownExecutor(container));
        }
        self.kill_executor(id, &agent, executor, &KillOrder::default());
    }

    fn kill_executor(&mut self, id: &FrameworkId, agent: &AgentId, executor: &str, order: &KillOrder) {
        let Some(framework) = self.frameworks.get(id) else {
            return;
        };
        // The executor of a command task has the id of the task.
        let kills: Vec<TaskKey> = framework
            .tasks
            .values()
            .filter(|task| task.agent == *agent && task.executor_id() == executor)
            .map(|task| task.key.clone())
            .collect();
        for key in kills {
            self.order_kill(&key, order.clone());
        }
    }
}

/// The grace period of a `KillPolicy`.
pub(crate) fn grace(policy: &Value) -> Option<Duration> {
    let nanoseconds = doc::find(policy, &["grace_period", "nanoseconds"])?.as_u64()?;
    Some(Duration::from_nanos(nanoseconds))
}
