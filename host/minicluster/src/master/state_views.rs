//! The older documents: `/state`, `/slaves`, `/frameworks`, `/tasks`, `/roles`, `/state-summary`.
//!
//! Here counts and amounts are floats, ids are plain text and ports are the text `"[a-b, c-d]"`.

use super::flags;
use crate::{
    state::{Agent, Executor, Framework, State, Task, TaskState, VERSION, operator_views},
    wire::{
        json as doc,
        resources::{ReservationFormat, Resources},
    },
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The build time that the cluster reports. It is fixed, so that documents can be compared.
pub(crate) const BUILD_DATE: &str = "2026-11-20 00:00:00 UTC";
pub(crate) const BUILD_TIME: f64 = 1_795_132_800.0;

/// The states that `/state-summary` counts.
const COUNTED_STATES: &[TaskState] = &[
    TaskState::Staging,
    TaskState::Starting,
    TaskState::Running,
    TaskState::Killing,
    TaskState::Finished,
    TaskState::Killed,
    TaskState::Failed,
    TaskState::Lost,
    TaskState::Error,
    TaskState::Unreachable,
];

/// GET /version.
pub(crate) fn version() -> Value {
    json!({"build_date": BUILD_DATE, "build_time": BUILD_TIME, "build_user": "", "version": VERSION})
}

/// GET /state.
pub(crate) fn state(state: &State) -> Value {
    let master = &state.master;
    let pid = format!("master@{}", master.addr);
    let active = state.listed_agents().filter(|agent| agent.is_active()).count();
    let known = state.listed_agents().count();
    let mut document = doc::object(json!({
        "version": VERSION,
        "build_date": BUILD_DATE,
        "build_time": BUILD_TIME,
        "build_user": "",
        "start_time": master.started,
        "elected_time": master.started,
        "id": master.id,
        "pid": pid,
        "hostname": master.hostname,
        "capabilities": ["AGENT_UPDATE", "AGENT_DRAINING", "QUOTA_V2"],
        "activated_slaves": active as f64,
        "deactivated_slaves": known.saturating_sub(active) as f64,
        "unreachable_slaves": state.unreachable_agents.len() as f64,
        "leader": pid,
        "leader_info": {"id": master.id, "pid": pid, "port": master.addr.port(), "hostname": master.hostname},
        "cluster": master.cluster,
        "flags": flags::master(state),
        "slaves": state.listed_agents().map(|one| Value::Object(agent(state, one))).collect::<Vec<_>>(),
        "recovered_slaves": recovered(state),
        "orphan_tasks": [],
    }));
    document.extend(frameworks(state));
    Value::Object(document)
}

/// GET /frameworks.
pub(crate) fn frameworks(state: &State) -> Map<String, Value> {
    doc::object(json!({
        "frameworks": state.frameworks.values().map(|one| framework(state, one)).collect::<Vec<_>>(),
        "completed_frameworks": state.completed_frameworks.iter().map(|one| framework(state, one)).collect::<Vec<_>>(),
        "unregistered_frameworks": [],
    }))
}

/// Agents that the master waits for after its restart.
fn recovered(state: &State) -> Vec<Value> {
    let recovered = state.recovered_agents().map(|agent| {
        json!({
            "id": agent.id.as_str(),
            "hostname": agent.config.hostname,
            "port": agent.addr.port(),
            "attributes": agent.attributes_plain,
        })
    });
    recovered.collect()
}

fn agent(state: &State, agent: &Agent) -> Map<String, Value> {
    let (used, offered) = operator_views::agent_usage(state, agent);
    let mut document = doc::object(json!({
        "id": agent.id.as_str(),
        "hostname": agent.config.hostname,
        "port": agent.addr.port(),
        "attributes": agent.attributes_plain,
        "pid": agent.pid(),
        "registered_time": agent.registered,
        "resources": agent.total.summary(),
        "used_resources": sum(used.values()).summary(),
        "offered_resources": sum(offered.values()).summary(),
        "reserved_resources": summaries(&agent.total),
        "unreserved_resources": agent.total.unreserved().summary(),
        "active": agent.is_active(),
        "deactivated": agent.deactivated,
        "version": VERSION,
        "capabilities": operator_views::AGENT_CAPABILITIES,
    }));
    if let Some((config, since, done)) = &agent.drain {
        let what = if *done { "DRAINED" } else { "DRAINING" };
        document.insert("drain_info".to_owned(), json!({"state": what, "config": config}));
        document.insert("estimated_drain_start_time_seconds".to_owned(), json!(since));
    }
    document
}

fn sum<'a>(bundles: impl Iterator<Item = &'a Resources>) -> Resources {
    bundles.fold(Resources::default(), |mut sum, bundle| {
        sum.add(bundle);
        sum
    })
}

