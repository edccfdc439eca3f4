//! The types of the state.

use crate::{
    config::AgentConfig,
    wire::{recordio::Event, resources::Resources},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(String);

        impl $name {
            pub(crate) fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl<T: Into<String>> From<T> for $name {
            fn from(id: T) -> Self {
                Self(id.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// `<master id>-NNNN`, or an id that the framework sent.
    FrameworkId
);
id!(
    /// `<master id>-SN`.
    AgentId
);
id!(
    /// `<master id>-ON`.
    OfferId
);
id!(
    /// The framework's own id of a task; unique among its running tasks.
    TaskId
);

/// The id of a task among all frameworks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TaskKey {
    pub(crate) framework: FrameworkId,
    pub(crate) task: TaskId,
}

/// The key of an executor: its agent and its own id.
pub(crate) type ExecutorKey = (AgentId, String);

/// The task states that occur in this cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    Staging,
    Starting,
    Running,
    Killing,
    Finished,
    Failed,
    Killed,
    Error,
    Lost,
    Dropped,
    Unreachable,
    Gone,
    GoneByOperator,
    Unknown,
}

impl TaskState {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Staging => "TASK_STAGING",
            Self::Starting => "TASK_STARTING",
            Self::Running => "TASK_RUNNING",
            Self::Killing => "TASK_KILLING",
            Self::Finished => "TASK_FINISHED",
            Self::Failed => "TASK_FAILED",
            Self::Killed => "TASK_KILLED",
            Self::Error => "TASK_ERROR",
            Self::Lost => "TASK_LOST",
            Self::Dropped => "TASK_DROPPED",
            Self::Unreachable => "TASK_UNREACHABLE",
            Self::Gone => "TASK_GONE",
            Self::GoneByOperator => "TASK_GONE_BY_OPERATOR",
            Self::Unknown => "TASK_UNKNOWN",
        }
    }

    const ALL: &'static [Self] = &[
        Self::Staging,
        Self::Starting,
        Self::Running,
        Self::Killing,
        Self::Finished,
        Self::Failed,
        Self::Killed,
        Self::Error,
        Self::Lost,
        Self::Dropped,
        Self::Unreachable,
        Self::Gone,
        Self::GoneByOperator,
        Self::Unknown,
    ];

    /// The state with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|state| state.as_str() == name)
    }

    /// Whether no other state follows.
    pub(crate) const fn is_terminal(self) -> bool {
        !matches!(
            self,
            Self::Staging
                | Self::Starting
                | Self::Running
                | Self::Killing
                | Self::Unreachable
                | Self::Unknown
        )
    }

    /// The state to report to a framework, which is `TASK_LOST` for some states if it is not
    /// partition-aware.
    pub(crate) const fn for_framework(self, partition_aware: bool) -> Self {
        match self {
            Self::Dropped | Self::Unreachable | Self::Gone | Self::GoneByOperator | Self::Unknown
                if !partition_aware =>
            {
                Self::Lost
            }
            state => state,
        }
    }
}

/// A scheduler: subscribed, within its failover timeout, or completed.
#[derive(Debug)]
pub(crate) struct Framework {
    pub(crate) id: FrameworkId,
    /// `FrameworkInfo`, with the id.
    pub(crate) info: Value,
    pub(crate) offer_constraints: Value,
    pub(crate) stream: Option<Stream>,
    pub(crate) registered: f64,
    pub(crate) reregistered: f64,
    pub(crate) unregistered: f64,
    pub(crate) suppressed: BTreeSet<String>,
    pub(crate) filters: Vec<Filter>,
    /// The agents for which the framework receives no inverse offers, each with the end of that time.
    pub(crate) inverse_filters: BTreeMap<AgentId, Instant>,
    pub(crate) tasks: BTreeMap<TaskId, Task>,
    pub(crate) completed_tasks: VecDeque<Task>,
    pub(crate) unreachable_tasks: VecDeque<Task>,
    pub(crate) executors: BTreeMap<ExecutorKey, Executor>,
    /// Whether it is known only from its agents, because it has not subscribed since the master
    /// restarted.
    pub(crate) recovered: bool,
    /// The time at which a framework without a stream is removed.
    pub(crate) failover_deadline: Option<Instant>,
}

