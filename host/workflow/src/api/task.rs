//! `/v0/task/{id}`: a job's newest run.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::json;
use transom_web::{ApiError, Json};

use super::{Api, job_id, json};
use crate::core::command::Command;

/// The task status object, or `null` for an unknown id.
pub(super) async fn get(State(api): State<Api>, Path(id): Path<String>) -> Response {
    let view = job_id(&id).ok().and_then(|id| api.0.index.get(&id));
    json(view.map_or(Bytes::from_static(b"null"), |view| view.answer.clone()))
}

/// Kills the job. A completed job is unchanged.
pub(super) async fn delete(State(api): State<Api>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let id = job_id(&id)?;
    let state = api
        .ask(|reply| Command::Kill {
            id: id.clone(),
            reply,
        })
        .await?;
    Ok(Json(json!({"task_id": id, "state": state})).into_response())
}
