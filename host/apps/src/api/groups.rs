//! `/v2/groups` and all paths below it.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Map, Value, json};
use transom_web::{ApiError, Json};

use super::app::{self, Embed};
use super::apps::{deployed, location, options, version, write, wrong_constraints};
use super::query::Query;
use super::{Api, error};
use crate::core::command::{Command, Edit, GroupEdit, Origin, Refusal};
use crate::core::snapshot::Snapshot;
use crate::ids::{AppId, GroupId};
use crate::model::{GroupUpdate, read_group};
use crate::time::Moment;

type Answer = Result<Response, ApiError>;

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

/// Parses a path below `/v2/groups`. The last segments decide, as with apps.
fn target(path: &str) -> Result<Target, ApiError> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let id = |segments: &[&str]| {
        GroupId::parse(&segments.join("/"))
            .map_err(|error| ApiError::not_found(format!("Group '/{path}' does not exist: the id {error}")))
    };
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
        _ => Err(ApiError::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "This method is not allowed on this path",
        )),
    }
}

/// `GET /v2/groups`
pub(super) async fn root(State(api): State<Api>, query: Query) -> Answer {
    read(&api, "", &query)
}

/// `GET /v2/groups/{id}` and the paths below it.
pub(super) async fn get(State(api): State<Api>, Path(path): Path<String>, query: Query) -> Answer {
    read(&api, &path, &query)
}

fn read(api: &Api, path: &str, query: &Query) -> Answer {
    let snapshot = api.snapshot();
    let existing = |id: &GroupId| {
        let exists = snapshot.has_group(id);
        exists.then_some(()).ok_or_else(|| Refusal::NoGroup(id.clone()))
    };
    let answer = match target(path)? {
        Target::Group(id) => {
            existing(&id)?;
            shown(&snapshot, &id, &Parts::of(query))
        }
        Target::Apps(id) => {
            existing(&id)?;
            let embed = Embed::of(query);
            let apps = snapshot.apps_below(&id);
            json!(
                apps.map(|view| app::shown(view, &snapshot, embed))
                    .collect::<Vec<_>>()
            )
        }
        Target::Versions(id) => {
            existing(&id)?;
            json!(snapshot.history.versions(&id))
        }
        Target::Version(id, text) => {
            let version = version(&text)?;
            existing(&id)?;
            if !snapshot.history.versions(&id).contains(&version) {
                return Err(Refusal::NoGroupVersion(id, version).into());
            }
            // Groups go back to earlier versions by their changes; only the present one is whole.
            if snapshot.history.versions(&id).first() != Some(&version) {
                let text =
                    "only the current version of a group can be shown; go back to an earlier one with PUT";
                return Err(ApiError::not_found(text));
            }
            shown(&snapshot, &id, &Parts::of(query))
        }
    };
    Ok(Json(answer).into_response())
}

/// The parts of a group's document.
struct Parts {
    groups: bool,
    apps: bool,
    pods: bool,
    embed: Embed,
}

impl Parts {
    /// The requested parts; all if none is named.
    fn of(query: &Query) -> Self {
        let asked = |part: &str| query.all("embed").any(|embed| embed == part);
        let (groups, apps, pods) = (asked("group.groups"), asked("group.apps"), asked("group.pods"));
        let none = !groups && !apps && !pods;
        Self {
            groups: groups || none,
            apps: apps || none,
            pods: pods || none,
            embed: Embed::of(query),
        }
    }
}

/// A group's document. Its version is the latest one of its definition and of the apps below it.
fn shown(snapshot: &Snapshot, id: &GroupId, parts: &Parts) -> Value {
    let mut document = Building::new(snapshot, id);
    if parts.apps {
        for view in snapshot.apps_below(id) {
            let apps = document.at(snapshot, &view.app.id.group());
            if let Some(apps) = apps.and_then(|group| group.get_mut("apps")?.as_array_mut()) {
                apps.push(app::shown(view, snapshot, parts.embed));
            }
        }
    }
    document.finish(parts)
}

