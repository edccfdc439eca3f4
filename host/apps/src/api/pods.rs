//! `/v2/pods` and all paths below it.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use transom_web::{ApiError, Json, Problems};

use super::apps::{constraint_problems, definition, version};
use super::change::{deployment_header, location, options, write};
use super::query::Query;
use super::unknown_fields::DefinitionBody;
use super::{Api, error, pieces, pod_status};
use crate::core::command::{
    Command, Edit, KillOptions, KillResult, Origin, PodEdit, Rejection, StartedDeployment, TaskSelection,
};
use crate::core::failing;
use crate::core::snapshot::Snapshot;
use crate::core::spec_view::SpecView;
use crate::ids::{IdError, InstanceId, SpecId};
use crate::instance::Instance;
use crate::model::lengths::too_long;
use crate::model::pod::{PodInput, read_pod};
use crate::model::{Pod, Spec, UnreachableStrategy};
use crate::time::Moment;

type HandlerResult = Result<Response, ApiError>;

/// The requested resource below `/v2/pods/`. Ids contain slashes; what follows them begins with two
/// colons.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Pod(SpecId),
    /// `::status`, without an id
    AllStatuses,
    /// `{id}::status`
    Status(SpecId),
    /// `{id}::versions`
    Versions(SpecId),
    /// `{id}::versions/{version}`
    Version(SpecId, String),
    /// `{id}::instances`
    Instances(SpecId),
    /// `{id}::instances/{instance}`
    Instance(SpecId, String),
}

fn target(path: &str) -> Result<Target, ApiError> {
    let missing =
        |id: &str, error| ApiError::not_found(format!("Pod '/{id}' does not exist: the id {error}"));
    parse(path, missing)
}

/// `invalid` is the error for an invalid id.
fn parse(path: &str, invalid: impl Fn(&str, IdError) -> ApiError) -> Result<Target, ApiError> {
    let (id, rest) = path.split_once("::").unwrap_or((path, ""));
    let rest: Vec<&str> = rest.split('/').filter(|segment| !segment.is_empty()).collect();
    if id.trim_matches('/').is_empty() && rest == ["status"] {
        return Ok(Target::AllStatuses);
    }
    let id = SpecId::parse(id).map_err(|error| invalid(id, error))?;
    Ok(match rest.as_slice() {
        [] => Target::Pod(id),
        ["status"] => Target::Status(id),
        ["versions"] => Target::Versions(id),
        ["versions", version] => Target::Version(id, (*version).to_owned()),
        ["instances"] => Target::Instances(id),
        ["instances", instance] => Target::Instance(id, (*instance).to_owned()),
        _ => return Err(ApiError::not_found(format!("Not found: /v2/pods/{path}"))),
    })
}

/// `GET /v2/pods`. Clients send a HEAD to find out whether the API supports pods.
pub(super) async fn list(State(api): State<Api>) -> Response {
    let views = api.snapshot().specs.clone().into_iter();
    let pods = views.filter_map(|(_, view)| Some(view.record.spec.pod()?.without_version_info()));
    pieces::response("[", "]", pieces::each(pods))
}

/// `POST /v2/pods`
pub(super) async fn create(
    State(api): State<Api>,
    query: Query,
    origin: Origin,
    body: DefinitionBody,
) -> HandlerResult {
    let input = decode(&api, body).await?;
    let id = error::required_id(input.id.clone(), &input.broken, "a pod")?;
    let location = location(id.as_str())?;
    let edit = PodEdit::Create(Box::new(input));
    let started = write(&api, Edit::Pod { id, edit }, options(&query, false)?, origin).await?;
    Ok((StatusCode::CREATED, [location], pod_response(&started)?).into_response())
}

/// `PUT /v2/pods/{id}`
pub(super) async fn put(
    State(api): State<Api>,
    Path(path): Path<String>,
    query: Query,
    origin: Origin,
    body: DefinitionBody,
) -> HandlerResult {
    let invalid = |_: &str, error: IdError| error::invalid("/id", error.to_string());
    let Target::Pod(id) = parse(&path, invalid)? else {
        return Err(error::no_such_method());
    };
    let input = decode(&api, body).await?;
    if let Some(named) = input.id.as_ref().filter(|named| **named != id) {
        let text = format!("'{id}' does not match definition's id ('{named}')");
        return Err(ApiError::bad_request(text));
    }
    let edit = PodEdit::Replace(Box::new(input));
    pod_response(&write(&api, Edit::Pod { id, edit }, options(&query, false)?, origin).await?)
}

