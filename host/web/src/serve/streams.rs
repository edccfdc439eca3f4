//! Event streams, which have a separate budget and end at shutdown.
//!
//! A connection counts against [`Limits::max_connections`](super::Limits::max_connections) until it
//! responds with an event stream; from then on it counts against
//! [`Limits::max_streams`](super::Limits::max_streams). So streams, which last for days, never use
//! up the connections for requests.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::Limits;
use crate::ApiError;

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
            budgets: self.clone(),
            permit: Arc::new(Mutex::new(Some(permit))),
        })
    }
}

/// A connection's share of a budget. Clones are the same share.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    budgets: Budgets,
    /// Empty while the connection carries a stream: the stream's body holds the other budget's
    /// permit.
    permit: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl Slot {
    /// Counts the connection against the budget of connections again, after a stream has ended.
    ///
    /// # Errors
    /// 503 if that budget is used up; the connection is closed.
    pub(super) fn begin_request(&self) -> Result<(), ApiError> {
        let mut permit = self.permit();
        if permit.is_none() {
            *permit = Arc::clone(&self.budgets.connections).try_acquire_owned().ok();
        }
        match *permit {
            Some(_) => Ok(()),
            None => Err(too_many("connections")),
        }
    }

    /// Passes a response on. An event stream moves the connection to the budget of streams, or is
    /// replaced by 503 if that budget is used up; it ends with a proper end of its body when
    /// `token` is cancelled. Other responses end without help and stay unchanged.
    pub(super) fn pass(&self, response: Response<Body>, token: &CancellationToken) -> Response<Body> {
        if !is_event_stream(&response) {
            return response;
        }
        let Ok(permit) = Arc::clone(&self.budgets.streams).try_acquire_owned() else {
            tracing::warn!("event stream rejected: the port has its maximum number of streams");
            return too_many("event streams").into_response();
        };
        self.permit().take();
        let stopped = Box::pin(token.clone().cancelled_owned());
        response.map(|body| {
            Body::new(EventStream {
                body,
                stopped,
                _permit: permit,
            })
        })
    }

    fn permit(&self) -> MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_event_stream(response: &Response<Body>) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// 503, after which the connection is closed.
fn too_many(what: &str) -> ApiError {
    let text = format!("This port has its maximum number of {what}. Try again later.");
    ApiError::unavailable(text).header(header::CONNECTION, HeaderValue::from_static("close"))
}

/// The body of an event stream.
struct EventStream {
    body: Body,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    _permit: OwnedSemaphorePermit,
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
