//! `/v2/tasks`: the tasks of all apps.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};
use transom_web::{ApiError, Json};

use super::query::Query;
use super::{Api, task};
use crate::condition::Condition;

/// `GET /v2/tasks`
pub(super) async fn list(State(api): State<Api>, query: Query) -> Result<Response, ApiError> {
    let mut wanted = Vec::new();
    for status in query.all("status").chain(query.all("status[]")) {
        match status.to_ascii_lowercase().as_str() {
            "running" => wanted.push(Condition::Running),
            "staging" => wanted.extend([Condition::Staging, Condition::Starting]),
            _ => {
                let text = format!("the status {status} is not one of running, staging");
                return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, text));
            }
        }
    }
    let check_failure = query.embeds("checkFailure");
    let snapshot = api.snapshot();
    let all = snapshot
        .apps
        .values()
        .flat_map(|view| view.instances.iter().map(move |instance| (view, instance)));
    let chosen = all.filter(|(_, instance)| wanted.is_empty() || wanted.contains(&instance.condition));
    let tasks: Vec<Value> = chosen
        .filter_map(|(view, instance)| task::shown(view, instance, check_failure))
        .collect();
    Ok(Json(json!({"tasks": tasks})).into_response())
}
