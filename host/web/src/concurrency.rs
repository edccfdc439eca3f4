//! The maximum number of requests that a port handles at the same time.
//!
//! A request counts until its response has been written or its client has disconnected, because
//! responses need memory too. Event streams do not count; see
//! [`Limits::max_streams`](crate::Limits).

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::IntoResponse;

use crate::guarded_body::guarded;
use crate::{ApiError, Owner, Shares};

/// Rejects requests (503) while `max` others are handled, or those of one user their [`Shares`]. Paths
/// for which `is_stream` is true are not counted. `port` is the name for logs and metrics.
pub(crate) fn limited(router: Router, port: &'static str, max: usize, is_stream: fn(&str) -> bool) -> Router {
    let requests = Shares::new(port, "requests", max);
    router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let requests = requests.clone();
        async move {
            if is_stream(request.uri().path()) {
                return next.run(request).await;
            }
            let Some(share) = requests.take(Owner::of(request.extensions()), 1) else {
                // Marathon's text.
                let text = format!("Too many concurrent requests! Allowed: {max}.");
                return ApiError::unavailable(text).into_response();
            };
            let response = next.run(request).await;
            response.map(|body| guarded(body, share))
        }
    }))
}
