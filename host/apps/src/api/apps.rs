//! `/v2/apps` and all paths below it.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::Value;
use transom_web::{ApiError, Json, Problems};

use super::app::{self, Embed, VersionList};
use super::change::{deployment_header, deployment_response, location, options, write};
use super::path::{Target, target, target_of_write};
use super::pieces::{self, Elements};
use super::query::Query;
use super::task::{TaskList, TaskSingle};
use super::unknown_fields::DefinitionBody;
use super::{Api, error, tasks};
use crate::core::command::{AppEdit, Command, Edit, Origin, Rejection, TaskSelection};
use crate::core::snapshot::Snapshot;
use crate::core::spec_view::SpecView;
use crate::ids::{GroupId, SpecId};
use crate::model::lengths::too_long;
use crate::model::{App, AppUpdate, Constraint, Invalid, Selector, Spec, read, read_in, read_patch};
use crate::task::condition;
use crate::time::Moment;

type HandlerResult = Result<Response, ApiError>;

/// `GET /v2/apps`
pub(super) async fn list(State(api): State<Api>, query: Query) -> HandlerResult {
    let selector = query.get("label").map(Selector::parse).transpose();
    let selector = selector.map_err(|wrong| {
        ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("invalid label selector: {wrong}"),
        )
    })?;
    let snapshot = api.snapshot();
    let embed = Embed::of(&query);
    let chosen = snapshot.specs.values().filter(|view| {
        let Some(app) = view.record.spec.app() else {
            return false;
        };
        let has = |parameter: &str, text: &str| query.get(parameter).is_none_or(|part| text.contains(part));
        has("id", app.id.as_str())
            && has("cmd", app.cmd.as_deref().unwrap_or_default())
            && selector
                .as_ref()
                .is_none_or(|selector| selector.matches(&app.labels))
    });
    let chosen: Vec<Arc<SpecView>> = chosen.map(Arc::clone).collect();
    let apps = app::documents(chosen.into_iter(), snapshot, embed);
    Ok(pieces::response("{\"apps\":[", "]}", apps))
}

/// The documents of the apps below a group.
pub(super) fn documents_below(snapshot: Arc<Snapshot>, group: &GroupId, query: &Query) -> Elements {
    let views: Vec<Arc<SpecView>> = snapshot.specs_below(group).cloned().collect();
    app::documents(views.into_iter(), snapshot, Embed::of(query))
}

/// `POST /v2/apps`
pub(super) async fn create(
    State(api): State<Api>,
    query: Query,
    origin: Origin,
    body: DefinitionBody,
) -> HandlerResult {
    let update = decode(&api, body, None, false).await?;
    let id = error::required_id(update.id.clone(), &update.broken, "an app")?;
    let options = options(&query, false)?;
    let edit = AppEdit::Create(Box::new(update));
    let started = write(&api, Edit::App { id, edit }, options, origin).await?;
    // As in upstream, the response omits the times of the last changes.
    let app = started.spec.as_ref().and_then(Spec::app).map(|app| App {
        version_info: None,
        ..App::clone(app)
    });
    let document = app.as_ref().map(|app| app::created(app, &started.deployment));
    let location = location(app.as_ref().map_or("", |app| app.id.as_str()))?;
    Ok((
        StatusCode::CREATED,
        [location, deployment_header(&started)?],
        Json(document),
    )
        .into_response())
}

/// `GET /v2/apps/{id}` and the paths below it.
pub(super) async fn get(State(api): State<Api>, Path(path): Path<String>, query: Query) -> HandlerResult {
    let snapshot = api.snapshot();
    let check_failure = query.embeds("checkFailure");
    Ok(match target(&path)? {
        Target::App(id) => {
            app(&snapshot, &id)?;
            let view = snapshot.specs.get(&id).cloned();
            let embed = Embed::for_one(&query);
            let failing = match &view {
                Some(view) if embed.failing => api.failing(view).await,
                _ => None,
            };
            let app = app::elements(view.into_iter(), snapshot, embed, move |_| failing.clone());
            pieces::response("{\"app\":", "}", app)
        }
        Target::Tasks(id) => {
            app(&snapshot, &id)?;
            let view = snapshot.specs.get(&id).cloned();
            tasks::response(view.into_iter(), |_| true, check_failure)
        }
        Target::Versions(id) => {
            let (view, _) = app(&snapshot, &id)?;
            let versions = view.versions.iter().rev().collect();
            Json(VersionList { versions }).into_response()
        }
        Target::Version(id, text) => {
            let (view, _) = app(&snapshot, &id)?;
            let version = version(&text)?;
            if !view.versions.contains(&version) {
                return Err(Rejection::NoVersion(id, version).into());
            }
            Json(definition(&api, view, version).await?.app()).into_response()
        }
        Target::AppsBelow(group) => {
            let apps = documents_below(snapshot, &group, &query);
            pieces::response("{\"*\":[", "]}", apps)
        }
        Target::TasksBelow(group) => {
            let views = snapshot
                .specs_below(&group)
                .filter(|view| !view.record.spec.is_pod());
            let views: Vec<_> = views.cloned().collect();
            tasks::response(views.into_iter(), |_| true, check_failure)
        }
        Target::Task(..) | Target::Restart(_) => return Err(error::no_such_method()),
    })
}

