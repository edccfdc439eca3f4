//! Joins Marathon's view of tasks with the master's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use transom_cluster::operator::GetState;
use transom_cluster::v1::{self, TaskState};
use transom_cluster::{AgentId, TaskId};
use transom_scheduler::{AgentLocation, InGroup, Launched, TaskRecord};

use super::definitions::Definitions;
use super::report::Report;
use super::task_index::{MarathonTask, TaskIndex};
use crate::ids::{InstanceId, SpecId};
use crate::model::Spec;
use crate::task;
use crate::time::Moment;

/// The records of the framework's tasks that run, or may run on an unreachable agent.
pub(super) fn launched(
    index: &TaskIndex,
    state: &GetState,
    framework: &str,
    definitions: &mut Definitions,
    report: &mut Report,
) -> Vec<TaskRecord> {
    let agents: BTreeMap<&AgentId, &v1::AgentInfo> = state
        .get_agents
        .iter()
        .flat_map(|all| &all.agents)
        .filter_map(|agent| Some((agent.agent_info.id.as_ref()?, &agent.agent_info)))
        .collect();
    let all = state.get_tasks.iter();
    let ours = |task: &&v1::Task| task.framework_id.as_str() == framework;
    let live: Vec<&v1::Task> = all
        .clone()
        .flat_map(|all| {
            all.pending_tasks
                .iter()
                .chain(&all.tasks)
                .chain(&all.unreachable_tasks)
        })
        .filter(ours)
        .filter(|task| !task.state.is_terminal())
        .collect();
    let mut records = Vec::new();
    for task in &live {
        match record(task, index, &agents, definitions) {
            Ok(record) => records.extend(record),
            // Marathon has given it up, and would also kill it when its agent returns.
            Err(_)
                if task.state == TaskState::Unreachable && !index.0.contains_key(task.task_id.as_str()) =>
            {
                report.differs(
                    format!("task {}", task.task_id),
                    "Marathon has expunged it; it is killed when its agent is reachable again.",
                );
            }
            Err(problem) => report.reject(format!("task {}", task.task_id), problem),
        }
    }
    // Containers that have ended belong to a pod's instance as long as others in it run.
    let groups: BTreeSet<TaskId> = records
        .iter()
        .filter_map(|record: &TaskRecord| record.group.as_ref().map(|group| group.id.clone()))
        .collect();
    for task in all.flat_map(|all| &all.completed_tasks).filter(ours) {
        let known = index.0.contains_key(task.task_id.as_str());
        if known
            && let Ok(Some(record)) = record(task, index, &agents, definitions)
            && record
                .group
                .as_ref()
                .is_some_and(|group| groups.contains(&group.id))
        {
            records.push(record);
        }
    }
    let ids: BTreeSet<&str> = live.iter().map(|task| task.task_id.as_str()).collect();
    for (id, marathon_task) in index.0.iter().filter(|(id, _)| !ids.contains(id.as_str())) {
        if !records.iter().any(|record| record.id.as_str() == id) {
            report.differs(
                format!("task {id}"),
                format!(
                    "The master does not have it (any more): an instance of {} is started in its place.",
                    marathon_task.spec
                ),
            );
        }
    }
    for record in &records {
        if let Some(text) = definitions.outdated(record) {
            report.differs(format!("task {}", record.id), text);
        }
    }
    records
}

