//! `/v2/groups` and all paths below it.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Map, Value};
use transom_web::{ApiError, Json};

use super::apps::{constraint_problems, definition, documents_below, stored, version};
use super::change::{deployment_response, location, options, write};
use super::deployments::DeploymentSteps;
use super::group::{EmbeddedParts, group_response};
use super::query::Query;
use super::unknown_fields::DefinitionBody;
use super::{Api, error, pieces};
use crate::core::command::{Command, Edit, GroupEdit, Origin, Rejection};
use crate::core::persist::SpecRecord;
use crate::core::snapshot::Snapshot;
use crate::core::spec_view::SpecView;
use crate::ids::{GroupId, IdError};
use crate::model::{GroupUpdate, read_group};
use crate::time::Moment;

type HandlerResult = Result<Response, ApiError>;

/// The requested resource.
enum Target {
    Group(GroupId),
    /// `{id}/apps`
    Apps(GroupId),
    /// `{id}/versions`
    Versions(GroupId),
    /// `{id}/versions/{version}`
    Version(GroupId, String),
}

/// Parses a path below `/v2/groups`. The last segments decide, as with apps. No group has an invalid
/// id.
fn target(path: &str) -> Result<Target, ApiError> {
    let missing = |error| ApiError::not_found(format!("Group '/{path}' does not exist: the id {error}"));
    parse(path).map_err(missing)
}

fn parse(path: &str) -> Result<Target, IdError> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let id = |segments: &[&str]| GroupId::parse(&segments.join("/"));
    match segments.as_slice() {
        [group @ .., "apps"] => id(group).map(Target::Apps),
        [group @ .., "versions"] => id(group).map(Target::Versions),
        [group @ .., "versions", version] => Ok(Target::Version(id(group)?, (*version).to_owned())),
        whole => id(whole).map(Target::Group),
    }
}

/// A path that names a group itself.
fn group(path: &str) -> Result<GroupId, ApiError> {
    match target(path)? {
        Target::Group(id) => Ok(id),
        _ => Err(error::no_such_method()),
    }
}

/// A path that names a group, which may be new: an invalid id is a problem of the request.
fn group_to_write(path: &str) -> Result<GroupId, ApiError> {
    match parse(path) {
        Ok(Target::Group(id)) => Ok(id),
        Ok(_) => Err(error::no_such_method()),
        Err(error) => Err(error::invalid("/id", error.to_string())),
    }
}

/// The path below `/v2/groups`; empty for the root group.
type PathBelow = Option<Path<String>>;

fn text(path: &PathBelow) -> &str {
    path.as_ref().map_or("", |Path(path)| path)
}

/// `GET /v2/groups[/{id}]` and the paths below it.
pub(super) async fn get(State(api): State<Api>, path: PathBelow, query: Query) -> HandlerResult {
    let snapshot = api.snapshot();
    let existing = |id: &GroupId| {
        let exists = snapshot.has_group(id);
        exists.then_some(()).ok_or_else(|| Rejection::NoGroup(id.clone()))
    };
    Ok(match target(text(&path))? {
        Target::Group(id) => {
            existing(&id)?;
            group_response(snapshot, &id, EmbeddedParts::of(&query))
        }
        Target::Apps(id) => {
            existing(&id)?;
            pieces::response("[", "]", documents_below(snapshot, &id, &query))
        }
        Target::Versions(id) => {
            existing(&id)?;
            Json(snapshot.history.versions(&id)).into_response()
        }
        Target::Version(id, text) => {
            let version = version(&text)?;
            existing(&id)?;
            let past = at_version(&api, &snapshot, &id, version).await?;
            group_response(Arc::new(past), &id, EmbeddedParts::of(&query))
        }
    })
}

/// The snapshot with the definitions below a group as they were at one of its versions, and with
/// the current instances.
async fn at_version(
    api: &Api,
    snapshot: &Snapshot,
    id: &GroupId,
    version: Moment,
) -> Result<Snapshot, ApiError> {
    let since = snapshot.history.since(id, version);
    let since = since.ok_or_else(|| Rejection::NoGroupVersion(id.clone(), version))?;
    let mut past = snapshot.clone();
    for (id, version) in since.specs {
        let present = past.specs.remove(&id);
        let Some(version) = version else { continue };
        let definition = match &present {
            Some(view) => definition(api, view, version).await?,
            None => stored(api, &id, version).await?,
        };
        let view = present.map_or_else(
            || SpecView::of(definition.clone()),
            |view| SpecView {
                record: Arc::new(SpecRecord {
                    spec: definition.clone(),
                    ..SpecRecord::clone(&view.record)
                }),
                ..SpecView::clone(&view)
            },
        );
        past.specs.insert(id, Arc::new(view));
    }
    for group in since.groups {
        match (group.before, group.after) {
            (Some(before), _) => drop(past.groups.insert(before.id.clone(), before)),
            (None, Some(after)) => drop(past.groups.remove(&after.id)),
            (None, None) => {}
        }
    }
    Ok(past)
}

