//! The rest of request bodies that a handler does not read, such as those of rejected requests.
//!
//! hyper closes the connection after the response to such a request, and a client that is still
//! sending may then lose the response. Therefore the rest is read first, within bounds.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::timeout;

/// The maximum number of bytes that are discarded, and the timeout for that.
const MAX_DISCARDED: usize = 8 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// The rest of a body that the handler has dropped; nothing if it has read all of it.
pub(super) struct Unread<B>(Arc<Mutex<Option<B>>>);

/// A body that leaves its rest to [`Unread`].
pub(super) struct TrackedBody<B: Body> {
    body: Option<B>,
    /// Whether the handler has begun to read it.
    is_polled: bool,
    /// Whether the client sends the body only when it is asked for (`Expect: 100-continue`).
    is_sent_on_demand: bool,
    rest: Arc<Mutex<Option<B>>>,
}

/// Tracks a body, so that its rest can be read after the handler has dropped it.
pub(super) fn track<B: Body>(body: B, is_sent_on_demand: bool) -> (TrackedBody<B>, Unread<B>) {
    let rest = Arc::default();
    let unread = Unread(Arc::clone(&rest));
    let body = TrackedBody {
        body: Some(body),
        is_polled: false,
        is_sent_on_demand,
        rest,
    };
    (body, unread)
}

impl<B: Body<Data = Bytes> + Unpin> Unread<B> {
    /// Reads the rest.
    pub(super) async fn discard(self) {
        let rest = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut rest) = rest else { return };
        let read = async {
            let mut remaining = MAX_DISCARDED;
            while let Some(Ok(frame)) = rest.frame().await {
                match remaining.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                    Some(after) => remaining = after,
                    None => break,
                }
            }
        };
        // After the timeout the connection is closed.
        let _ = timeout(DISCARD_TIMEOUT, read).await;
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for TrackedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.is_polled = true;
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B: Body> Drop for TrackedBody<B> {
    fn drop(&mut self) {
        let rest = self.body.take_if(|body| !body.is_end_stream());
        if rest.is_some() && (self.is_polled || !self.is_sent_on_demand) {
            *self.rest.lock().unwrap_or_else(PoisonError::into_inner) = rest;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use std::convert::Infallible;

    use axum::body::Body;
    use futures::{StreamExt, stream};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn discarding_is_bounded_in_bytes_and_time() {
        const PART: usize = 1 << 20;
        let part = Ok::<_, Infallible>(Bytes::from(vec![0; PART]));
        for (parts, expected) in [(0, 0), (3, 3), (20, MAX_DISCARDED / PART + 1)] {
            for is_stalled in [false, true] {
                let read = Arc::new(Mutex::new(0));
                let counted = Arc::clone(&read);
                let parts = stream::repeat(part.clone())
                    .take(parts)
                    .inspect(move |_| *counted.lock().unwrap() += 1);
                let body = if is_stalled {
                    Body::from_stream(parts.chain(stream::pending()))
                } else {
                    Body::from_stream(parts)
                };
                let (body, unread) = track(body, false);
                drop(body);
                let began = Instant::now();
                unread.discard().await;
                let read = *read.lock().unwrap();
                let waits = is_stalled && expected <= MAX_DISCARDED / PART;
                assert_eq!(read, expected, "{is_stalled}");
                assert_eq!(began.elapsed() >= DISCARD_TIMEOUT, waits, "{expected}");
            }
        }
    }

    #[tokio::test]
    async fn only_what_is_unread_is_kept() {
        for (parts_read, is_sent_on_demand, is_kept) in [
            (0, false, true),
            (0, true, false),
            (1, true, true),
            (3, false, false),
        ] {
            let part = Ok::<_, Infallible>(Bytes::from_static(b"x"));
            let body = Body::from_stream(stream::iter([part.clone(), part]));
            let (mut body, unread) = track(body, is_sent_on_demand);
            for _ in 0..parts_read {
                let _ = body.frame().await;
            }
            drop(body);
            let rest = unread.0.lock().unwrap().is_some();
            assert_eq!(rest, is_kept, "{parts_read} {is_sent_on_demand}");
        }
    }
}
