//! The requests of a service: a task or a group of tasks, its run spec, and how its launch is
//! built.

use std::fmt::Debug;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use transom_cluster::{AgentId, ExecutorId, TaskId, v1};
use transom_common::HostPort;
use transom_common::trace::TraceContext;
use transom_plugin_host::matcher;

use crate::{TaskRecord, VolumeRequest};

/// One task, or one group of tasks, to be run once. Its id is never used again.
#[derive(Clone, Debug)]
pub struct TaskRequest {
    /// The Mesos task id, unique within the framework forever. For a group: its own id, which
    /// identifies it in [`kill`](crate::SchedulerApi::kill), [`purge`](crate::SchedulerApi::purge),
    /// [`PendingTask`](crate::PendingTask) and [`TaskRecord::group`], but is never sent to the
    /// master; the ids of its members come from [`BuildGroup::task_id`].
    pub id: TaskId,
    /// Its run spec. Requests that share the `Arc` are matched together, with one call of the
    /// matcher.
    pub spec: Arc<RunSpec>,
    /// Earliest launch (the service's backoff); `None`: immediately.
    pub not_before: Option<Timestamp>,
    /// Higher priorities are matched first, and requests of one priority in the order of their
    /// submission. Lower ones do not starve: requests pending for a minute are matched first,
    /// oldest first, in one of four passes over the offers.
    pub priority: i32,
    /// The key of the reservation, if the run spec has volumes: requests with the same key run one
    /// after another on the same agent with the same volumes. `None`: the id of this request.
    pub reservation: Option<String>,
    /// The place in a trace that its launch belongs to.
    pub trace: TraceContext,
}

/// A request for a kill selection: which instances of a run spec to kill when it is scaled down.
#[derive(Clone, Debug)]
pub struct KillChoice {
    /// The run spec, in which [`RunSpec::instances`] is the number that remains.
    pub spec: Arc<RunSpec>,
    /// Launched tasks, or groups by their own ids, that may be killed, in the order of preference.
    pub candidates: Vec<TaskId>,
    /// How many of them to kill.
    pub count: u32,
}

impl TaskRequest {
    /// The key of its reservation.
    pub(crate) fn reservation_key(&self) -> &str {
        self.reservation.as_deref().unwrap_or(self.id.as_str())
    }
}

/// The needs of an instance and where it may run.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// App or pod id, or an id of equal workflow jobs. Instances with the same id count as placed
    /// for each other's constraints.
    pub id: String,
    /// The service's version of the specification; recorded with each task, compared only by
    /// [`BuildTask::counts_as_placed`].
    pub version: String,
    /// Total instances requested, for constraints that spread.
    pub instances: u32,
    /// CPUs, to a thousandth. For a single task this, the other amounts and the ports are the
    /// task's; for a group they are its executor's, in addition to those of its members.
    pub cpus: f64,
    /// Memory in MB.
    pub mem: f64,
    /// Disk in MB.
    pub disk: f64,
    /// GPUs.
    pub gpus: f64,
    /// Whether offers with GPUs are left to tasks that use them.
    pub avoid_gpus: bool,
    /// Host ports, in the order of [`Placement::host_ports`].
    pub ports: Vec<PortRequest>,
    /// The role to which the used offers are allocated. The framework gets it by an
    /// `UPDATE_FRAMEWORK` if it does not have it. `None`: any role of the framework.
    pub role: Option<String>,
    /// Evaluated by the matcher. The matcher is called even without any, because its own rules,
    /// such as the home region, apply too.
    pub constraints: Vec<matcher::Constraint>,
    /// Roles whose reservations may be used, `*` for unreserved resources. Empty: `role` and `*`;
    /// without a `role` the roles that the framework was started with, and `*`.
    pub roles: Vec<String>,
    /// Persistent volumes: of a single task, or of the executor of a group. With any, an instance
    /// has a [`Reservation`](crate::Reservation), by which it is bound to its agent.
    pub volumes: Vec<VolumeRequest>,
    /// The resources of the executor of a single task, in addition to those of the task, if its
    /// builder names an executor ([`TaskInfo::executor`](v1::TaskInfo::executor)). The scheduler
    /// adds them to it.
    pub executor: ExecutorResources,
    /// A task or a group, with the builder of its launch.
    pub build: Build,
}

/// The resources of the executor of a single task.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExecutorResources {
    /// CPUs, to a thousandth.
    pub cpus: f64,
    /// Memory in MB.
    pub mem: f64,
    /// Disk in MB.
    pub disk: f64,
}

/// CPUs, memory and disk in MB, and GPUs.
pub type Amounts = [f64; 4];

