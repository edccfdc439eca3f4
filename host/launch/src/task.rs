//! A whole task.

use std::collections::BTreeMap;
use std::time::Duration;

use transom_cluster::v1::{ExecutorInfo, ExecutorType, KillPolicy, Scalar, TaskInfo};

use crate::discovery::labels;
use crate::{Check, Command, Container, Discovery, HealthCheck};

/// A task. It is converted to a [`TaskInfo`]; the scheduler adds id, agent and resources.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The name, which the cluster and DNS show.
    pub name: String,
    /// The command that it runs.
    pub command: Command,
    /// The id of its own executor, which `command` starts; `None`: the agent's command executor
    /// starts `command`.
    pub executor: Option<String>,
    /// The container; `None`: a process of the agent.
    pub container: Option<Container>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// The discovery information.
    pub discovery: Option<Discovery>,
    /// A check of the agent whose result is only reported.
    pub check: Option<Check>,
    /// A check of the agent that ends the task.
    pub health_check: Option<HealthCheck>,
    /// The time between SIGTERM and SIGKILL; `None`: the agent's default.
    pub kill_grace: Option<Duration>,
    /// The agent ends the task after this time; `None`: never.
    pub max_runtime: Option<Duration>,
    /// Limits of its use of resources, which may exceed the allocated amounts.
    pub limits: Limits,
}

/// Limits of a task's use of resources; `None`: the allocated amount is the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// CPUs.
    pub cpus: Option<Limit>,
    /// Memory in megabytes.
    pub mem: Option<Limit>,
}

/// A limit of one resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// This amount.
    Amount(f64),
    /// No limit.
    Unlimited,
}

impl From<Limit> for Scalar {
    fn from(limit: Limit) -> Self {
        Self {
            value: match limit {
                Limit::Amount(amount) => amount,
                Limit::Unlimited => f64::INFINITY,
            },
        }
    }
}

impl Task {
    /// A process with this name and command.
    pub fn new(name: impl Into<String>, command: Command) -> Self {
        Self {
            name: name.into(),
            command,
            executor: None,
            container: None,
            labels: BTreeMap::new(),
            discovery: None,
            check: None,
            health_check: None,
            kill_grace: None,
            max_runtime: None,
            limits: Limits::default(),
        }
    }
}

impl From<Task> for TaskInfo {
    fn from(task: Task) -> Self {
        let container = task.container.as_ref();
        let command = task.command.into_info(container);
        let check = task.check.map(|check| check.into_info(container));
        let health_check = task.health_check.map(|check| check.into_info(container));
        let container = task.container.map(Into::into);
        // The master accepts either a command or an executor.
        let (command, container, executor) = match task.executor {
            None => (Some(command), container, None),
            Some(id) => {
                let executor = ExecutorInfo {
                    executor_id: id.into(),
                    r#type: Some(ExecutorType::Custom),
                    command: Some(command),
                    container,
                    ..ExecutorInfo::default()
                };
                (None, None, Some(executor))
            }
        };
        Self {
            name: task.name,
            command,
            executor,
            check,
            health_check,
            container,
            labels: labels(task.labels),
            discovery: task.discovery.map(Into::into),
            kill_policy: task.kill_grace.map(|grace| KillPolicy {
                grace_period: Some(grace.into()),
            }),
            max_completion_time: task.max_runtime.map(Into::into),
            limits: task.limits.into(),
            ..Self::default()
        }
    }
}

impl From<Limits> for BTreeMap<String, Scalar> {
    fn from(limits: Limits) -> Self {
        [("cpus", limits.cpus), ("mem", limits.mem)]
            .into_iter()
            .filter_map(|(name, limit)| Some((name.to_owned(), limit?.into())))
            .collect()
    }
}

#[cfg(test)]
#[path = "task_tests.rs"]
mod tests;
