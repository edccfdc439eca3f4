//! Access control: every call requires credentials, except those that the table marks as open.
//!
//! Unknown paths and methods are answered (404, 405) without credentials, as in upstream. A `GET` that
//! sets a count changes something, so it is treated as a write: it is audited, and it is rejected if
//! the read-only user or a link on another site sends it.

use axum::response::{IntoResponse, Response};
use http::Method;
use transom_web::routes::Route;
use transom_web::{AccessPolicy, AccessRules, Denial, Requirement};

use super::routes::TABLE;
use super::without_body;

/// The rules of the port.
pub(crate) fn access_rules() -> AccessRules {
    AccessRules {
        requirement,
        rejection,
        changes,
        ..AccessRules::DEFAULT
    }
}

pub(super) fn requirement(method: &Method, path: &str) -> Requirement {
    TABLE
        .route(method, path)
        .map_or(Requirement::Nothing, Route::requirement)
}

pub(super) fn changes(method: &Method, path: &str) -> bool {
    TABLE.route(method, path).is_some_and(Route::changes)
}

pub(super) fn rejection(policy: &AccessPolicy, denial: Denial, path: &str) -> Response {
    without_body(path, policy.rejection(denial).into_response())
}
