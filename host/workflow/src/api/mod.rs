//! The HTTP API, one file for each resource: decode, call, encode.
//!
//! | call | file |
//! |---|---|
//! | `POST /v0/queue_command` | [`queue_command`] |
//! | `GET`, `DELETE /v0/task/{id}` | [`task`] |
//! | `GET /v0/task/{id}/log` | [`log`] |
//! | `GET /v0/events` | [`events`] |
//! | `GET /v0/queue`, `GET /v0/dags` | [`queue`] |
//! | `GET /v0/agent/{id}` | [`agent`] |
//! | `GET /v0/openapi.json` | here |
//!
//! Look-ups read the published index and never wait for the core. A daemon that is not the leader
//! forwards requests ([`standby`]). Access is decided in [`auth`] alone, the status of errors in
//! [`error`].

mod agent;
mod auth;
mod error;
mod events;
mod log;
mod query;
mod queue;
mod queue_command;
mod standby;
mod task;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use bytes::Bytes;
use http::header;
use ipnet::IpNet;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use transom_store::Leadership;
use transom_web::Forwarder;

use crate::Config;
use crate::core::command::{Command, Refusal, Reply, ask};
use crate::dependencies::{AgentDirectory, Matcher};
use crate::ids::JobId;
use crate::job_index::JobIndex;
use crate::runner::LeaderHandles;

/// How long a request waits for the core, which may wait for the store.
const CORE_TIMEOUT: Duration = Duration::from_secs(20);

/// The state of the handlers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Api(pub(crate) Arc<Shared>);

/// See [`Api`].
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// Networks that need no credentials.
    pub(crate) trusted: Arc<[IpNet]>,
    pub(crate) index: Arc<JobIndex>,
    pub(crate) matcher: Arc<dyn Matcher>,
    pub(crate) cluster: Arc<dyn AgentDirectory>,
    /// Empty while this daemon is not the leader.
    pub(crate) lead: Arc<ArcSwapOption<LeaderHandles>>,
    pub(crate) standing: watch::Receiver<Leadership>,
    /// Notified when `lead` changes.
    pub(crate) leader_watch: watch::Receiver<()>,
    pub(crate) forwarder: Forwarder,
    /// The port is about to be closed.
    pub(crate) stopping: CancellationToken,
}

impl Api {
    /// The handles of the leader; an error if this daemon has just stopped leading.
    fn lead(&self) -> Result<Arc<LeaderHandles>, Refusal> {
        self.0.lead.load_full().ok_or(Refusal::Stopped)
    }

    /// Sends a command to the core.
    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Refusal> {
        ask(&self.lead()?.core, CORE_TIMEOUT, command).await
    }
}

/// Parses a job id in a path. No job has an invalid id.
fn job_id(text: &str) -> Result<JobId, Refusal> {
    JobId::parse(text).map_err(|_| Refusal::InvalidId(text.to_owned()))
}

/// The OpenAPI document.
const OPEN_API: &str = include_str!("../../openapi.json");

/// All paths and their handlers.
fn paths() -> [(&'static str, MethodRouter<Api>); 8] {
    [
        ("/v0/queue_command", post(queue_command::post)),
        ("/v0/task/{id}", get(task::get).delete(task::delete)),
        ("/v0/task/{id}/log", get(log::get)),
        ("/v0/events", get(events::get)),
        ("/v0/queue", get(queue::queue)),
        ("/v0/dags", get(queue::dags)),
        ("/v0/agent/{id}", get(agent::get)),
        ("/v0/openapi.json", get(async || json(OPEN_API.into()))),
    ]
}

/// All routes.
pub(crate) fn router(api: &Api) -> Router {
    let routes = paths()
        .into_iter()
        .fold(Router::new(), |router, (path, answers)| {
            router.route(path, answers)
        })
        .layer(from_fn_with_state(api.clone(), standby::forward_to_leader))
        .layer(from_fn_with_state(api.clone(), auth::require_credentials))
        .with_state(api.clone());
    transom_web::json_errors(transom_web::with_fallbacks(routes))
}

/// A response with this JSON document.
fn json(document: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document).into_response()
}

/// A response with the content type that upstream uses.
fn plain(text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
}

#[cfg(test)]
mod tests;
