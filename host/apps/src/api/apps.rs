//! `/v2/apps` and all paths below it.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use transom_web::{ApiError, Json};

use super::app::{Embed, shown};
use super::path::{Target, target};
use super::query::Query;
use super::{Api, error, task};
use crate::core::command::{Change, Command, Killed, Origin, Refusal, Which, Written};
use crate::core::snapshot::{AppView, Snapshot};
use crate::ids::AppId;
use crate::model::{AppUpdate, Invalid, Selector, read};
use crate::task::condition;
use transom_web::Problems;

type Answer = Result<Response, ApiError>;

/// `GET /v2/apps`
pub(super) async fn list(State(api): State<Api>, query: Query) -> Answer {
    let selector = query.get("label").map(Selector::parse).transpose();
    let selector = selector.map_err(|wrong| {
        ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("invalid label selector: {wrong}"),
        )
    })?;
    let snapshot = api.snapshot();
    let embed = Embed::of(&query);
    let chosen = snapshot.apps.values().filter(|view| {
        let has = |parameter: &str, text: &str| query.get(parameter).is_none_or(|part| text.contains(part));
        has("id", view.app.id.as_str())
            && has("cmd", view.app.cmd.as_deref().unwrap_or_default())
            && selector
                .as_ref()
                .is_none_or(|selector| selector.matches(&view.app.labels))
    });
    let apps: Vec<Value> = chosen.map(|view| shown(view, &snapshot, embed)).collect();
    Ok(Json(json!({"apps": apps})).into_response())
}

/// `POST /v2/apps`
pub(super) async fn create(
    State(api): State<Api>,
    query: Query,
    origin: Origin,
    Json(body): Json<Value>,
) -> Answer {
    let update = decode(&api, &body).await?;
    let Some(id) = update.id.clone() else {
        // Either the id is missing, or its problem is reported together with all others.
        if update.broken.is_empty() {
            return Err(error::invalid("/id", "is undefined: an app needs its id"));
        }
        return Err(Invalid::Rules(update.broken).into());
    };
    let force = query.flag("force", false);
    let written = write(&api, id, Change::Create(Box::new(update)), force, origin).await?;
    let mut app = json!(written.app);
    if let Some(members) = app.as_object_mut() {
        members.remove("versionInfo");
    }
    for count in ["tasksStaged", "tasksRunning", "tasksHealthy", "tasksUnhealthy"] {
        app[count] = json!(0);
    }
    app["deployments"] = json!([{"id": written.deployment}]);
    let location =
        HeaderValue::from_str(written.app.id.as_str()).map_err(|cause| ApiError::internal(&cause))?;
    Ok((
        StatusCode::CREATED,
        [(header::LOCATION, location), deployment_header(&written)?],
        Json(app),
    )
        .into_response())
}

/// `GET /v2/apps/{id}` and the paths below it.
pub(super) async fn get(State(api): State<Api>, Path(path): Path<String>, query: Query) -> Answer {
    let snapshot = api.snapshot();
    let answer = match target(&path)? {
        Target::App(id) => json!({"app": shown(view(&snapshot, &id)?, &snapshot, Embed::for_one(&query))}),
        Target::Tasks(id) => {
            json!({"tasks": task::of_app(view(&snapshot, &id)?, query.embeds("checkFailure"))})
        }
        Target::Versions(id) => {
            let versions: Vec<_> = view(&snapshot, &id)?
                .versions
                .iter()
                .rev()
                .map(|app| app.version)
                .collect();
            json!({"versions": versions})
        }
        Target::Version(id, text) => {
            let view = view(&snapshot, &id)?;
            let version = text.parse().map_err(|_| {
                ApiError::new(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    format!("{text} is not a version; expected a time such as 2015-09-29T15:59:51.164Z"),
                )
            })?;
            let app = view.versions.iter().find(|app| app.version == version);
            json!(app.ok_or(Refusal::NoVersion(id, version))?)
        }
        Target::Task(..) | Target::Restart(_) => return Err(no_such_method()),
    };
    Ok(Json(answer).into_response())
}

/// `PUT /v2/apps/{id}`
pub(super) async fn put(
    State(api): State<Api>,
    Path(path): Path<String>,
    query: Query,
    origin: Origin,
    Json(body): Json<Value>,
) -> Answer {
    change(&api, &path, &query, origin, &body, true).await
}

/// `PATCH /v2/apps/{id}`
pub(super) async fn patch(
    State(api): State<Api>,
    Path(path): Path<String>,
    query: Query,
    origin: Origin,
    Json(body): Json<Value>,
) -> Answer {
    change(&api, &path, &query, origin, &body, false).await
}

async fn change(api: &Api, path: &str, query: &Query, origin: Origin, body: &Value, create: bool) -> Answer {
    let Target::App(id) = target(path)? else {
        return Err(no_such_method());
    };
    let (force, partial) = (query.flag("force", false), query.flag("partialUpdate", true));
    let update = decode(api, body).await?;
    if update.id.as_ref().is_some_and(|named| *named != id) {
        return Err(error::invalid(
            "/id",
            format!("is not {id}, which the path names; an id cannot be changed"),
        ));
    }
    let named = usize::from(body.get("id").is_some_and(|id| !id.is_null()));
    let change = match update.version {
        Some(version) if update.members == 1 + named => Change::Rollback(version),
        Some(_) => {
            let text = "The 'version' field may only be combined with the 'id' field.";
            return Err(error::invalid("/version", text));
        }
        _ => Change::Update {
            update: Box::new(update),
            partial,
            create,
            restart: query.flag("restart", false),
        },
    };
    let written = write(api, id, change, force, origin).await?;
    if !written.created {
        return deployed(&written);
    }
    let location =
        HeaderValue::from_str(written.app.id.as_str()).map_err(|cause| ApiError::internal(&cause))?;
    Ok((
        StatusCode::CREATED,
        [(header::LOCATION, location)],
        deployed(&written)?,
    )
        .into_response())
}

