//! Watches of one name: an event with the whole answer at first, and another after each change.
//!
//! A slow client misses intermediate answers but always gets the latest, so nothing is buffered.
//! The number of watchers is bounded, in total and by network or user.

use std::sync::Arc;
use std::time::Duration;

use ::http::header;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use prometheus_client::metrics::gauge::Gauge;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::timeout;
use transom_web::Share;

use crate::shared::Shared;
use crate::zone::Zone;

/// The maximum number of watchers; further ones get a 503.
pub(super) const MAX_WATCHERS: usize = 1024;
/// The interval of empty comments that keep proxies from closing the connection.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

struct Watcher<A> {
    shared: Arc<Shared>,
    serials: watch::Receiver<u32>,
    answer: A,
    /// The last answer that was sent.
    last_sent: Option<Vec<u8>>,
    _share: Share,
    _watching: Watching,
}

/// Counts a watcher until it is dropped.
struct Watching(Gauge);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// An endless response; `answer` computes the watched answer from a zone.
pub(super) fn events<T: Serialize>(
    shared: Arc<Shared>,
    share: Share,
    watchers: &Gauge,
    answer: impl Fn(&Zone) -> Vec<T> + Send + 'static,
) -> Response {
    watchers.inc();
    let watcher = Watcher {
        serials: shared.serial.subscribe(),
        shared,
        answer: move |zone: &Zone| serde_json::to_vec(&answer(zone)).unwrap_or_default(),
        last_sent: None,
        _share: share,
        _watching: Watching(watchers.clone()),
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
    /// The next frame; none when discovery stops.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            self.serials.borrow_and_update();
            let zone = self.shared.zone.load_full();
            if let Some(zone) = zone {
                let answer = (self.answer)(&zone);
                if self.last_sent.as_ref() != Some(&answer) {
                    let mut frame = format!("id: {}\nevent: changed\ndata: ", zone.serial()).into_bytes();
                    frame.extend_from_slice(&answer);
                    frame.extend_from_slice(b"\n\n");
                    self.last_sent = Some(answer);
                    return Some(frame.into());
                }
            }
            match timeout(KEEP_ALIVE_INTERVAL, self.serials.changed()).await {
                Ok(changed) => changed.ok()?,
                Err(_) => return Some(Bytes::from_static(b":\n\n")),
            }
        }
    }
}
