//! Pending jobs: `/v0/queue` with the reasons, and `/v0/dags` for autoscalers.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use transom_cluster::TaskId;
use transom_scheduler::PendingTask;
use transom_web::{ApiError, Json};

use super::query::Query;
use super::{Api, json};
use crate::core::command::Refusal;
use crate::feasibility::Feasibility;
use crate::job_index::ActiveJob;
use crate::launch;
use crate::model::{Spec, megabytes};
use crate::{pending_reason, python_json};

const DEFAULT_LIMIT: u64 = 1_000;
const MAX_LIMIT: u64 = 100_000;

/// A pending job, and its entry in the scheduler.
struct Entry {
    job: Arc<ActiveJob>,
    pending: Option<PendingTask>,
}

/// All pending jobs in the order in which they are matched: highest priority first, then oldest
/// first.
fn pending(api: &Api) -> Result<Vec<Entry>, Refusal> {
    let scheduler = Arc::clone(&api.lead()?.scheduler);
    let mut pending_by_task: HashMap<TaskId, PendingTask> = scheduler
        .pending()
        .into_iter()
        .map(|pending| (pending.task.clone(), pending))
        .collect();
    let tasks = scheduler.tasks();
    let mut entries: Vec<Entry> = api
        .0
        .index
        .all_active()
        .into_iter()
        .filter(|(task, _)| !tasks.contains_key(task))
        .map(|(task, job)| Entry {
            job,
            pending: pending_by_task.remove(&task),
        })
        .collect();
    let order = |entry: &Entry| (Reverse(entry.job.spec.priority), entry.job.queued_at);
    entries.sort_by(|a, b| (order(a), &a.job.id).cmp(&(order(b), &b.job.id)));
    Ok(entries)
}

/// `GET /v0/queue?task_id=ID&limit=N`
pub(super) async fn queue(State(api): State<Api>, query: Query) -> Result<Response, ApiError> {
    let limit = query.number("limit", MAX_LIMIT)?.unwrap_or(DEFAULT_LIMIT);
    let (now, entries) = (Timestamp::now(), pending(&api)?);
    let feasibility = Arc::clone(&api.lead()?.feasibility);
    let wanted = query.text("task_id");
    let chosen = entries
        .iter()
        .filter(|entry| wanted.is_none_or(|id| entry.job.id.as_str() == id));
    let entries_json: Vec<Value> = chosen
        .take(limit as usize)
        .map(|entry| entry_json(&api, &feasibility, entry, now))
        .collect();
    Ok(Json(json!({"count": entries.len(), "queue": entries_json})).into_response())
}

fn entry_json(api: &Api, feasibility: &Feasibility, entry: &Entry, now: Timestamp) -> Value {
    let job = &entry.job;
    let defaults = &api.0.config.defaults;
    let reasons = entry.pending.as_ref().map(|pending| &*pending.reasons);
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
