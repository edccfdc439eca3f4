//! The documents of the operator API (`POST /api/v1`): messages, with ids as `{"value": …}`.

use crate::{
    state::{Agent, Framework, State, Task, VERSION, time_info},
    wire::{
        json as doc,
        resources::{ReservationFormat, Resources},
    },
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The capabilities of agents of this version.
pub(crate) const AGENT_CAPABILITIES: [&str; 8] = [
    "MULTI_ROLE",
    "HIERARCHICAL_ROLE",
    "RESERVATION_REFINEMENT",
    "RESOURCE_PROVIDER",
    "RESIZE_VOLUME",
    "AGENT_OPERATION_FEEDBACK",
    "AGENT_DRAINING",
    "TASK_RESOURCE_LIMITS",
];

/// `Task`.
pub(crate) fn task(task: &Task) -> Value {
    let mut message = doc::object(json!({
        "name": task.info["name"],
        "task_id": doc::id(task.key.task.as_str()),
        "framework_id": doc::id(task.key.framework.as_str()),
        "agent_id": doc::id(task.agent.as_str()),
        "state": task.state.as_str(),
        "resources": task.info.get("resources").cloned().unwrap_or_else(|| json!([])),
    }));
    doc::put(&mut message, "executor_id", task.executor.as_deref().map(doc::id));
    doc::put(
        &mut message,
        "user",
        doc::find(&task.info, &["command", "user"]).cloned(),
    );
    if let Some(latest) = task.statuses.last() {
        message.insert("statuses".to_owned(), json!(task.statuses));
        message.insert("status_update_state".to_owned(), latest["state"].clone());
        doc::put(&mut message, "status_update_uuid", latest.get("uuid").cloned());
    }
    doc::copy(
        &task.info,
        &mut message,
        &[
            "labels",
            "discovery",
            "container",
            "health_check",
            "check",
            "kill_policy",
            "max_completion_time",
        ],
    );
    Value::Object(message)
}

/// `GET_TASKS`.
pub(crate) fn tasks(state: &State) -> Value {
    let completed = state
        .frameworks
        .values()
        .chain(&state.completed_frameworks)
        .flat_map(|framework| &framework.completed_tasks);
    let unreachable = state
        .frameworks
        .values()
        .flat_map(|framework| &framework.unreachable_tasks);
    json!({
        "tasks": state.tasks().map(task).collect::<Vec<_>>(),
        "unreachable_tasks": unreachable.map(task).collect::<Vec<_>>(),
        "completed_tasks": completed.map(task).collect::<Vec<_>>(),
    })
}

/// `GET_EXECUTORS`: executors of task groups and custom executors. The master does not know those
/// of command tasks.
pub(crate) fn executors(state: &State) -> Value {
    let executors: Vec<Value> = state
        .frameworks
        .values()
        .flat_map(|framework| framework.executors.values())
        .map(|executor| json!({"executor_info": executor.info, "agent_id": doc::id(executor.agent.as_str())}))
        .collect();
    json!({ "executors": executors })
}

/// `GET_FRAMEWORKS`.
pub(crate) fn frameworks(state: &State) -> Value {
    json!({
        "frameworks": state.frameworks.values().map(|one| framework(state, one)).collect::<Vec<_>>(),
        "completed_frameworks": state.completed_frameworks.iter().map(|one| framework(state, one)).collect::<Vec<_>>(),
    })
}

fn framework(state: &State, framework: &Framework) -> Value {
    let mut message = common_framework(framework);
    if framework.unregistered > 0.0 {
        message.insert("unregistered_time".to_owned(), time_info(framework.unregistered));
    }
    let offers: Vec<_> = state
        .offers
        .values()
        .filter(|offer| offer.framework == framework.id)
        .collect();
    if !offers.is_empty() {
        message.insert(
            "offers".to_owned(),
            offers.iter().map(|offer| state.offer_message(offer)).collect(),
        );
    }
    let inverse: Vec<&Value> = state
        .maintenance
        .inverse_offers
        .values()
        .filter(|offer| offer.framework == framework.id)
        .map(|offer| &offer.message)
        .collect();
    if !inverse.is_empty() {
        message.insert("inverse_offers".to_owned(), json!(inverse));
    }
    let offered = by_role(offers.iter().map(|offer| (offer.role.as_str(), &offer.resources)));
    let tasks = framework
        .tasks
        .values()
        .filter(|task| !task.released)
        .map(|task| (task.role.as_str(), &task.resources));
    let executors = framework
        .executors
        .values()
        .map(|executor| (executor.role.as_str(), &executor.resources));
    add_resources(
        &mut message,
        "allocated_resources",
        &by_role(tasks.chain(executors)),
    );
    add_resources(&mut message, "offered_resources", &offered);
    message.insert(
        "offer_constraints".to_owned(),
        framework.offer_constraints.clone(),
    );
    Value::Object(message)
}

/// A framework in `FRAMEWORK_ADDED` and `FRAMEWORK_UPDATED`.
pub(crate) fn framework_of_event(framework: &Framework) -> Value {
    let mut message = common_framework(framework);
    message.insert("unregistered_time".to_owned(), time_info(framework.unregistered));
    Value::Object(message)
}

fn common_framework(framework: &Framework) -> Map<String, Value> {
    doc::object(json!({
        "framework_info": framework.info,
        "active": framework.is_subscribed(),
        "connected": framework.is_subscribed(),
        "recovered": framework.recovered,
        "registered_time": time_info(framework.registered),
        "reregistered_time": time_info(framework.reregistered),
    }))
}

/// Adds up resources by the role they are allocated to.
fn by_role<'a>(parts: impl Iterator<Item = (&'a str, &'a Resources)>) -> BTreeMap<&'a str, Resources> {
    let mut roles: BTreeMap<&str, Resources> = BTreeMap::new();
    for (role, resources) in parts {
        roles.entry(role).or_default().add(resources);
    }
    roles
}

/// Adds the list of resources, unless it is empty.
fn add_resources(message: &mut Map<String, Value>, key: &str, roles: &BTreeMap<&str, Resources>) {
    let resources: Vec<Value> = roles
        .iter()
        .flat_map(|(role, bundle)| bundle.messages(ReservationFormat::Both, Some(role)))
        .collect();
    if !resources.is_empty() {
        message.insert(key.to_owned(), Value::Array(resources));
    }
}

/// Resources used by tasks and executors on an agent, and resources offered, by role.
pub(crate) fn agent_usage<'a>(
    state: &'a State,
    agent: &Agent,
) -> (BTreeMap<&'a str, Resources>, BTreeMap<&'a str, Resources>) {
    let tasks = state
        .tasks()
        .filter(|task| task.agent == agent.id && !task.released)
        .map(|task| (task.role.as_str(), &task.resources));
    let executors = state
        .frameworks
        .values()
        .flat_map(|framework| framework.executors.values())
        .filter(|executor| executor.agent == agent.id)
        .map(|executor| (executor.role.as_str(), &executor.resources));
    let offers = state
        .offers
        .values()
        .filter(|offer| offer.agent == agent.id)
        .map(|offer| (offer.role.as_str(), &offer.resources));
    (by_role(tasks.chain(executors)), by_role(offers))
}

