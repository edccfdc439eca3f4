//! `/metrics/snapshot`: the metrics that tools read, under their real names.

use crate::{
    state::{State, TaskState, epoch},
    wire::resources::Resources,
};
use serde_json::{Map, Value, json};

/// GET /metrics/snapshot of the master.
pub(crate) fn master(state: &State, elected: bool) -> Value {
    let mut metrics = Map::new();
    let mut put = |name: &str, value: f64| {
        metrics.insert(format!("master/{name}"), json!(value));
    };
    put("elected", f64::from(u8::from(elected)));
    put("uptime_secs", epoch() - state.master.started);
    let subscribed = state
        .frameworks
        .values()
        .filter(|framework| framework.is_subscribed())
        .count();
    put("frameworks_active", subscribed as f64);
    put("frameworks_connected", subscribed as f64);
    put(
        "frameworks_disconnected",
        (state.frameworks.len() - subscribed) as f64,
    );
    put(
        "frameworks_inactive",
        (state.frameworks.len() - subscribed) as f64,
    );
    let connected = state.listed_agents().count();
    let active = state.listed_agents().filter(|agent| agent.is_active()).count();
    put("slaves_active", active as f64);
    put("slaves_connected", connected as f64);
    put("slaves_disconnected", 0.0);
    put("slaves_inactive", connected.saturating_sub(active) as f64);
    put("slaves_unreachable", state.unreachable_agents.len() as f64);
    put("outstanding_offers", state.offers.len() as f64);
    let states = [
        TaskState::Staging,
        TaskState::Starting,
        TaskState::Running,
        TaskState::Killing,
        TaskState::Finished,
        TaskState::Failed,
        TaskState::Killed,
        TaskState::Error,
        TaskState::Lost,
        TaskState::Dropped,
        TaskState::Gone,
        TaskState::GoneByOperator,
        TaskState::Unreachable,
    ];
    for task_state in states {
        let completed = state
            .frameworks
            .values()
            .chain(&state.completed_frameworks)
            .flat_map(|framework| &framework.completed_tasks);
        let count = state
            .tasks()
            .chain(completed)
            .filter(|task| task.state == task_state)
            .count();
        put(
            &task_state
                .as_str()
                .replacen("TASK_", "tasks_", 1)
                .to_ascii_lowercase(),
            count as f64,
        );
    }
    let (mut total, mut used) = (Resources::default(), Resources::default());
    state.agents.values().for_each(|agent| total.add(&agent.total));
    state
        .frameworks
        .keys()
        .for_each(|id| used.add(&state.used_by(id)));
    add_usage(&total, &used, put);
    Value::Object(metrics)
}

/// Reports the total, used and relative amount of each resource.
pub(crate) fn add_usage(total: &Resources, used: &Resources, mut put: impl FnMut(&str, f64)) {
    for name in ["cpus", "mem", "disk", "gpus"] {
        let (total, used) = (total.scalar(name), used.scalar(name));
        put(&format!("{name}_total"), total);
        put(&format!("{name}_used"), used);
        put(
            &format!("{name}_percent"),
            if total > 0.0 { used / total } else { 0.0 },
        );
    }
}

/// Metrics in the form of `GET_METRICS`.
pub(crate) fn to_list(metrics: &Value) -> Value {
    let metrics: Vec<Value> = metrics
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    json!({ "metrics": metrics })
}
