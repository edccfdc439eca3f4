//! Access control: credentials for every call but those that the table opens.
//!
//! Unknown paths and methods are answered (404, 405) without credentials, as upstream does. A
//! `GET` that sets a count changes something, so it is treated as a write: it is audited, the user
//! who may only read cannot send it, and no link of another site leads to it.

use axum::response::{IntoResponse, Response};
use http::Method;
use transom_web::{AccessPolicy, AccessRules, Denial, Requirement};

use super::routes::{Found, find};
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
    match find(method, path) {
        Found::Call(call) if !call.open => Requirement::NetworkOrCredentials,
        Found::Call(_) | Found::OtherMethod(_) | Found::Nothing => Requirement::Nothing,
    }
}

pub(super) fn changes(method: &Method, path: &str) -> bool {
    matches!(find(method, path), Found::Call(call) if call.changes)
}

pub(super) fn rejection(policy: &AccessPolicy, denial: Denial, path: &str) -> Response {
    without_body(path, policy.rejection(denial).into_response())
}
