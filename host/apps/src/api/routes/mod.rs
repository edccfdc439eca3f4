//! The table of routes: the router and the OpenAPI document. Its schemas are those of the types that
//! handlers serialize, so that it cannot contradict them; `parameters` and the files of the resources
//! describe the rest.
//!
//! `docs/apps.openapi.json` is a copy, which a test compares with the document.

mod apps;
mod deployments;
mod error;
mod groups;
mod operation;
mod parameters;
mod pods;
mod service;

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header;
use serde_json::Value;
use transom_web::routes::{ErrorResponse, Info, Route, Schemas, Table, text};

use self::error::Error;
use crate::api::{Api, input_schemas};

/// All routes.
pub(super) static TABLE: LazyLock<Table<Api>> = LazyLock::new(|| {
    let lists = [
        apps::routes(),
        pods::routes(),
        groups::routes(),
        deployments::routes(),
        service::routes(),
    ];
    Table {
        info: INFO,
        parameters: parameters::PARAMETERS,
        routes: lists.into_iter().flatten().map(tagged).collect(),
    }
});

fn tagged(route: Route<Api>) -> Route<Api> {
    let tags = ["apps", "pods", "groups", "tasks", "deployments", "queue"];
    let resource = route.path().split('/').nth(2);
    let tag = tags.into_iter().find(|tag| resource == Some(tag));
    route.tag(tag.unwrap_or("service"))
}

const INFO: Info = Info {
    title: "Transom apps",
    version: "2",
    description: "Runs long-running tasks, with Marathon's API. A boolean parameter is true for `true` in any case, otherwise \
        false. Empty segments of a path are ignored, and every GET may be a HEAD. A standby forwards requests to the \
        leader, and redirects event streams to it. The header `X-Marathon-Leader` of every response has the address of the \
        leader. Every error is a JSON document with a message.",
    error: Schemas::of::<Error>,
    errors: ERRORS,
    headers: parameters::HEADERS,
};

const ERRORS: &[ErrorResponse] = &[
    ErrorResponse::new(
        400,
        "BadRequest",
        "The body is not valid JSON, or a parameter has an invalid value.",
    ),
    ErrorResponse::new(
        403,
        "Forbidden",
        "The maximum number of apps or deployments is reached, or the client may only read.",
    ),
    ErrorResponse::new(404, "NotFound", "The resource does not exist."),
    ErrorResponse::new(405, "MethodNotAllowed", "The path does not support the method."),
    ErrorResponse::new(
        409,
        "Conflict",
        "A running deployment locks the resource, and `deployments` has its id; or the resource to be created already \
         exists, and the error has no member `deployments`.",
    ),
    ErrorResponse::new(
        422,
        "Unprocessable",
        "The document has the wrong shape or violates rules. `details` has all problems with their paths.",
    ),
    ErrorResponse::new(
        503,
        "Unavailable",
        "The store or a component did not answer. Nothing has changed.",
    )
    .with_headers(&["Retry-After"]),
    ErrorResponse::other(
        "Error",
        "Any other error, such as 401 (credentials), 413 (a body that is too large) and 502 (no leader).",
    ),
];

/// The document as text.
static TEXT: LazyLock<Bytes> = LazyLock::new(|| text(&document()).into());

/// `GET /v2/openapi.json`
async fn get() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], TEXT.clone()).into_response()
}

/// The document.
pub(super) fn document() -> Value {
    let mut document = TABLE.document();
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        input_schemas::add(schemas);
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checked_in_document_is_the_generated_one() {
        transom_testkit::assert_checked_in("docs/apps.openapi.json", &text(&document()));
    }
}