/// Reserved resources by role, as amounts.
pub(crate) fn summaries(total: &Resources) -> Value {
    let roles = total.reserved().into_iter();
    roles.map(|(role, reserved)| (role, reserved.summary())).collect()
}

/// Reserved resources by role, as messages.
pub(crate) fn reserved_full(total: &Resources) -> Value {
    let roles = total.reserved().into_iter();
    roles
        .map(|(role, reserved)| (role, json!(reserved.messages(ReservationFormat::Both, None))))
        .collect()
}

fn full(roles: &BTreeMap<&str, Resources>) -> Vec<Value> {
    roles
        .iter()
        .flat_map(|(role, bundle)| bundle.messages(ReservationFormat::Both, Some(role)))
        .collect()
}

/// GET /slaves, all or one.
pub(crate) fn slaves(state: &State, only: Option<&str>) -> Value {
    let slaves: Vec<Value> = state
        .listed_agents()
        .filter(|one| only.is_none_or(|id| one.id.as_str() == id))
        .map(|one| {
            let mut document = agent(state, one);
            let (used, offered) = operator_views::agent_usage(state, one);
            document.insert("reserved_resources_full".to_owned(), reserved_full(&one.total));
            document.insert(
                "unreserved_resources_full".to_owned(),
                json!(one.total.unreserved().messages(ReservationFormat::Both, None)),
            );
            document.insert("used_resources_full".to_owned(), json!(full(&used)));
            document.insert("offered_resources_full".to_owned(), json!(full(&offered)));
            Value::Object(document)
        })
        .collect();
    json!({"slaves": slaves, "recovered_slaves": recovered(state)})
}

/// The fields of a framework that `/state-summary` shows too.
fn framework_base(state: &State, framework: &Framework) -> (Map<String, Value>, Resources) {
    let mut used = state.used_by(&framework.id);
    let offered = sum(state
        .offers
        .values()
        .filter(|offer| offer.framework == framework.id)
        .map(|offer| &offer.resources));
    let capabilities: Vec<&Value> = doc::list(&framework.info, &["capabilities"])
        .iter()
        .filter_map(|one| one.get("type"))
        .collect();
    let mut document = doc::object(json!({
        "id": framework.id.as_str(),
        "name": framework.info["name"],
        "used_resources": used.summary(),
        "offered_resources": offered.summary(),
        "capabilities": capabilities,
        "hostname": framework.info.get("hostname").cloned().unwrap_or_else(|| json!("")),
        "webui_url": framework.info.get("webui_url").cloned().unwrap_or_else(|| json!("")),
        "active": framework.is_subscribed(),
        "connected": framework.is_subscribed(),
        "recovered": framework.recovered,
    }));
    doc::copy(&framework.info, &mut document, &["principal"]);
    used.add(&offered);
    (document, used)
}

