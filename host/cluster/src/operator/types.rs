//! The operator API's messages: events and the answers to the GET calls.

use crate::error::{Error, Result};
use crate::ids::{AgentId, FrameworkId};
use crate::lenient::{self, Lenient, prune_list};
use crate::v1::macros::messages;
use crate::v1::{
    AgentInfo, DurationInfo, ExecutorInfo, FrameworkInfo, Offer, Resource, Task, TaskState, TaskStatus,
    TimeInfo, TypeOnly,
};
use serde::Deserialize;
use serde_json::Value;

/// One event of the operator stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The first event: the initial state.
    Subscribed(Box<GetState>),
    /// A task was launched, or returned with its agent.
    TaskAdded(Box<Task>),
    /// A task's state changed (also when its agent became unreachable).
    TaskUpdated(TaskUpdated),
    /// A framework subscribed.
    FrameworkAdded(Framework),
    /// A framework changed its `FrameworkInfo`, or reconnected.
    FrameworkUpdated(Framework),
    /// A framework was removed, with its tasks.
    FrameworkRemoved(FrameworkInfo),
    /// An agent registered, or returned.
    AgentAdded(Agent),
    /// An agent unregistered. Agents that became unreachable or were marked gone do *not* cause
    /// this event.
    AgentRemoved(AgentId),
    /// A heartbeat.
    Heartbeat,
    /// An event of an unknown type.
    Unknown(String),
}

messages! {
    /// The state of the cluster. `invalid_entries` counts invalid entries of lists.
    GetState {
        must { #[serde(skip)] invalid_entries: u64 }
        may {
            get_tasks: Option<GetTasks>,
            get_executors: Option<GetExecutors>,
            get_frameworks: Option<GetFrameworks>,
            get_agents: Option<GetAgents>,
        }
    }
    /// Tasks by their state at the master. `invalid_entries` counts invalid ones.
    GetTasks {
        must { #[serde(skip)] invalid_entries: u64 }
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
    /// An executor and its agent.
    Executor { must { executor_info: ExecutorInfo, agent_id: AgentId } }
    /// Frameworks, present and past.
    GetFrameworks {
        may {
            frameworks: Vec<Framework>,
            completed_frameworks: Vec<Framework>,
            recovered_frameworks: Vec<FrameworkInfo>,
        }
    }
    /// A framework and its state.
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
    /// `invalid_entries` counts invalid ones.
    GetAgents { must { #[serde(skip)] invalid_entries: u64 } may { agents: Vec<Agent>, recovered_agents: Vec<AgentInfo> } }
    /// An agent and its state. `active` is false while it is disconnected; `deactivated` while an
    /// operator excludes it from offers.
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
    /// The progress of draining an agent; `state` is `DRAINING` or `DRAINED`.
    DrainInfo { must { state: String } may { config: Option<DrainConfig> } }
    /// An operator's request to drain an agent.
    DrainConfig { may { max_grace_period: Option<DurationInfo>, mark_gone: Option<bool> } }
    /// A task's new state. `state` is the latest one; `status` may be an older update that was just
    /// acknowledged.
    TaskUpdated { must { framework_id: FrameworkId, status: TaskStatus, state: TaskState } }
}

impl Lenient for GetState {
    fn prune(document: &mut Value) -> u64 {
        document.get_mut("get_tasks").map_or(0, GetTasks::prune)
            + document.get_mut("get_agents").map_or(0, GetAgents::prune)
            + prune_list::<Executor>(document, "/get_executors/executors")
            + prune_list::<Executor>(document, "/get_executors/orphan_executors")
            + prune_list::<Framework>(document, "/get_frameworks/frameworks")
            + prune_list::<Framework>(document, "/get_frameworks/completed_frameworks")
            + prune_list::<FrameworkInfo>(document, "/get_frameworks/recovered_frameworks")
    }

    fn set_invalid_entries(&mut self, count: u64) {
        self.invalid_entries = count;
    }
}

impl Lenient for GetTasks {
    fn prune(document: &mut Value) -> u64 {
        let lists = [
            "/pending_tasks",
            "/tasks",
            "/unreachable_tasks",
            "/completed_tasks",
            "/orphan_tasks",
        ];
        lists.iter().map(|list| prune_list::<Task>(document, list)).sum()
    }

    fn set_invalid_entries(&mut self, count: u64) {
        self.invalid_entries = count;
    }
}

impl Lenient for GetAgents {
    fn prune(document: &mut Value) -> u64 {
        prune_list::<Agent>(document, "/agents") + prune_list::<AgentInfo>(document, "/recovered_agents")
    }

    fn set_invalid_entries(&mut self, count: u64) {
        self.invalid_entries = count;
    }
}

/// The answer to a GET call: a type, and the field named like it.
#[derive(Deserialize)]
#[allow(clippy::struct_field_names, reason = "fields are named as on the wire")]
pub(crate) struct OperatorAnswer {
    pub(crate) get_state: Option<GetState>,
    pub(crate) get_agents: Option<GetAgents>,
    pub(crate) get_tasks: Option<GetTasks>,
}

impl Lenient for OperatorAnswer {
    fn prune(document: &mut Value) -> u64 {
        document.get_mut("get_state").map_or(0, GetState::prune)
            + document.get_mut("get_agents").map_or(0, GetAgents::prune)
            + document.get_mut("get_tasks").map_or(0, GetTasks::prune)
    }

    fn set_invalid_entries(&mut self, count: u64) {
        // An answer has one of these.
        self.get_state
            .iter_mut()
            .for_each(|part| part.invalid_entries = count);
        self.get_agents
            .iter_mut()
            .for_each(|part| part.invalid_entries = count);
        self.get_tasks
            .iter_mut()
            .for_each(|part| part.invalid_entries = count);
    }
}

/// The event on the wire: a type, and the field named like it.
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

impl Lenient for Wire {
    fn prune(document: &mut Value) -> u64 {
        document
            .pointer_mut("/subscribed/get_state")
            .map_or(0, GetState::prune)
    }

    fn set_invalid_entries(&mut self, count: u64) {
        self.subscribed
            .iter_mut()
            .for_each(|body| body.get_state.invalid_entries = count);
    }
}

impl Event {
    /// Parses one record of the stream. An unknown type is not an error ([`Event::Unknown`]); a
    /// known one without its content is. The lists in SUBSCRIBED are parsed entry by entry: invalid
    /// entries are omitted and counted.
    pub fn decode(record: &[u8]) -> Result<Self> {
        Self::decode_with_interval(record).map(|(event, _)| event)
    }

    /// As [`Event::decode`], with the heartbeat interval in seconds that SUBSCRIBED contains
    /// besides the state.
    pub(crate) fn decode_with_interval(record: &[u8]) -> Result<(Self, Option<f64>)> {
        let wire: Wire = lenient::read(record, || "an operator event".to_owned())?;
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