/// `AgentInfo`. With `checkpoint` it contains that field, which a real agent's info has once it is
/// fully registered, but not in the agent's own documents.
pub(crate) fn agent_info(agent: &Agent, checkpoint: bool) -> Value {
    let mut resources = agent
        .config
        .resources()
        .messages(ReservationFormat::Refined, None);
    // Ports are last here, but first in offers.
    resources.rotate_left(usize::from(agent.total.port_count() > 0));
    let mut info = doc::object(json!({
        "hostname": agent.config.hostname,
        "port": agent.addr.port(),
        "resources": resources,
        "id": doc::id(agent.id.as_str()),
    }));
    if !agent.attributes.is_empty() {
        info.insert("attributes".to_owned(), json!(agent.attributes));
    }
    if checkpoint {
        info.insert("checkpoint".to_owned(), json!(true));
    }
    Value::Object(info)
}

fn agent_base(agent: &Agent, checkpoint: bool) -> Map<String, Value> {
    let capabilities: Vec<Value> = AGENT_CAPABILITIES
        .iter()
        .map(|capability| json!({ "type": capability }))
        .collect();
    doc::object(json!({
        "agent_info": agent_info(agent, checkpoint),
        "active": agent.is_active(),
        "deactivated": agent.deactivated,
        "version": VERSION,
        "pid": agent.pid(),
        "registered_time": time_info(agent.registered),
        "total_resources": agent.total.messages(ReservationFormat::Both, None),
        "capabilities": capabilities,
    }))
}

