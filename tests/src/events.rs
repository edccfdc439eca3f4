//! A client of the event stream that parses its wire format.

use std::time::Duration;

use futures::StreamExt;
use serde_json::Value;
use transom_testkit::WAIT_TIMEOUT;

/// One frame of the stream.
#[derive(Clone, Debug)]
pub struct Frame {
    pub id: Option<String>,
    pub event: String,
    pub data: Value,
}

impl Frame {
    /// The number behind the dash of an id `term-sequence`.
    pub fn sequence(&self) -> u64 {
        let id = self.id.as_deref().unwrap_or_else(|| panic!("no id: {self:?}"));
        id.rsplit('-')
            .next()
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("odd id {id}"))
    }
}

/// An open event stream.
pub struct Events {
    body: futures::stream::BoxStream<'static, reqwest::Result<bytes::Bytes>>,
    pending: String,
}

impl Events {
    /// Opens `url`; the answer must be a stream.
    pub async fn open(http: &reqwest::Client, url: &str) -> Events {
        Events::try_open(http, url)
            .await
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Opens `url` after the event with the id `last`.
    pub async fn resume(http: &reqwest::Client, url: &str, last: &str) -> Events {
        let request = http.get(url).header("Last-Event-ID", last);
        Events::of(request, url)
            .await
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Opens `url`; for callers that handle the error themselves.
    pub async fn try_open(http: &reqwest::Client, url: &str) -> Result<Events, String> {
        Events::of(http.get(url), url).await
    }

    async fn of(request: reqwest::RequestBuilder, url: &str) -> Result<Events, String> {
        let request = request.header("Accept", "text/event-stream");
        let answer = request.send().await.map_err(|error| error.to_string())?;
        let status = answer.status();
        if !status.is_success() {
            return Err(format!(
                "{url}: {status} {}",
                answer.text().await.unwrap_or_default()
            ));
        }
        let kind = answer.headers().get("content-type").cloned();
        if !kind
            .as_ref()
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
        {
            return Err(format!(
                "{url}: expected an event stream, got content type {kind:?}"
            ));
        }
        Ok(Events {
            body: answer.bytes_stream().boxed(),
            pending: String::new(),
        })
    }

    /// The next frame; `None` when the server ended the stream.
    pub async fn next(&mut self) -> Option<Frame> {
        tokio::time::timeout(WAIT_TIMEOUT, self.read())
            .await
            .expect("a frame in time")
    }

    /// The next frame if one arrives within `timeout`.
    pub async fn next_within(&mut self, timeout: Duration) -> Option<Frame> {
        tokio::time::timeout(timeout, self.read()).await.ok().flatten()
    }

    /// The next frame of the kind `event`.
    pub async fn next_of(&mut self, event: &str) -> Frame {
        loop {
            let frame = self
                .next()
                .await
                .unwrap_or_else(|| panic!("the stream ended before a {event}"));
            if frame.event == event {
                return frame;
            }
        }
    }

    async fn read(&mut self) -> Option<Frame> {
        loop {
            while let Some(end) = self.pending.find("\r\n\r\n") {
                let text: String = self.pending.drain(..end + 4).collect();
                if let Some(frame) = parse(&text) {
                    return Some(frame);
                }
            }
            // Keep-alives are empty lines between frames.
            if self.pending == "\r\n" {
                self.pending.clear();
            }
            let chunk = self.body.next().await?.ok()?;
            self.pending.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
        }
    }
}

fn parse(text: &str) -> Option<Frame> {
    let (mut id, mut event, mut data) = (None, None, None);
    for line in text.lines() {
        match line.split_once(": ") {
            Some(("id", value)) => id = Some(value.to_owned()),
            Some(("event", value)) => event = Some(value.to_owned()),
            Some(("data", value)) => data = Some(serde_json::from_str(value).expect("JSON")),
            _ => {}
        }
    }
    Some(Frame {
        id,
        event: event?,
        data: data?,
    })
}
