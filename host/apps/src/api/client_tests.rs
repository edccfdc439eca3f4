//! A minimal client: one request per connection, and event streams. It compares every exchange with
//! the OpenAPI document.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

use std::collections::BTreeMap;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use transom_testkit::WAIT_TIMEOUT;

use super::described;
use crate::testing::World;

/// One response.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Value,
}

impl World {
    pub(super) async fn call(&self, method: &str, path: &str, body: Option<&str>) -> Answer {
        self.exchange(method, path, "", body.unwrap_or_default()).await
    }

    /// Sends a request with further headers, each of which ends with a line break.
    pub(super) async fn send_with(&self, method: &str, path: &str, headers: &str, body: Value) -> Answer {
        self.exchange(method, path, headers, &body.to_string()).await
    }

    async fn exchange(&self, method: &str, path: &str, headers: &str, sent: &str) -> Answer {
        let length = sent.len();
        let head = format!("{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{sent}");
        let mut stream = self.open(method, path, &head).await;
        let mut text = String::new();
        tokio::time::timeout(WAIT_TIMEOUT, stream.read_to_string(&mut text))
            .await
            .unwrap()
            .unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let (status, headers) = read_head(head);
        let is_chunked = headers.contains_key("transfer-encoding");
        let body = if is_chunked { &join_chunks(body) } else { body };
        let answer = Answer {
            status,
            headers,
            body: serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned())),
        };
        described::check(method, path, sent, &answer);
        answer
    }

    /// Sends a DELETE and returns the document of the response.
    pub(crate) async fn delete(&self, path: &str) -> Value {
        self.call("DELETE", path, None).await.body
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let answer = self.call("GET", path, None).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.body
    }

    pub(super) async fn send(&self, method: &str, path: &str, body: Value) -> Answer {
        self.call(method, path, Some(&body.to_string())).await
    }

    /// Sends a request with an `Accept` header; the response must not be a stream.
    pub(super) async fn call_with(&self, method: &str, path: &str, accept: &str) -> Answer {
        self.exchange(method, path, &format!("Accept: {accept}\r\n"), "")
            .await
    }

    /// Opens an event stream.
    pub(super) async fn listen(&self, query: &str) -> Events {
        let mut stream = self
            .open(
                "GET",
                &format!("/v2/events{query}"),
                "Accept: text/event-stream\r\n\r\n",
            )
            .await;
        let mut text = String::new();
        while !text.contains("\r\n\r\n") {
            text.push(char::from(stream.read_u8().await.unwrap()));
        }
        let (status, headers) = read_head(&text);
        assert_eq!(
            (status, headers["content-type"].as_str()),
            (200, "text/event-stream;charset=utf-8"),
            "{headers:?}"
        );
        assert_eq!(headers["transfer-encoding"], "chunked");
        Events {
            stream,
            raw: String::new(),
            text: String::new(),
            ended: false,
        }
    }

    async fn open(&self, method: &str, path: &str, rest: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.apps.addr()).await.unwrap();
        stream
            .write_all(format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{rest}").as_bytes())
            .await
            .unwrap();
        stream
    }
}

/// The body of a response that was sent in chunks.
fn join_chunks(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((length, after)) = rest.split_once("\r\n") {
        let (chunk, after) = after.split_at(usize::from_str_radix(length, 16).unwrap());
        body.push_str(chunk);
        rest = &after[2..];
    }
    body
}

fn read_head(head: &str) -> (u16, BTreeMap<String, String>) {
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    (status, headers.collect())
}

/// An open event stream.
pub(super) struct Events {
    stream: TcpStream,
    raw: String,
    pub(super) text: String,
    pub(super) ended: bool,
}

/// One frame.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) id: Option<String>,
    pub(super) kind: String,
    pub(super) data: Value,
}

impl Events {
    /// The next frame; comments and keep-alives are skipped.
    pub(super) async fn next(&mut self) -> Frame {
        loop {
            if let Some((block, rest)) = self.text.split_once("\r\n\r\n") {
                let (block, rest) = (block.trim_start().to_owned(), rest.to_owned());
                self.text = rest;
                if block.starts_with(':') {
                    continue;
                }
                let line = |name: &str| {
                    block
                        .lines()
                        .find_map(|line| line.strip_prefix(name).map(str::to_owned))
                };
                let (Some(kind), Some(data)) = (line("event: "), line("data: ")) else {
                    panic!("no frame, or only keep-alives: {block:?}")
                };
                return Frame {
                    id: line("id: "),
                    kind,
                    data: serde_json::from_str(&data).unwrap(),
                };
            }
            assert!(self.more().await, "the stream ended: {}", self.text);
        }
    }

    /// The next frame of a kind.
    pub(super) async fn next_of(&mut self, kind: &str) -> Value {
        loop {
            let frame = self.next().await;
            if frame.kind == kind {
                return frame.data;
            }
        }
    }

    /// Reads up to the end of the stream.
    pub(super) async fn rest(mut self) -> String {
        while self.more().await {}
        self.text
    }

    /// Reads more bytes; false at the end.
    async fn more(&mut self) -> bool {
        if self.ended {
            return false;
        }
        let mut bytes = [0; 4096];
        let read = tokio::time::timeout(WAIT_TIMEOUT, self.stream.read(&mut bytes))
            .await
            .expect("the stream sends no data")
            .unwrap_or(0);
        self.ended = read == 0;
        self.raw.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        while let Some((size, rest)) = self.raw.split_once("\r\n") {
            let Ok(size) = usize::from_str_radix(size, 16) else {
                panic!("no chunk: {}", self.raw)
            };
            if size == 0 {
                self.ended = true;
                break;
            }
            if rest.len() < size + 2 {
                break;
            }
            self.text.push_str(&rest[..size]);
            self.raw = rest[size + 2..].to_owned();
        }
        true
    }
}
