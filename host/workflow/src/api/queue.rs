//! Pending jobs: `/v0/queue` with the reasons, and `/v0/dags` for autoscalers.

use axum::extract::State;
use axum::response::Response;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use transom_common::ambient;
use transom_framework::feasibility::Feasibility;
use transom_scheduler::Reasons;
use transom_web::{ApiError, json_list_after, json_pieces};

use super::Api;
use super::query::Query;
use crate::ids::JobId;
use crate::job_index::{ActiveJob, PendingJob};
use crate::launch;
use crate::model::{Spec, megabytes};
use crate::{pending_reason, python_json};

const DEFAULT_LIMIT: u64 = 1_000;
const MAX_LIMIT: u64 = 100_000;

/// The number of pending jobs, and the one with this id if it is pending.
fn pending_job(api: &Api, id: &str) -> (usize, Option<PendingJob>) {
    match JobId::parse(id) {
        Ok(id) => api.0.index.pending_job(&id),
        Err(_) => (api.0.index.pending().len(), None),
    }
}

/// `GET /v0/queue?task_id=ID&limit=N`
pub(super) async fn queue(State(api): State<Api>, query: Query) -> Result<Response, ApiError> {
    let limit = query.number("limit", MAX_LIMIT)?.unwrap_or(DEFAULT_LIMIT);
    let now = ambient::now();
    let leader = api.lead()?;
    let (count, jobs): (_, Box<dyn Iterator<Item = PendingJob> + Send>) =
        if let Some(id) = query.text("task_id") {
            let (count, job) = pending_job(&api, id);
            (count, Box::new(job.into_iter()))
        } else {
            let pending = api.0.index.pending();
            (pending.len(), Box::new(pending.into_jobs()))
        };
    let mut jobs = jobs.take(limit as usize);
    let waiting = leader.scheduler.pending();
    Ok(json_list_after(
        ("count", &json!(count)),
        "queue",
        move |document| {
            let Some((task, job)) = jobs.next() else {
                return false;
            };
            // None before the scheduler has matched it.
            let reasons = waiting.get(&task).map(|waiting| waiting.reasons);
            let entry = entry_json(&api, &leader.feasibility, &job, reasons.as_deref(), now);
            document.extend_from_slice(entry.to_string().as_bytes());
            true
        },
    ))
}

fn entry_json(
    api: &Api,
    feasibility: &Feasibility,
    job: &ActiveJob,
    reasons: Option<&Reasons>,
    now: Timestamp,
) -> Value {
    let defaults = &api.0.config;
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
    api.lead()?;
    let mut dag_tasks = api.0.index.pending().into_jobs().filter_map(|(_, job)| {
        let spec = &job.spec;
        let key = spec.key.as_ref()?;
        Some(json!({
            "dag_id": key.dag_id,
            "task_id": key.task_id,
            "run_id": key.run_id,
            "try_number": key.try_number,
            "MesosExecutor": executor_config(spec),
        }))
    });
    let mut next = dag_tasks.next();
    let mut opening = Some("[");
    Ok(json_pieces(move |document| {
        document.extend_from_slice(opening.take().unwrap_or_default().as_bytes());
        if let Some(dag_task) = next.take() {
            document.extend_from_slice(&python_json::to_bytes(&dag_task));
            next = dag_tasks.next();
        }
        let end = if next.is_some() { ", " } else { "]" };
        document.extend_from_slice(end.as_bytes());
        next.is_some()
    }))
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
    use crate::Settings;
    use crate::model;

    #[test]
    fn executor_config_has_memory_with_a_unit() {
        let defaults = Settings {
            containers: false,
            ..Settings::default()
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
