//! JSON fallbacks and logging for every router.

use std::time::Instant;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use http::{Method, StatusCode};

use crate::ApiError;

/// Adds JSON answers for unknown routes (404) and methods (405, with `Allow`), and a log line per
/// request at `debug`.
///
/// A router with its own answers for those sets its `fallback` after this. [`crate::serve`] sets
/// the limits on bodies, heads and connections.
pub fn with_fallbacks(router: Router) -> Router {
    router
        .fallback(async |request: Request| {
            ApiError::not_found(format!("Not found: {}", request.uri().path()))
        })
        .method_not_allowed_fallback(async |method: Method, request: Request| {
            let text = format!("{method} is not allowed on {}", request.uri().path());
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, text)
        })
        .layer(middleware::from_fn(log))
}

/// Logs path and status only, because queries and headers may carry secrets.
async fn log(request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let began = Instant::now();
    let response = next.run(request).await;
    tracing::debug!(%method, path, status = response.status().as_u16(), took = ?began.elapsed(), "answered");
    response
}
