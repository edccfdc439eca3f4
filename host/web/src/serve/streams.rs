//! Event streams, which have a separate budget and end at shutdown.
//!
//! A connection counts against [`Limits::max_connections`](super::Limits::max_connections) until it
//! responds with an event stream; from then on it counts against
//! [`Limits::max_streams`](super::Limits::max_streams), until it is closed after the stream. So
//! streams, which last for days, never use up the connections for requests.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::{HeaderValue, Method, Response, header};
use http_body::{Body as _, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::Limits;
use crate::ApiError;

const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// The budgets of a port. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Budgets {
    connections: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

impl Budgets {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            connections: Arc::new(Semaphore::new(limits.max_connections)),
            streams: Arc::new(Semaphore::new(limits.max_streams)),
        }
    }

    /// Waits until the port may accept one more connection. Never returns `None`, because the
    /// semaphore is never closed.
    pub(super) async fn connection(&self) -> Option<Slot> {
        let permit = Arc::clone(&self.connections).acquire_owned().await.ok()?;
        Some(Slot {
            streams: Arc::clone(&self.streams),
            permit: Arc::new(Mutex::new(permit)),
        })
    }
}

/// A connection's share of a budget, until it is closed. Clones are the same share.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    streams: Arc<Semaphore>,
    permit: Arc<Mutex<OwnedSemaphorePermit>>,
}

impl Slot {
    /// Passes a response on. An event stream moves the connection to the budget of streams, or is
    /// replaced by 503 if that budget is used up; it ends with a proper end of its body when
    /// `token` is cancelled, and the connection after it. Other responses end without help and stay
    /// unchanged, such as those to `HEAD`.
    pub(super) fn pass(
        &self,
        method: &Method,
        response: Response<Body>,
        token: &CancellationToken,
    ) -> Response<Body> {
        let has_no_body = *method == Method::HEAD || response.body().is_end_stream();
        if has_no_body || !is_event_stream(&response) {
            return response;
        }
        let Ok(permit) = Arc::clone(&self.streams).try_acquire_owned() else {
            tracing::warn!("event stream rejected: the port has its maximum number of streams");
            return too_many_streams().into_response();
        };
        *self.permit() = permit;
        let stopped = Box::pin(token.clone().cancelled_owned());
        let mut response = response.map(|body| Body::new(EventStream { body, stopped }));
        // Without another request, the connection never needs a share of the other budget again.
        response.headers_mut().insert(header::CONNECTION, CLOSE);
        response
    }

    fn permit(&self) -> MutexGuard<'_, OwnedSemaphorePermit> {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_event_stream(response: &Response<Body>) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// 503, after which the connection is closed.
fn too_many_streams() -> ApiError {
    let text = "This port has its maximum number of event streams. Try again later.";
    ApiError::unavailable(text).header(header::CONNECTION, CLOSE)
}

/// The body of an event stream.
struct EventStream {
    body: Body,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl http_body::Body for EventStream {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // Data that is ready is sent first, so that the service can still send its last event.
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Pending => self.stopped.as_mut().poll(context).map(|()| None),
            ready @ Poll::Ready(_) => ready,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
