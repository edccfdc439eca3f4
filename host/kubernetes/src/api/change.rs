//! Changes of the whole cluster or of all tasks of a kind.

use axum::extract::{Path, State};
use axum::response::Response;
use transom_web::ApiError;

use super::{Api, JSON, kind_in_path, number, paths, success};
use crate::core::command::{Command, Scope};
use crate::kind::Kind;

/// `PUT /agent/cordon`
pub(super) async fn cordon(State(api): State<Api>) -> Result<Response, ApiError> {
    set_cordoned(&api, true).await?;
    Ok(success(JSON, "Nodes Cordoned, Scheduling will be disabled"))
}

/// `PUT /agent/uncordon`
pub(super) async fn uncordon(State(api): State<Api>) -> Result<Response, ApiError> {
    set_cordoned(&api, false).await?;
    Ok(success(JSON, "Nodes Uncordoned, Scheduling will now resume"))
}

async fn set_cordoned(api: &Api, cordoned: bool) -> Result<(), ApiError> {
    Ok(api.ask(|reply| Command::Cordon { cordoned, reply }).await?)
}

/// `PUT /cluster/shutdown`, `PUT /cluster/stop`
pub(super) async fn stop(State(api): State<Api>) -> Result<Response, ApiError> {
    api.ask(|reply| Command::Stop { reply }).await?;
    Ok(success(JSON, ""))
}

/// `PUT /cluster/start`
pub(super) async fn start(State(api): State<Api>) -> Result<Response, ApiError> {
    api.ask(|reply| Command::Start { reply }).await?;
    Ok(success(JSON, ""))
}

/// `PUT /{scope}/restart`
pub(super) async fn restart(State(api): State<Api>, Path(name): Path<String>) -> Result<Response, ApiError> {
    let scope = match name.as_str() {
        "cluster" => Scope::Servers,
        name => match kind_in_path(name)? {
            Kind::Datastore => Scope::All,
            Kind::Server => Scope::Servers,
            Kind::Agent => Scope::Agents,
        },
    };
    let waits = api.ask(|reply| Command::Restart { scope, reply }).await?;
    Ok(match waits {
        None => success(JSON, "Restart Scheduled."),
        Some(reason) => success(
            JSON,
            format!("The restart waits and continues automatically: {reason}."),
        ),
    })
}

/// `PUT /datastore/move`
pub(super) async fn move_datastore(State(api): State<Api>) -> Result<Response, ApiError> {
    api.ask(|reply| Command::MoveDatastore { reply }).await?;
    Ok(success(JSON, ""))
}

/// `PUT /{kind}/{resource}/{amount}`
pub(super) async fn adjust(
    State(api): State<Api>,
    Path((kind, resource, amount)): Path<(String, String, String)>,
) -> Result<Response, ApiError> {
    let kind = kind_in_path(&kind)?;
    let (resource, limit) = paths::resource(&resource)
        .ok_or_else(|| ApiError::not_found(format!("Not found: the resource {resource}")))?;
    let amount = number::parse("amount", &amount)?;
    api.ask(|reply| Command::Adjust {
        kind,
        resource,
        limit,
        amount,
        reply,
    })
    .await?;
    Ok(success(JSON, "Resources Updated"))
}
