//! JSON bodies for requests that hyper itself rejects.
//!
//! An invalid request line or header, and a head that is too large, never reach the router: hyper
//! answers 400, 414 or 431 with an empty body and has no hook for it. [`Rejections`] sits between
//! hyper and the connection and adds the body of an [`ApiError`](crate::ApiError) to these answers.
//! The router's answers stay unchanged: hyper sends an answer itself only while the router handles
//! no request, which [`RequestActivity`] tracks.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::{Buf, Bytes};
use http::Response;
use hyper::rt::{Read, ReadBufCursor, Write};
use serde_json::json;

use crate::ConnectionSlot;
use crate::guarded_body::guarded;

/// Whether the router handles a request of this connection; the connection's place in the port is busy
/// meanwhile. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct RequestActivity(Arc<State>);

#[derive(Debug)]
struct State {
    slot: ConnectionSlot,
    /// True from a request's arrival until its answer has been sent.
    in_progress: AtomicBool,
    /// Whether the answer is complete; the next flush sends it.
    is_answered: AtomicBool,
}

impl RequestActivity {
    pub(super) fn new(slot: ConnectionSlot) -> Self {
        Self(Arc::new(State {
            slot,
            in_progress: AtomicBool::new(false),
            is_answered: AtomicBool::new(false),
        }))
    }

    /// Marks that the router receives a request. Returns false if the connection is being closed, so
    /// that the router must not receive it.
    pub(super) fn begin(&self) -> bool {
        self.0.is_answered.store(false, Ordering::Relaxed);
        self.0.in_progress.store(true, Ordering::Relaxed);
        self.0.slot.begin()
    }

    /// Ends the turn when the answer's body is dropped.
    pub(super) fn end_with(&self, response: Response<Body>) -> Response<Body> {
        let end = EndOfAnswer(self.clone());
        response.map(|body| guarded(body, end))
    }

    fn is_in_progress(&self) -> bool {
        self.0.in_progress.load(Ordering::Relaxed)
    }

    /// Marks that everything written has been sent.
    fn flushed(&self) {
        if self.0.is_answered.load(Ordering::Relaxed) && self.0.in_progress.swap(false, Ordering::Relaxed) {
            self.0.slot.end();
        }
    }
}

/// Marks the answer complete when it is dropped.
struct EndOfAnswer(RequestActivity);

impl Drop for EndOfAnswer {
    fn drop(&mut self) {
        self.0.0.is_answered.store(true, Ordering::Relaxed);
    }
}

/// A connection that adds a body to hyper's rejections.
pub(super) struct Rejections<S> {
    inner: S,
    activity: RequestActivity,
    max_head: usize,
    /// The unwritten rest of the replacement, and the length of the original answer.
    pending: Option<(Bytes, usize)>,
}

impl<S> Rejections<S> {
    pub(super) fn new(inner: S, activity: RequestActivity, max_head: usize) -> Self {
        Self {
            inner,
            activity,
            max_head,
            pending: None,
        }
    }
}

impl<S: Write + Unpin> Rejections<S> {
    /// Writes the replacement if `text` is a rejection; `None` otherwise.
    fn poll_rejection(&mut self, context: &mut Context<'_>, text: &[u8]) -> Poll<Option<io::Result<usize>>> {
        if self.pending.is_none() && !self.activity.is_in_progress() {
            self.pending = with_body(text, self.max_head).map(|replacement| (replacement, text.len()));
        }
        let Some((replacement, length)) = &mut self.pending else {
            return Poll::Ready(None);
        };
        while replacement.has_remaining() {
            match ready!(Pin::new(&mut self.inner).poll_write(context, replacement)) {
                Ok(0) => return Poll::Ready(Some(Err(io::ErrorKind::WriteZero.into()))),
                Ok(written) => replacement.advance(written),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        let length = *length;
        self.pending = None;
        Poll::Ready(Some(Ok(length)))
    }
}

/// Adds a body to hyper's rejection; `None` for everything else.
fn with_body(text: &[u8], max_head: usize) -> Option<Bytes> {
    const EMPTY: &str = "Content-Length: 0\r\n";
    let message = match text.get(..12)? {
        b"HTTP/1.1 400" => "The request is not HTTP: its first line or a header cannot be read".to_owned(),
        b"HTTP/1.1 414" => "The request's target is too long".to_owned(),
        b"HTTP/1.1 431" => {
            format!("The request's head is larger than the {max_head} bytes this port accepts")
        }
        _ => return None,
    };
    let head = std::str::from_utf8(text).ok()?;
    if !head.ends_with("\r\n\r\n") || !head.contains(EMPTY) {
        return None;
    }
    let body = json!({ "message": message }).to_string();
    let filled = format!(
        "Content-Type: application/json\r\nContent-Length: {}\r\n",
        body.len()
    );
    Some((head.replacen(EMPTY, &filled, 1) + &body).into())
}

impl<S: Read + Unpin> Read for Rejections<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: Write + Unpin> Write for Rejections<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        text: &[u8],
    ) -> Poll<io::Result<usize>> {
        match ready!(self.poll_rejection(context, text)) {
            Some(written) => Poll::Ready(written),
            None => Pin::new(&mut self.inner).poll_write(context, text),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        texts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = texts {
            return self.poll_write(context, only);
        }
        Pin::new(&mut self.inner).poll_write_vectored(context, texts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes when it has nothing left to write.
        self.activity.flushed();
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use super::*;

    #[test]
    fn only_empty_rejections_get_a_body() {
        let rejection =
            "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nDate: x\r\n\r\n";
        let rewritten = String::from_utf8(with_body(rejection.as_bytes(), 9000).unwrap().into()).unwrap();
        let (head, body) = rewritten.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())),
            "{rewritten}"
        );
        assert!(
            head.contains("\r\nContent-Type: application/json\r\n"),
            "{rewritten}"
        );
        assert!(body.contains("larger than the 9000 bytes"), "{rewritten}");
        for other in [
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\n{}",
            "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1",
            "",
        ] {
            assert_eq!(with_body(other.as_bytes(), 9000), None, "{other}");
        }
    }
}
