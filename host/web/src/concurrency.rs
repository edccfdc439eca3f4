//! The maximum number of requests that a port handles at the same time.
//!
//! A request counts until its response has been written or its client has disconnected, because
//! responses need memory too. Event streams do not count; see
//! [`Limits::max_streams`](crate::Limits).

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use tokio::sync::Semaphore;

use crate::ApiError;
use crate::guarded_body::guarded;

/// Rejects requests (503) while `max` others are handled. Paths for which `is_stream` is true are
/// not counted.
pub(crate) fn limited(router: Router, max: usize, is_stream: fn(&str) -> bool) -> Router {
    let requests = Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS)));
    router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let requests = Arc::clone(&requests);
        async move {
            if is_stream(request.uri().path()) {
                return next.run(request).await;
            }
            let Ok(permit) = requests.try_acquire_owned() else {
                // Marathon's text.
                let text = format!("Too many concurrent requests! Allowed: {max}.");
                return ApiError::unavailable(text).into_response();
            };
            let response = next.run(request).await;
            response.map(|body| guarded(body, permit))
        }
    }))
}