fn framework(state: &State, framework: &Framework) -> Value {
    let (mut document, allocated) = framework_base(state, framework);
    let offers: Vec<Value> = state
        .offers
        .values()
        .filter(|offer| offer.framework == framework.id)
        .map(|offer| {
            json!({
                "id": offer.id.as_str(),
                "framework_id": offer.framework.as_str(),
                "allocation_info": {"role": offer.role},
                "slave_id": offer.agent.as_str(),
                "resources": offer.resources.summary(),
            })
        })
        .collect();
    document.extend(doc::object(json!({
        "user": framework.info["user"],
        "failover_timeout": framework.info["failover_timeout"],
        "checkpoint": framework.info["checkpoint"],
        "registered_time": framework.registered,
        "unregistered_time": framework.unregistered,
        "resources": allocated.summary(),
        "tasks": framework.tasks.values().map(task).collect::<Vec<_>>(),
        "unreachable_tasks": framework.unreachable_tasks.iter().map(task).collect::<Vec<_>>(),
        "completed_tasks": framework.completed_tasks.iter().map(task).collect::<Vec<_>>(),
        "offers": offers,
        "executors": framework.executors.values().map(|one| executor(framework, one)).collect::<Vec<_>>(),
        "offer_constraints": framework.offer_constraints,
    })));
    if framework.reregistered > framework.registered {
        document.insert("reregistered_time".to_owned(), json!(framework.reregistered));
    }
    add_roles(framework, &mut document);
    doc::put(
        &mut document,
        "labels",
        doc::find(&framework.info, &["labels", "labels"]).cloned(),
    );
    Value::Object(document)
}

/// `roles` of a `MULTI_ROLE` framework, else `role`.
pub(crate) fn add_roles(framework: &Framework, document: &mut Map<String, Value>) {
    let mut roles = framework.roles();
    if framework.has_capability("MULTI_ROLE") {
        document.insert("roles".to_owned(), json!(roles));
    } else {
        document.insert("role".to_owned(), json!(roles.pop()));
    }
}

fn executor(framework: &Framework, executor: &Executor) -> Value {
    let mut document = doc::object(json!({
        "executor_id": executor.info["executor_id"]["value"],
        "name": executor.info.get("name").cloned().unwrap_or_else(|| json!("")),
        "framework_id": framework.id.as_str(),
        "command": command(&executor.info["command"]),
        "resources": executor.resources.summary(),
        "role": executor.role,
        "slave_id": executor.agent.as_str(),
    }));
    doc::copy(&executor.info, &mut document, &["type"]);
    doc::put(
        &mut document,
        "labels",
        doc::find(&executor.info, &["labels", "labels"]).cloned(),
    );
    Value::Object(document)
}

/// A command. That of a task group's executor is empty.
fn command(info: &Value) -> Value {
    let uris: Vec<Value> = doc::list(info, &["uris"])
        .iter()
        .map(|uri| json!({"value": uri["value"], "executable": uri["executable"] == true}))
        .collect();
    let mut document = doc::object(json!({"argv": doc::list(info, &["arguments"]), "uris": uris}));
    doc::copy(info, &mut document, &["shell", "value", "environment"]);
    Value::Object(document)
}

/// One task as `/state` and `/tasks` show it.
pub(crate) fn task(task: &Task) -> Value {
    task_in(task, task.state, &task.statuses)
}

/// One task with the state and the statuses that the master or the agent knows.
pub(crate) fn task_in(task: &Task, state: TaskState, statuses: &[Value]) -> Value {
    let mut document = doc::object(json!({
        "id": task.key.task.as_str(),
        "name": task.info["name"],
        "framework_id": task.key.framework.as_str(),
        "executor_id": task.executor.as_deref().unwrap_or_default(),
        "slave_id": task.agent.as_str(),
        "state": state.as_str(),
        "resources": task.resources.summary(),
        "role": task.role,
        "statuses": statuses.iter().map(status).collect::<Vec<_>>(),
    }));
    doc::put(
        &mut document,
        "labels",
        doc::find(&task.info, &["labels", "labels"]).cloned(),
    );
    doc::put(
        &mut document,
        "user",
        doc::find(&task.info, &["command", "user"]).cloned(),
    );
    doc::copy(&task.info, &mut document, &["discovery", "container"]);
    Value::Object(document)
}

/// A status as `/state` shows it: without message, reason, uuid, check or process.
fn status(status: &Value) -> Value {
    let mut document = Map::new();
    doc::copy(
        status,
        &mut document,
        &["state", "timestamp", "healthy", "container_status"],
    );
    if let Some(Value::Object(container)) = document.get_mut("container_status") {
        container.remove("executor_pid");
    }
    Value::Object(document)
}

