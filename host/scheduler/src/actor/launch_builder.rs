//! Builds from a plan the records to store and the launches to send.

use std::sync::Arc;

use jiff::Timestamp;
use transom_cluster::v1::{self, TaskState};
use transom_cluster::{FrameworkId, TaskId};

use crate::matching::PartAllocation;
use crate::matching::agents::Agents;
use crate::matching::held::{self, Owner};
use crate::matching::round::PlannedLaunch;
use crate::{
    AgentLocation, Build, BuildTask, Group, GroupPlacement, InGroup, LocalVolume, MemberPlacement, Phase,
    Placement, Reservation, TaskRecord,
};

/// The result of building one instance.
pub(super) enum Outcome {
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
    alone: Vec<v1::TaskInfo>,
    groups: Vec<v1::Operation>,
    reservations: Vec<v1::Operation>,
}

impl Launches {
    pub(super) fn add(&mut self, launch: Launch) {
        match launch {
            Launch::Task(info) => {
                self.tasks.push(info.task_id.clone());
                self.alone.push(*info);
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
        let alone = (!self.alone.is_empty()).then(|| v1::Operation::launch(self.alone));
        let launches = alone.into_iter().chain(self.groups);
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
    let (place, attributes) = agents.get(planned.assigned.agent)?;
    let spec = &planned.spec;
    let volumes = spec.volumes.iter();
    let record = Reservation {
        key: key.to_owned(),
        id: uuid::Uuid::new_v4().to_string(),
        run_spec: spec.id.clone(),
        role: spec.reservation_role(context.default_roles).to_owned(),
        agent: Arc::clone(place),
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
    let taken = &planned.assigned.taken;
    let parts = taken.parts.iter();
    let resources = parts.flat_map(|part| part.resources.clone()).collect();
    let disks = taken.volumes.clone();
    let operations = held::reserve(&record, &owner, context.principal, resources, disks);
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
) -> Outcome {
    let Some((place, attributes)) = agents.get(planned.assigned.agent) else {
        return Outcome::Impossible;
    };
    let Some((first, rest)) = planned.assigned.taken.parts.split_first() else {
        return Outcome::Impossible;
    };
    let intent = Intent {
        planned,
        place,
        attributes,
        now,
    };
    match &planned.spec.build {
        Build::Task(build) => intent
            .task(&**build, first, rest.first(), framework)
            .map_or(Outcome::NotWanted, Outcome::Built),
        Build::Group(group) => intent
            .group(group, first, rest, framework)
            .map_or(Outcome::Impossible, Outcome::Built),
    }
}

/// The data that all records of an instance share.
struct Intent<'a> {
    planned: &'a PlannedLaunch,
    place: &'a Arc<AgentLocation>,
    attributes: &'a Arc<[v1::Attribute]>,
    now: Timestamp,
}

impl Intent<'_> {
    /// Builds a single task; `None` if the service no longer wants it.
    fn task(
        &self,
        build: &dyn BuildTask,
        share: &PartAllocation,
        of_executor: Option<&PartAllocation>,
        framework: Option<&FrameworkId>,
    ) -> Option<BuiltInstance> {
        let id = self.planned.assigned.id.clone();
        let placement = Placement {
            task: id.clone(),
            agent: AgentLocation::clone(self.place),
            host_ports: share.host_ports.clone(),
        };
        let mut info = self.info(id.clone(), share, build.build(&placement)?);
        if let Some(executor) = &mut info.executor {
            executor.framework_id = framework.cloned();
            executor.resources = of_executor.map_or_else(Vec::new, |share| share.resources.clone());
        }
        let metadata = build.metadata(&placement);
        Some(BuiltInstance {
            records: vec![self.record(id, None, share.host_ports.clone(), metadata)],
            launch: Launch::Task(Box::new(info)),
        })
    }

    /// Builds a group; `None` if there are fewer allocations than parts.
    fn group(
        &self,
        group: &Group,
        own: &PartAllocation,
        shares: &[PartAllocation],
        framework: Option<&FrameworkId>,
    ) -> Option<BuiltInstance> {
        let (id, build) = (&self.planned.assigned.id, &group.build);
        let member = |(at, share): (usize, &PartAllocation)| MemberPlacement {
            task: build.task_id(id, at),
            host_ports: share.host_ports.clone(),
        };
        let placement = GroupPlacement {
            group: id.clone(),
            agent: AgentLocation::clone(self.place),
            host_ports: own.host_ports.clone(),
            members: shares.iter().enumerate().map(member).collect(),
        };
        let mut executor = build.executor(&placement);
        if executor.executor_id.as_str().is_empty() {
            executor.executor_id = id.as_str().into();
        }
        executor.r#type = Some(v1::ExecutorType::Default);
        executor.framework_id = framework.cloned();
        executor.resources.clone_from(&own.resources);
        let (mut records, mut infos) = (Vec::new(), Vec::new());
        for (at, member) in group.members.iter().enumerate() {
            let (task, share) = (placement.members.get(at)?.task.clone(), shares.get(at)?);
            let within = InGroup {
                id: id.clone(),
                executor: executor.executor_id.clone(),
                member: member.name.clone(),
            };
            infos.push(self.info(task.clone(), share, build.task(&placement, at)));
            let metadata = build.metadata(&placement, at);
            records.push(self.record(task, Some(within), share.host_ports.clone(), metadata));
        }
        Some(BuiltInstance {
            records,
            launch: Launch::Group(Box::new(executor), infos),
        })
    }

    fn info(&self, task_id: TaskId, share: &PartAllocation, built: v1::TaskInfo) -> v1::TaskInfo {
        v1::TaskInfo {
            task_id,
            agent_id: self.place.id.clone(),
            resources: share.resources.clone(),
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
            agent: Arc::clone(self.place),
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