impl Framework {
    /// A new framework, without a stream and without tasks.
    pub(crate) fn new(id: FrameworkId, info: Value, offer_constraints: Value) -> Self {
        let time = super::epoch();
        Self {
            id,
            info,
            offer_constraints,
            stream: None,
            registered: time,
            reregistered: time,
            unregistered: 0.0,
            suppressed: BTreeSet::new(),
            filters: Vec::new(),
            inverse_filters: BTreeMap::new(),
            tasks: BTreeMap::new(),
            completed_tasks: VecDeque::new(),
            unreachable_tasks: VecDeque::new(),
            executors: BTreeMap::new(),
            recovered: false,
            failover_deadline: None,
        }
    }

    pub(crate) fn has_capability(&self, capability: &str) -> bool {
        lists_capability(&self.info, capability)
    }

    pub(crate) fn is_partition_aware(&self) -> bool {
        self.has_capability("PARTITION_AWARE")
    }

    pub(crate) fn is_subscribed(&self) -> bool {
        self.stream.is_some()
    }

    /// The roles in which it receives offers.
    pub(crate) fn roles(&self) -> Vec<String> {
        if self.has_capability("MULTI_ROLE") {
            crate::wire::json::list(&self.info, &["roles"])
                .iter()
                .filter_map(|role| role.as_str().map(str::to_owned))
                .collect()
        } else {
            vec![self.info["role"].as_str().unwrap_or("*").to_owned()]
        }
    }
}

/// Whether a `FrameworkInfo` has this capability.
pub(crate) fn lists_capability(info: &Value, capability: &str) -> bool {
    crate::wire::json::list(info, &["capabilities"])
        .iter()
        .any(|one| one["type"] == capability)
}

/// The event stream of a scheduler or of an executor.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) id: String,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) next_heartbeat: Instant,
}

/// A declined offer. Until the given time, the framework receives no offer of that agent that
/// contains no more than the declined resources.
#[derive(Debug)]
pub(crate) struct Filter {
    pub(crate) agent: AgentId,
    pub(crate) role: String,
    pub(crate) declined: Resources,
    pub(crate) until: Instant,
}

/// The master's connection to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    Connected,
    /// Broken; the agent becomes unreachable at this time.
    Broken(Instant),
    /// The agent no longer answers. The master notices it at this time.
    Silent(Instant),
}

/// The faults of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentFault {
    Killed,
    Paused,
    Partitioned,
}

/// A registered agent.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) id: AgentId,
    pub(crate) config: AgentConfig,
    pub(crate) addr: SocketAddr,
    pub(crate) work_dir: PathBuf,
    pub(crate) registered: f64,
    pub(crate) connection: Connection,
    /// The active fault.
    pub(crate) fault: Option<AgentFault>,
    pub(crate) deactivated: bool,
    /// `DrainConfig`, the time at which draining began, and whether it has finished.
    pub(crate) drain: Option<(Value, f64, bool)>,
    /// The attributes as messages, and as the plain object of `/state`.
    pub(crate) attributes: Vec<Value>,
    pub(crate) attributes_plain: Value,
    /// All resources, with reservations and volumes.
    pub(crate) total: Resources,
    /// Directory of each persistent volume, by role and id.
    pub(crate) volumes: BTreeMap<(String, String), PathBuf>,
    /// Resources neither offered nor used.
    pub(crate) available: Resources,
}

impl Agent {
    pub(crate) fn is_active(&self) -> bool {
        !matches!(self.connection, Connection::Broken(_)) && !self.deactivated
    }

    /// The agent's libprocess id.
    pub(crate) fn pid(&self) -> String {
        format!("slave(1)@{}", self.addr)
    }
}

