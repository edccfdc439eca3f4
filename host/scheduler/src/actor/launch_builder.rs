//! Builds from a plan the records to store and the launches to send.

use std::sync::Arc;

use jiff::Timestamp;
use transom_cluster::v1::{self, TaskState};
use transom_cluster::{FrameworkId, TaskId};
use transom_common::ambient;

use crate::matching::PartAllocation;
use crate::matching::agents::Agents;
use crate::matching::offered_reservation::{self, Owner};
use crate::matching::round::PlannedLaunch;
use crate::{
    AgentLocation, Build, BuildTask, Group, GroupPlacement, InGroup, LocalVolume, MemberPlacement, Phase,
    Placement, Reservation, TaskRecord,
};

/// The result of building one instance.
pub(super) enum BuildResult {
    Built(BuiltInstance),
    /// The service no longer wants it.
    NotWanted,
    /// Its agent is unknown (a round does not remove agents), or there are fewer allocations than
    /// parts (the requirements prevent that).
    Impossible,
}

/// One instance, ready to be stored and launched.
pub(super) struct BuiltInstance {
    pub(super) records: Vec<TaskRecord>,
    pub(super) launch: Launch,
}

pub(super) enum Launch {
    Task(Box<v1::TaskInfo>),
    Group(Box<v1::ExecutorInfo>, Vec<v1::TaskInfo>),
}

/// The tasks and operations of one offer.
#[derive(Default)]
pub(super) struct Launches {
    pub(super) tasks: Vec<TaskId>,
    /// The keys of the reservations that the operations make.
    pub(super) reserved: Vec<String>,
    single_tasks: Vec<v1::TaskInfo>,
    groups: Vec<v1::Operation>,
    reservations: Vec<v1::Operation>,
}

impl Launches {
    pub(super) fn add(&mut self, launch: Launch) {
        match launch {
            Launch::Task(info) => {
                self.tasks.push(info.task_id.clone());
                self.single_tasks.push(*info);
            }
            Launch::Group(executor, infos) => {
                self.tasks.extend(infos.iter().map(|info| info.task_id.clone()));
                self.groups.push(v1::Operation::launch_group(*executor, infos));
            }
        }
    }

    pub(super) fn reserve(&mut self, key: String, operations: Vec<v1::Operation>) {
        self.reserved.push(key);
        self.reservations.extend(operations);
    }

    /// The operations of one ACCEPT.
    pub(super) fn into_operations(self) -> Vec<v1::Operation> {
        let single_tasks = (!self.single_tasks.is_empty()).then(|| v1::Operation::launch(self.single_tasks));
        let launches = single_tasks.into_iter().chain(self.groups);
        launches.chain(self.reservations).collect()
    }
}

/// Builds the record of a reservation, and the operations that make it. `None` if its agent is
/// unknown.
pub(super) fn reserve(
    planned: &PlannedLaunch,
    key: &str,
    agents: &Agents,
    context: &ReservationContext<'_>,
) -> Option<(Reservation, Vec<v1::Operation>)> {
    let (location, attributes) = agents.get(planned.assigned.agent)?;
    let spec = &planned.spec;
    let volumes = spec.volumes.iter();
    let record = Reservation {
        key: key.to_owned(),
        id: ambient::uuid().to_string(),
        run_spec: spec.id.clone(),
        role: spec.reservation_role(context.default_roles).to_owned(),
        agent: Arc::clone(location),
        agent_attributes: Arc::clone(attributes),
        volumes: volumes
            .map(|volume| LocalVolume::new(&spec.id, &volume.container_path))
            .collect(),
        since: context.now,
        created: false,
        task: None,
        releasing: false,
    };
    let owner = Owner {
        framework: context.framework?.to_string(),
        key: record.key.clone(),
        id: record.id.clone(),
    };
    let allocation = &planned.assigned.allocation;
    let parts = allocation.parts.iter();
    let resources = parts.flat_map(|part| part.resources.clone()).collect();
    let disks = allocation.volumes.clone();
    let operations = offered_reservation::reserve(&record, &owner, context.principal, resources, disks);
    Some((record, operations))
}

/// The data that all reservations of a round share.
pub(super) struct ReservationContext<'a> {
    pub(super) framework: Option<&'a FrameworkId>,
    pub(super) principal: Option<&'a str>,
    pub(super) default_roles: &'a [String],
    pub(super) now: Timestamp,
}

