//! `/v1/services/{service}/…`: the APIs of the services, for the dashboard, which may only send
//! requests to the port that it comes from.
//!
//! A request is passed to the routes of the service within the process. The admin port controls access:
//! its credentials, networks, host names and origins apply, not those of the service's port. The
//! service's limits on bodies and on concurrent requests apply to both ports together.
//!
//! Two kinds of requests are rejected with 403, because the admin port's rules would be weaker than
//! those of the service's port: a `GET` that changes something, which a link in a web page could send,
//! and, if no credentials are configured for the admin port, a path that requires credentials in any
//! case.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::uri::PathAndQuery;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use tower::ServiceExt;
use transom_framework::Routes;
use transom_web::{ApiError, Caller, Requirement};

use crate::daemon::services::Services;

/// The prefix of the paths.
const PREFIX: &str = "/v1/services/";

/// The routes of each service, by the service's name.
type RoutesByService = BTreeMap<&'static str, Routes>;

/// Passes requests for a service to it, and all others to `fallback`.
pub(super) fn with_service_routes(fallback: Router, services: &Services) -> Router {
    let routes = services.iter();
    let routes = routes.filter_map(|service| Some((service.name(), service.routes()?)));
    let routes_by_service: Arc<RoutesByService> = Arc::new(routes.collect());
    // Not a route with parameters: the handlers of a service would receive these parameters too.
    Router::new().fallback(move |request: Request| {
        let (fallback, routes_by_service) = (fallback.clone(), Arc::clone(&routes_by_service));
        async move {
            if request.uri().path().starts_with(PREFIX) {
                return dispatch(&routes_by_service, request)
                    .await
                    .unwrap_or_else(IntoResponse::into_response);
            }
            let Ok(response) = fallback.oneshot(request).await;
            response
        }
    })
}

async fn dispatch(routes_by_service: &RoutesByService, mut request: Request) -> Result<Response, ApiError> {
    let (name, uri) = split_uri(request.uri()).ok_or_else(|| {
        ApiError::bad_request("expected /v1/services/SERVICE/PATH, such as /v1/services/apps/v2/apps")
    })?;
    let Some(routes) = routes_by_service.get(name.as_str()) else {
        let names: Vec<&str> = routes_by_service.keys().copied().collect();
        let text = format!(
            "no service {name:?} with an HTTP API runs in this daemon; expected one of: {}",
            names.join(", ")
        );
        return Err(ApiError::not_found(text));
    };
    let (method, rules) = (request.method(), &routes.rules);
    if matches!(*method, Method::GET | Method::HEAD) && (rules.changes)(method, uri.path()) {
        let text = format!(
            "{method} {} changes something; send it to the port of `{name}`, or use the method that the API has for it",
            uri.path()
        );
        return Err(ApiError::new(StatusCode::FORBIDDEN, text));
    }
    let caller = request.extensions().get::<Caller>();
    let is_named = caller.is_some_and(|caller| caller.user.is_some());
    if (rules.requirement)(method, uri.path()) == Requirement::CredentialsAlways && !is_named {
        let text = format!(
            "`{name}` requires credentials for {}, and the admin port has none: set `admin.username` and \
             `admin.password`",
            uri.path()
        );
        return Err(ApiError::new(StatusCode::FORBIDDEN, text));
    }
    // The request carries the admin port's credentials, so they are removed. A standby forwards to the
    // leader with its own credentials, also for the read-only user, whose forbidden requests the admin
    // port has rejected already.
    request.headers_mut().remove(header::AUTHORIZATION);
    if let Some(caller) = request.extensions_mut().get_mut::<Caller>() {
        caller.read_only = false;
    }
    *request.uri_mut() = uri;
    let Ok(response) = routes.router.clone().oneshot(request).await;
    Ok(response)
}

/// The name of the service in an address, and the address on its own port.
fn split_uri(uri: &Uri) -> Option<(String, Uri)> {
    let rest = uri.path().strip_prefix(PREFIX)?;
    let (name, _) = rest.split_once('/')?;
    let path = &rest[name.len()..];
    let target = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let target: PathAndQuery = target.parse().ok()?;
    Some((name.to_owned(), Uri::from(target)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use axum::body::Body;
    use axum::extract::Path;
    use axum::routing::any;
    use transom_web::AccessRules;

    use super::*;

    fn routes_by_service() -> RoutesByService {
        let handler = async |Path(id): Path<String>, request: Request| {
            let caller = request.extensions().get::<Caller>();
            format!(
                "{id} {} authorization: {} read only: {}",
                request.uri(),
                request.headers().contains_key(header::AUTHORIZATION),
                caller.is_some_and(|caller| caller.read_only),
            )
        };
        let rules = AccessRules {
            changes: |method, path| method != Method::GET || path == "/scale/3",
            requirement: |_, path| match path {
                "/secret/1" => Requirement::CredentialsAlways,
                _ => Requirement::NetworkOrCredentials,
            },
            ..AccessRules::DEFAULT
        };
        let router = Router::new()
            .route("/v2/{id}", any(handler))
            .route("/scale/{id}", any(handler))
            .route("/secret/{id}", any(handler));
        BTreeMap::from([("apps", Routes { router, rules })])
    }

    async fn request_status_and_text(method: Method, path: &str, user: Option<&str>) -> (u16, String) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, "Basic dTp4")
            .extension(Caller {
                user: user.map(str::to_owned),
                read_only: true,
                ..Caller::default()
            });
        let request = request.body(Body::empty()).unwrap();
        let response = dispatch(&routes_by_service(), request)
            .await
            .unwrap_or_else(IntoResponse::into_response);
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn requests_are_passed_as_the_services_own_port_receives_them() {
        let (status, text) =
            request_status_and_text(Method::GET, "/v1/services/apps/v2/a%2Fb?x=%2F&y", None).await;
        assert_eq!(
            (status, text.as_str()),
            (200, "a/b /v2/a%2Fb?x=%2F&y authorization: false read only: false")
        );
        for (path, status) in [
            ("/v1/services/nope/v2/1", 404),
            ("/v1/services/apps/nope", 404),
            ("/v1/services/apps", 400),
            ("/v1/services/", 400),
        ] {
            let (actual, text) = request_status_and_text(Method::GET, path, None).await;
            assert_eq!(actual, status, "{path}: {text}");
        }
    }

    #[tokio::test]
    async fn request_that_the_services_own_port_protects_better_is_rejected() {
        for (method, path, user, expected) in [
            (Method::GET, "/v1/services/apps/scale/3", Some("u"), 403),
            (Method::POST, "/v1/services/apps/scale/3", Some("u"), 200),
            (Method::GET, "/v1/services/apps/secret/1", None, 403),
            (Method::GET, "/v1/services/apps/secret/1", Some("u"), 200),
        ] {
            let (status, text) = request_status_and_text(method.clone(), path, user).await;
            assert_eq!(status, expected, "{method} {path}: {text}");
        }
    }
}