/// An outstanding offer.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) id: OfferId,
    pub(crate) framework: FrameworkId,
    pub(crate) agent: AgentId,
    pub(crate) role: String,
    pub(crate) resources: Resources,
}

/// The executor of a task group, or a custom executor of the framework.
#[derive(Clone, Debug)]
pub(crate) struct Executor {
    /// `ExecutorInfo`, with the framework id.
    pub(crate) info: Value,
    pub(crate) agent: AgentId,
    pub(crate) container: String,
    pub(crate) directory: PathBuf,
    pub(crate) role: String,
    pub(crate) resources: Resources,
    /// The agent's state of a custom executor. `None` for the executor of a task group, because the
    /// agent itself acts as that one.
    pub(crate) custom: Option<CustomExecutor>,
}

/// A custom executor as its agent knows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CustomExecutor {
    pub(crate) phase: ExecutorPhase,
    /// The stream, while it is subscribed.
    pub(crate) stream: Option<Stream>,
    pub(crate) pid: Option<u32>,
    /// Tasks that are sent to it when it subscribes.
    pub(crate) queued: Vec<TaskId>,
    /// Whether it was ever sent a task.
    pub(crate) was_sent_task: bool,
    /// The time at which it is killed if it has not subscribed or shut down by then.
    pub(crate) deadline: Option<Instant>,
    /// The cause that the last updates of its tasks report.
    pub(crate) cause: Option<EndCause>,
}

/// The phases of a custom executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ExecutorPhase {
    /// No task has reached its agent yet.
    #[default]
    Planned,
    /// Its process runs or is about to start, and has not subscribed.
    Registering,
    /// It has not subscribed since its agent was started again.
    Reregistering,
    /// It has subscribed.
    Running,
    /// It is shutting down or being killed.
    Terminating,
}

/// Why a custom executor ended, in the updates of its tasks.
#[derive(Clone, Debug)]
pub(crate) struct EndCause {
    pub(crate) state: TaskState,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// A custom executor that the master no longer knows and whose process may still run.
#[derive(Debug)]
pub(crate) struct EndingExecutor {
    pub(crate) framework: FrameworkId,
    pub(crate) id: String,
    pub(crate) agent: AgentId,
    /// Its own resources and those of its tasks. They are free once its process has ended.
    pub(crate) resources: Resources,
    pub(crate) grace: Duration,
    pub(crate) stream: Option<Stream>,
    pub(crate) deadline: Option<Instant>,
}

/// A task, with the master's and the agent's knowledge of it.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) key: TaskKey,
    pub(crate) agent: AgentId,
    /// `TaskInfo`.
    pub(crate) info: Value,
    pub(crate) role: String,
    pub(crate) resources: Resources,
    /// The id of the group's executor or of the custom executor; `None` for a command task.
    pub(crate) executor: Option<String>,
    /// Its container: in a task group a container nested in the executor's, and for a custom
    /// executor the executor's own.
    pub(crate) container: String,
    pub(crate) parent: Option<String>,
    pub(crate) directory: PathBuf,
    pub(crate) pid: Option<u32>,
    /// The master's knowledge: the latest state that it received, and every status that it forwarded.
    pub(crate) state: TaskState,
    pub(crate) statuses: Vec<Value>,
    /// The agent's knowledge.
    pub(crate) agent_state: TaskState,
    pub(crate) agent_statuses: Vec<Value>,
    /// Updates that are not acknowledged yet, oldest first; the first may be in flight.
    pub(crate) pending: VecDeque<(TaskState, Value)>,
    pub(crate) in_flight: Option<InFlight>,
    /// Whether its resources have been freed.
    pub(crate) released: bool,
}

impl Task {
    /// Whether it belongs to a task group.
    pub(crate) const fn is_in_group(&self) -> bool {
        self.parent.is_some()
    }

    /// Whether a custom executor runs it.
    pub(crate) const fn is_custom(&self) -> bool {
        self.executor.is_some() && self.parent.is_none()
    }