/// `PUT /v2/apps/{id}`
pub(super) async fn put(
    State(api): State<Api>,
    Path(path): Path<String>,
    query: Query,
    origin: Origin,
    body: DefinitionBody,
) -> HandlerResult {
    change(&api, &path, &query, origin, body, true).await
}

/// `PATCH /v2/apps/{id}`
pub(super) async fn patch(
    State(api): State<Api>,
    Path(path): Path<String>,
    query: Query,
    origin: Origin,
    body: DefinitionBody,
) -> HandlerResult {
    change(&api, &path, &query, origin, body, false).await
}

async fn change(
    api: &Api,
    path: &str,
    query: &Query,
    origin: Origin,
    body: DefinitionBody,
    create: bool,
) -> HandlerResult {
    let Target::App(id) = target_of_write(path)? else {
        return Err(error::no_such_method());
    };
    let (options, partial) = (options(query, false)?, query.flag("partialUpdate", true));
    let update = decode(api, body, Some(&id), partial && !create).await?;
    if update.id.as_ref().is_some_and(|named| *named != id) {
        return Err(error::invalid(
            "/id",
            format!("is not {id}, which the path names; an id cannot be changed"),
        ));
    }
    let edit = AppEdit::Update {
        update: Box::new(update),
        partial,
        create,
        restart: query.flag("restart", false),
    };
    let location = location(id.as_str())?;
    let started = write(api, Edit::App { id, edit }, options, origin).await?;
    if !started.created {
        return deployment_response(&started);
    }
    Ok((StatusCode::CREATED, [location], deployment_response(&started)?).into_response())
}

/// `PUT /v2/apps`: creates or updates several apps.
pub(super) async fn put_all(
    State(api): State<Api>,
    query: Query,
    origin: Origin,
    body: DefinitionBody,
) -> HandlerResult {
    change_all(&api, &query, origin, body, true).await
}

/// `PATCH /v2/apps`: updates several apps.
pub(super) async fn patch_all(
    State(api): State<Api>,
    query: Query,
    origin: Origin,
    body: DefinitionBody,
) -> HandlerResult {
    change_all(&api, &query, origin, body, false).await
}

async fn change_all(
    api: &Api,
    query: &Query,
    origin: Origin,
    body: DefinitionBody,
    create: bool,
) -> HandlerResult {
    let partial = query.flag("partialUpdate", true);
    let are_patches = partial && !create;
    let updates = body.check(move |body| Ok(read_all(&body, are_patches)?)).await?;
    let constraints = updates.iter().enumerate();
    let constraints = constraints.map(|(index, update)| (format!("/({index})"), update.constraints()));
    let wrong = constraint_problems(api, constraints.collect()).await?;
    if !wrong.is_empty() {
        return Err(Invalid::Rules(wrong).into());
    }
    let edit = Edit::Apps {
        updates,
        partial,
        create,
    };
    deployment_response(&write(api, edit, options(query, false)?, origin).await?)
}

/// Parses a list of definitions, or of patches, and reports all problems of shape together.
pub(super) fn read_all(body: &Value, patches: bool) -> Result<Vec<AppUpdate>, Invalid> {
    let wrong = |text: &str| Invalid::Shape(Problems::one("/", text));
    let documents = body.as_array().ok_or_else(|| wrong("error.expected.jsarray"))?;
    if let Some(text) = too_long("apps", documents.len()) {
        return Err(wrong(&text));
    }
    let (mut updates, mut shape) = (Vec::with_capacity(documents.len()), Problems::default());
    for (index, document) in documents.iter().enumerate() {
        let update = if patches {
            read_patch(document, None)
        } else {
            read(document)
        };
        match update {
            Ok(update) => updates.push(update),
            Err(Invalid::Shape(problems) | Invalid::Rules(problems)) => {
                shape.extend(problems.below(&format!("/({index})")));
            }
        }
    }
    if shape.is_empty() {
        Ok(updates)
    } else {
        Err(Invalid::Shape(shape))
    }
}

