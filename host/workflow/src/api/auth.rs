//! Access control.
//!
//! | request | credentials configured | not configured |
//! |---|---|---|
//! | queueing, look-ups | trusted networks without, others with credentials | trusted networks only |
//! | killing a job | with credentials | trusted networks only |
//! | `/v0/dags` | with credentials | rejected |
//!
//! The published operator sends no credentials, so trusted networks need none to queue and look up.
//! Credentials in a request are always checked: a wrong password is rejected from any network, so
//! that it is noticed.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, header};
use transom_web::{Presented, is_within};

use super::{Api, plain};

/// Upstream's text for every failure.
const TEXT: &str = "Unauthorized Access";
const CHALLENGE: &str = "Basic realm=\"Authentication Required\"";

/// The access requirement of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Requirement {
    /// Credentials, or a trusted network.
    Either,
    /// Credentials; if none are configured, a trusted network.
    Credentials,
    /// Credentials in any case.
    CredentialsAlways,
}

fn requirement(method: &Method, path: &str) -> Requirement {
    if path.trim_end_matches('/') == "/v0/dags" {
        Requirement::CredentialsAlways
    } else if method == Method::DELETE {
        Requirement::Credentials
    } else {
        Requirement::Either
    }
}

/// Rejects requests without access.
pub(super) async fn require_credentials(State(api): State<Api>, request: Request, next: Next) -> Response {
    let credentials = api.0.config.credentials.as_ref();
    let presented = credentials.map(|credentials| credentials.presented(request.headers()));
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let peer = peer.map(|peer| peer.0.ip());
    let trusted = peer.is_some_and(|peer| is_within(&api.0.trusted, peer));
    let may = match (requirement(request.method(), request.uri().path()), presented) {
        (_, Some(Presented::Valid)) => true,
        (_, Some(Presented::Invalid)) => false,
        (Requirement::Either, _) | (Requirement::Credentials, None) => trusted,
        (Requirement::Credentials | Requirement::CredentialsAlways, _) => false,
    };
    if may {
        return next.run(request).await;
    }
    tracing::info!(
        ?peer,
        path = request.uri().path(),
        ?presented,
        "request rejected: missing or invalid credentials"
    );
    let mut refusal = (StatusCode::UNAUTHORIZED, plain(TEXT)).into_response();
    refusal.headers_mut().insert(
        header::WWW_AUTHENTICATE,
        header::HeaderValue::from_static(CHALLENGE),
    );
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirement_depends_on_method_and_path() {
        for (method, path, expected) in [
            (Method::POST, "/v0/queue_command", Requirement::Either),
            (Method::GET, "/v0/task/x", Requirement::Either),
            (Method::GET, "/v0/task/x/log", Requirement::Either),
            (Method::GET, "/v0/events", Requirement::Either),
            (Method::GET, "/v0/queue", Requirement::Either),
            (Method::GET, "/v0/agent/x", Requirement::Either),
            (Method::DELETE, "/v0/task/x", Requirement::Credentials),
            (Method::GET, "/v0/dags", Requirement::CredentialsAlways),
            (Method::GET, "/v0/dags/", Requirement::CredentialsAlways),
            (Method::DELETE, "/v0/dags", Requirement::CredentialsAlways),
        ] {
            assert_eq!(requirement(&method, path), expected, "{method} {path}");
        }
    }
}