/// `DELETE /v2/apps/{id}` and `DELETE /v2/apps/{id}/tasks[/{task}]`
pub(super) async fn delete(
    State(api): State<Api>,
    Path(path): Path<String>,
    query: Query,
    origin: Origin,
) -> Answer {
    match target(&path)? {
        Target::App(id) => {
            deployed(&write(&api, id, Change::Delete, query.flag("force", true), origin).await?)
        }
        Target::Tasks(id) => {
            let which = query
                .get("host")
                .map_or(Which::All, |host| Which::OnHost(host.to_owned()));
            kill(&api, id, which, &query, "tasks").await
        }
        Target::Task(id, task) => kill(&api, id, Which::One(task), &query, "task").await,
        // An app cannot have this name.
        Target::Restart(id) => Err(ApiError::not_found(format!("App '{id}/restart' does not exist"))),
        Target::Versions(_) | Target::Version(..) => Err(no_such_method()),
    }
}

/// `POST /v2/apps/{id}/restart`
pub(super) async fn post(
    State(api): State<Api>,
    Path(path): Path<String>,
    query: Query,
    origin: Origin,
) -> Answer {
    let Target::Restart(id) = target(&path)? else {
        return Err(no_such_method());
    };
    deployed(&write(&api, id, Change::Restart, query.flag("force", false), origin).await?)
}

/// The parameters of a request that kills tasks: `scale`, `wipe` and `force`.
pub(super) fn manner(query: &Query) -> Result<(bool, bool, bool), ApiError> {
    let (scale, wipe) = (query.flag("scale", false), query.flag("wipe", false));
    if scale && wipe {
        return Err(ApiError::bad_request(
            "You cannot use scale and wipe at the same time.",
        ));
    }
    Ok((scale, wipe, query.flag("force", false)))
}

/// The killed tasks, as they were before.
pub(super) fn ended(api: &Api, killed: &Killed) -> Vec<Value> {
    let snapshot = api.snapshot();
    let Some(view) = snapshot.apps.get(&killed.app.id) else {
        return Vec::new();
    };
    let instances = killed.instances.iter();
    instances
        .filter_map(|instance| task::shown(view, instance, false))
        .collect()
}

async fn kill(api: &Api, app: AppId, which: Which, query: &Query, name: &str) -> Answer {
    let (scale, wipe, force) = manner(query)?;
    let command = |reply| Command::Kill {
        app,
        which,
        scale,
        wipe,
        force,
        reply,
    };
    let killed = api.ask(command).await?;
    if let Some(written) = &killed.deployment {
        return deployed(written);
    }
    let tasks = ended(api, &killed);
    let shown = if name == "task" {
        tasks.into_iter().next().unwrap_or(Value::Null)
    } else {
        json!(tasks)
    };
    let mut answer = json!({});
    answer[name] = shown;
    Ok(Json(answer).into_response())
}

/// Parses a definition and validates its constraints.
async fn decode(api: &Api, body: &Value) -> Result<AppUpdate, ApiError> {
    let mut update = read(body)?;
    let conditions: Vec<_> = update.constraints().iter().map(condition).collect();
    if conditions.is_empty() {
        return Ok(update);
    }
    let wrong = api
        .0
        .policies
        .validate_constraints(&conditions)
        .await
        .map_err(Refusal::Plugin)?;
    let mut problems = Problems::default();
    for error in wrong {
        problems.add(format!("/constraints({})", error.constraint), error.message);
    }
    update.broken.extend(problems);
    Ok(update)
}

async fn write(
    api: &Api,
    app: AppId,
    change: Change,
    force: bool,
    origin: Origin,
) -> Result<Written, ApiError> {
    let command = |reply| Command::Write {
        app,
        change,
        force,
        origin,
        reply,
    };
    Ok(api.ask(command).await?)
}

/// The response to every request that starts a deployment.
pub(super) fn deployed(written: &Written) -> Answer {
    let body = json!({"version": written.version, "deploymentId": written.deployment});
    Ok(([deployment_header(written)?], Json(body)).into_response())
}

pub(super) fn deployment_header(written: &Written) -> Result<(HeaderName, HeaderValue), ApiError> {
    let value = HeaderValue::from_str(&written.deployment).map_err(|cause| ApiError::internal(&cause))?;
    Ok((HeaderName::from_static(super::DEPLOYMENT), value))
}

fn view<'a>(snapshot: &'a Snapshot, id: &AppId) -> Result<&'a AppView, ApiError> {
    snapshot
        .apps
        .get(id)
        .map(AsRef::as_ref)
        .ok_or_else(|| Refusal::NoApp(id.clone()).into())
}

fn no_such_method() -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "This method is not allowed on this path",
    )
}
