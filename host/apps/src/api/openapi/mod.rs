//! The OpenAPI document of the API. Its schemas are those of the types that handlers serialize, so
//! that it cannot contradict them; `parameters` and the files of the resources describe the rest.
//!
//! `docs/apps.openapi.json` is a copy, which a test compares with the document.

mod apps;
mod deployments;
mod error;
mod groups;
mod input;
mod operation;
mod parameters;
mod pods;
mod schemas;
mod service;

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header;
use serde_json::{Value, json};

use self::error::Error;
use self::operation::Paths;
use self::schemas::Schemas;

/// The document as text.
static TEXT: LazyLock<Bytes> = LazyLock::new(|| text(&document()).into());

/// `GET /v2/openapi.json`
pub(super) async fn get() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], TEXT.clone()).into_response()
}

/// Formats a document with indentation and a final line break.
fn text(document: &Value) -> String {
    format!("{document:#}\n")
}

/// The document.
pub(super) fn document() -> Value {
    let (mut paths, mut schemas) = (Paths::default(), Schemas::new());
    apps::add(&mut paths, &mut schemas);
    pods::add(&mut paths, &mut schemas);
    groups::add(&mut paths, &mut schemas);
    deployments::add(&mut paths, &mut schemas);
    service::add(&mut paths, &mut schemas);
    let responses = operation::responses(&schemas.of::<Error>());
    let mut schemas = schemas.finish();
    input::add(&mut schemas);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Transom apps",
            "version": "2",
            "description": "Runs long-running tasks, with Marathon's API. A boolean parameter is true for `true` in any \
                case, otherwise false. Empty segments of a path are ignored, and every GET may be a HEAD. A standby \
                forwards requests to the leader, and redirects event streams to it. The header `X-Marathon-Leader` \
                of every response has the address of the leader. Every error is a JSON document with a message.",
        },
        // Credentials are needed only if the port is configured with some.
        "security": [{}, {"basic": []}],
        "paths": paths.finish(),
        "components": {
            "schemas": schemas,
            "parameters": parameters::parameters(),
            "headers": parameters::headers(),
            "responses": responses,
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
    })
}

#[cfg(test)]
mod tests;
