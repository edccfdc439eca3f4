//! Timeouts of a request's body.
//!
//! A client that sends its body slowly, or stops, would keep its request pending for ever. The body
//! ends with an error here when its next part, or the rest of it, does not arrive in time. A handler
//! cannot distinguish this from a lost connection, so [`replaced`] replaces its answer by a 408.
//!
//! Time counts only while a handler waits for the body.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::Limits;
use crate::ApiError;

/// Whether a request's body arrived too late; an extension of each request. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct BodyLate(Arc<AtomicBool>);

/// The body with its timeouts, and whether it is too late.
pub(super) fn bounded<B>(body: B, limits: Limits) -> (Body, BodyLate)
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<axum::BoxError>,
{
    let late = BodyLate::default();
    if body.is_end_stream() {
        return (Body::empty(), late);
    }
    let body = BodyDeadline {
        body,
        limits,
        idle: None,
        total: None,
        late: late.clone(),
    };
    (Body::new(body), late)
}

/// Replaces the error that a handler returns for a late body.
pub(super) fn replaced(response: Response, late: Option<&BodyLate>) -> Response {
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    if !is_error
        || response.status() == StatusCode::REQUEST_TIMEOUT
        || !late.is_some_and(|late| late.0.load(Ordering::Relaxed))
    {
        return response;
    }
    let text = "The body of the request did not arrive in time";
    let close = HeaderValue::from_static("close");
    ApiError::new(StatusCode::REQUEST_TIMEOUT, text)
        .header(header::CONNECTION, close)
        .into_response()
}

/// A body with timeouts.
struct BodyDeadline<B> {
    body: B,
    limits: Limits,
    /// Runs while the next part is awaited.
    idle: Option<Pin<Box<Sleep>>>,
    /// Runs from the first wait.
    total: Option<Pin<Box<Sleep>>>,
    late: BodyLate,
}

impl<B> BodyDeadline<B> {
    fn poll_elapsed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Limits {
            body_idle_timeout,
            body_timeout,
            ..
        } = self.limits;
        for (timer, duration) in [
            (&mut self.idle, body_idle_timeout),
            (&mut self.total, body_timeout),
        ] {
            let timer = timer.get_or_insert_with(|| Box::pin(sleep(duration)));
            if timer.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

impl<B> http_body::Body for BodyDeadline<B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<axum::BoxError>,
{
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.idle = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(this.poll_elapsed(context));
        this.late.0.store(true, Ordering::Relaxed);
        let error = io::Error::new(io::ErrorKind::TimedOut, "the body did not arrive in time");
        Poll::Ready(Some(Err(error.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use futures::stream;
    use tokio::time::Instant;

    use super::*;

    /// Reads a body whose parts arrive after these pauses, in seconds. Returns whether it is complete,
    /// and after how many seconds it ended.
    async fn read(pauses: &'static [u64]) -> (bool, u64) {
        let parts = stream::unfold(pauses.iter(), async |mut pauses| {
            sleep(Duration::from_secs(*pauses.next()?)).await;
            Some((Ok::<_, Infallible>(Bytes::from_static(b"x")), pauses))
        });
        let began = Instant::now();
        let limits = Limits {
            body_idle_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(100),
            ..Limits::default()
        };
        let (body, late) = bounded(Body::from_stream(parts), limits);
        let read = axum::body::to_bytes(body, 1 << 10).await;
        let is_late = late.0.load(Ordering::Relaxed);
        assert_eq!(read.is_err(), is_late);
        let error = StatusCode::BAD_REQUEST.into_response();
        let status = if is_late { 408 } else { 400 };
        assert_eq!(replaced(error, Some(&late)).status().as_u16(), status);
        (!is_late, began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn body_is_bounded_in_idle_and_total_time() {
        for (pauses, expected) in [
            (&[][..], (true, 0)),
            (&[29, 29, 29], (true, 87)),
            (&[31], (false, 30)),
            (&[29, 31], (false, 59)),
            (&[20, 20, 20, 20, 20, 20], (false, 100)),
        ] {
            assert_eq!(read(pauses).await, expected, "{pauses:?}");
        }
    }

    #[test]
    fn only_errors_for_a_late_body_are_replaced() {
        let late = BodyLate(Arc::new(AtomicBool::new(true)));
        for (status, late, expected) in [
            (StatusCode::BAD_REQUEST, Some(&late), 408),
            (StatusCode::INTERNAL_SERVER_ERROR, Some(&late), 408),
            (StatusCode::OK, Some(&late), 200),
            (StatusCode::BAD_REQUEST, Some(&BodyLate::default()), 400),
            (StatusCode::BAD_REQUEST, None, 400),
        ] {
            let response = replaced(status.into_response(), late);
            assert_eq!(response.status().as_u16(), expected, "{status}");
        }
    }
}