/// Builds one instance.
pub(super) fn build(
    planned: &PlannedLaunch,
    agents: &Agents,
    framework: Option<&FrameworkId>,
    now: Timestamp,
) -> BuildResult {
    let Some((location, attributes)) = agents.get(planned.assigned.agent) else {
        return BuildResult::Impossible;
    };
    let Some((first_part, other_parts)) = planned.assigned.allocation.parts.split_first() else {
        return BuildResult::Impossible;
    };
    let intent = Intent {
        planned,
        location,
        attributes,
        now,
    };
    match &planned.spec.build {
        Build::Task(build) => intent
            .task(&**build, first_part, other_parts.first(), framework)
            .map_or(BuildResult::NotWanted, BuildResult::Built),
        Build::Group(group) => intent
            .group(group, first_part, other_parts, framework)
            .map_or(BuildResult::Impossible, BuildResult::Built),
    }
}

/// The data that all records of an instance share.
struct Intent<'a> {
    planned: &'a PlannedLaunch,
    location: &'a Arc<AgentLocation>,
    attributes: &'a Arc<[v1::Attribute]>,
    now: Timestamp,
}

impl Intent<'_> {
    /// Builds a single task; `None` if the service no longer wants it.
    fn task(
        &self,
        build: &dyn BuildTask,
        task_allocation: &PartAllocation,
        executor_allocation: Option<&PartAllocation>,
        framework: Option<&FrameworkId>,
    ) -> Option<BuiltInstance> {
        let id = self.planned.assigned.id.clone();
        let placement = Placement {
            task: id.clone(),
            agent: AgentLocation::clone(self.location),
            host_ports: task_allocation.host_ports.clone(),
        };
        let mut info = self.info(id.clone(), task_allocation, build.build(&placement)?);
        if let Some(executor) = &mut info.executor {
            executor.framework_id = framework.cloned();
            executor.resources =
                executor_allocation.map_or_else(Vec::new, |allocation| allocation.resources.clone());
        }
        let metadata = build.metadata(&placement);
        Some(BuiltInstance {
            records: vec![self.record(id, None, task_allocation.host_ports.clone(), metadata)],
            launch: Launch::Task(Box::new(info)),
        })
    }

    /// Builds a group; `None` if there are fewer allocations than parts.
    fn group(
        &self,
        group: &Group,
        executor_allocation: &PartAllocation,
        member_allocations: &[PartAllocation],
        framework: Option<&FrameworkId>,
    ) -> Option<BuiltInstance> {
        let (id, build) = (&self.planned.assigned.id, &group.build);
        let member = |(index, task_allocation): (usize, &PartAllocation)| MemberPlacement {
            task: build.task_id(id, index),
            host_ports: task_allocation.host_ports.clone(),
        };
        let placement = GroupPlacement {
            group: id.clone(),
            agent: AgentLocation::clone(self.location),
            host_ports: executor_allocation.host_ports.clone(),
            members: member_allocations.iter().enumerate().map(member).collect(),
        };
        let mut executor = build.executor(&placement);
        if executor.executor_id.as_str().is_empty() {
            executor.executor_id = id.as_str().into();
        }
        executor.r#type = Some(v1::ExecutorType::Default);
        executor.framework_id = framework.cloned();
        executor.resources.clone_from(&executor_allocation.resources);
        let (mut records, mut infos) = (Vec::new(), Vec::new());
        for (index, member) in group.members.iter().enumerate() {
            let (task, task_allocation) = (
                placement.members.get(index)?.task.clone(),
                member_allocations.get(index)?,
            );
            let membership = InGroup {
                id: id.clone(),
                executor: executor.executor_id.clone(),
                member: member.name.clone(),
            };
            infos.push(self.info(task.clone(), task_allocation, build.task(&placement, index)));
            let metadata = build.metadata(&placement, index);
            records.push(self.record(
                task,
                Some(membership),
                task_allocation.host_ports.clone(),
                metadata,
            ));
        }
        Some(BuiltInstance {
            records,
            launch: Launch::Group(Box::new(executor), infos),
        })
    }

    fn info(&self, task_id: TaskId, task_allocation: &PartAllocation, built: v1::TaskInfo) -> v1::TaskInfo {
        v1::TaskInfo {
            task_id,
            agent_id: self.location.id.clone(),
            resources: task_allocation.resources.clone(),
            ..built
        }
    }

    fn record(
        &self,
        id: TaskId,
        group: Option<InGroup>,
        host_ports: Vec<u16>,
        metadata: serde_json::Value,
    ) -> TaskRecord {
        let spec = &self.planned.spec;
        TaskRecord {
            id,
            run_spec: spec.id.clone(),
            version: spec.version.clone(),
            group,
            agent: Arc::clone(self.location),
            agent_attributes: Arc::clone(self.attributes),
            host_ports,
            phase: Phase::Intent,
            state: TaskState::Staging,
            status: None,
            intended_at: self.now,
            staged_at: None,
            started_at: None,
            updated_at: self.now,
            killing: false,
            kill_grace: None,
            restarting: false,
            metadata: Arc::new(metadata),
        }
    }
}
