//! Tasks: launching, status updates, discovery information.

use super::macros::{messages, names};
use super::{
    CheckInfo, CheckStatusInfo, CommandInfo, ContainerInfo, ContainerStatus, DurationInfo, HealthCheck,
    Labels, Resource, Scalar, TimeInfo,
};
use crate::ids::{AgentId, ExecutorId, FrameworkId, TaskId};
use std::collections::BTreeMap;

names! {
    /// The state of a task.
    TaskState {
        Staging = "TASK_STAGING",
        Starting = "TASK_STARTING",
        Running = "TASK_RUNNING",
        Killing = "TASK_KILLING",
        Finished = "TASK_FINISHED",
        Failed = "TASK_FAILED",
        Killed = "TASK_KILLED",
        Error = "TASK_ERROR",
        Lost = "TASK_LOST",
        Dropped = "TASK_DROPPED",
        Unreachable = "TASK_UNREACHABLE",
        Gone = "TASK_GONE",
        GoneByOperator = "TASK_GONE_BY_OPERATOR",
        Unknown = "TASK_UNKNOWN",
    }
    /// The visibility of a task or a port.
    Visibility { Framework = "FRAMEWORK", Cluster = "CLUSTER", External = "EXTERNAL" }
    /// The owner of the program that runs the tasks.
    ExecutorType { Unknown = "UNKNOWN", Default = "DEFAULT", Custom = "CUSTOM" }
}

messages! {
    /// A task to launch. One of `command` and `executor` is set, or none in a task group with a
    /// container's own entry point.
    TaskInfo {
        must { name: String, task_id: TaskId, agent_id: AgentId }
        may {
            resources: Vec<Resource>,
            limits: BTreeMap<String, Scalar>,
            executor: Option<ExecutorInfo>,
            command: Option<CommandInfo>,
            container: Option<ContainerInfo>,
            health_check: Option<HealthCheck>,
            check: Option<CheckInfo>,
            kill_policy: Option<KillPolicy>,
            data: Option<String>,
            labels: Option<Labels>,
            discovery: Option<DiscoveryInfo>,
            max_completion_time: Option<DurationInfo>,
        }
    }
    /// Tasks that start and end together.
    TaskGroupInfo { may { tasks: Vec<TaskInfo> } }
    /// How a task is killed: the time between SIGTERM and SIGKILL.
    KillPolicy { may { grace_period: Option<DurationInfo> } }
    /// The program that runs the tasks on an agent.
    ExecutorInfo {
        must { executor_id: ExecutorId }
        may {
            r#type: Option<ExecutorType>,
            framework_id: Option<FrameworkId>,
            command: Option<CommandInfo>,
            container: Option<ContainerInfo>,
            resources: Vec<Resource>,
            name: Option<String>,
            source: Option<String>,
            data: Option<String>,
            discovery: Option<DiscoveryInfo>,
            shutdown_grace_period: Option<DurationInfo>,
            labels: Option<Labels>,
        }
    }

    /// The information by which other programs find a task.
    DiscoveryInfo {
        must { visibility: Visibility }
        may {
            name: Option<String>,
            environment: Option<String>,
            location: Option<String>,
            version: Option<String>,
            ports: Option<Ports>,
            labels: Option<Labels>,
        }
    }
    /// Several ports.
    Ports { may { ports: Vec<Port> } }
    /// A port that a task listens on; `protocol` is `tcp` or `udp` or whatever the framework wrote.
    Port {
        must { number: u32 }
        may {
            name: Option<String>,
            protocol: Option<String>,
            visibility: Option<Visibility>,
            labels: Option<Labels>,
        }
    }

    /// A status update of a task. `timestamp` is in seconds since 1970. An update with a `uuid` (16
    /// bytes in base64) is repeated until it is acknowledged; one without comes from the master and
    /// needs no acknowledgement.
    TaskStatus {
        must { task_id: TaskId, state: TaskState }
        may {
            message: Option<String>,
            source: Option<String>,
            reason: Option<String>,
            data: Option<String>,
            agent_id: Option<AgentId>,
            executor_id: Option<ExecutorId>,
            timestamp: Option<f64>,
            uuid: Option<String>,
            healthy: Option<bool>,
            check_status: Option<CheckStatusInfo>,
            labels: Option<Labels>,
            container_status: Option<ContainerStatus>,
            unreachable_time: Option<TimeInfo>,
        }
    }

    /// A task, as the master knows it (operator API).
    Task {
        must {
            name: String,
            task_id: TaskId,
            framework_id: FrameworkId,
            agent_id: AgentId,
            state: TaskState,
        }
        may {
            executor_id: Option<ExecutorId>,
            resources: Vec<Resource>,
            limits: BTreeMap<String, Scalar>,
            statuses: Vec<TaskStatus>,
            status_update_state: Option<TaskState>,
            status_update_uuid: Option<String>,
            labels: Option<Labels>,
            discovery: Option<DiscoveryInfo>,
            container: Option<ContainerInfo>,
            health_check: Option<HealthCheck>,
            check: Option<CheckInfo>,
            kill_policy: Option<KillPolicy>,
            max_completion_time: Option<DurationInfo>,
            user: Option<String>,
        }
    }
}

impl TaskState {
    /// Whether the task has ended for good. An unreachable task may come back, an unknown one may
    /// never have been; LOST is terminal for frameworks that are not partition aware, and counts as
    /// such here.
    pub fn is_terminal(&self) -> bool {
        matches!(
            self,
            Self::Finished
                | Self::Failed
                | Self::Killed
                | Self::Error
                | Self::Lost
                | Self::Dropped
                | Self::Gone
                | Self::GoneByOperator
        )
    }
}
impl TaskStatus {
    /// Whether the agent ends the task because an operator drains the agent.
    pub fn is_agent_draining(&self) -> bool {
        matches!(
            self.reason.as_deref(),
            Some("REASON_AGENT_DRAINING" | "REASON_SLAVE_DRAINING")
        )
    }
}
