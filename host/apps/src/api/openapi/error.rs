//! The documents of errors. [`transom_web::ApiError`] writes them.

use schemars::JsonSchema;

use crate::api::change::DeploymentReference;

/// An error.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only for its schema")]
pub(super) struct Error {
    message: String,
    /// The error of the parser, or the problems of the document.
    #[schemars(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    /// The deployments that lock what was to be changed.
    #[schemars(skip_serializing_if = "Option::is_none")]
    deployments: Option<Vec<DeploymentReference<'static>>>,
    /// The error of a component as one word, such as `timed-out`.
    #[schemars(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// True if texts and lists were cut, because the error would have more than 64 KiB.
    #[schemars(skip_serializing_if = "Option::is_none")]
    truncated: Option<bool>,
}

/// More about an error.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only for its schema")]
enum Details {
    Text(String),
    Problems(Vec<ErrorDetail>),
}

/// The problems with one part of a document.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only for its schema")]
struct ErrorDetail {
    /// Such as `/container/portMappings(0)/hostPort`; `/` for the whole document.
    path: String,
    errors: Vec<String>,
}