    /// The id of its executor, which for a command task is the task's own id.
    pub(crate) fn executor_id(&self) -> &str {
        self.executor.as_deref().unwrap_or(self.key.task.as_str())
    }

    /// The key of the executor of a task group or of a custom one.
    pub(crate) fn executor_key(&self) -> Option<ExecutorKey> {
        let id = self.executor.clone()?;
        Some((self.agent.clone(), id))
    }
}

/// Outcomes of operations, by framework and the framework's own id of each.
pub(crate) type Operations = BTreeMap<(FrameworkId, String), OperationOutcome>;

/// The outcome of an operation, kept until it is acknowledged.
#[derive(Debug)]
pub(crate) struct OperationOutcome {
    pub(crate) status: Value,
    pub(crate) retry_at: Instant,
    pub(crate) wait: Duration,
}

/// The pending update that was sent last, with the time of its next retry.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) retry_at: Instant,
    pub(crate) wait: Duration,
}

/// External actions that the state requires.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Run this task, or send it to its custom executor.
    Launch(Box<Launch>),
    /// Kill this task's process group, or let its custom executor kill it.
    Kill(TaskKey, KillOrder),
    /// Run a custom executor.
    StartExecutor(Box<Launch>),
    /// Request a custom executor to shut down. The text is its container.
    ShutDownExecutor(String),
    /// Kill the process group of a custom executor, if it is running.
    KillExecutor(String),
    /// Delete a persistent volume.
    DeleteVolume(PathBuf),
    /// Continue the journal of an agent that registered under a new id.
    ContinueJournal { previous: AgentId, current: AgentId },
    /// Write a message for an executor to the agent's journal, and send it to a custom executor.
    ExecutorMessage(AgentId, Value),
    /// Send a framework an event that an agent could not send earlier.
    SendEvent(FrameworkId, Value),
}

/// How to end a task.
#[derive(Clone, Debug, Default)]
pub(crate) struct KillOrder {
    /// Time between SIGTERM and SIGKILL; if `None`, that of the task's kill policy or else the
    /// default.
    pub(crate) grace: Option<Duration>,
    /// The reason in the updates.
    pub(crate) reason: Option<&'static str>,
    /// The result of the health check, for the last update.
    pub(crate) healthy: Option<bool>,
    /// The agent has crashed: the task and its executor are killed immediately, and the agent
    /// reports that when it returns.
    pub(crate) is_crash: bool,
}

/// An agent's input for running one task or one custom executor.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// For a custom executor, its own id takes the place of the task's.
    pub(crate) key: TaskKey,
    pub(crate) agent: AgentId,
    pub(crate) agent_addr: SocketAddr,
    pub(crate) info: Value,
    pub(crate) executor_id: String,
    pub(crate) container: String,
    pub(crate) directory: PathBuf,
    pub(crate) user: String,
    /// Persistent volumes: the directory of each, and its name in the sandbox.
    pub(crate) volumes: Vec<(PathBuf, PathBuf)>,
    /// Whether the framework accepts `TASK_KILLING`.
    pub(crate) supports_killing_state: bool,
    /// The task's group, if it is in one.
    pub(crate) group: Option<TaskGroup>,
    /// Whether the task is sent to a custom executor.
    pub(crate) in_executor: bool,
    /// Whether it is a custom executor itself.
    pub(crate) is_executor: bool,
    /// The variables that agents pass to executors only.
    pub(crate) variables: Vec<(&'static str, String)>,
}

/// The executor of a task group, for its tasks.
#[derive(Clone, Debug)]
pub(crate) struct TaskGroup {
    /// `ExecutorInfo`.
    pub(crate) info: Value,
    pub(crate) container: String,
    pub(crate) directory: PathBuf,
    /// Its persistent volumes: the directory of each, and its name in the sandbox.
    pub(crate) volumes: Vec<(PathBuf, PathBuf)>,
}
