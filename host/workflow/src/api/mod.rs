//! The HTTP API, a file for each resource: decode, call, encode.
//!
//! | call | file |
//! |---|---|
//! | `POST /v0/queue_command` | [`queue_command`] |
//! | `GET`, `DELETE /v0/task/{id}` | [`task`] |
//! | `GET /v0/task/{id}/log` | [`log`] |
//! | `GET /v0/events` | [`events`] |
//! | `GET /v0/queue`, `GET /v0/dags` | [`waiting`] |
//! | `GET /v0/agent/{id}` | [`agent`] |
//! | `GET /v0/openapi.json` | here |
//!
//! Look-ups are answered from what the core shows and never wait for it. A daemon that does not lead passes requests on
//! ([`standby`]). Who may ask is decided in [`auth`] alone, statuses of refusals in [`error`].

mod agent;
mod auth;
mod error;
mod events;
mod log;
mod query;
mod queue_command;
mod standby;
mod task;
mod waiting;

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
use crate::ids::JobId;
use crate::launch::Book;
use crate::role::Lead;
use crate::seams::{Cluster, Matcher};
use crate::table::Table;

/// How long a request waits for the core, which may wait for the store.
const PATIENCE: Duration = Duration::from_secs(20);

/// What handlers work with. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Api(pub(crate) Arc<Shared>);

/// See [`Api`].
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// Whose requests need no credentials.
    pub(crate) trusted: Arc<[IpNet]>,
    pub(crate) table: Arc<Table>,
    pub(crate) book: Arc<Book>,
    pub(crate) matcher: Arc<dyn Matcher>,
    pub(crate) cluster: Arc<dyn Cluster>,
    /// Empty while this daemon does not lead.
    pub(crate) lead: Arc<ArcSwapOption<Lead>>,
    pub(crate) standing: watch::Receiver<Leadership>,
    /// Told when `lead` changes.
    pub(crate) turned: watch::Receiver<()>,
    pub(crate) forwarder: Forwarder,
    /// The port will not be served any more.
    pub(crate) stopping: CancellationToken,
}

impl Api {
    /// What only a leading daemon has; refused when this one has just stopped leading.
    fn lead(&self) -> Result<Arc<Lead>, Refusal> {
        self.0.lead.load_full().ok_or(Refusal::Stopped)
    }

    /// Asks the core.
    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Refusal> {
        ask(&self.lead()?.core, PATIENCE, command).await
    }
}

/// A job's id in a path. One that no job can have is nobody's.
fn job_id(text: &str) -> Result<JobId, Refusal> {
    JobId::parse(text).map_err(|_| Refusal::Stranger(text.to_owned()))
}

/// What `/v0/openapi.json` answers.
const OPEN_API: &str = include_str!("../../openapi.json");

/// All paths, and who answers there.
fn paths() -> [(&'static str, MethodRouter<Api>); 8] {
    [
        ("/v0/queue_command", post(queue_command::post)),
        ("/v0/task/{id}", get(task::get).delete(task::delete)),
        ("/v0/task/{id}/log", get(log::get)),
        ("/v0/events", get(events::get)),
        ("/v0/queue", get(waiting::queue)),
        ("/v0/dags", get(waiting::dags)),
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
        .layer(from_fn_with_state(api.clone(), standby::pass_on))
        .layer(from_fn_with_state(api.clone(), auth::ask_for_credentials))
        .with_state(api.clone());
    transom_web::json_errors(transom_web::with_fallbacks(routes))
}

/// An answer with a JSON document as it stands.
fn json(document: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document).into_response()
}

/// An answer in the words and with the content type that upstream's clients know.
fn plain(text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
}

#[cfg(test)]
mod tests;
