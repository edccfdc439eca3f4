//! What a job asks for: a task or a group of tasks, the specification it is an instance of, and how its launch
//! is built.

use std::fmt::Debug;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use transom_cluster::{AgentId, ExecutorId, TaskId, v1};
use transom_plugins::matcher;

use crate::TaskRecord;

/// One task, or one group of tasks, that shall run once. Its id is never used a second time.
#[derive(Clone, Debug)]
pub struct TaskRequest {
    /// The cluster's task id, unique within the framework for ever. Of a group: its own id, which names it in
    /// [`kill`](crate::Scheduler::kill), [`purge`](crate::Scheduler::purge), [`PendingTask`](crate::PendingTask)
    /// and [`TaskRecord::group`], but never the cluster; its members' ids are [`BuildGroup::task_id`]'s.
    pub id: TaskId,
    /// What it is an instance of. Wants that share the `Arc` are matched together, with one question to the
    /// matcher.
    pub spec: Arc<RunSpec>,
    /// No launch before this moment (a job's backoff); `None`: at once.
    pub not_before: Option<Timestamp>,
    /// Offers are put to those with the highest one first, and to those of one priority in the order in which they
    /// were wanted. It slows lower ones down and keeps none of them waiting for ever: those that have waited for a
    /// minute are first, by age alone, in one pass over the offers in four.
    pub priority: i32,
}

/// What an instance needs and where it may go.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// App or pod id, or the workflow task's id. Instances with the same id count as placed for each other's
    /// conditions.
    pub id: String,
    /// The job's version of the specification; recorded with each task, compared only by
    /// [`BuildTask::counts_as_placed`].
    pub version: String,
    /// Instances wanted in all, for conditions that spread.
    pub instances: u32,
    /// CPUs, to a thousandth. This, the other amounts and the ports are a single task's; of a group they are
    /// its executor's own, beside what its members take.
    pub cpus: f64,
    /// Memory in MB.
    pub mem: f64,
    /// Disk in MB.
    pub disk: f64,
    /// GPUs.
    pub gpus: f64,
    /// Host ports, in the order in which [`Placement::host_ports`] answers.
    pub ports: Vec<PortRequest>,
    /// Asked of the attribute matcher. Even without any, the matcher is asked (it knows the home region
    /// rule).
    pub constraints: Vec<matcher::Constraint>,
    /// Roles whose reservations may be used, `*` for unreserved resources. Empty: the framework's roles and
    /// `*`.
    pub roles: Vec<String>,
    /// What an instance is, and who composes its launch once the place is known.
    pub build: Build,
}

/// What an instance is.
#[derive(Clone, Debug)]
pub enum Build {
    /// A single task.
    Task(Arc<dyn BuildTask>),
    /// Several tasks that live on one agent under one executor.
    Group(Group),
}

impl<T: BuildTask + 'static> From<Arc<T>> for Build {
    fn from(build: Arc<T>) -> Self {
        Self::Task(build)
    }
}

impl Build {
    /// Who composes it, if it is a single task.
    pub fn task(&self) -> Option<&Arc<dyn BuildTask>> {
        match self {
            Self::Task(build) => Some(build),
            Self::Group(_) => None,
        }
    }

    pub(crate) fn counts_as_placed(&self, record: &TaskRecord) -> bool {
        match self {
            Self::Task(build) => build.counts_as_placed(record),
            Self::Group(group) => group.build.counts_as_placed(record),
        }
    }
}

/// Tasks that are launched together or not at all, on one agent, under one default executor. The cluster ends
/// all of them when one fails or is killed.
#[derive(Clone, Debug)]
pub struct Group {
    /// One or more.
    pub members: Vec<Member>,
    /// Composes their launch.
    pub build: Arc<dyn BuildGroup>,
}

/// What one task of a group needs, beside what the executor takes.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// Its name within the group; recorded with its task.
    pub name: String,
    /// CPUs, to a thousandth.
    pub cpus: f64,
    /// Memory in MB.
    pub mem: f64,
    /// Disk in MB.
    pub disk: f64,
    /// GPUs.
    pub gpus: f64,
    /// Host ports, in the order in which [`MemberPlacement::host_ports`] answers.
    pub ports: Vec<PortRequest>,
}

