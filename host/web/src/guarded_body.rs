//! A response body that owns a guard. The guard is dropped when the response has been written or
//! the client has disconnected.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

struct GuardedBody<G> {
    body: Body,
    _guard: G,
}

/// Attaches `guard` to `body`: the guard is dropped with the body.
pub(crate) fn guarded(body: Body, guard: impl Send + Unpin + 'static) -> Body {
    Body::new(GuardedBody { body, _guard: guard })
}

impl<G: Unpin> http_body::Body for GuardedBody<G> {
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
