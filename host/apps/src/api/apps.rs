//! `/v2/apps` and all paths below it.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use transom_web::{ApiError, Json};

use super::app::{Embed, shown};
use super::path::{Target, target};
use super::query::Query;
use super::{Api, error, task};
use crate::config::OnDeadline;
use crate::core::command::{
    AppEdit, Command, Edit, Killed, Manner, Options, Origin, Refusal, Which, Written,
};
use crate::core::snapshot::{AppView, Snapshot};
use crate::deploy::Deadline;
use crate::ids::AppId;
use crate::model::{App, AppUpdate, Constraint, Invalid, Selector, read};
use crate::task::condition;
use crate::time::Moment;
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
    let options = options(&query, false)?;
    let edit = AppEdit::Create(Box::new(update));
    let written = write(&api, Edit::App { id, edit }, options, origin).await?;
    let mut app = json!(written.app);
    if let Some(members) = app.as_object_mut() {
        members.remove("versionInfo");
    }
    for count in ["tasksStaged", "tasksRunning", "tasksHealthy", "tasksUnhealthy"] {
        app[count] = json!(0);
    }
    app["deployments"] = json!([{"id": written.deployment}]);
    let location = location(app["id"].as_str().unwrap_or_default())?;
    Ok((
        StatusCode::CREATED,
        [location, deployment_header(&written)?],
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
            let versions: Vec<_> = view(&snapshot, &id)?.versions.iter().rev().collect();
            json!({"versions": versions})
        }
        Target::Version(id, text) => {
            let view = view(&snapshot, &id)?;
            let version = version(&text)?;
            if !view.versions.contains(&version) {
                return Err(Refusal::NoVersion(id, version).into());
            }
            json!(definition(&api, view, version).await?)
        }
        Target::AppsBelow(group) => {
            let embed = Embed::of(&query);
            let apps = snapshot.apps_below(&group);
            let apps: Vec<Value> = apps.map(|view| shown(view, &snapshot, embed)).collect();
            json!({"*": apps})
        }
        Target::TasksBelow(group) => {
            let check_failure = query.embeds("checkFailure");
            let apps = snapshot.apps_below(&group);
            let tasks: Vec<Value> = apps.flat_map(|view| task::of_app(view, check_failure)).collect();
            json!({"tasks": tasks})
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
    let (options, partial) = (options(query, false)?, query.flag("partialUpdate", true));
    let update = decode(api, body).await?;
    if update.id.as_ref().is_some_and(|named| *named != id) {
        return Err(error::invalid(
            "/id",
            format!("is not {id}, which the path names; an id cannot be changed"),
        ));
    }
    let named = usize::from(body.get("id").is_some_and(|id| !id.is_null()));
    let edit = match update.version {
        Some(version) if update.members == 1 + named => AppEdit::Rollback(version),
        Some(_) => {
            let text = "The 'version' field may only be combined with the 'id' field.";
            return Err(error::invalid("/version", text));
        }
        _ => AppEdit::Update {
            update: Box::new(update),
            partial,
            create,
            restart: query.flag("restart", false),
        },
    };
    let location = location(id.as_str())?;
    let written = write(api, Edit::App { id, edit }, options, origin).await?;
    if !written.created {
        return deployed(&written);
    }
    Ok((StatusCode::CREATED, [location], deployed(&written)?).into_response())
}

/// `PUT /v2/apps`: creates or updates several apps.
pub(super) async fn put_all(
    State(api): State<Api>,
    query: Query,
    origin: Origin,
    Json(body): Json<Value>,
) -> Answer {
    change_all(&api, &query, origin, &body, true).await
}

/// `PATCH /v2/apps`: updates several apps.
pub(super) async fn patch_all(
    State(api): State<Api>,
    query: Query,
    origin: Origin,
    Json(body): Json<Value>,
) -> Answer {
    change_all(&api, &query, origin, &body, false).await
}

async fn change_all(api: &Api, query: &Query, origin: Origin, body: &Value, create: bool) -> Answer {
    let Some(documents) = body.as_array() else {
        return Err(ApiError::invalid_json(&Problems::one(
            "/",
            "error.expected.jsarray",
        )));
    };
    let (mut updates, mut shape) = (Vec::with_capacity(documents.len()), Problems::default());
    for (index, document) in documents.iter().enumerate() {
        match read(document) {
            Ok(update) => updates.push(update),
            Err(Invalid::Shape(problems) | Invalid::Rules(problems)) => {
                shape.extend(problems.below(&format!("/({index})")));
            }
        }
    }
    if !shape.is_empty() {
        return Err(Invalid::Shape(shape).into());
    }
    let constraints = updates.iter().enumerate();
    let constraints = constraints.map(|(index, update)| (format!("/({index})"), update.constraints()));
    let wrong = wrong_constraints(api, constraints.collect()).await?;
    if !wrong.is_empty() {
        return Err(Invalid::Rules(wrong).into());
    }
    let edit = Edit::Apps {
        updates,
        partial: query.flag("partialUpdate", true),
        create,
    };
    deployed(&write(api, edit, options(query, false)?, origin).await?)
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
            let edit = AppEdit::Delete;
            deployed(&write(&api, Edit::App { id, edit }, options(&query, true)?, origin).await?)
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
        _ => Err(no_such_method()),
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
    let edit = AppEdit::Restart;
    deployed(&write(&api, Edit::App { id, edit }, options(&query, false)?, origin).await?)
}

/// The parameters of a request that kills tasks: `scale`, `wipe` and `force`.
pub(super) fn manner(query: &Query) -> Result<Manner, ApiError> {
    let (scale, wipe) = (query.flag("scale", false), query.flag("wipe", false));
    if scale && wipe {
        return Err(ApiError::bad_request(
            "You cannot use scale and wipe at the same time.",
        ));
    }
    Ok(Manner {
        scale,
        wipe,
        options: options(query, false)?,
    })
}

/// The parameters of every change: `force`, `deadline` and `onDeadline`.
pub(super) fn options(query: &Query, force: bool) -> Result<Options, ApiError> {
    let on_deadline = match query.get("onDeadline") {
        None | Some("rollback") => OnDeadline::Rollback,
        Some("fail") => OnDeadline::Fail,
        Some(other) => {
            let text = format!("onDeadline={other} is not one of rollback, fail");
            return Err(ApiError::bad_request(text));
        }
    };
    let seconds = query.get("deadline").map(|text| {
        let seconds = text.parse().ok().filter(|seconds| *seconds > 0);
        seconds.ok_or_else(|| {
            ApiError::bad_request(format!("deadline={text} is not a number of seconds from 1"))
        })
    });
    let seconds = seconds.transpose()?;
    if seconds.is_none() && query.get("onDeadline").is_some() {
        return Err(ApiError::bad_request("onDeadline needs a deadline"));
    }
    Ok(Options {
        force: query.flag("force", force),
        deadline: seconds.map(|seconds| Deadline { seconds, on_deadline }),
    })
}

/// The killed tasks, as they were before.
pub(super) fn ended(api: &Api, killed: &Killed) -> Vec<Value> {
    let snapshot = api.snapshot();
    let mut tasks = Vec::new();
    for of_app in &killed.apps {
        let view = snapshot.apps.get(&of_app.app.id);
        let instances = of_app.instances.iter();
        tasks.extend(instances.filter_map(|instance| task::shown(view?, instance, false)));
    }
    tasks
}

async fn kill(api: &Api, app: AppId, which: Which, query: &Query, name: &str) -> Answer {
    let manner = manner(query)?;
    let command = |reply| Command::Kill {
        app,
        which,
        manner,
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
    let wrong = wrong_constraints(api, vec![(String::new(), update.constraints())]).await?;
    update.broken.extend(wrong);
    Ok(update)
}

/// The problems that the matcher component finds in the constraints of some apps, each with the
/// path of its definition. The component is asked once.
pub(super) async fn wrong_constraints(
    api: &Api,
    apps: Vec<(String, &[Constraint])>,
) -> Result<Problems, ApiError> {
    let mut problems = Problems::default();
    let places: Vec<(&str, usize, &Constraint)> = apps
        .iter()
        .flat_map(|(path, constraints)| {
            let numbered = constraints.iter().enumerate();
            numbered.map(|(index, constraint)| (path.as_str(), index, constraint))
        })
        .collect();
    if places.is_empty() {
        return Ok(problems);
    }
    let conditions: Vec<_> = places.iter().map(|(.., one)| condition(one)).collect();
    let wrong = api.0.policies.validate_constraints(&conditions).await;
    for error in wrong.map_err(Refusal::Plugin)? {
        if let Some((path, index, _)) = places.get(error.constraint as usize) {
            problems.add(format!("{path}/constraints({index})"), error.message);
        }
    }
    Ok(problems)
}

pub(super) async fn write(
    api: &Api,
    edit: Edit,
    options: Options,
    origin: Origin,
) -> Result<Written, ApiError> {
    let command = |reply| Command::Write {
        edit,
        options,
        origin,
        reply,
    };
    Ok(api.ask(command).await?)
}

/// A version in a path or a parameter.
pub(super) fn version(text: &str) -> Result<Moment, ApiError> {
    text.parse().map_err(|_| {
        ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("{text} is not a version; expected a time such as 2015-09-29T15:59:51.164Z"),
        )
    })
}

/// A kept definition of an app, from memory or from the store.
async fn definition(api: &Api, view: &AppView, version: Moment) -> Result<Arc<App>, ApiError> {
    if view.app.version == version {
        return Ok(Arc::clone(&view.app));
    }
    if let Some(past) = view.past.get(&version) {
        return Ok(Arc::clone(past));
    }
    let id = &view.app.id;
    let stored = api
        .0
        .repository
        .definition(id, version)
        .await
        .map_err(Refusal::from)?;
    stored.ok_or_else(|| Refusal::NoVersion(id.clone(), version).into())
}

pub(super) fn location(path: &str) -> Result<(HeaderName, HeaderValue), ApiError> {
    let value = HeaderValue::from_str(path).map_err(|cause| ApiError::internal(&cause))?;
    Ok((header::LOCATION, value))
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