/// A tree of documents that is being built, addressed by path.
struct Building {
    id: GroupId,
    root: Map<String, Value>,
}

impl Building {
    fn new(snapshot: &Snapshot, id: &GroupId) -> Self {
        let mut building = Self {
            id: id.clone(),
            root: own(snapshot, id),
        };
        let below: Vec<GroupId> = snapshot
            .groups
            .keys()
            .filter(|group| id.is_above(group.as_str()))
            .cloned()
            .collect();
        for group in &below {
            building.at(snapshot, group);
        }
        building
    }

    /// The document of a group in the tree; it is added if it is missing.
    fn at(&mut self, snapshot: &Snapshot, id: &GroupId) -> Option<&mut Map<String, Value>> {
        let mut chain: Vec<GroupId> = id
            .with_ancestors()
            .take_while(|group| *group != self.id)
            .collect();
        chain.reverse();
        let mut document = &mut self.root;
        for group in chain {
            let groups = document.get_mut("groups")?.as_array_mut()?;
            let known = groups.iter().rposition(|known| known["id"] == group.as_str());
            let index = known.unwrap_or_else(|| {
                groups.push(Value::Object(own(snapshot, &group)));
                groups.len() - 1
            });
            document = groups.get_mut(index)?.as_object_mut()?;
        }
        Some(document)
    }

    fn finish(self, parts: &Parts) -> Value {
        let mut document = Value::Object(self.root);
        prune(&mut document, parts);
        document
    }
}

