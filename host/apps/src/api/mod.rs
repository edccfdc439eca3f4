//! The HTTP API, one file per resource: decode, call, encode. The file also defines the types of
//! the resource's documents, and [`routes`] is the table from which router and
//! description come.
//!
//! Reads are answered from a snapshot and never wait for a writer. Writes go to the core, which
//! stores before it replies; a standby forwards them to the leader ([`standby`]). Only [`error`]
//! decides on the status of a rejection. Each daemon serves its own user interface ([`ui`]).

mod app;
mod apps;
mod callbacks;
mod change;
mod deployments;
mod error;
pub(crate) mod events;
mod group;
mod groups;
mod info;
mod input_schemas;
mod path;
mod pieces;
mod plugins;
mod pod_isolators;
mod pod_status;
mod pods;
pub(crate) mod query;
mod queue;
mod rejections;
mod routes;
mod standby;
mod task;
mod tasks;
mod ui;
pub(crate) mod unknown_fields;
mod unused_offers;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::{FromRequestParts, Request};
use axum::response::Response;
use axum::routing::any;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Uri, header};
use serde::Serialize;
use tokio::sync::mpsc;
use tower::{Layer, ServiceBuilder};
use transom_cluster::agent::Agents;
use transom_common::error_chain;
use transom_framework::{Forwarding, Leader, RequestedUri, ask};
use transom_web::{AccessRules, Caller, Forwarder, RequestMetrics};

pub(crate) use self::pod_isolators::Isolators;
use crate::config::Config;
use crate::core::command::{Command, Origin, Rejection, Reply};
use crate::core::failing::{self, Failing, stderr};
use crate::core::mirror::CatchUp;
use crate::core::persist::Repository;
use crate::core::snapshot::Snapshot;
use crate::core::spec_view::SpecView;
use crate::core::term::Handles;
use crate::policies::Policies;
use crate::time::Moment;

/// Timeout of a request to the core, which may wait for the store.
const CORE_TIMEOUT: Duration = Duration::from_secs(30);

/// Appends an element of a list that is written while it is sent. Returns whether that succeeded.
/// `what` is the element's id in the log.
fn append(list: &mut Vec<u8>, what: impl fmt::Display, element: &impl Serialize) -> bool {
    #[cfg(test)]
    crate::testing::operations::count();
    let before = list.len();
    let written = serde_json::to_writer(&mut *list, element);
    if let Err(error) = &written {
        tracing::error!(%what, error = error_chain(error), "entry of a list cannot be shown");
        list.truncate(before);
    }
    written.is_ok()
}

/// The state of the handlers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Api(pub(crate) Arc<Shared>);

/// See [`Api`].
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// The actual address of the port.
    pub(crate) addr: SocketAddr,
    /// `https` if the ports of all daemons use TLS.
    pub(crate) scheme: &'static str,
    pub(crate) snapshot: Arc<ArcSwap<Snapshot>>,
    pub(crate) policies: Arc<dyn Policies>,
    /// For past definitions, which are not in memory.
    pub(crate) repository: Repository,
    pub(crate) leader: Leader<Handles>,
    /// The agents' API, for the output of failed tasks; none in tests.
    pub(crate) agents: Option<Agents>,
    /// The isolators of the agents; none in tests.
    pub(crate) isolators: Option<Isolators>,
}

impl Api {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.0.snapshot.load_full()
    }

    /// The handles of a leader; an error when this daemon has just stopped leading.
    fn lead(&self) -> Result<Arc<Handles>, Rejection> {
        Ok(self.0.leader.require()?)
    }

    /// What fails of one app or pod, with the last lines of its last failed task.
    async fn failing(&self, view: &SpecView) -> Option<Failing> {
        let now = Moment::now();
        let handles = self.0.leader.handles();
        let waiting = || {
            let handles = handles.as_ref()?;
            let pending = handles.scheduler.pending();
            failing::launch::failing(handles, &pending, view.record.spec.id().as_str(), now)
        };
        let mut failing = Failing::of(view, now).or_else(waiting)?;
        let sandbox = failing::row(view, now).and_then(|row| row.last.sandbox.as_ref());
        let framework = handles.and_then(|handles| handles.scheduler.subscription().framework_id);
        if let (Some(agents), Some(sandbox), Some(framework)) = (&self.0.agents, sandbox, framework) {
            failing.stderr = stderr::last_lines(agents, &framework, sandbox).await;
        }
        Some(failing)
    }

    /// Sends a command to the core.
    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Rejection> {
        ask(&self.lead()?.core, CORE_TIMEOUT, command).await
    }
}

