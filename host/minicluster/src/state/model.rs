//! The types of the state.

use crate::{
    config::AgentConfig,
    wire::{recordio::Event, resources::Bundle},
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

/// The task states in this cluster.
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

    const ALL: [Self; 14] = [
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
        Self::ALL.into_iter().find(|state| state.as_str() == name)
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

    /// The state that a framework without `PARTITION_AWARE` receives instead.
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
    /// The agents for which it gets no inverse offers until then.
    pub(crate) inverse_filters: BTreeMap<AgentId, Instant>,
    pub(crate) tasks: BTreeMap<TaskId, Task>,
    pub(crate) completed_tasks: VecDeque<Task>,
    pub(crate) unreachable_tasks: VecDeque<Task>,
    pub(crate) executors: BTreeMap<ExecutorKey, Executor>,
    /// Known from its agents only: it has not subscribed since the master restarted.
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

    pub(crate) fn has(&self, capability: &str) -> bool {
        capability_in(&self.info, capability)
    }

    pub(crate) fn partition_aware(&self) -> bool {
        self.has("PARTITION_AWARE")
    }

    pub(crate) fn is_subscribed(&self) -> bool {
        self.stream.is_some()
    }

    /// The roles in which it receives offers.
    pub(crate) fn roles(&self) -> Vec<String> {
        if self.has("MULTI_ROLE") {
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
pub(crate) fn capability_in(info: &Value, capability: &str) -> bool {
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

/// A declined offer: until then, the framework receives no offer of that agent that contains no
/// more than this.
#[derive(Debug)]
pub(crate) struct Filter {
    pub(crate) agent: AgentId,
    pub(crate) role: String,
    pub(crate) refused: Bundle,
    pub(crate) until: Instant,
}

/// The master's connection to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    Connected,
    /// Broken; the agent is unreachable from that time on.
    Broken(Instant),
    /// The agent no longer answers, which the master notices at that time.
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
    /// `DrainConfig`, the start time, and whether draining has finished.
    pub(crate) drain: Option<(Value, f64, bool)>,
    /// As messages, and as the plain object of `/state`.
    pub(crate) attributes: Vec<Value>,
    pub(crate) attributes_plain: Value,
    /// All resources, with reservations and volumes.
    pub(crate) total: Bundle,
    /// Directory of each persistent volume, by role and id.
    pub(crate) volumes: BTreeMap<(String, String), PathBuf>,
    /// Resources neither offered nor used.
    pub(crate) available: Bundle,
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
    pub(crate) resources: Bundle,
}

/// The executor of a task group, or an executor that the framework brings.
#[derive(Clone, Debug)]
pub(crate) struct Executor {
    /// `ExecutorInfo`, with the framework id.
    pub(crate) info: Value,
    pub(crate) agent: AgentId,
    pub(crate) container: String,
    pub(crate) directory: PathBuf,
    pub(crate) role: String,
    pub(crate) resources: Bundle,
    /// Its agent's view of a custom executor; `None` for that of a task group, whose part the agent
    /// plays.
    pub(crate) custom: Option<Custom>,
}

/// A custom executor in its agent's view.
#[derive(Clone, Debug, Default)]
pub(crate) struct Custom {
    pub(crate) phase: Phase,
    /// While it is subscribed.
    pub(crate) stream: Option<Stream>,
    pub(crate) pid: Option<u32>,
    /// Tasks that are sent to it when it subscribes.
    pub(crate) queued: Vec<TaskId>,
    /// Whether it was ever sent a task.
    pub(crate) ever_sent: bool,
    /// The time at which it is killed: it did not subscribe, or did not shut down.
    pub(crate) deadline: Option<Instant>,
    /// What the last updates of its tasks say when it has ended.
    pub(crate) cause: Option<Cause>,
}

/// The phases of a custom executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No task has reached its agent yet.
    #[default]
    Planned,
    /// Its process runs, or will, and has not subscribed.
    Registering,
    /// The same, after its agent was started again.
    Reregistering,
    /// It has subscribed.
    Running,
    /// It shuts down, or is killed.
    Terminating,
}

/// Why a custom executor ended, in the updates of its tasks.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    pub(crate) state: TaskState,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// A custom executor that the master does not know any more and whose process may still run.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) framework: FrameworkId,
    pub(crate) id: String,
    pub(crate) agent: AgentId,
    /// Its own and those of its tasks; free when its process is gone.
    pub(crate) resources: Bundle,
    pub(crate) grace: Duration,
    pub(crate) stream: Option<Stream>,
    pub(crate) deadline: Option<Instant>,
}

/// A task, as the master and as its agent see it.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) key: TaskKey,
    pub(crate) agent: AgentId,
    /// `TaskInfo`.
    pub(crate) info: Value,
    pub(crate) role: String,
    pub(crate) resources: Bundle,
    /// The group's executor or a custom one; `None` for a command task.
    pub(crate) executor: Option<String>,
    /// Its container: inside the executor's if it is in a group, that of a custom executor itself.
    pub(crate) container: String,
    pub(crate) parent: Option<String>,
    pub(crate) directory: PathBuf,
    pub(crate) pid: Option<u32>,
    /// The master's view: the latest state that it received, every status that it forwarded.
    pub(crate) state: TaskState,
    pub(crate) statuses: Vec<Value>,
    /// The agent's view.
    pub(crate) agent_state: TaskState,
    pub(crate) agent_statuses: Vec<Value>,
    /// Updates that are not acknowledged yet, oldest first; the first may be in flight.
    pub(crate) pending: VecDeque<(TaskState, Value)>,
    pub(crate) in_flight: Option<InFlight>,
    /// Whether the resources are free again.
    pub(crate) released: bool,
}

impl Task {
    /// Whether it is one of a task group.
    pub(crate) const fn is_in_group(&self) -> bool {
        self.parent.is_some()
    }

    /// Whether a custom executor runs it.
    pub(crate) const fn is_custom(&self) -> bool {
        self.executor.is_some() && self.parent.is_none()
    }

    /// The id of its executor: that of a command task has the task's own id.
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
pub(crate) type Operations = BTreeMap<(FrameworkId, String), Outcome>;

/// The outcome of an operation, kept until it is acknowledged.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: Value,
    pub(crate) retry_at: Instant,
    pub(crate) wait: Duration,
}

/// The first pending update in flight, with the time of its retry.
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
    /// Let a custom executor shut down: it is named by its container.
    ShutDownExecutor(String),
    /// Kill the process group of a custom executor, if it is running.
    KillExecutor(String),
    /// Delete a persistent volume.
    Delete(PathBuf),
    /// Continue the journal of an agent that registered again, under its new id.
    KeepJournal { of: AgentId, for_agent: AgentId },
    /// Record a message for an executor in the agent's journal, and send it to a custom one.
    Message(AgentId, Value),
    /// Send a framework an event that an agent could not send earlier.
    Tell(FrameworkId, Value),
}

/// How to end a task.
#[derive(Clone, Debug, Default)]
pub(crate) struct KillOrder {
    /// Time between SIGTERM and SIGKILL; `None`: from the task's own kill policy, else the default.
    pub(crate) grace: Option<Duration>,
    /// The reason in the updates.
    pub(crate) reason: Option<&'static str>,
    /// The result of the health check, for the last update.
    pub(crate) healthy: Option<bool>,
    /// The task is not killed by its executor: both end immediately, and the agent reports it when
    /// it can.
    pub(crate) crashed: bool,
}

/// An agent's input for running one task or one custom executor.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// Of a custom executor, with its own id.
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
    pub(crate) killing_state: bool,
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
