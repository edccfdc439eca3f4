//! The HTTP API, one file for each resource: decode, call, encode.
//!
//! | calls | file |
//! |---|---|
//! | `/versions`, `DELETE /framework` | [`framework`] |
//! | `/{kind}/scale` | [`scale`] |
//! | `/server/config`, `/server/version` | [`client`] |
//! | `/status/…` | [`status`] |
//! | `/explain` | [`explain`] |
//! | cordon, stop, start, restart, resources | [`change`] |
//! | `/capabilities` | [`capabilities`] |
//! | `/openapi.json` | [`routes`] |
//! | `/datastore/backups`, `/backup/…` | [`backups`] |
//! | `/datastore/credentials` | [`credentials`] |
//! | `/bootstrap/…` | [`bootstrap`] |
//! | several frameworks on one port | [`instances`] |
//!
//! The calls are below the neutral prefix `/api/fw/v0`, and below its alias `/api/m3s/v0`, where the
//! responses have upstream's format. [`routes`] contains the table of all calls, from which the router,
//! the access rules ([`auth`]) and the OpenAPI document are derived. Reads are answered from the
//! leader's published view and never wait for the core; a standby forwards them. Only [`error`]
//! determines the status of a rejection.

mod auth;
mod backups;
mod bootstrap;
mod capabilities;
mod change;
mod client;
mod credentials;
mod error;
mod explain;
mod framework;
pub(crate) mod instances;
mod number;
pub(crate) mod paths;
mod routes;
mod scale;
mod status;

pub(crate) use auth::access_rules;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use serde::Serialize;
use transom_framework::{Forwarding, Leader, RequestedUri, Route, ask};
use transom_web::routes::Found;
use transom_web::{ApiError, Credentials, Forwarder, RequestMetrics};

use self::paths::{ALIAS, VERSION};
use self::routes::TABLE;
use crate::backup::delivery::Delivery;
use crate::backup::directory::Directory;
use crate::bootstrap::scripts::Scripts;
use crate::core::command::{Command, Rejection, Reply};
use crate::core::term::Handles;
use crate::kind::Kind;
use crate::view::Views;

/// How long a request waits for the core, which may wait for the store.
const CORE_TIMEOUT: Duration = Duration::from_secs(20);
/// The header of every successful response: the version of the API.
const API_SERVICE: HeaderName = HeaderName::from_static("api-service");
const JSON: &str = "application/json; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// The state of the handlers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Api(pub(crate) Arc<Shared>);

/// The shared state of the handlers; see [`Api`].
pub(crate) struct Shared {
    /// The maximum count of each kind.
    pub(crate) max_scale: u32,
    /// The credentials of the port, with which requests are forwarded.
    pub(crate) credentials: Option<Credentials>,
    pub(crate) views: Arc<Views>,
    pub(crate) scripts: Arc<Scripts>,
    pub(crate) delivery: Arc<Delivery>,
    /// The directory of backups, if one is configured.
    pub(crate) backups: Option<Directory>,
    pub(crate) leader: Leader<Handles>,
}

impl Api {
    /// Sends a command to the core.
    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Rejection> {
        let handles = self.0.leader.require()?;
        ask(&handles.core, CORE_TIMEOUT, command).await
    }
}

/// All routes. A standby answers only those that the table calls local.
pub(crate) fn router(api: &Api, forwarder: Forwarder, metrics: RequestMetrics) -> Router {
    let forwarding = Forwarding::new(api.0.leader.clone(), forwarder, |method, path| {
        match TABLE.route(method, path) {
            Some(route) if !route.is_local() => Route::Forward,
            _ => Route::Local,
        }
    })
    .with_credentials(api.0.credentials.as_ref());
    let routes = forwarding.wrap(TABLE.router()).with_state(api.clone());
    let routes = transom_web::with_fallbacks(routes).layer(middleware::from_fn(reject_unknown_routes));
    let routes = transom_web::json_errors(routes).layer(middleware::from_fn(empty_errors));
    metrics.around(routes)
}

/// The route of the scripts only. It is not forwarded: a script is fetched from the leader that made it.
pub(crate) fn script_router(api: &Api) -> Router {
    Router::new()
        .route("/bootstrap/{digest}/{token}", get(bootstrap::get))
        .with_state(api.clone())
}

/// Passes only requests that the table contains, so that a `HEAD` is not handled as a `GET`. Redirects
/// paths with empty segments.
async fn reject_unknown_routes(request: Request, next: Next) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    if path.contains("//") {
        return redirect(request.uri());
    }
    match TABLE.find(method, path) {
        Found::Route(_) => next.run(request).await,
        Found::Nothing => {
            ApiError::not_found(format!("Not found: {}", requested_path(&request))).into_response()
        }
        Found::OtherMethods(methods) => {
            let methods: Vec<&str> = methods.into_iter().map(Method::as_str).collect();
            let methods = methods.join(", ");
            let path = requested_path(&request);
            let text = format!("{method} is not allowed on {path}; possible: {methods}");
            let mut rejected = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, text);
            if let Ok(methods) = HeaderValue::from_str(&methods) {
                rejected = rejected.header(header::ALLOW, methods);
            }
            rejected.into_response()
        }
    }
}

/// The path as the client sent it.
fn requested_path(request: &Request) -> &str {
    let requested = request.extensions().get().map(|RequestedUri(uri)| uri);
    requested.unwrap_or_else(|| request.uri()).path()
}

/// 301 to the same path without empty segments.
fn redirect(uri: &Uri) -> Response {
    let mut location = String::new();
    for segment in uri.path().split('/').filter(|segment| !segment.is_empty()) {
        location.push('/');
        location.push_str(segment);
    }
    if location.is_empty() || uri.path().ends_with('/') {
        location.push('/');
    }
    if let Some(query) = uri.query() {
        location.push('?');
        location.push_str(query);
    }
    (StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, location)]).into_response()
}

/// Removes the bodies of errors on the alias, because upstream's errors have none.
async fn empty_errors(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let response = next.run(request).await;
    without_body(&path, response)
}

/// The response to a request for a path, without the body if it is an error on the alias.
fn without_body(path: &str, response: Response) -> Response {
    let status = response.status();
    if !is_alias(path) || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (mut head, _) = response.into_parts();
    head.headers.remove(header::CONTENT_TYPE);
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, Body::empty())
}

/// Whether a path is below the prefix with upstream's names.
fn is_alias(path: &str) -> bool {
    path.strip_prefix(ALIAS)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The kind with this name in a path, or 404.
fn kind_in_path(name: &str) -> Result<Kind, ApiError> {
    paths::kind(name).ok_or_else(|| ApiError::not_found(format!("Not found: the kind {name}")))
}

/// A successful response.
fn success(content_type: &'static str, body: impl Into<Body>) -> Response {
    let headers = [(header::CONTENT_TYPE, content_type), (API_SERVICE, VERSION)];
    (headers, body.into()).into_response()
}

/// A successful response with a JSON document.
fn document(document: &impl Serialize) -> Response {
    match serde_json::to_string(document) {
        Ok(text) => success(JSON, text),
        Err(error) => ApiError::internal(&error).into_response(),
    }
}

#[cfg(test)]
mod tests;