/// The routes that the port treats in a special way: event streams, and the header that its audit
/// log includes.
pub(crate) const RULES: AccessRules = AccessRules {
    is_stream: |path| {
        path.split('/')
            .filter(|segment| !segment.is_empty())
            .eq(["v2", "events"])
    },
    audited_header: Some(DEPLOYMENT),
    ..AccessRules::DEFAULT
};

/// The header that names the deployment which a request has started.
const DEPLOYMENT: &str = "marathon-deployment-id";

/// All routes, with the headers of every response. Empty path segments are removed before routing.
pub(crate) fn router(
    api: &Api,
    forwarder: Forwarder,
    syncs: mpsc::Sender<CatchUp>,
    metrics: RequestMetrics,
) -> Router {
    let forwarding = Forwarding::new(api.0.leader.clone(), forwarder, standby::route)
        .with_credentials(api.0.config.port.credentials.as_ref())
        .after_write(move || standby::catch_up(syncs.clone()));
    let routes = routes::TABLE
        .router()
        .route("/v2/plugins/{id}", any(plugins::none))
        .route("/v2/plugins/{id}/{*path}", any(plugins::none));
    let routes = routes.layer(axum::middleware::from_fn(unknown_fields::report));
    let routes = forwarding.wrap(routes).with_state(api.clone());
    let (leader, scheme) = (api.0.leader.clone(), api.0.scheme);
    let headers = ServiceBuilder::new()
        .map_response(move |response: Response| with_headers(response, scheme, leader.address()));
    let routes = transom_web::json_errors(transom_web::with_fallbacks(routes)).layer(headers);
    let routes = metrics.clone().around(routes);
    let collapse = ServiceBuilder::new().map_request(|mut request: Request| {
        let uri = collapsed(request.uri());
        if let Some(uri) = uri {
            let requested = RequestedUri(std::mem::replace(request.uri_mut(), uri));
            request.extensions_mut().insert(requested);
        }
        request
    });
    let routes = Router::new().fallback_service(collapse.into_inner().layer(routes));
    match &api.0.config.ui {
        Some(folder) => ui::add_routes(routes, folder.clone(), metrics),
        None => routes,
    }
}

/// `/v2/apps//foo/` becomes `/v2/apps/foo`; `None` when nothing has to change.
fn collapsed(uri: &Uri) -> Option<Uri> {
    let path = uri.path();
    let untidy = path.contains("//") || path.len() > 1 && path.ends_with('/');
    if !untidy {
        return None;
    }
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("/{}{query}", segments.join("/")).parse().ok()
}

fn with_headers(mut response: Response, scheme: &str, leader: Option<String>) -> Response {
    let headers = response.headers_mut();
    let fixed = [
        (header::CACHE_CONTROL, "no-cache, no-store, must-revalidate"),
        (header::PRAGMA, "no-cache"),
        (header::EXPIRES, "0"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::X_XSS_PROTECTION, "1; mode=block"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let leader = leader.and_then(|leader| HeaderValue::from_str(&format!("{scheme}://{leader}")).ok());
    if let Some(leader) = leader {
        headers.insert(HeaderName::from_static("x-marathon-leader"), leader);
    }
    response
}

impl<S: Sync> FromRequestParts<S> for Origin {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        // If a standby forwarded the request, this is the standby's client.
        let client = parts.extensions.get::<Caller>().and_then(|caller| caller.client);
        let uri = parts
            .extensions
            .get::<RequestedUri>()
            .map_or(&parts.uri, |requested| &requested.0);
        let uri = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self {
            client: client.map(|client| client.to_string()).unwrap_or_default(),
            uri,
        })
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod client;
#[cfg(test)]
#[path = "described_tests.rs"]
mod described;
#[cfg(test)]
mod tests;