/// An agent in `AGENT_ADDED`.
pub(crate) fn agent_of_event(agent: &Agent) -> Value {
    Value::Object(agent_base(agent, false))
}

fn agent(state: &State, agent: &Agent) -> Value {
    let mut message = agent_base(agent, true);
    let (used, offered) = agent_usage(state, agent);
    add_resources(&mut message, "allocated_resources", &used);
    add_resources(&mut message, "offered_resources", &offered);
    if let Some((config, since, done)) = &agent.drain {
        let what = if *done { "DRAINED" } else { "DRAINING" };
        message.insert("drain_info".to_owned(), json!({"state": what, "config": config}));
        message.insert("estimated_drain_start_time".to_owned(), time_info(since.trunc()));
    }
    Value::Object(message)
}

/// `GET_AGENTS`, without unreachable agents.
pub(crate) fn agents(state: &State) -> Value {
    let agents: Vec<Value> = state.listed_agents().map(|one| agent(state, one)).collect();
    let recovered: Vec<Value> = state
        .recovered_agents()
        .map(|one| agent_info(one, true))
        .collect();
    json!({"agents": agents, "recovered_agents": recovered})
}

/// `GET_STATE`.
pub(crate) fn state(state: &State) -> Value {
    json!({
        "get_tasks": tasks(state),
        "get_executors": executors(state),
        "get_frameworks": frameworks(state),
        "get_agents": agents(state),
    })
}

/// Every role in use: its frameworks, used resources and offered resources.
pub(crate) fn role_usage(state: &State) -> BTreeMap<String, (BTreeSet<String>, Resources, Resources)> {
    let mut roles: BTreeMap<String, (BTreeSet<String>, Resources, Resources)> = BTreeMap::new();
    for framework in state.frameworks.values() {
        for role in framework.roles() {
            roles.entry(role).or_default().0.insert(framework.id.to_string());
        }
        for task in framework.tasks.values().filter(|task| !task.released) {
            roles.entry(task.role.clone()).or_default().1.add(&task.resources);
        }
        for executor in framework.executors.values() {
            roles
                .entry(executor.role.clone())
                .or_default()
                .1
                .add(&executor.resources);
        }
    }
    for offer in state.offers.values() {
        roles
            .entry(offer.role.clone())
            .or_default()
            .2
            .add(&offer.resources);
    }
    roles
}

/// `GET_ROLES`.
pub(crate) fn roles(state: &State) -> Value {
    let roles: Vec<Value> = role_usage(state)
        .into_iter()
        .map(|(name, (frameworks, mut used, offered))| {
            used.add(&offered);
            let resources: Vec<Value> = used
                .messages(ReservationFormat::Refined, None)
                .into_iter()
                .filter(|resource| resource["type"] == "SCALAR")
                .collect();
            let mut role = doc::object(json!({
                "name": name,
                "weight": 1.0,
                "frameworks": frameworks.iter().map(|id| doc::id(id)).collect::<Vec<_>>(),
            }));
            doc::put(
                &mut role,
                "resources",
                (!resources.is_empty()).then(|| json!(resources)),
            );
            Value::Object(role)
        })
        .collect();
    if roles.is_empty() {
        json!({})
    } else {
        json!({ "roles": roles })
    }
}
