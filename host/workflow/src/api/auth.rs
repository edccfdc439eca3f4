//! Access control.
//!
//! | request | credentials configured | not configured |
//! |---|---|---|
//! | queueing, look-ups | trusted networks without, others with credentials | trusted networks only |
//! | killing a job | with credentials | trusted networks only |
//! | `/v0/dags` | with credentials | rejected |
//!
//! The published operator sends no credentials, so trusted networks need none to queue and look up.
//! The user who may only read may do so everywhere, and gets 403 for the rest. Credentials in a
//! request are always checked: a wrong password is rejected from any network, so that it is
//! noticed.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, StatusCode, header};
use transom_web::{AccessPolicy, AccessRules, Denial, Requirement};

use super::plain;

/// Upstream's text for every failure.
const TEXT: &str = "Unauthorized Access";
const CHALLENGE: &str = "Basic realm=\"Authentication Required\"";

/// The rules of the port.
pub(crate) fn access_rules() -> AccessRules {
    AccessRules {
        requirement,
        rejection,
        ..AccessRules::DEFAULT
    }
}

fn requirement(method: &Method, path: &str) -> Requirement {
    if path.trim_end_matches('/') == "/v0/dags" {
        Requirement::CredentialsAlways
    } else if method == Method::DELETE {
        Requirement::Credentials
    } else {
        Requirement::NetworkOrCredentials
    }
}

/// Upstream has no user who may only read, so it has no response for one.
fn rejection(policy: &AccessPolicy, denial: Denial, _path: &str) -> Response {
    match denial {
        Denial::ReadOnly => policy.rejection(denial).into_response(),
        Denial::Unauthorized | Denial::UntrustedNetwork => unauthorized(),
    }
}

fn unauthorized() -> Response {
    let mut response = (StatusCode::UNAUTHORIZED, plain(TEXT)).into_response();
    let challenge = HeaderValue::from_static(CHALLENGE);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirement_depends_on_method_and_path() {
        for (method, path, expected) in [
            (
                Method::POST,
                "/v0/queue_command",
                Requirement::NetworkOrCredentials,
            ),
            (Method::GET, "/v0/task/x", Requirement::NetworkOrCredentials),
            (Method::GET, "/v0/task/x/log", Requirement::NetworkOrCredentials),
            (Method::GET, "/v0/events", Requirement::NetworkOrCredentials),
            (Method::GET, "/v0/queue", Requirement::NetworkOrCredentials),
            (Method::GET, "/v0/agent/x", Requirement::NetworkOrCredentials),
            (Method::DELETE, "/v0/task/x", Requirement::Credentials),
            (Method::GET, "/v0/dags", Requirement::CredentialsAlways),
            (Method::GET, "/v0/dags/", Requirement::CredentialsAlways),
            (Method::DELETE, "/v0/dags", Requirement::CredentialsAlways),
        ] {
            assert_eq!(requirement(&method, path), expected, "{method} {path}");
        }
    }
}
