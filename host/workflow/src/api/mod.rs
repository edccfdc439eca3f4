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
//!
//! [`routes`] is the table of all routes: the router, the access rules and the OpenAPI document come
//! from it. Look-ups read the published index and never wait for the core. A daemon that is not the leader
//! forwards requests. Only [`auth`] decides about access, and only [`error`] about the status of
//! errors.

mod agent;
mod auth;
mod documents;
mod error;
mod events;
mod log;
mod query;
mod queue;
mod queue_command;
mod routes;
mod task;

pub(crate) use auth::access_rules;
pub(crate) use routes::TABLE;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header;
use tokio_util::sync::CancellationToken;
use transom_framework::{Forwarding, Leader, Route, ask};
use transom_web::{Forwarder, RequestMetrics};

use crate::Settings;
use crate::core::command::{Command, Rejection, Reply};
use crate::core::term::Handles;
use crate::dependencies::{AgentDirectory, Matcher};
use crate::ids::JobId;
use crate::job_index::JobIndex;

/// How long a request waits for the core, which may wait for the store.
const CORE_TIMEOUT: Duration = Duration::from_secs(20);

/// The state of the handlers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Api(pub(crate) Arc<Shared>);

/// See [`Api`].
pub(crate) struct Shared {
    pub(crate) config: Settings,
    pub(crate) index: Arc<JobIndex>,
    pub(crate) matcher: Arc<dyn Matcher>,
    pub(crate) cluster: Arc<dyn AgentDirectory>,
    pub(crate) leader: Leader<Handles>,
    /// The port is about to be closed.
    pub(crate) stopping: CancellationToken,
}

impl Api {
    /// Returns the handles of the leader; an error if this daemon has just stopped leading.
    fn lead(&self) -> Result<Arc<Handles>, Rejection> {
        Ok(self.0.leader.require()?)
    }

    /// Sends a command to the core.
    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Rejection> {
        ask(&self.lead()?.core, CORE_TIMEOUT, command).await
    }
}

/// Parses a job id in a path. No job has an invalid id.
fn job_id(text: &str) -> Result<JobId, Rejection> {
    JobId::parse(text).map_err(|_| Rejection::InvalidId(text.to_owned()))
}

/// All routes. A standby forwards all of them.
pub(crate) fn router(api: &Api, forwarder: Forwarder, metrics: RequestMetrics) -> Router {
    let credentials = api.0.config.http_port().config().credentials;
    let forwarding = Forwarding::new(api.0.leader.clone(), forwarder, |_, _| Route::Forward)
        .with_credentials(credentials.as_ref());
    let routes = forwarding.wrap(TABLE.router()).with_state(api.clone());
    metrics.around(transom_web::json_errors(transom_web::with_fallbacks(routes)))
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