/// The record of a task; `None` if its app or pod has already been rejected.
fn record(
    task: &v1::Task,
    index: &TaskIndex,
    agents: &BTreeMap<&AgentId, &v1::AgentInfo>,
    definitions: &mut Definitions,
) -> Result<Option<TaskRecord>, String> {
    let killed = "it would be killed as an orphan";
    let Some((instance, incarnation)) = InstanceId::of_task(&task.task_id) else {
        return Err(format!("Its id has a form that Marathon never used; {killed}."));
    };
    let Some(id) = instance.spec() else {
        return Err(format!(
            "The id of its app, which is part of its id, is not valid; {killed}."
        ));
    };
    if definitions.is_rejected(&id) {
        return Ok(None);
    }
    let Some(marathon_task) = index.0.get(task.task_id.as_str()) else {
        return Err(if definitions.has(&id) {
            format!(
                "The master has it, and Marathon does not show it under {id}; {killed}. If it was just launched, try again."
            )
        } else {
            format!("Marathon has no app or pod {id}; {killed}.")
        });
    };
    if SpecId::parse(&marathon_task.spec).ok().as_ref() != Some(&id) {
        return Err(format!(
            "Marathon shows it under {}, its id says {id}.",
            marathon_task.spec
        ));
    }
    let version: Moment = marathon_task.version.parse().map_err(|_| {
        format!(
            "Its version in Marathon is not valid: {:?}.",
            marathon_task.version
        )
    })?;
    let definition = definitions.of_task(&id, version).ok_or_else(|| {
        format!(
            "It was launched from the version {version} of {id}, which Marathon no longer has: restart {id} there first."
        )
    })?;
    let info = agents.get(&task.agent_id);
    let agent = info.and_then(|info| AgentLocation::of_agent(info));
    let agent = agent.unwrap_or_else(|| AgentLocation {
        id: task.agent_id.clone(),
        hostname: marathon_task.host.clone(),
        region: marathon_task.region.clone(),
        zone: marathon_task.zone.clone(),
        endpoint: None,
    });
    let launched = Launched {
        run_spec: id.to_string(),
        version: version.to_string(),
        group: group(task, marathon_task, &instance, incarnation, &definition)?,
        agent: Arc::new(agent),
        agent_attributes: info.map_or_else(Arc::default, |info| info.attributes.as_slice().into()),
        host_ports: host_ports(marathon_task, &definition)?,
        staged_at: marathon_task.staged_at,
        started_at: marathon_task.started_at,
    };
    Ok(Some(TaskRecord::of_launched(task, launched)))
}

/// The group of a pod's task.
fn group(
    task: &v1::Task,
    marathon_task: &MarathonTask,
    instance: &InstanceId,
    incarnation: u32,
    definition: &Spec,
) -> Result<Option<InGroup>, String> {
    let Spec::Pod(pod) = definition else {
        return Ok(None);
    };
    if !pod
        .containers
        .iter()
        .any(|container| container.name == marathon_task.container)
    {
        return Err(format!("Its pod has no container {:?}.", marathon_task.container));
    }
    let id = instance.task(incarnation);
    let executor = task.executor_id.clone().filter(|id| !id.as_str().is_empty());
    Ok(Some(InGroup {
        executor: executor.unwrap_or_else(|| task::pod::executor_id(&id)),
        member: marathon_task.container.clone(),
        id,
    }))
}

/// The host ports of a task, if it has as many as the definition requests.
fn host_ports(marathon_task: &MarathonTask, definition: &Spec) -> Result<Vec<u16>, String> {
    match definition {
        Spec::App(app) => {
            let wanted = task::ports::requests(app).len();
            if marathon_task.ports.len() != wanted {
                return Err(format!(
                    "It has {} ports, and its definition asks for {wanted}.",
                    marathon_task.ports.len()
                ));
            }
            Ok(marathon_task.ports.clone())
        }
        Spec::Pod(pod) => {
            let container = pod
                .containers
                .iter()
                .find(|one| one.name == marathon_task.container);
            let endpoints = container.into_iter().flat_map(|container| &container.endpoints);
            let ports = endpoints
                .filter(|endpoint| endpoint.host_port.is_some())
                .map(|endpoint| {
                    let port = marathon_task.endpoints.get(&endpoint.name).copied();
                    port.ok_or_else(|| format!("Marathon shows no port of its endpoint {:?}.", endpoint.name))
                });
            ports.collect()
        }
    }
}
