//! The documents of errors. [`transom_web::ApiError`] writes them.

use schemars::JsonSchema;
use transom_web::routes::ErrorDocument;

use crate::api::change::DeploymentReference;

/// An error.
#[derive(JsonSchema)]
#[expect(dead_code, clippy::struct_field_names, reason = "only for its schema")]
pub(super) struct Error {
    #[schemars(flatten)]
    error: ErrorDocument,
    /// The deployments that lock what was to be changed.
    #[schemars(skip_serializing_if = "Option::is_none")]
    deployments: Option<Vec<DeploymentReference<'static>>>,
    /// The error of a component as one word, such as `timed-out`.
    #[schemars(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}