/// `GET /v2/pods/{id}` and the paths below it.
pub(super) async fn get(State(api): State<Api>, Path(path): Path<String>, query: Query) -> HandlerResult {
    let snapshot = api.snapshot();
    let with_failing = query.embeds("failing");
    Ok(match target(&path)? {
        Target::Pod(id) => Json(pod(&snapshot, &id)?.1.without_version_info()).into_response(),
        Target::AllStatuses => {
            let views = snapshot.specs.clone().into_iter().map(|(_, view)| view);
            pieces::response(
                "[",
                "]",
                pod_status::documents(views, None, failing::if_wanted(with_failing)),
            )
        }
        Target::Status(id) => {
            let (view, pod) = pod(&snapshot, &id)?;
            let lacks = match &api.0.isolators {
                Some(isolators) => isolators.missing(view, pod).await,
                None => None,
            };
            let failing = if with_failing {
                api.failing(view).await
            } else {
                None
            };
            let view = std::iter::once(Arc::clone(view));
            pieces::response(
                "",
                "",
                pod_status::documents(view, lacks, move |_| failing.clone()),
            )
        }
        Target::Versions(id) => {
            let (view, _) = pod(&snapshot, &id)?;
            Json(view.versions.iter().rev().collect::<Vec<_>>()).into_response()
        }
        Target::Version(id, text) => {
            let (view, _) = pod(&snapshot, &id)?;
            let version = version(&text)?;
            if !view.versions.contains(&version) {
                return Err(Rejection::NoPodVersion(id, version).into());
            }
            let definition = definition(&api, view, version).await?;
            Json(definition.pod().map(|pod| pod.without_version_info())).into_response()
        }
        Target::Instances(_) | Target::Instance(..) => return Err(error::no_such_method()),
    })
}

/// `DELETE /v2/pods/{id}` deletes the pod. A DELETE of its instances kills their tasks, and the
/// instances launch new ones.
pub(super) async fn delete(
    State(api): State<Api>,
    Path(path): Path<String>,
    query: Query,
    origin: Origin,
    body: Bytes,
) -> HandlerResult {
    match target(&path)? {
        Target::Pod(id) => {
            let edit = Edit::Pod {
                id,
                edit: PodEdit::Delete,
            };
            let started = write(&api, edit, options(&query, true)?, origin).await?;
            let at = location(&started.deployment)?;
            Ok((StatusCode::ACCEPTED, [at, deployment_header(&started)?]).into_response())
        }
        Target::Instances(id) => {
            let body = if body.is_empty() {
                Bytes::from_static(b"null")
            } else {
                body
            };
            let ids: Vec<String> = Json::parse_any_size(body).await?;
            if let Some(text) = too_long("ids", ids.len()) {
                return Err(ApiError::invalid_json(&Problems::one("/", text)));
            }
            let killed = kill(&api, id, ids.into_iter().collect(), &query).await?;
            Ok(Json(instances(&killed).collect::<Vec<_>>()).into_response())
        }
        Target::Instance(id, instance) => {
            let killed = kill(&api, id, [instance.clone()].into(), &query).await?;
            let text = || format!("Instance '{instance}' does not exist");
            let killed = instances(&killed).next();
            Ok(Json(killed.ok_or_else(|| ApiError::not_found(text()))?).into_response())
        }
        _ => Err(error::no_such_method()),
    }
}

/// Kills the instances with these ids; unknown ones are skipped.
async fn kill(api: &Api, id: SpecId, ids: BTreeSet<String>, query: &Query) -> Result<KillResult, ApiError> {
    let options = KillOptions {
        scale: false,
        wipe: query.flag("wipe", false),
        change: options(query, false)?,
    };
    let selection = TaskSelection::OfPod(ids);
    let command = |reply| Command::Kill {
        id,
        selection,
        options,
        reply,
    };
    Ok(api.ask(command).await?)
}

/// The killed instances, in their state before the kill.
fn instances(killed: &KillResult) -> impl Iterator<Item = PodInstance<'_>> {
    killed.specs.iter().flat_map(|killed| {
        let instances = killed.instances.iter();
        instances.map(|instance| PodInstance::new(&killed.spec, instance))
    })
}

