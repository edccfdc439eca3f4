//! Access control.
//!
//! | request | credentials configured | not configured |
//! |---|---|---|
//! | queueing, look-ups | from a trusted network, or with credentials | trusted networks only |
//! | killing a job | with credentials | trusted networks only |
//! | `/v0/dags` | with credentials | rejected |
//!
//! The published operator sends no credentials, so trusted networks need none to queue and look up.
//! The user who may only read is allowed all look-ups and receives 403 for the other requests.
//! Credentials in a request are always checked: a wrong password is rejected from any network, so
//! that the mistake is noticed.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, StatusCode, header};
use transom_web::{AccessPolicy, AccessRules, Denial, Requirement};

use super::{TABLE, plain};

/// The text that upstream returns for every failure.
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

/// That of the table; what has no route has no effect.
fn requirement(method: &Method, path: &str) -> Requirement {
    let found = TABLE.requirement(method, path);
    found.unwrap_or(Requirement::NetworkOrCredentials)
}

/// The response to a rejected request. Upstream has no user who may only read, so the text for that
/// user is not upstream's.
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
            (Method::HEAD, "/v0/dags", Requirement::CredentialsAlways),
            (Method::GET, "/v0/dags/", Requirement::NetworkOrCredentials),
            (Method::DELETE, "/v0/dags", Requirement::NetworkOrCredentials),
        ] {
            assert_eq!(requirement(&method, path), expected, "{method} {path}");
        }
    }
}
