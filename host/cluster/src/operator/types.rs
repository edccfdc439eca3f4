//! What the master tells an operator: events and the answers to the GET calls.

use crate::error::{Error, Result};
use crate::ids::{AgentId, FrameworkId};
use crate::v1::macros::messages;
use crate::v1::{
    AgentInfo, DurationInfo, ExecutorInfo, FrameworkInfo, Offer, Resource, Task, TaskState, TaskStatus,
    TimeInfo, TypeOnly,
};
use serde::Deserialize;

/// One event of the operator stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The first event: everything as it is now.
    Subscribed(Box<GetState>),
    /// A task was launched, or came back with its agent.
    TaskAdded(Box<Task>),
    /// A task's state changed (after the agent is unreachable, too).
    TaskUpdated(TaskUpdated),
    /// A framework subscribed.
    FrameworkAdded(Framework),
    /// A framework changed what it says about itself, or came back.
    FrameworkUpdated(Framework),
    /// A framework is gone for good, its tasks with it.
    FrameworkRemoved(FrameworkInfo),
    /// An agent registered, or came back.
    AgentAdded(Agent),
    /// An agent unregistered. One that became unreachable or was marked gone is *not* told this way.
    AgentRemoved(AgentId),
    /// Nothing else to say for a while.
    Heartbeat,
    /// An event of a type this version does not know.
    Unknown(String),
}

messages! {
    /// Everything the master knows about what runs.
    GetState {
        may {
            get_tasks: Option<GetTasks>,
            get_executors: Option<GetExecutors>,
            get_frameworks: Option<GetFrameworks>,
            get_agents: Option<GetAgents>,
        }
    }
    /// Tasks by how far they are known.
    GetTasks {
        may {
            pending_tasks: Vec<Task>,
            tasks: Vec<Task>,
            unreachable_tasks: Vec<Task>,
            completed_tasks: Vec<Task>,
            orphan_tasks: Vec<Task>,
        }
    }
    /// Executors.
    GetExecutors { may { executors: Vec<Executor>, orphan_executors: Vec<Executor> } }
    /// An executor and where it runs.
    Executor { must { executor_info: ExecutorInfo, agent_id: AgentId } }
    /// Frameworks, present and past.
    GetFrameworks {
        may {
            frameworks: Vec<Framework>,
            completed_frameworks: Vec<Framework>,
            recovered_frameworks: Vec<FrameworkInfo>,
        }
    }
    /// A framework and how it stands.
    Framework {
        must { framework_info: FrameworkInfo }
        may {
            active: Option<bool>,
            connected: Option<bool>,
            recovered: Option<bool>,
            registered_time: Option<TimeInfo>,
            reregistered_time: Option<TimeInfo>,
            unregistered_time: Option<TimeInfo>,
            offers: Vec<Offer>,
            allocated_resources: Vec<Resource>,
            offered_resources: Vec<Resource>,
        }
    }
    /// Agents, and those that the master remembers from before its restart but has not seen since.
    GetAgents { may { agents: Vec<Agent>, recovered_agents: Vec<AgentInfo> } }
    /// An agent and how it stands. `active` is false while it is disconnected; `deactivated` while an operator keeps
    /// it from being offered.
    Agent {
        must { agent_info: AgentInfo }
        may {
            active: Option<bool>,
            deactivated: Option<bool>,
            version: Option<String>,
            pid: Option<String>,
            registered_time: Option<TimeInfo>,
            reregistered_time: Option<TimeInfo>,
            total_resources: Vec<Resource>,
            allocated_resources: Vec<Resource>,
            offered_resources: Vec<Resource>,
            capabilities: Vec<TypeOnly>,
            drain_info: Option<DrainInfo>,
            estimated_drain_start_time: Option<TimeInfo>,
        }
    }
    /// How far an agent is drained; `state` is `DRAINING` or `DRAINED`.
    DrainInfo { must { state: String } may { config: Option<DrainConfig> } }
    /// How an operator wanted an agent drained.
    DrainConfig { may { max_grace_period: Option<DurationInfo>, mark_gone: Option<bool> } }
    /// A task's new state. `state` is the latest one; `status` may be an older update that was just acknowledged.
    TaskUpdated { must { framework_id: FrameworkId, status: TaskStatus, state: TaskState } }
}

/// The event as it comes: a type, and the field named like it.
#[derive(Deserialize)]
struct Wire {
    r#type: Option<String>,
    subscribed: Option<WireSubscribed>,
    task_added: Option<WireTask>,
    task_updated: Option<TaskUpdated>,
    framework_added: Option<WireFramework>,
    framework_updated: Option<WireFramework>,
    framework_removed: Option<WireFrameworkInfo>,
    agent_added: Option<WireAgent>,
    agent_removed: Option<WireAgentId>,
}

#[derive(Deserialize)]
struct WireSubscribed {
    #[serde(default)]
    get_state: GetState,
    heartbeat_interval_seconds: Option<f64>,
}

#[derive(Deserialize)]
struct WireTask {
    task: Task,
}

#[derive(Deserialize)]
struct WireFramework {
    framework: Framework,
}

#[derive(Deserialize)]
struct WireFrameworkInfo {
    framework_info: FrameworkInfo,
}

#[derive(Deserialize)]
struct WireAgent {
    agent: Agent,
}

#[derive(Deserialize)]
struct WireAgentId {
    agent_id: AgentId,
}

impl Event {
    /// Reads one record of the stream. An unknown type is not an error ([`Event::Unknown`]); a known one without its
    /// content is.
    pub fn decode(record: &[u8]) -> Result<Self> {
        Self::decode_with_interval(record).map(|(event, _)| event)
    }

    /// As [`Event::decode`], with the heartbeat interval in seconds that SUBSCRIBED carries beside the state.
    pub(crate) fn decode_with_interval(record: &[u8]) -> Result<(Self, Option<f64>)> {
        let wire: Wire =
            serde_json::from_slice(record).map_err(|source| Error::decode("an operator event", source))?;
        let kind = wire.r#type.unwrap_or_default();
        let mut seconds = None;
        let event = match kind.as_str() {
            "SUBSCRIBED" => wire.subscribed.map(|body| {
                seconds = body.heartbeat_interval_seconds;
                Self::Subscribed(Box::new(body.get_state))
            }),
            "TASK_ADDED" => wire.task_added.map(|body| Self::TaskAdded(Box::new(body.task))),
            "TASK_UPDATED" => wire.task_updated.map(Self::TaskUpdated),
            "FRAMEWORK_ADDED" => wire
                .framework_added
                .map(|body| Self::FrameworkAdded(body.framework)),
            "FRAMEWORK_UPDATED" => wire
                .framework_updated
                .map(|body| Self::FrameworkUpdated(body.framework)),
            "FRAMEWORK_REMOVED" => wire
                .framework_removed
                .map(|body| Self::FrameworkRemoved(body.framework_info)),
            "AGENT_ADDED" => wire.agent_added.map(|body| Self::AgentAdded(body.agent)),
            "AGENT_REMOVED" => wire.agent_removed.map(|body| Self::AgentRemoved(body.agent_id)),
            "HEARTBEAT" => Some(Self::Heartbeat),
            _ => return Ok((Self::Unknown(kind), None)),
        };
        let event = event.ok_or_else(|| Error::Incomplete {
            what: format!("the operator event {kind}"),
            missing: "the field named like its type",
        })?;
        Ok((event, seconds))
    }
}
