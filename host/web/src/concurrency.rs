//! The maximum number of requests that a port handles at the same time.
//!
//! A request counts until its response has been written or its client is gone, because responses
//! need memory too. Event streams do not count; see [`Limits::max_streams`](crate::Limits).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ApiError;

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
                // Upstream's text.
                let text = format!("Too many concurrent requests! Allowed: {max}.");
                return ApiError::unavailable(text).into_response();
            };
            let response = next.run(request).await;
            response.map(|body| {
                Body::new(Counted {
                    body,
                    _permit: permit,
                })
            })
        }
    }))
}

/// The body of a request that counts.
struct Counted {
    body: Body,
    _permit: OwnedSemaphorePermit,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
