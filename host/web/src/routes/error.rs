//! The documents of errors. [`ApiError`](crate::ApiError) writes them.

use schemars::JsonSchema;

/// An error.
#[derive(Debug, JsonSchema)]
#[schemars(rename = "Error")]
#[expect(dead_code, reason = "only for its schema")]
pub struct ErrorDocument {
    message: String,
    /// The error of the parser, or the problems of the document.
    #[schemars(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    /// True if texts and lists were cut, because the error would have more than 64 KiB.
    #[schemars(skip_serializing_if = "Option::is_none")]
    truncated: Option<bool>,
}

/// More about an error.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only for its schema")]
enum Details {
    Text(String),
    Problems(Vec<ErrorDetail>),
}

/// The problems with one part of a document.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only for its schema")]
struct ErrorDetail {
    /// Such as `/container/portMappings(0)/hostPort`; `/` for the whole document.
    path: String,
    errors: Vec<String>,
}