/// `DELETE /v2/apps/{id}` and `DELETE /v2/apps/{id}/tasks[/{task}]`
pub(super) async fn delete(
    State(api): State<Api>,
    Path(path): Path<String>,
    query: Query,
    origin: Origin,
) -> HandlerResult {
    match target(&path)? {
        Target::App(id) => {
            let edit = AppEdit::Delete;
            deployment_response(&write(&api, Edit::App { id, edit }, options(&query, true)?, origin).await?)
        }
        Target::Tasks(id) => {
            if origin.path().ends_with('/') {
                return Err(ApiError::bad_request(
                    "the path ends with an empty task id, which names no task; without the slash, all tasks of the \
                     app are killed",
                ));
            }
            let unknown = query.names().find(|name| !KILL_PARAMETERS.contains(name));
            if let Some(unknown) = unknown {
                return Err(ApiError::bad_request(format!(
                    "unknown parameter {unknown:?}: without it, tasks would be killed that it may have left out. \
                     Expected one of: {}",
                    KILL_PARAMETERS.join(", ")
                )));
            }
            // No host has an empty name: it selects no task rather than all.
            let selection = query
                .first("host")
                .map_or(TaskSelection::All, |host| TaskSelection::OnHost(host.to_owned()));
            kill(&api, id, selection, &query).await
        }
        Target::Task(id, task) => kill(&api, id, TaskSelection::One(task), &query).await,
        // `restart` is a reserved word, so no app can have this id.
        Target::Restart(id) => Err(ApiError::not_found(format!("App '{id}/restart' does not exist"))),
        _ => Err(error::no_such_method()),
    }
}

/// `POST /v2/apps/{id}/restart`
pub(super) async fn post(
    State(api): State<Api>,
    Path(path): Path<String>,
    query: Query,
    origin: Origin,
) -> HandlerResult {
    let Target::Restart(id) = target(&path)? else {
        return Err(error::no_such_method());
    };
    let edit = AppEdit::Restart;
    deployment_response(&write(&api, Edit::App { id, edit }, options(&query, false)?, origin).await?)
}

/// The parameters of a request that kills the tasks of an app.
const KILL_PARAMETERS: &[&str] = &[
    "host",
    "scale",
    "wipe",
    "force",
    "deadline",
    "onDeadline",
    "canary",
    "canarySeconds",
];

async fn kill(api: &Api, id: SpecId, selection: TaskSelection, query: &Query) -> HandlerResult {
    let options = tasks::kill_options(query)?;
    let is_single = matches!(selection, TaskSelection::One(_));
    let command = |reply| Command::Kill {
        id,
        selection,
        options,
        reply,
    };
    let killed = api.ask(command).await?;
    if let Some(started) = &killed.deployment {
        return deployment_response(started);
    }
    let snapshot = api.snapshot();
    let tasks = tasks::killed_tasks(&snapshot, &killed);
    Ok(if is_single {
        let task = tasks.into_iter().next();
        Json(TaskSingle { task }).into_response()
    } else {
        Json(TaskList { tasks }).into_response()
    })
}

/// Parses a definition and validates its constraints. `id` is the one in the path, if it has one.
async fn decode(
    api: &Api,
    body: DefinitionBody,
    id: Option<&SpecId>,
    is_patch: bool,
) -> Result<AppUpdate, ApiError> {
    let base = id.map(GroupId::from);
    let rules = move |body| match base {
        _ if is_patch => Ok(read_patch(&body, base.as_ref())?),
        Some(base) => Ok(read_in(&body, &base)?),
        None => Ok(read(&body)?),
    };
    let mut update = body.check(rules).await?;
    let wrong = constraint_problems(api, vec![(String::new(), update.constraints())]).await?;
    update.broken.extend(wrong);
    Ok(update)
}

/// The problems that the matcher component finds in the constraints of some apps, each with the
/// path of its definition. One call of the component covers all of them.
pub(super) async fn constraint_problems(
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
    for error in wrong.map_err(Rejection::Plugin)? {
        if let Some((path, index, _)) = places.get(error.constraint as usize) {
            problems.add(format!("{path}/constraints({index})"), error.message);
        }
    }
    Ok(problems)
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

/// A kept definition, from memory or from the store.
pub(super) async fn definition(api: &Api, view: &SpecView, version: Moment) -> Result<Spec, ApiError> {
    if view.record.spec.version() == version {
        return Ok(view.record.spec.clone());
    }
    if let Some(past) = view.past.get(&version) {
        return Ok(past.clone());
    }
    stored(api, view.record.spec.id(), version).await
}

/// A past definition from the store.
pub(super) async fn stored(api: &Api, id: &SpecId, version: Moment) -> Result<Spec, ApiError> {
    let stored = api.0.repository.definition(id, version).await;
    let stored = stored.map_err(Rejection::from)?;
    stored.ok_or_else(|| Rejection::NoVersion(id.clone(), version).into())
}

fn app<'a>(snapshot: &'a Snapshot, id: &SpecId) -> Result<(&'a SpecView, &'a App), ApiError> {
    let app = snapshot.app(id);
    app.ok_or_else(|| Rejection::NoApp(id.clone()).into())
}
