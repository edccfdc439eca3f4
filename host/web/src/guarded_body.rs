//! Response bodies: which are event streams, and those that own a guard. The guard is dropped when
//! the response has been written or the client has disconnected.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::{Response, header};
use http_body::{Frame, SizeHint};

/// Whether a response is an event stream, which takes as long as its client wants.
pub(crate) fn is_event_stream(response: &Response<Body>) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

struct GuardedBody<G> {
    body: Body,
    guard: Arc<G>,
}

/// Bytes of a guarded body. The body ends when hyper has taken its last bytes, which may be all of
/// them; these keep the guard until they have been written.
struct GuardedBytes<G> {
    bytes: Bytes,
    _guard: Arc<G>,
}

impl<G> AsRef<[u8]> for GuardedBytes<G> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Attaches `guard` to `body`: the guard is dropped with the body and all its bytes.
pub(crate) fn guarded(body: Body, guard: impl Send + Sync + 'static) -> Body {
    let guard = Arc::new(guard);
    Body::new(GuardedBody { body, guard })
}

impl<G: Send + Sync + 'static> http_body::Body for GuardedBody<G> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        frame.map_ok(|frame| {
            frame.map_data(|bytes| {
                Bytes::from_owner(GuardedBytes {
                    bytes,
                    _guard: Arc::clone(&self.guard),
                })
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
