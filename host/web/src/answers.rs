//! The memory of answers that their clients have not read yet.
//!
//! An answer of more than [`SMALL_BYTES`] counts against a budget of the port until it has been
//! written or its client has disconnected. Without enough budget for it, the request gets 503. An
//! answer that is created while it is sent counts as [`PART_BYTES`], because only its next parts are
//! in memory. Event streams have a budget of their own.

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http_body::Body as _;

use crate::guarded_body::{guarded, is_event_stream};
use crate::{ApiError, Owner, Shares};

/// The budget of a port.
const MAX_BYTES: usize = 256 << 20;
/// Answers that do not count; the limit of connections bounds them.
const SMALL_BYTES: u64 = 64 << 10;
/// What an answer without a known size counts.
const PART_BYTES: usize = 128 << 10;

/// Limits the bytes of all answers in memory, on every port that serves the router. `port` is the name
/// for logs and metrics.
pub fn budgeted(router: Router, port: &'static str) -> Router {
    let budget = Shares::new(port, "answers", MAX_BYTES);
    router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let (budget, owner) = (budget.clone(), Owner::of(request.extensions()));
        async move { counted(&budget, owner, next.run(request).await) }
    }))
}

fn counted(budget: &Shares, owner: Owner, response: Response) -> Response {
    if is_event_stream(&response) {
        return response;
    }
    let size = match response.body().size_hint().exact() {
        Some(..=SMALL_BYTES) => return response,
        Some(size) => usize::try_from(size).unwrap_or(usize::MAX),
        None => PART_BYTES,
    };
    let Some(share) = budget.take(owner, size) else {
        let text = "Too many answers wait until their clients read them. Try again later.";
        return ApiError::unavailable(text).into_response();
    };
    response.map(|body| guarded(body, share))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use axum::body::Body;
    use bytes::Bytes;
    use futures::{StreamExt, stream};

    use super::*;

    fn answer(bytes: usize) -> Response {
        Response::new(Body::from(vec![b'x'; bytes]))
    }

    #[tokio::test]
    async fn large_answers_count_until_they_have_been_written() {
        let budget = Shares::new("test", "answers", 1 << 20);
        let half = counted(&budget, Owner::Reader, answer(512 << 10));
        assert_eq!(half.status(), 200);
        let rejected = counted(&budget, Owner::Reader, answer(65 << 10));
        assert_eq!(rejected.status(), 503);
        assert!(rejected.headers().contains_key("retry-after"));
        // Small answers and those of another user are not affected.
        assert_eq!(counted(&budget, Owner::Reader, answer(64 << 10)).status(), 200);
        assert_eq!(counted(&budget, Owner::Full, answer(512 << 10)).status(), 200);
        // The body is at its end, but its bytes are still in a buffer.
        let mut parts = half.into_body().into_data_stream();
        let part = parts.next().await.unwrap().unwrap();
        assert_eq!(part.len(), 512 << 10);
        assert!(parts.next().await.is_none());
        drop(parts);
        let rest = part.slice(part.len() - 1..);
        drop(part);
        assert_eq!(counted(&budget, Owner::Reader, answer(65 << 10)).status(), 503);
        drop(rest);
        assert_eq!(counted(&budget, Owner::Reader, answer(65 << 10)).status(), 200);
    }

    #[tokio::test]
    async fn answer_of_unknown_size_counts_its_parts_and_a_huge_one_is_possible() {
        let budget = Shares::new("test", "answers", 4 * PART_BYTES);
        let streamed = || {
            let parts = stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(b"x")));
            Response::new(Body::from_stream(parts))
        };
        let held = [(); 2].map(|()| counted(&budget, Owner::Reader, streamed()));
        assert!(held.iter().all(|response| response.status() == 200));
        assert_eq!(counted(&budget, Owner::Reader, streamed()).status(), 503);
        drop(held);
        let huge = counted(&budget, Owner::Reader, answer(100 * PART_BYTES));
        assert_eq!(huge.status(), 200);
        assert_eq!(counted(&budget, Owner::Reader, streamed()).status(), 503);
        // An event stream does not count.
        let mut events = streamed();
        let kind = http::HeaderValue::from_static("text/event-stream");
        events.headers_mut().insert("content-type", kind);
        assert_eq!(counted(&budget, Owner::Reader, events).status(), 200);
    }
}
