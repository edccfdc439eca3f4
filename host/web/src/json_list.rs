//! JSON documents that are written while they are sent.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use futures::stream;
use http::{HeaderValue, header};
use serde_json::Value;

/// A part of a document is sent when it has grown to this size.
const CHUNK_BYTES: usize = 64 << 10;

/// The document `{"<name>":[…]}`. `next` appends the next element to its argument and returns
/// whether there was one. It is sent as [`json_pieces`] are.
pub fn json_list(name: &str, next: impl FnMut(&mut Vec<u8>) -> bool + Send + 'static) -> Response {
    list(format!("{{\"{name}\":["), "]}", next)
}

/// The document `{"<field>":<value>,"<name>":[…]}`; the rest as in [`json_list`].
pub fn json_list_after(
    (field, value): (&str, &Value),
    name: &str,
    next: impl FnMut(&mut Vec<u8>) -> bool + Send + 'static,
) -> Response {
    list(format!("{{\"{field}\":{value},\"{name}\":["), "]}", next)
}

/// The document `[…]`; the rest as in [`json_list`].
pub fn json_array(next: impl FnMut(&mut Vec<u8>) -> bool + Send + 'static) -> Response {
    list("[".to_owned(), "]", next)
}

fn list(
    opening: String,
    closing: &'static str,
    mut next: impl FnMut(&mut Vec<u8>) -> bool + Send + 'static,
) -> Response {
    let (mut opening, mut closing) = (Some(opening), Some(closing));
    json_pieces(move |part| {
        if let Some(opening) = opening.take() {
            part.extend_from_slice(opening.as_bytes());
            if next(part) {
                return true;
            }
        } else if closing.is_some() {
            let before = part.len();
            part.push(b',');
            if next(part) {
                return true;
            }
            part.truncate(before);
        }
        let end = closing.take();
        part.extend_from_slice(end.unwrap_or_default().as_bytes());
        end.is_some()
    })
}

/// A document that `next` appends to its argument piece by piece, until it returns false.
///
/// A document that fits into one part has a `Content-Length`. A larger one is never in memory as a
/// whole: each part is created when the client has received the parts before it.
pub fn json_pieces(next: impl FnMut(&mut Vec<u8>) -> bool + Send + 'static) -> Response {
    let mut chunks = JsonChunks { next, ended: false };
    let begin = chunks.next_chunk().unwrap_or_default();
    let body = if chunks.ended {
        Body::from(begin)
    } else {
        let rest = std::iter::from_fn(move || chunks.next_chunk());
        let all = std::iter::once(begin).chain(rest);
        Body::from_stream(stream::iter(all.map(Ok::<_, Infallible>)))
    };
    let mut response = body.into_response();
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

struct JsonChunks<F> {
    next: F,
    ended: bool,
}

impl<F: FnMut(&mut Vec<u8>) -> bool> JsonChunks<F> {
    /// The next part; none after the end.
    fn next_chunk(&mut self) -> Option<Bytes> {
        let mut chunk = Vec::new();
        while !self.ended && chunk.len() < CHUNK_BYTES {
            self.ended = !(self.next)(&mut chunk);
        }
        (!chunk.is_empty()).then(|| chunk.into())
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use serde_json::{Value, json};

    use super::*;

    fn numbers(count: usize, text: &'static str) -> Response {
        let mut elements = 0..count;
        json_list("all", move |part| {
            let element = elements.next();
            if let Some(element) = element {
                part.extend_from_slice(json!([element, text]).to_string().as_bytes());
            }
            element.is_some()
        })
    }

    #[tokio::test]
    async fn list_is_one_document_and_large_ones_have_several_parts() {
        let long: &'static str = "x".repeat(1000).leak();
        for (count, text, parts) in [
            (0, "x", 1),
            (1, "x", 1),
            (3, "x", 1),
            (70, long, 2),
            (1000, long, 16),
        ] {
            let response = numbers(count, text);
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
            let body = response.into_body();
            let sized = http_body::Body::size_hint(&body).exact().is_some();
            assert_eq!(sized, parts == 1, "{count}");
            let (mut received_parts, mut received) = (0, Vec::new());
            let mut sent = body.into_data_stream();
            while let Some(part) = sent.next().await {
                let part = part.unwrap();
                assert!(part.len() < CHUNK_BYTES + 2000, "{}", part.len());
                received.extend_from_slice(&part);
                received_parts += 1;
            }
            assert_eq!(received_parts, parts, "{count}");
            let document: Value = serde_json::from_slice(&received).unwrap();
            let elements = document["all"].as_array().unwrap();
            assert_eq!(elements.len(), count);
            assert!(elements.iter().enumerate().all(|(n, one)| one[0] == n));
        }
    }
}
