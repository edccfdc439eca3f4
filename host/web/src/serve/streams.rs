//! Event streams, which have a separate budget and end at shutdown.
//!
//! A connection counts against [`Limits::max_connections`](super::Limits::max_connections) until it
//! responds with an event stream; from then on it counts against
//! [`Limits::max_streams`](super::Limits::max_streams), until it is closed after the stream. So
//! streams, which last for days, never use up the connections for requests.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::{HeaderValue, Method, Response, header};
use http_body::{Body as _, Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::guarded_body::{guarded, is_event_stream};
use crate::{ApiError, ConnectionSlot, Owner, Shares};

pub(super) const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// The event streams of a connection, of which there is at most one.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    budget: Shares,
    slot: ConnectionSlot,
    token: CancellationToken,
}

impl Streams {
    /// The streams of the connection with this place. They end when `token` is cancelled.
    pub(super) fn new(budget: Shares, slot: ConnectionSlot, token: CancellationToken) -> Self {
        Self { budget, slot, token }
    }

    /// Passes a response on. An event stream moves the connection to the budget of streams, or is
    /// replaced by 503 if its owner's share of that budget is used up; it ends with a proper end of its
    /// body when the token is cancelled, and the connection after it. Other responses end without help
    /// and stay unchanged, such as those to `HEAD`.
    pub(super) fn pass(&self, method: &Method, owner: Owner, response: Response<Body>) -> Response<Body> {
        let has_no_body = *method == Method::HEAD || response.body().is_end_stream();
        if has_no_body || !is_event_stream(&response) {
            return response;
        }
        let Some(share) = self.budget.take(owner, 1) else {
            return too_many_streams().into_response();
        };
        self.slot.release();
        let stopped = Box::pin(self.token.clone().cancelled_owned());
        let mut response = response.map(|body| guarded(Body::new(EventStream { body, stopped }), share));
        // Without another request, the connection never needs its place again.
        response.headers_mut().insert(header::CONNECTION, CLOSE);
        response
    }
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
