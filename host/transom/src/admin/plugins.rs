//! `/v1/plugins`: state, history and commands of plugins.

use std::time::Duration;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use transom_plugin_host::{CommandError, Plugins, parse_duration, printable, printable_json};
use transom_web::ApiError;

/// The requester in the admission record if the request names none.
const DEFAULT_REQUESTER: &str = "operator";

/// A JSON response that may contain a guest's text. Control characters are escaped, because a client
/// may print it on a terminal.
pub(super) struct EscapedJson<T>(pub(super) T);

impl<T: Serialize> IntoResponse for EscapedJson<T> {
    fn into_response(self) -> Response {
        match serde_json::to_string(&self.0) {
            Ok(text) => {
                let headers = [(header::CONTENT_TYPE, "application/json")];
                (headers, printable_json(&text).into_owned()).into_response()
            }
            Err(error) => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}

/// `uploads`: whether `plugins.uploads` is set; the list of plugins contains it.
pub(super) fn routes(plugins: Plugins, uploads: bool) -> Router {
    Router::new()
        .route(
            "/v1/plugins",
            get(async move |state: State<Plugins>| list(&state, uploads)),
        )
        .route("/v1/plugins/rescan", post(rescan))
        .route("/v1/plugins/{name}", get(show))
        .route("/v1/plugins/{name}/history", get(history))
        .route("/v1/plugins/{name}/log", get(log))
        .route("/v1/plugins/{name}/calls", get(calls))
        .route("/v1/plugins/{name}/rollback", post(rollback))
        .route("/v1/plugins/{name}/promote", post(promote))
        .route("/v1/plugins/{name}/abort", post(abort_candidate))
        .with_state(plugins)
}

fn list(plugins: &Plugins, uploads: bool) -> EscapedJson<serde_json::Value> {
    let dir = std::path::absolute(plugins.dir()).unwrap_or_else(|_| plugins.dir().to_owned());
    EscapedJson(json!({"plugins": plugins.list(), "dir": dir, "uploads": uploads}))
}

async fn show(State(plugins): State<Plugins>, Path(name): Path<String>) -> Result<Response, ApiError> {
    plugins
        .list()
        .into_iter()
        .find(|status| status.name == name)
        .map(|status| EscapedJson(status).into_response())
        .ok_or_else(|| ApiError::not_found(format!("no plugin is named `{}`", printable(&name))))
}

async fn rescan(State(plugins): State<Plugins>) -> EscapedJson<serde_json::Value> {
    EscapedJson(json!({"changes": plugins.rescan().await}))
}

async fn history(State(plugins): State<Plugins>, Path(name): Path<String>) -> Result<Response, ApiError> {
    let (records, durability) = plugins.history(&name);
    if records.is_empty() {
        return Err(ApiError::not_found(format!(
            "no records of plugin `{}`",
            printable(&name)
        )));
    }
    Ok(EscapedJson(json!({"durability": durability, "records": records})).into_response())
}

/// The query parameters that select lines of a log.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Lines {
    /// Only lines with a greater sequence number.
    after: u64,
}

async fn log(
    State(plugins): State<Plugins>,
    Path(name): Path<String>,
    query: Result<Query<Lines>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(lines) = query.map_err(|error| {
        ApiError::bad_request(format!("invalid query, expected for example ?after=0: {error}"))
    })?;
    let lines = plugins
        .log(&name, lines.after)
        .ok_or_else(|| ApiError::not_found(format!("no version of plugin `{}` serves", printable(&name))))?;
    Ok(EscapedJson(json!({"lines": lines})).into_response())
}

/// The query parameters that select recorded calls.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CallsQuery {
    /// The maximum age of a call, such as `2h`.
    since: String,
    /// The maximum number of calls; the newest are returned.
    max: usize,
}

impl Default for CallsQuery {
    fn default() -> Self {
        CallsQuery {
            since: "24h".to_owned(),
            max: 1000,
        }
    }
}

/// Parses the value of the parameter `since`.
pub(super) fn duration(since: &str) -> Result<Duration, ApiError> {
    parse_duration(since).ok_or_else(|| {
        let since = printable(since).into_owned();
        ApiError::bad_request(format!(
            "`since` is {since:?}; expected a duration such as \"30m\" or \"2h\""
        ))
    })
}

/// The maximum number of calls in one response.
const MAX_CALLS: usize = 10_000;

async fn calls(
    State(plugins): State<Plugins>,
    Path(name): Path<String>,
    query: Result<Query<CallsQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(query) = query.map_err(|error| {
        let error = error.body_text();
        ApiError::bad_request(format!(
            "expected for example ?since=2h&max=1000: {}",
            printable(&error)
        ))
    })?;
    let since = duration(&query.since)?;
    if !(1..=MAX_CALLS).contains(&query.max) {
        let message = format!("`max` is {}; expected 1 to {MAX_CALLS}", query.max);
        return Err(ApiError::bad_request(message));
    }
    let calls = plugins.recorded_calls(&name, since, query.max).await;
    Ok(EscapedJson(calls.map_err(|error| command_error(&error))?).into_response())
}

/// A command's arguments; the body is optional.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OperatorRequest {
    /// The number of the record to roll back to.
    record: Option<u64>,
    /// The requester, for the admission record.
    by: Option<String>,
}

impl OperatorRequest {
    fn read(body: &Bytes) -> Result<OperatorRequest, ApiError> {
        if body.is_empty() {
            return Ok(OperatorRequest::default());
        }
        serde_json::from_slice(body).map_err(|error| {
            ApiError::bad_request(format!(
                "invalid body, expected for example {{\"record\": 3, \"by\": \"me\"}}: {error}"
            ))
        })
    }

    fn requester(&self) -> &str {
        self.by.as_deref().unwrap_or(DEFAULT_REQUESTER)
    }
}

async fn rollback(
    State(plugins): State<Plugins>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, ApiError> {
    let request = OperatorRequest::read(&body)?;
    let change = plugins.rollback(&name, request.record, request.requester()).await;
    Ok(EscapedJson(change.map_err(|error| command_error(&error))?).into_response())
}

async fn promote(
    State(plugins): State<Plugins>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, ApiError> {
    let request = OperatorRequest::read(&body)?;
    let change = plugins.promote(&name, request.requester()).await;
    Ok(EscapedJson(change.map_err(|error| command_error(&error))?).into_response())
}

async fn abort_candidate(
    State(plugins): State<Plugins>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, ApiError> {
    let request = OperatorRequest::read(&body)?;
    let change = plugins.abort_candidate(&name, request.requester()).await;
    Ok(EscapedJson(change.map_err(|error| command_error(&error))?).into_response())
}

fn command_error(error: &CommandError) -> ApiError {
    let status = match error {
        CommandError::Unknown { .. } | CommandError::NoRecord { .. } => StatusCode::NOT_FOUND,
        CommandError::Rejected { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        CommandError::Unreadable { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        CommandError::Stopped => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::CONFLICT,
    };
    ApiError::new(status, printable(&error.to_string()))
}
