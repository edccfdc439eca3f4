//! Pending jobs: `/v0/queue` with the reasons, and `/v0/dags` for autoscalers.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use transom_cluster::TaskId;
use transom_scheduler::{PendingTask, Reasons};
use transom_web::{ApiError, Json};

use super::query::Query;
use super::{Api, json};
use crate::core::command::Refusal;
use crate::feasibility::Feasibility;
use crate::ids::JobId;
use crate::job_index::ActiveJob;
use crate::launch;
use crate::model::{Spec, megabytes};
use crate::{pending_reason, python_json};

const DEFAULT_LIMIT: u64 = 1_000;
const MAX_LIMIT: u64 = 100_000;

/// A pending job, and why it is pending.
struct Entry {
    job: Arc<ActiveJob>,
    /// `None` before the scheduler has matched it.
    reasons: Option<Arc<Reasons>>,
}

/// All pending jobs in the order in which they are matched: highest priority first, then oldest
/// first.
fn pending(api: &Api) -> Result<Vec<Entry>, Refusal> {
    let scheduler = Arc::clone(&api.lead()?.scheduler);
    let pending = scheduler.pending();
    let by_task: HashMap<&TaskId, &PendingTask> =
        pending.iter().map(|pending| (&pending.task, pending)).collect();
    let tasks = scheduler.tasks();
    let mut entries: Vec<Entry> = api
        .0
        .index
        .all_active()
        .into_iter()
        .filter(|(task, _)| !tasks.contains_key(task))
        .map(|(task, job)| Entry {
            job,
            reasons: by_task.get(&task).map(|pending| Arc::clone(&pending.reasons)),
        })
        .collect();
    let order = |entry: &Entry| (Reverse(entry.job.spec.priority), entry.job.queued_at);
    entries.sort_by(|a, b| (order(a), &a.job.id).cmp(&(order(b), &b.job.id)));
    Ok(entries)
}

/// The number of pending jobs, and the one with this id if it is pending.
fn pending_job(api: &Api, id: &str) -> Result<(usize, Option<Entry>), Refusal> {
    let scheduler = Arc::clone(&api.lead()?.scheduler);
    let (tasks, active) = (scheduler.tasks(), api.0.index.all_active());
    let count = active.keys().filter(|task| !tasks.contains_key(*task)).count();
    let view = JobId::parse(id).ok().and_then(|id| api.0.index.get(&id));
    let run = view.filter(|view| !tasks.contains_key(&view.task));
    let entry = run.and_then(|view| {
        let pending = scheduler.pending();
        let pending = pending.iter().find(|pending| pending.task == view.task);
        Some(Entry {
            job: Arc::clone(active.get(&view.task)?),
            reasons: pending.map(|pending| Arc::clone(&pending.reasons)),
        })
    });
    Ok((count, entry))
}

/// `GET /v0/queue?task_id=ID&limit=N`
pub(super) async fn queue(State(api): State<Api>, query: Query) -> Result<Response, ApiError> {
    let limit = query.number("limit", MAX_LIMIT)?.unwrap_or(DEFAULT_LIMIT);
    let now = Timestamp::now();
    let (count, entries) = if let Some(id) = query.text("task_id") {
        let (count, entry) = pending_job(&api, id)?;
        (count, entry.into_iter().collect())
    } else {
        let entries = pending(&api)?;
        (entries.len(), entries)
    };
    let feasibility = Arc::clone(&api.lead()?.feasibility);
    let entries_json: Vec<Value> = entries
        .iter()
        .take(limit as usize)
        .map(|entry| entry_json(&api, &feasibility, entry, now))
        .collect();
    Ok(Json(json!({"count": count, "queue": entries_json})).into_response())
}

fn entry_json(api: &Api, feasibility: &Feasibility, entry: &Entry, now: Timestamp) -> Value {
    let job = &entry.job;
    let defaults = &api.0.config.defaults;
    let reasons = entry.reasons.as_deref();
    let reason = pending_reason::of_job(&job.spec, defaults, reasons, feasibility);
    json!({
        "task_id": job.id,
        "since": job.queued_at,
        "waited": now.duration_since(job.queued_at).as_secs_f64().max(0.0),
        "cpus": job.spec.cpus,
        "mem": job.spec.mem,
        "disk": job.spec.disk,
        "gpus": job.spec.gpus,
        "attributes": launch::constraints(&job.spec, defaults),
        "priority": job.spec.priority,
        "key": job.spec.key,
        "reason": reason.to_json(),
    })
}

/// Tasks of DAGs. Other jobs are in the queue only: autoscalers identify tasks by DAG and run.
pub(super) async fn dags(State(api): State<Api>) -> Result<Response, ApiError> {
    let entries = pending(&api)?;
    let dag_tasks: Vec<Value> = entries
        .iter()
        .filter_map(|entry| {
            let spec = &entry.job.spec;
            let key = spec.key.as_ref()?;
            Some(json!({
                "dag_id": key.dag_id,
                "task_id": key.task_id,
                "run_id": key.run_id,
                "try_number": key.try_number,
                "MesosExecutor": executor_config(spec),
            }))
        })
        .collect();
    Ok(json(python_json::to_bytes(&dag_tasks)))
}

/// The task's `executor_config`; if it is empty, the task's resources. Memory is a string with a
/// unit, as autoscalers expect.
fn executor_config(spec: &Spec) -> Map<String, Value> {
    let mut config = spec.executor_config.members();
    if config.is_empty() {
        config.insert("cpus".to_owned(), json!(spec.cpus));
        config.insert("mem_limit".to_owned(), json!(in_units(spec.mem)));
    }
    if let Some(limit) = config.get_mut("mem_limit")
        && !limit
            .as_str()
            .is_some_and(|text| text.ends_with(['m', 'g', 'M', 'G']))
        && let Ok(amount) = megabytes(limit)
    {
        *limit = json!(in_units(amount));
    }
    config
}

fn in_units(megabytes: f64) -> String {
    format!("{megabytes}m")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Defaults;
    use crate::model;

    #[test]
    fn executor_config_has_memory_with_a_unit() {
        let defaults = Defaults {
            containers: false,
            ..Defaults::default()
        };
        for (config, expected) in [
            (json!({}), json!({"cpus": 0.1, "mem_limit": "256m"})),
            (
                json!({"cpus": 2, "mem_limit": 2048, "architecture": "arm64"}),
                json!({"cpus": 2, "mem_limit": "2048m", "architecture": "arm64"}),
            ),
            (json!({"mem_limit": "1.5g"}), json!({"mem_limit": "1.5g"})),
            (json!({"mem_limit": "512k"}), json!({"mem_limit": "0.5m"})),
        ] {
            let body = json!({"command": ["true"], "executor_config": config});
            let read = model::read(body.as_object().unwrap(), &defaults);
            let spec = read.unwrap().unwrap().spec;
            assert_eq!(Value::Object(executor_config(&spec)), expected);
        }
    }
}