impl RunSpec {
    /// The amounts of one instance: of all its tasks and its executor.
    pub fn amounts(&self) -> Amounts {
        let mut all = [self.cpus, self.mem, self.disk, self.gpus];
        let mut add = |amounts: Amounts| {
            for (sum, amount) in all.iter_mut().zip(amounts) {
                *sum += amount;
            }
        };
        match &self.build {
            Build::Task(_) => add([self.executor.cpus, self.executor.mem, self.executor.disk, 0.0]),
            Build::Group(group) => {
                for member in &group.members {
                    add([member.cpus, member.mem, member.disk, member.gpus]);
                }
            }
        }
        // As the scheduler counts them, so that sums are readable.
        all.map(|amount| (amount * 1000.0).round() / 1000.0)
    }

    /// The role for which resources are reserved.
    pub(crate) fn reservation_role<'a>(&'a self, default_roles: &'a [String]) -> &'a str {
        let default = default_roles.first().map_or("*", String::as_str);
        self.role.as_deref().unwrap_or(default)
    }
}

/// A single task or a group.
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
    /// The builder of a single task.
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

/// Tasks that are launched together or not at all, on one agent, under one default executor. If one
/// of them fails or is killed, Mesos kills all of them.
#[derive(Clone, Debug)]
pub struct Group {
    /// One or more.
    pub members: Vec<Member>,
    /// Builds their launch.
    pub build: Arc<dyn BuildGroup>,
}

/// The needs of one task of a group, in addition to the executor's.
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
    /// Any offered port.
    Random,
    /// Exactly this port.
    Fixed(u16),
    /// Any port from first to last, inclusive. A reversed range never matches.
    Range(u16, u16),
}

/// Builds a task for a placement.
///
/// Called in the actor of the scheduler: it must not block and must not panic.
pub trait BuildTask: Send + Sync + Debug {
    /// Name, command, container, discovery, labels, check, health check and kill policy. The
    /// scheduler overwrites `task_id`, `agent_id` and `resources`.
    ///
    /// `None`: the task is no longer wanted. It is dropped, and reported by
    /// [`Event::NeverLaunched`](crate::Event::NeverLaunched).
    fn build(&self, placement: &Placement) -> Option<v1::TaskInfo>;

    /// The [`TaskRecord::metadata`] to store with the intent.
    fn metadata(&self, _placement: &Placement) -> serde_json::Value {
        serde_json::Value::Null
    }

    /// Whether a live task of the same run spec id counts as placed for constraints. By default all
    /// do; a service that replaces instances returns `false` for those of an older configuration,
    /// so that `UNIQUE` does not block an upgrade.
    fn counts_as_placed(&self, _record: &TaskRecord) -> bool {
        true
    }
}

/// Builds a group of tasks for a placement. Members are counted from 0, in the order of
/// [`Group::members`].
///
/// Called in the actor of the scheduler: it must not block and must not panic.
pub trait BuildGroup: Send + Sync + Debug {
    /// The Mesos task id of a member: the same for each call, and unique. By default the group's
    /// id, a dot and the member's index.
    fn task_id(&self, group: &TaskId, member: usize) -> TaskId {
        TaskId::from(format!("{group}.{member}"))
    }

    /// Container, labels, grace period and id of the executor; if the id is empty, the group's own
    /// id is used. The scheduler overwrites `type`, `framework_id` and `resources`.
    fn executor(&self, placement: &GroupPlacement) -> v1::ExecutorInfo;

    /// Name, command, container, discovery, labels, check, health check and kill policy of a
    /// member. The scheduler overwrites `task_id`, `agent_id` and `resources`.
    fn task(&self, placement: &GroupPlacement, member: usize) -> v1::TaskInfo;

    /// The [`TaskRecord::metadata`] of a member, stored with the intent.
    fn metadata(&self, _placement: &GroupPlacement, _member: usize) -> serde_json::Value {
        serde_json::Value::Null
    }

    /// As [`BuildTask::counts_as_placed`]. A group counts once, as long as one of its members counts.
    fn counts_as_placed(&self, _record: &TaskRecord) -> bool {
        true
    }
}

/// Where a group runs.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupPlacement {
    /// The group, as in [`TaskRequest::id`].
    pub group: TaskId,
    /// The agent that will run it.
    pub agent: AgentLocation,
    /// The executor's own host ports, one for each [`RunSpec::ports`].
    pub host_ports: Vec<u16>,
    /// The members, in order.
    pub members: Vec<MemberPlacement>,
}

/// The allocation of one member of a group.
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

/// Where a task runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// The task.
    pub task: TaskId,
    /// The agent that will run it.
    pub agent: AgentLocation,
    /// One host port for each [`RunSpec::ports`], in that order.
    pub host_ports: Vec<u16>,
}

/// An agent as stored with a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentLocation {
    /// The cluster's id for the agent.
    pub id: AgentId,
    /// Its host name in offers.
    pub hostname: String,
    /// Its fault domain's region.
    #[serde(default)]
    pub region: Option<String>,
    /// Its fault domain's zone.
    #[serde(default)]
    pub zone: Option<String>,
    /// The address of the agent's HTTP API, if offers include it.
    #[serde(default)]
    pub endpoint: Option<HostPort>,
}
