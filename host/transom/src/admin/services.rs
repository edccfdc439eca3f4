//! `/v1/services/{service}/…`: the APIs of the services, for the dashboard, which may only send
//! requests to the port that it comes from.
//!
//! A request is passed to the routes of the service within the process. The service's limits on bodies
//! and on concurrent requests apply to both ports together. The admin port never gives more than the
//! service's own port does:
//!
//! | request | answer |
//! |---|---|
//! | with the credentials of the admin port | the service's; a standby forwards it with the user's rights |
//! | with those of its read-only user | the service's, if nothing changes by the service's own rules; else 403 |
//! | without credentials | the service's, if its own port answers such a request from that address; else 403 |
//! | a `GET` that changes something, from anybody | 403, because a link in a web page could send it |

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::uri::PathAndQuery;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use tower::ServiceExt;
use transom_framework::Routes;
use transom_web::{ApiError, Authority, Caller};

use crate::service::Services;

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
    // They are those of the admin port.
    request.headers_mut().remove(header::AUTHORIZATION);
    let caller = authorized(name.as_str(), routes, uri.path(), &request)?;
    request.extensions_mut().insert(caller);
    *request.uri_mut() = uri;
    let Ok(response) = routes.router.clone().oneshot(request).await;
    Ok(response)
}

/// Applies the access rules of the service to a request for `path`, and returns its caller.
fn authorized(name: &str, routes: &Routes, path: &str, request: &Request) -> Result<Caller, ApiError> {
    let (rules, policy, method) = (&routes.rules, &routes.policy, request.method());
    let changes = (rules.changes)(method, path);
    let forbidden = |text: String| ApiError::new(StatusCode::FORBIDDEN, text);
    if let Some(caller) = request.extensions().get::<Caller>()
        && caller.authority == Authority::Credentials
    {
        if caller.read_only && changes {
            return Err(forbidden(format!(
                "This user may only read, and {method} {path} changes something: use `admin.username` and \
                 `admin.password`"
            )));
        }
        return Ok(caller.clone());
    }
    let requirement = (rules.requirement)(method, path);
    policy.check(requirement, changes, request).map_err(|_| {
        forbidden(format!(
            "`{name}` requires credentials for {path}, and this request has none for the admin port: set \
             `admin.username` and `admin.password` and send them, or send the request to the port of `{name}` with \
             its credentials"
        ))
    })?;
    Ok(policy.caller(request))
}

/// The name of the service in an address, and the address on its own port.
fn split_uri(uri: &Uri) -> Option<(String, Uri)> {
    let rest = uri.path().strip_prefix(PREFIX)?;
    let (name, _) = rest.split_once('/')?;
    // The rest of the target, byte for byte.
    let target = uri.path_and_query()?.as_str().get(PREFIX.len() + name.len()..)?;
    let target: PathAndQuery = target.parse().ok()?;
    Some((name.to_owned(), Uri::from(target)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use axum::body::Body;
    use axum::extract::ConnectInfo;
    use axum::extract::Path;
    use axum::routing::any;
    use std::net::SocketAddr;
    use transom_web::{AccessRules, Credentials, LoopbackTrust, PortConfig, Requirement};

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
                "/open/1" => Requirement::Nothing,
                _ => Requirement::NetworkOrCredentials,
            },
            ..AccessRules::DEFAULT
        };
        let router = Router::new()
            .route("/v2/{id}", any(handler))
            .route("/scale/{id}", any(handler))
            .route("/open/{id}", any(handler))
            .route("/secret/{id}", any(handler));
        let policy = |with: bool| {
            let credentials = || Credentials {
                username: "u".to_owned(),
                password: "p".into(),
            };
            let port = PortConfig {
                credentials: with.then(credentials),
                loopback_trust: LoopbackTrust::UnlessCredentials,
                ..PortConfig::new("apps", 0)
            };
            port.policy()
        };
        let service = |with| Routes {
            router: router.clone(),
            rules,
            policy: policy(with),
        };
        BTreeMap::from([("apps", service(false)), ("locked", service(true))])
    }

    fn caller(user: Option<&str>, read_only: bool) -> Caller {
        Caller {
            user: user.map(str::to_owned),
            read_only,
            // A request from a network that the admin port trusts.
            authority: user.map_or(Authority::Network, |_| Authority::Credentials),
            ..Caller::default()
        }
    }

    async fn request_status_and_text(method: Method, path: &str, caller: Caller) -> (u16, String) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, "Basic dTpw")
            .extension(ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 1))))
            .extension(caller);
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
        let (status, text) = request_status_and_text(
            Method::GET,
            "/v1/services/apps/v2/a%20b{}^|\"?x=%2F&y",
            caller(None, false),
        )
        .await;
        assert_eq!(
            (status, text.as_str()),
            (
                200,
                "a b{}^|\" /v2/a%20b{}^|\"?x=%2F&y authorization: false read only: false"
            )
        );
        for (path, status) in [
            ("/v1/services/nope/v2/1", 404),
            ("/v1/services/apps/nope", 404),
            ("/v1/services/apps//v2/1", 404),
            ("/v1/services//v2/1", 404),
            ("/v1/services/%61pps/v2/1", 404),
            ("/v1/services/apps", 400),
            ("/v1/services/", 400),
        ] {
            let (actual, text) = request_status_and_text(Method::GET, path, caller(None, false)).await;
            assert_eq!(actual, status, "{path}: {text}");
        }
    }

    #[tokio::test]
    async fn admin_port_gives_no_more_than_the_services_own_port() {
        let (operator, reader) = (caller(Some("u"), false), caller(Some("r"), true));
        let nobody = caller(None, false);
        for (method, path, caller, expected) in [
            (Method::GET, "apps/scale/3", &operator, 403),
            (Method::GET, "apps/scale/3", &reader, 403),
            (Method::GET, "locked/scale/3", &reader, 403),
            (Method::POST, "apps/scale/3", &operator, 200),
            (Method::POST, "apps/scale/3", &reader, 403),
            (Method::POST, "apps/scale/3", &nobody, 200),
            (Method::GET, "apps/secret/1", &nobody, 403),
            (Method::GET, "apps/secret/1", &reader, 200),
            (Method::GET, "apps/secret/1", &operator, 200),
            // Its own port requires credentials, also from loopback.
            (Method::POST, "locked/v2/1", &nobody, 403),
            (Method::GET, "locked/v2/1", &nobody, 403),
            (Method::GET, "locked/open/1", &nobody, 200),
            (Method::GET, "locked/v2/1", &reader, 200),
            (Method::POST, "locked/v2/1", &reader, 403),
            (Method::POST, "locked/v2/1", &operator, 200),
        ] {
            let path = format!("/v1/services/{path}");
            let (status, text) = request_status_and_text(method.clone(), &path, caller.clone()).await;
            assert_eq!(status, expected, "{method} {path} {caller:?}: {text}");
            if expected == 200 {
                let read_only = format!("read only: {}", caller.read_only);
                assert!(text.ends_with(&read_only), "{text}");
            }
        }
    }
}