/// A group's own members, with empty lists.
fn own(snapshot: &Snapshot, id: &GroupId) -> Map<String, Value> {
    let group = snapshot.groups.get(id);
    let dependencies: &[AppId] = group.map_or(&[], |group| &group.dependencies);
    let apps = snapshot.apps_below(id).map(|view| view.app.version);
    let version = group.map(|group| group.version).into_iter().chain(apps).max();
    let version = version.unwrap_or_else(|| Moment::from(jiff::Timestamp::UNIX_EPOCH));
    let members = json!({
        "id": id, "dependencies": dependencies, "version": version, "apps": [], "pods": [], "groups": [],
    });
    match members {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// Removes the parts that are not asked for.
fn prune(document: &mut Value, parts: &Parts) {
    let Some(members) = document.as_object_mut() else {
        return;
    };
    for (part, wanted) in [
        ("groups", parts.groups),
        ("apps", parts.apps),
        ("pods", parts.pods),
    ] {
        if !wanted {
            members.remove(part);
        }
    }
    if let Some(groups) = members.get_mut("groups").and_then(Value::as_array_mut) {
        for group in groups {
            prune(group, parts);
        }
    }
}

/// `POST /v2/groups`
pub(super) async fn create(
    State(api): State<Api>,
    query: Query,
    origin: Origin,
    Json(body): Json<Value>,
) -> Answer {
    post(&api, &GroupId::root(), &query, origin, &body).await
}

/// `POST /v2/groups/{id}`: the group is named by the path, or by the document below it.
pub(super) async fn create_at(
    State(api): State<Api>,
    Path(path): Path<String>,
    query: Query,
    origin: Origin,
    Json(body): Json<Value>,
) -> Answer {
    post(&api, &group(&path)?, &query, origin, &body).await
}

async fn post(api: &Api, base: &GroupId, query: &Query, origin: Origin, body: &Value) -> Answer {
    let update = decode(api, body, base).await?;
    let id = update.id.clone();
    let edit = GroupEdit::Create(Box::new(update));
    let location = location(id.as_str())?;
    let written = write(api, Edit::Group { id, edit }, options(query, false)?, origin).await?;
    Ok((StatusCode::CREATED, [location], deployed(&written)?).into_response())
}

/// `PUT /v2/groups`
pub(super) async fn put_root(
    State(api): State<Api>,
    query: Query,
    origin: Origin,
    Json(body): Json<Value>,
) -> Answer {
    update(&api, GroupId::root(), &query, origin, &body).await
}

/// `PUT /v2/groups/{id}`
pub(super) async fn put(
    State(api): State<Api>,
    Path(path): Path<String>,
    query: Query,
    origin: Origin,
    Json(body): Json<Value>,
) -> Answer {
    update(&api, group(&path)?, &query, origin, &body).await
}

/// Updates, scales or rolls back a group; with `dryRun` it is only planned.
async fn update(api: &Api, path: GroupId, query: &Query, origin: Origin, body: &Value) -> Answer {
    let update = decode(api, body, &path).await?;
    let id = update.id.clone();
    let edit = match (update.version, update.scale_by) {
        (Some(version), _) => GroupEdit::Rollback(version),
        (None, Some(factor)) => GroupEdit::Scale(factor),
        (None, None) => GroupEdit::Update(Box::new(update)),
    };
    let edit = Edit::Group { id, edit };
    if query.flag("dryRun", false) {
        let steps = api.ask(|reply| Command::Plan { edit, reply }).await?;
        return Ok(Json(json!({"steps": steps})).into_response());
    }
    deployed(&write(api, edit, options(query, false)?, origin).await?)
}

/// `PATCH /v2/groups`
pub(super) async fn patch_root(
    State(api): State<Api>,
    query: Query,
    origin: Origin,
    Json(body): Json<Value>,
) -> Answer {
    enforce(&api, GroupId::root(), &query, origin, &body).await
}

/// `PATCH /v2/groups/{id}`
pub(super) async fn patch(
    State(api): State<Api>,
    Path(path): Path<String>,
    query: Query,
    origin: Origin,
    Json(body): Json<Value>,
) -> Answer {
    enforce(&api, group(&path)?, &query, origin, &body).await
}

/// `{"enforceRole": false}` is how all groups are.
async fn enforce(api: &Api, id: GroupId, query: &Query, origin: Origin, body: &Value) -> Answer {
    let others = body.as_object().into_iter().flat_map(Map::keys);
    if let Some(other) = others.into_iter().find(|key| *key != "enforceRole") {
        return Err(error::invalid(
            &format!("/{other}"),
            "cannot be changed with PATCH; only enforceRole can",
        ));
    }
    if !api.snapshot().has_group(&id) {
        return Err(Refusal::NoGroup(id).into());
    }
    let update = decode(api, body, &id).await?;
    let edit = GroupEdit::Update(Box::new(update));
    deployed(&write(api, Edit::Group { id, edit }, options(query, false)?, origin).await?)
}

/// `DELETE /v2/groups`
pub(super) async fn delete_root(State(api): State<Api>, query: Query, origin: Origin) -> Answer {
    remove(&api, GroupId::root(), &query, origin).await
}

/// `DELETE /v2/groups/{id}`
pub(super) async fn delete(
    State(api): State<Api>,
    Path(path): Path<String>,
    query: Query,
    origin: Origin,
) -> Answer {
    remove(&api, group(&path)?, &query, origin).await
}

async fn remove(api: &Api, id: GroupId, query: &Query, origin: Origin) -> Answer {
    let edit = GroupEdit::Delete;
    deployed(&write(api, Edit::Group { id, edit }, options(query, false)?, origin).await?)
}

/// Parses a group's document and validates the constraints of its apps. Its id is relative to the
/// group that the path names; without an id the document is about that group.
async fn decode(api: &Api, body: &Value, base: &GroupId) -> Result<GroupUpdate, ApiError> {
    let named = body.get("id").is_some_and(|id| !id.is_null());
    let mut update = read_group(body, base, Some(base).filter(|_| !named))?;
    let wrong = wrong_constraints(api, update.constraints()).await?;
    update.broken.extend(wrong);
    Ok(update)
}
