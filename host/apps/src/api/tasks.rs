//! `/v2/tasks`: the tasks of all apps.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use transom_web::{ApiError, Document, Json, Problems};
use uuid::Uuid;

use super::Api;
use super::apps::{kill_options, killed_tasks};
use super::change::{DeploymentResult, deployment_response};
use super::query::Query;
use super::task::{self, TaskList};
use crate::core::command::Command;
use crate::model::lengths::too_long;
use crate::time::Moment;
use transom_replicas::Condition;

/// `GET /v2/tasks`
pub(super) async fn list(State(api): State<Api>, query: Query) -> Result<Response, ApiError> {
    let mut wanted: Vec<Condition> = Vec::new();
    for status in query.all("status").chain(query.all("status[]")) {
        match status.to_ascii_lowercase().as_str() {
            // The same status once more adds nothing.
            "running" if wanted.contains(&Condition::Running) => {}
            "staging" if wanted.contains(&Condition::LAUNCHING[0]) => {}
            "running" => wanted.push(Condition::Running),
            "staging" => wanted.extend(Condition::LAUNCHING),
            _ => {
                let text = format!("the status {status} is not one of running, staging");
                return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, text));
            }
        }
    }
    let check_failure = query.embeds("checkFailure");
    let snapshot = api.snapshot();
    let views = snapshot.specs.values().chain(snapshot.deleted.values());
    // As in upstream, the list does not contain the tasks of pods.
    let views = views.filter(|view| !view.spec.is_pod());
    let all = views.flat_map(|view| view.instances.values().map(move |instance| (view, instance)));
    let chosen = all.filter(|(_, instance)| wanted.is_empty() || wanted.contains(&instance.condition()));
    let tasks = chosen.filter_map(|(view, instance)| task::task_info(view, instance, check_failure));
    Ok(Json(TaskList {
        tasks: tasks.collect(),
    })
    .into_response())
}

/// The tasks to kill. Other members are ignored.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "DeleteTasks")]
pub(super) struct TasksToKill {
    #[schemars(required)]
    ids: Option<Vec<String>>,
}

/// Parses the body, which must be an object: serde would accept an array in place of the struct.
pub(super) fn read_task_ids(body: Value) -> Result<Vec<String>, ApiError> {
    let wrong = |path: &str, what: &str| ApiError::invalid_json(&Problems::one(path, what));
    if !body.is_object() {
        return Err(wrong("/", "expected an object with a list of task ids, ids"));
    }
    let length = body["ids"].as_array().map_or(0, Vec::len);
    if let Some(text) = too_long("ids", length) {
        return Err(wrong("/ids", &text));
    }
    let TasksToKill { ids } = Json::from_value(body)?;
    ids.ok_or_else(|| wrong("/ids", "is undefined: expected a list of task ids"))
}

/// `POST /v2/tasks/delete`: kills the named tasks of any apps. Ids of unknown tasks are skipped.
pub(super) async fn delete(
    State(api): State<Api>,
    query: Query,
    body: Document,
) -> Result<Response, ApiError> {
    let options = kill_options(&query)?;
    let ids = body.check(read_task_ids).await?;
    if let Some(id) = ids.iter().find(|id| !is_task_id(id)) {
        return Err(ApiError::bad_request(format!(
            "Invalid task id '{id}'. [expected an app's id with _ in place of /, a dot and a part that is \
             unique to the task, as in shop_web.instance-0664256e-6771-11e5-94e1-be5b2935a987._app.1]"
        )));
    }
    let command = |reply| Command::KillTasks {
        tasks: ids,
        options,
        reply,
    };
    let killed = api.ask(command).await?;
    if !options.scale {
        let snapshot = api.snapshot();
        let tasks = killed_tasks(&snapshot, &killed);
        return Ok(Json(TaskList { tasks }).into_response());
    }
    match &killed.deployment {
        Some(started) => deployment_response(started),
        None => Ok(no_deployment_response()),
    }
}

/// A deployment without actions is already complete.
fn no_deployment_response() -> Response {
    let body = DeploymentResult {
        version: Moment::now(),
        deployment_id: &Uuid::new_v4().to_string(),
    };
    Json(body).into_response()
}

/// Whether a task could have this id, including upstream's older forms: an app's id, a dot or `_`,
/// and a suffix.
fn is_task_id(text: &str) -> bool {
    text.rsplit_once(['.', '_'])
        .is_some_and(|(app, rest)| !app.is_empty() && !rest.is_empty())
}
