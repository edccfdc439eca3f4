//! The memory of request bodies that have been received.
//!
//! Handlers, and daemons that forward, keep a body in memory until it is complete, and a client can
//! leave it incomplete for minutes. Therefore the bytes of a body beyond [`SMALL_BYTES`] count
//! against a budget of the port, as they arrive, until the response is ready. A body for which there
//! is not enough budget ends with an error; the answer is 503.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, header};
use http_body::{Body as _, Frame, SizeHint};

use crate::shares::Share;
use crate::{ApiError, Owner, Shares};

/// The budget of a port, except that the share of each user has room for one body.
const MAX_BYTES: usize = 256 << 20;
/// Bytes of a body that do not count; the limit of connections bounds them.
const SMALL_BYTES: usize = 64 << 10;
/// How much of the budget a body takes at a time.
const PART_BYTES: usize = 64 << 10;

/// Limits the bytes of all received bodies in memory. `port` is the name for logs and metrics,
/// `max_body` the maximum size of one body.
pub(crate) fn budgeted_bodies(router: Router, port: &'static str, max_body: usize) -> Router {
    let budget = Shares::new(port, "bodies", MAX_BYTES.max(max_body.saturating_mul(2)));
    router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let budget = budget.clone();
        async move {
            if request.body().is_end_stream() {
                return next.run(request).await;
            }
            let received = Received {
                owner: Owner::of(request.extensions()),
                budget,
                counted: Arc::default(),
            };
            let counted = Arc::clone(&received.counted);
            let response = next
                .run(request.map(|body| Body::new(CountedBody { body, received })))
                .await;
            let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
            counted.shares.clear();
            if counted.is_rejected {
                rejection()
            } else {
                response
            }
        }
    }))
}

fn rejection() -> Response {
    let text = "Too many request bodies are incomplete or being handled. Try again later.";
    ApiError::unavailable(text)
        .header(header::CONNECTION, HeaderValue::from_static("close"))
        .into_response()
}

/// The received part of a body.
#[derive(Debug, Default)]
struct Counted {
    bytes: usize,
    shares: Vec<Share>,
    /// Whether there was not enough budget.
    is_rejected: bool,
}

struct Received {
    budget: Shares,
    owner: Owner,
    /// The response needs it as well, and the shares end with the response.
    counted: Arc<Mutex<Counted>>,
}

impl Received {
    /// Counts further bytes. If there is not enough budget for them, it is false.
    fn add(&self, bytes: usize) -> bool {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.bytes = counted.bytes.saturating_add(bytes);
        while counted.bytes > SMALL_BYTES + counted.shares.len() * PART_BYTES {
            let Some(share) = self.budget.take(self.owner, PART_BYTES) else {
                counted.is_rejected = true;
                return false;
            };
            counted.shares.push(share);
        }
        true
    }
}

/// A body whose bytes are counted.
struct CountedBody {
    body: Body,
    received: Received,
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(bytes) = frame.data_ref()
            && !this.received.add(bytes.len())
        {
            let error = io::Error::other("the port's budget for bodies is used up");
            return Poll::Ready(Some(Err(error.into())));
        }
        polled.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