/// One host port of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PortRequest {
    /// Any port of those on offer.
    Random,
    /// Exactly this one.
    Fixed(u16),
    /// Any one from first to last, both included. One whose last comes before its first is never on offer.
    Range(u16, u16),
}

/// How a job turns a placement into a task.
///
/// Called from the scheduler's actor: it must not block and must not panic.
pub trait BuildTask: Send + Sync + Debug {
    /// Name, command, container, discovery, labels, check, health check and kill policy. The scheduler
    /// overwrites `task_id`, `agent_id` and `resources`.
    fn build(&self, placement: &Placement) -> v1::TaskInfo;

    /// What the job wants to find in [`TaskRecord::metadata`]; stored with the intent.
    fn metadata(&self, _placement: &Placement) -> serde_json::Value {
        serde_json::Value::Null
    }

    /// Whether a live task of the same run spec id counts as placed for the conditions. By default all do; a
    /// job that replaces instances answers `false` for those of an older configuration, so that `UNIQUE` does
    /// not lock an upgrade.
    fn counts_as_placed(&self, _record: &TaskRecord) -> bool {
        true
    }
}

/// How a job turns a placement into a group of tasks. Members are counted from 0, in the order of
/// [`Group::members`].
///
/// Called from the scheduler's actor: it must not block and must not panic.
pub trait BuildGroup: Send + Sync + Debug {
    /// The cluster's task id of a member: the same for each call, and no other task's. By default the group's
    /// id, a dot and the member's number.
    fn task_id(&self, group: &TaskId, member: usize) -> TaskId {
        TaskId::from(format!("{group}.{member}"))
    }

    /// Container, labels, grace period and the id, for which the group's own id is taken when it is empty. The
    /// scheduler overwrites `type`, `framework_id` and `resources`.
    fn executor(&self, placement: &GroupPlacement) -> v1::ExecutorInfo;

    /// Name, command, container, discovery, labels, check, health check and kill policy of a member. The
    /// scheduler overwrites `task_id`, `agent_id` and `resources`.
    fn task(&self, placement: &GroupPlacement, member: usize) -> v1::TaskInfo;

    /// What the job wants to find in the [`TaskRecord::metadata`] of a member; stored with the intent.
    fn metadata(&self, _placement: &GroupPlacement, _member: usize) -> serde_json::Value {
        serde_json::Value::Null
    }

    /// As [`BuildTask::counts_as_placed`]. A group counts once, as long as one of its members does.
    fn counts_as_placed(&self, _record: &TaskRecord) -> bool {
        true
    }
}

/// Where one group goes.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupPlacement {
    /// Which group: [`TaskRequest::id`].
    pub group: TaskId,
    /// The agent that will run it.
    pub agent: AgentLocation,
    /// The executor's own host ports, one for each [`RunSpec::ports`].
    pub host_ports: Vec<u16>,
    /// The members, in order.
    pub members: Vec<MemberPlacement>,
}

/// What one member of a group was given.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberPlacement {
    /// Its task id.
    pub task: TaskId,
    /// One host port for each [`Member::ports`], in that order.
    pub host_ports: Vec<u16>,
}

/// The group that a task was launched with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InGroup {
    /// The group's own id: [`TaskRequest::id`].
    pub id: TaskId,
    /// The executor that runs the group.
    pub executor: ExecutorId,
    /// The task's [`Member::name`].
    pub member: String,
}

/// Where one task goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// Which task.
    pub task: TaskId,
    /// The agent that will run it.
    pub agent: AgentLocation,
    /// One host port for each [`RunSpec::ports`], in that order.
    pub host_ports: Vec<u16>,
}

/// An agent as a task's record remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentLocation {
    /// The cluster's id for the agent.
    pub id: AgentId,
    /// The host name it offers under.
    pub hostname: String,
    /// Its fault domain's region.
    #[serde(default)]
    pub region: Option<String>,
    /// Its fault domain's zone.
    #[serde(default)]
    pub zone: Option<String>,
    /// The agent's own HTTP address (host or IP, port), where offers tell it.
    #[serde(default)]
    pub endpoint: Option<(String, u16)>,
}
