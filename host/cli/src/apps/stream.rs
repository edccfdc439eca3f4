//! The event stream: frames of server-sent events, with bounds.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::bail;

use super::api::{Api, Query};
use crate::exit::Unavailable;

/// The largest frame, in bytes: an event may contain the plan of a large deployment.
const MAX_FRAME: usize = 256 << 20;
/// How long the stream may be silent. The daemon sends an empty line every ten seconds.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) id: Option<String>,
    pub(super) kind: String,
    pub(super) data: String,
}

/// Splits bytes into frames.
#[derive(Debug, Default)]
struct Parser {
    buffer: Vec<u8>,
    /// The length of the buffer's beginning that was searched and has no line end.
    searched: usize,
    frame: Frame,
    frames: VecDeque<Frame>,
    /// The last comment of the stream. When the daemon closes the stream, it contains the reason.
    comment: Option<String>,
}

impl Parser {
    fn push(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.buffer.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(end) = self.buffer[self.searched..]
            .iter()
            .position(|byte| *byte == b'\n')
        {
            let end = self.searched + end;
            let line = String::from_utf8_lossy(&self.buffer[start..end]).into_owned();
            self.parse_line(line.trim_end_matches('\r'));
            start = end + 1;
            self.searched = start;
        }
        self.buffer.drain(..start);
        self.searched = self.buffer.len();
        if self.buffer.len() + self.frame.data.len() > MAX_FRAME {
            bail!("an event has more than {} MB", MAX_FRAME >> 20);
        }
        Ok(())
    }

    fn parse_line(&mut self, line: &str) {
        if line.is_empty() {
            let frame = std::mem::take(&mut self.frame);
            if !frame.data.is_empty() {
                self.frames.push_back(frame);
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" => self.comment = Some(value.to_owned()),
            "id" => self.frame.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.frame.kind),
            "data" => {
                if !self.frame.data.is_empty() {
                    self.frame.data.push('\n');
                }
                self.frame.data.push_str(value);
            }
            _ => {}
        }
    }
}

/// An open stream.
pub(super) struct Stream {
    response: reqwest::Response,
    parser: Parser,
}

impl Stream {
    pub(super) async fn open(api: &Api, query: &Query, last_event_id: Option<&str>) -> anyhow::Result<Self> {
        Ok(Self {
            response: api.open(query, last_event_id).await?,
            parser: Parser::default(),
        })
    }

    /// Returns the next event. An error is the end of the stream, and contains its reason. Cancel-safe:
    /// no event is lost.
    pub(super) async fn next(&mut self) -> anyhow::Result<Frame> {
        loop {
            if let Some(frame) = self.parser.frames.pop_front() {
                return Ok(frame);
            }
            let Ok(chunk) = tokio::time::timeout(IDLE_TIMEOUT, self.response.chunk()).await else {
                let text = format!("no data on the event stream for {} s", IDLE_TIMEOUT.as_secs());
                return Err(anyhow::anyhow!(text).context(Unavailable));
            };
            match chunk {
                Ok(Some(bytes)) => self.parser.push(&bytes)?,
                Ok(None) => {
                    let reason = self.parser.comment.take();
                    let reason = reason.unwrap_or_else(|| "the daemon closed the event stream".to_owned());
                    return Err(anyhow::anyhow!(reason).context(Unavailable));
                }
                Err(error) => return Err(anyhow::Error::new(error).context(Unavailable)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_from_any_pieces_and_comments_are_not_events() {
        let text = "\r\nid: 1-7\r\nevent: a_event\r\ndata: {\"x\":\r\ndata: 1}\r\n\r\n: slow client\r\n\r\nevent: b\ndata: {}\n\n";
        for size in [1, 2, 5, 1000] {
            let mut parser = Parser::default();
            for piece in text.as_bytes().chunks(size) {
                parser.push(piece).expect("small");
            }
            let frames: Vec<Frame> = parser.frames.into_iter().collect();
            assert_eq!(frames.len(), 2, "{size}");
            assert_eq!(frames[0].id.as_deref(), Some("1-7"));
            assert_eq!(frames[0].data, "{\"x\":\n1}");
            assert_eq!((frames[1].kind.as_str(), frames[1].data.as_str()), ("b", "{}"));
            assert_eq!(parser.comment.as_deref(), Some("slow client"));
        }
    }
}