/// GET /tasks, with `limit` (default 100), `offset`, `order` and the filters by framework and task.
pub(crate) fn tasks(state: &State, query: &BTreeMap<String, String>) -> Value {
    let number = |key: &str, default: usize| query.get(key).and_then(|n| n.parse().ok()).unwrap_or(default);
    let keep = |one: &&Task| {
        query
            .get("framework_id")
            .is_none_or(|id| one.key.framework.as_str() == id)
            && query.get("task_id").is_none_or(|id| one.key.task.as_str() == id)
    };
    let mut tasks: Vec<&Task> = state
        .frameworks
        .values()
        .chain(&state.completed_frameworks)
        .flat_map(|framework| {
            framework
                .tasks
                .values()
                .chain(&framework.unreachable_tasks)
                .chain(&framework.completed_tasks)
        })
        .filter(keep)
        .collect();
    let began = |task: &Task| {
        task.statuses
            .first()
            .and_then(|status| status["timestamp"].as_f64())
            .unwrap_or(f64::MAX)
    };
    tasks.sort_by(|a, b| began(a).total_cmp(&began(b)));
    if query.get("order").is_none_or(|order| order != "asc") {
        tasks.reverse();
    }
    let documents: Vec<Value> = tasks
        .into_iter()
        .skip(number("offset", 0))
        .take(number("limit", 100))
        .map(task)
        .collect();
    json!({ "tasks": documents })
}

/// GET /roles.
pub(crate) fn roles(state: &State) -> Value {
    let all = state.listed_agents().map(|agent| &agent.total);
    let reserved = sum(all).reserved();
    let roles: Vec<Value> = operator_views::role_usage(state)
        .into_iter()
        .map(|(name, (frameworks, used, offered))| {
            let mut all = used.clone();
            all.add(&offered);
            json!({
                "name": name,
                "weight": 1.0,
                "quota": {"role": name, "guarantee": {}, "limit": {}, "consumed": used.quantities()},
                "resources": all.quantities(),
                "allocated": used.quantities(),
                "offered": offered.quantities(),
                "reserved": reserved.get(&name).map_or_else(|| json!({}), Resources::quantities),
                "frameworks": frameworks,
            })
        })
        .collect();
    json!({ "roles": roles })
}

/// GET /state-summary.
pub(crate) fn summary(state: &State) -> Value {
    let slaves: Vec<Value> = state
        .listed_agents()
        .map(|one| {
            let mut document = agent(state, one);
            let tasks = || all_tasks(state).filter(|task| task.agent == one.id);
            count(&mut document, tasks());
            let ids: BTreeSet<&str> = tasks().map(|task| task.key.framework.as_str()).collect();
            document.insert("framework_ids".to_owned(), json!(ids));
            Value::Object(document)
        })
        .collect();
    let frameworks: Vec<Value> = state
        .frameworks
        .values()
        .map(|one| {
            let (mut document, _) = framework_base(state, one);
            let tasks = || all_tasks(state).filter(|task| task.key.framework == one.id);
            count(&mut document, tasks());
            let ids: BTreeSet<&str> = tasks().map(|task| task.agent.as_str()).collect();
            document.insert("slave_ids".to_owned(), json!(ids));
            Value::Object(document)
        })
        .collect();
    json!({"hostname": state.master.hostname, "cluster": state.master.cluster, "slaves": slaves, "frameworks": frameworks})
}

fn all_tasks(state: &State) -> impl Iterator<Item = &Task> {
    state.frameworks.values().flat_map(|framework| {
        framework
            .tasks
            .values()
            .chain(&framework.unreachable_tasks)
            .chain(&framework.completed_tasks)
    })
}

fn count<'a>(document: &mut Map<String, Value>, tasks: impl Iterator<Item = &'a Task>) {
    let mut counts: BTreeMap<&str, u64> = COUNTED_STATES.iter().map(|state| (state.as_str(), 0)).collect();
    for task in tasks {
        if let Some(count) = counts.get_mut(task.state.as_str()) {
            *count += 1;
        }
    }
    document.extend(
        counts
            .into_iter()
            .map(|(state, count)| (state.to_owned(), json!(count))),
    );
}
