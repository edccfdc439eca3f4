//! Ends endless answers at shutdown.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::{Response, header};
use http_body::{Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Ends an event stream, complete and in order, when the token is cancelled. Other answers end
/// anyway and pass unchanged.
pub(crate) fn until_stopped(response: Response<Body>, token: &CancellationToken) -> Response<Body> {
    let endless = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    if !endless {
        return response;
    }
    let stopped = Box::pin(token.clone().cancelled_owned());
    response.map(|body| Body::new(UntilStopped { body, stopped }))
}

struct UntilStopped {
    body: Body,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl http_body::Body for UntilStopped {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // Ready data is sent first: the service may still send its last event.
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
