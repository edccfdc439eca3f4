//! `/v2/tasks`: the tasks of all apps.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use transom_common::ambient;
use transom_web::{ApiError, Document, Json, Problems, json_list};

use super::change::{DeploymentResult, deployment_response, options};
use super::query::Query;
use super::task::{self, Task, TaskList};
use super::{Api, append};
use crate::core::command::{Command, KillOptions, KillResult};
use crate::core::snapshot::Snapshot;
use crate::core::spec_view::SpecView;
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
    let views = snapshot.specs.clone().into_iter();
    let views = views.chain(snapshot.deleted.clone()).map(|(_, view)| view);
    // As in upstream, the list does not contain the tasks of pods.
    let views = views.filter(|view| !view.record.spec.is_pod());
    let is_chosen = move |condition| wanted.is_empty() || wanted.contains(&condition);
    Ok(response(views, is_chosen, check_failure))
}

/// The parameters of a request that kills tasks: `scale`, `wipe` and `force`.
pub(super) fn kill_options(query: &Query) -> Result<KillOptions, ApiError> {
    let (scale, wipe) = (query.flag("scale", false), query.flag("wipe", false));
    if scale && wipe {
        return Err(ApiError::bad_request(
            "You cannot use scale and wipe at the same time.",
        ));
    }
    Ok(KillOptions {
        scale,
        wipe,
        change: options(query, false)?,
    })
}

/// The killed tasks, in their state before the kill.
pub(super) fn killed_tasks<'a>(snapshot: &'a Snapshot, result: &'a KillResult) -> Vec<Task<'a>> {
    let mut tasks = Vec::new();
    for of_app in &result.specs {
        let view = snapshot.specs.get(of_app.spec.id());
        let instances = of_app.instances.iter();
        tasks.extend(instances.filter_map(|instance| task::task_info(view?, instance, false)));
    }
    tasks
}

/// A [`TaskList`] of the tasks of these apps in chosen conditions, written while it is sent.
pub(super) fn response(
    views: impl Iterator<Item = Arc<SpecView>> + Send + 'static,
    is_chosen: impl Fn(Condition) -> bool + Send + 'static,
    check_failure: bool,
) -> Response {
    let mut all = views.flat_map(|view| {
        let instances = view.instances.clone().into_iter();
        instances.map(move |(_, instance)| (Arc::clone(&view), instance))
    });
    json_list("tasks", move |list| {
        all.any(|(view, instance)| {
            is_chosen(instance.condition())
                && task::task_info(&view, &instance, check_failure)
                    .is_some_and(|task| append(list, &instance.id, &task))
        })
    })
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
        deployment_id: &ambient::uuid().to_string(),
    };
    Json(body).into_response()
}

/// Whether a task could have this id, including upstream's older forms: an app's id, a dot or `_`,
/// and a suffix.
fn is_task_id(text: &str) -> bool {
    text.rsplit_once(['.', '_'])
        .is_some_and(|(app, rest)| !app.is_empty() && !rest.is_empty())
}