/// An instance of a pod.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Instance")]
pub(super) struct PodInstance<'a> {
    instance_id: &'a InstanceId,
    state: InstanceState,
    /// The version of the definition from which it was launched.
    run_spec_version: Moment,
    unreachable_strategy: UnreachableStrategy,
    /// Absent while it is not launched.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_info: Option<AgentInfo<'a>>,
}

/// The state of an instance.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct InstanceState {
    /// Such as `Running` or `UnreachableInactive`.
    condition: &'static str,
    /// The time of its last change.
    since: Moment,
    goal: Goal,
    /// Since when it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    active_since: Option<Moment>,
    /// The result of its health checks; absent as long as there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    healthy: Option<bool>,
}

/// Whether an instance is kept.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) enum Goal {
    /// Its tasks are replaced when they end.
    Running,
    /// It is being ended.
    Decommissioned,
}

/// The agent of an instance.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentInfo<'a> {
    host: &'a str,
    agent_id: &'a str,
    /// Always empty.
    attributes: [&'a str; 0],
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<&'a str>,
}

impl<'a> PodInstance<'a> {
    fn new(spec: &'a Spec, instance: &'a Instance) -> Self {
        let replica = &instance.replica;
        Self {
            instance_id: &instance.id,
            state: InstanceState {
                condition: instance.condition().as_str(),
                since: Moment::from(replica.since),
                goal: if replica.is_wanted() {
                    Goal::Running
                } else {
                    Goal::Decommissioned
                },
                active_since: replica.started_at.map(Moment::from),
                healthy: instance.is_healthy(),
            },
            run_spec_version: instance.version(),
            unreachable_strategy: spec.unreachable_strategy(),
            agent_info: instance.record().map(|record| AgentInfo {
                host: &record.agent.hostname,
                agent_id: record.agent.id.as_str(),
                attributes: [],
                region: record.agent.region.as_deref(),
                zone: record.agent.zone.as_deref(),
            }),
        }
    }
}

/// The response to a change: the new definition, with the deployment in a header.
fn pod_response(started: &StartedDeployment) -> HandlerResult {
    let pod = started.spec.as_ref().and_then(Spec::pod);
    let document = pod.map(|pod| pod.without_version_info());
    Ok(([deployment_header(started)?], Json(document)).into_response())
}

/// Parses a definition and validates its constraints.
async fn decode(api: &Api, body: DefinitionBody) -> Result<PodInput, ApiError> {
    let mut input = body.check(|body| Ok(read_pod(&body)?)).await?;
    let path = "/scheduling/placement".to_owned();
    let wrong = constraint_problems(api, vec![(path, input.constraints())]).await?;
    input.broken.extend(wrong);
    Ok(input)
}

/// As in upstream, the message of the error is itself a JSON document.
fn pod<'a>(snapshot: &'a Snapshot, id: &SpecId) -> Result<(&'a Arc<SpecView>, &'a Pod), ApiError> {
    let missing = || json!({"message": format!("pod with {id} does not exist")});
    let pod = snapshot.pod(id);
    pod.ok_or_else(|| ApiError::not_found(missing().to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn paths_are_parsed_to_targets_and_invalid_ones_rejected() {
        let id = |text: &str| SpecId::parse(text).unwrap();
        for (path, expected) in [
            ("web", Target::Pod(id("/web"))),
            ("shop/web", Target::Pod(id("/shop/web"))),
            ("::status", Target::AllStatuses),
            ("shop/web::status", Target::Status(id("/shop/web"))),
            ("web::versions", Target::Versions(id("/web"))),
            (
                "web::versions/2018-01-01T00:00:00.000Z",
                Target::Version(id("/web"), "2018-01-01T00:00:00.000Z".to_owned()),
            ),
            ("web::instances", Target::Instances(id("/web"))),
            (
                "shop/web::instances/i.1",
                Target::Instance(id("/shop/web"), "i.1".to_owned()),
            ),
        ] {
            assert_eq!(target(path).unwrap(), expected, "{path}");
        }
        for path in ["Upper", "::versions", "web::nothing", "web::status/x"] {
            assert!(target(path).is_err(), "{path}");
        }
    }
}
