//! `GET /v0/agent/{id}`: the address of an agent.

use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use serde_json::json;
use transom_common::error_chain;
use transom_web::ApiError;

use super::{Api, json};
use crate::python_json;

/// Host name and port, both strings; an empty body for an unknown agent.
pub(super) async fn get(State(api): State<Api>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let found = api.0.cluster.agent(&id.as_str().into()).await.map_err(|error| {
        tracing::warn!(
            error = error_chain(&error),
            "looking up an agent at the master failed"
        );
        ApiError::unavailable("The cluster manager is unavailable. Try again later.")
    })?;
    Ok(json(found.map_or(Bytes::new(), |agent| {
        python_json::to_bytes(&json!({"hostname": agent.host, "port": agent.port.to_string()}))
    })))
}
