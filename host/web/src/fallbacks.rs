//! JSON fallbacks and logging for every router.

use std::time::Instant;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use http::{Method, StatusCode};

use crate::ApiError;
use crate::text::truncated;

/// Adds JSON answers for unknown routes (404) and methods (405, with `Allow`), and a log line per
/// request at `debug`.
///
/// A router with its own answers for those sets its `fallback` after this. `serve` sets
/// the limits on bodies, heads and connections.
pub fn with_fallbacks(router: Router) -> Router {
    router
        .fallback(async |request: Request| {
            ApiError::not_found(format!("Not found: {}", truncated(request.uri().path())))
        })
        .method_not_allowed_fallback(async |method: Method, request: Request| {
            let (method, path) = (truncated(method.as_str()), truncated(request.uri().path()));
            let text = format!("{method} is not allowed on {path}");
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, text)
        })
        .layer(middleware::from_fn(log))
}

/// Logs path and status only, because queries and headers may carry secrets.
async fn log(request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let began = Instant::now();
    let response = next.run(request).await;
    let (method, path) = (truncated(method.as_str()), truncated(&path));
    tracing::debug!(method, path, status = response.status().as_u16(), took = ?began.elapsed(), "answered");
    response
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn answers_repeat_only_the_beginning_of_path_and_method() {
        let long = "x".repeat(60_000);
        for (method, path, status) in [
            ("GET", format!("/{long}"), StatusCode::NOT_FOUND),
            (long.as_str(), "/a".to_owned(), StatusCode::METHOD_NOT_ALLOWED),
        ] {
            let router = with_fallbacks(Router::new().route("/a", axum::routing::get(async || "a")));
            let request = Request::builder().method(method).uri(path);
            let answer = router
                .oneshot(request.body(Body::empty()).unwrap())
                .await
                .unwrap();
            assert_eq!(answer.status(), status);
            let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
            assert!(body.len() < 2048, "{} bytes", body.len());
        }
    }
}
