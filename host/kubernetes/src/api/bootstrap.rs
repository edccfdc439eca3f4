//! `GET /bootstrap/{digest}/{token}`: the script of a container, for the cluster's fetcher.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header;
use transom_web::ApiError;

use super::Api;

/// Serves the script until its task runs.
pub(super) async fn get(
    State(api): State<Api>,
    Path((digest, token)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let script = api
        .0
        .scripts
        .get(&digest, &token)
        .ok_or_else(|| ApiError::not_found("There is no such script, or its task runs or has ended."))?;
    let headers = [
        (header::CONTENT_TYPE, "text/x-shellscript"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, Bytes::from_owner(script)).into_response())
}
