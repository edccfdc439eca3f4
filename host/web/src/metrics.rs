//! Serves a registry's metrics.

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header;
use prometheus_client::registry::Registry;

use crate::ApiError;

/// The content type of [`response`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of a registry, in the OpenMetrics text format.
pub fn response(registry: &Registry) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, registry) {
        Ok(()) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(cause) => ApiError::internal(&cause).into_response(),
    }
}

/// `GET /metrics`, for a registry that is complete.
pub fn router(registry: Arc<Registry>) -> Router {
    Router::new().route("/metrics", get(async move || response(&registry)))
}
