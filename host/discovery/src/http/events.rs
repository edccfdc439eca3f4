//! Watching one name: an event with the whole answer at first, and another one whenever it is not what it was.
//!
//! A watcher that reads slowly misses answers that were true in between, and nothing else: it is told what holds when it is
//! ready to hear it, so nobody has to be waited for and nothing piles up. There are so many watchers at a time.

use std::sync::Arc;
use std::time::Duration;

use ::http::header;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;

use crate::shared::Shared;
use crate::zone::Zone;

/// Watchers at a time.
pub(super) const WATCHERS: usize = 1024;
/// A line that says nothing, so that those between know that the connection lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

struct Watcher<A> {
    shared: Arc<Shared>,
    serials: watch::Receiver<u32>,
    answer: A,
    /// What was told last.
    told: Option<Vec<u8>>,
    _permit: OwnedSemaphorePermit,
}

/// An endless answer; `answer` makes of a zone what is watched.
pub(super) fn events<T: Serialize>(
    shared: Arc<Shared>,
    permit: OwnedSemaphorePermit,
    answer: impl Fn(&Zone) -> Vec<T> + Send + 'static,
) -> Response {
    let watcher = Watcher {
        serials: shared.serial.subscribe(),
        shared,
        answer: move |zone: &Zone| serde_json::to_vec(&answer(zone)).unwrap_or_default(),
        told: None,
        _permit: permit,
    };
    let frames = stream::unfold(watcher, async |mut watcher| {
        let frame = watcher.next().await?;
        Some((Ok::<_, std::convert::Infallible>(frame), watcher))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Body::from_stream(frames)).into_response()
}

impl<A: Fn(&Zone) -> Vec<u8>> Watcher<A> {
    /// The next frame; none when discovery ends.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            self.serials.borrow_and_update();
            let zone = self.shared.zone.load_full();
            if let Some(zone) = zone {
                let answer = (self.answer)(&zone);
                if self.told.as_ref() != Some(&answer) {
                    let mut frame = format!("id: {}\nevent: changed\ndata: ", zone.serial()).into_bytes();
                    frame.extend_from_slice(&answer);
                    frame.extend_from_slice(b"\n\n");
                    self.told = Some(answer);
                    return Some(frame.into());
                }
            }
            match timeout(KEEP_ALIVE, self.serials.changed()).await {
                Ok(changed) => changed.ok()?,
                Err(_) => return Some(Bytes::from_static(b":\n\n")),
            }
        }
    }
}