/// `POST /v2/groups[/{id}]`: creates a group. The id in the document is relative to the one in the
/// path.
pub(super) async fn post(
    State(api): State<Api>,
    path: PathBelow,
    query: Query,
    origin: Origin,
    body: DefinitionBody,
) -> HandlerResult {
    let update = decode(&api, body, &group_to_write(text(&path))?).await?;
    let id = update.id.clone();
    let location = location(id.as_str())?;
    let edit = GroupEdit::Create(Box::new(update));
    let started = write(&api, Edit::Group { id, edit }, options(&query, false)?, origin).await?;
    Ok((StatusCode::CREATED, [location], deployment_response(&started)?).into_response())
}

/// `PUT /v2/groups[/{id}]`: updates, scales or rolls back a group; with `dryRun` it only returns
/// the plan.
pub(super) async fn put(
    State(api): State<Api>,
    path: PathBelow,
    query: Query,
    origin: Origin,
    body: DefinitionBody,
) -> HandlerResult {
    if origin.path().ends_with('/') && body.value()["id"].is_null() {
        return Err(ApiError::bad_request(
            "the path ends with an empty id and the document has none, so neither names a group; the groups and apps \
             that the document does not list would be deleted. Name the group in the path or as `id`",
        ));
    }
    let update = decode(&api, body, &group_to_write(text(&path))?).await?;
    let id = update.id.clone();
    // A document with other members is a definition, whose rules reject both commands.
    let edit = match (update.version, update.scale_by) {
        (Some(version), None) if update.is_command => GroupEdit::Rollback(version),
        (None, Some(factor)) if update.is_command => GroupEdit::Scale(factor),
        _ => GroupEdit::Update(Box::new(update)),
    };
    let edit = Edit::Group { id, edit };
    if query.flag("dryRun", false) {
        let steps = api.ask(|reply| Command::Plan { edit, reply }).await?;
        return Ok(Json(DeploymentSteps { steps }).into_response());
    }
    deployment_response(&write(&api, edit, options(&query, false)?, origin).await?)
}

/// `PATCH /v2/groups[/{id}]`: changes `enforceRole`.
pub(super) async fn patch(
    State(api): State<Api>,
    path: PathBelow,
    query: Query,
    origin: Origin,
    body: DefinitionBody,
) -> HandlerResult {
    let id = group(text(&path))?;
    let others = body.value().as_object().into_iter().flat_map(Map::keys);
    if let Some(other) = others.into_iter().find(|key| *key != "enforceRole") {
        return Err(error::invalid(
            &format!("/{other}"),
            "cannot be changed with PATCH; only enforceRole can",
        ));
    }
    if !api.snapshot().has_group(&id) {
        return Err(Rejection::NoGroup(id).into());
    }
    let update = decode(&api, body, &id).await?;
    let edit = GroupEdit::Update(Box::new(update));
    deployment_response(&write(&api, Edit::Group { id, edit }, options(&query, false)?, origin).await?)
}

/// `DELETE /v2/groups[/{id}]`
pub(super) async fn delete(
    State(api): State<Api>,
    path: PathBelow,
    query: Query,
    origin: Origin,
) -> HandlerResult {
    let id = group(text(&path))?;
    if id.is_root() && origin.path() != "/v2/groups" {
        return Err(ApiError::bad_request(
            "the path names no group; DELETE /v2/groups, without a further slash, deletes all apps, pods and groups",
        ));
    }
    if origin.path().ends_with('/') {
        return Err(ApiError::bad_request(format!(
            "the path ends with an empty id, which names no group; without the slash, {id} is deleted with \
             everything below it"
        )));
    }
    let edit = GroupEdit::Delete;
    deployment_response(&write(&api, Edit::Group { id, edit }, options(&query, false)?, origin).await?)
}

/// Parses a group's document and validates the constraints of its apps. Its id is relative to the
/// group that the path names; without an id the document is about that group.
async fn decode(api: &Api, body: DefinitionBody, base: &GroupId) -> Result<GroupUpdate, ApiError> {
    let base = base.clone();
    let read = move |body: Value| {
        let named = body.get("id").is_some_and(|id| !id.is_null());
        Ok(read_group(&body, &base, Some(&base).filter(|_| !named))?)
    };
    let mut update = body.check(read).await?;
    let wrong = constraint_problems(api, update.constraints()).await?;
    update.broken.extend(wrong);
    Ok(update)
}
