//! JSON lists that are written while they are sent.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use futures::stream;
use http::{HeaderValue, header};

/// A part of a list is sent when it has grown to this size.
const CHUNK: usize = 64 << 10;

/// The document `{"<name>":[…]}`. `next` appends the next element to its argument and returns
/// whether there was one.
///
/// A document that fits into one part has a `Content-Length`. A larger one is never in memory as a
/// whole: each part is created when the client has received the parts before it.
pub fn json_list(name: &str, next: impl FnMut(&mut Vec<u8>) -> bool + Send + 'static) -> Response {
    let mut parts = Parts {
        opening: Some(format!("{{\"{name}\":[")),
        first: true,
        next,
        ended: false,
    };
    let begin = parts.part().unwrap_or_default();
    let body = if parts.ended {
        Body::from(begin)
    } else {
        let rest = std::iter::from_fn(move || parts.part());
        let all = std::iter::once(begin).chain(rest);
        Body::from_stream(stream::iter(all.map(Ok::<_, Infallible>)))
    };
    let mut response = body.into_response();
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

struct Parts<F> {
    opening: Option<String>,
    first: bool,
    next: F,
    ended: bool,
}

impl<F: FnMut(&mut Vec<u8>) -> bool> Parts<F> {
    /// The next part; none after the end.
    fn part(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let mut part = self.opening.take().map(String::into_bytes).unwrap_or_default();
        while part.len() < CHUNK {
            let before = part.len();
            if !self.first {
                part.push(b',');
            }
            if !(self.next)(&mut part) {
                part.truncate(before);
                part.extend_from_slice(b"]}");
                self.ended = true;
                break;
            }
            self.first = false;
        }
        Some(part.into())
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
            let (mut seen, mut whole) = (0, Vec::new());
            let mut sent = body.into_data_stream();
            while let Some(part) = sent.next().await {
                let part = part.unwrap();
                assert!(part.len() < CHUNK + 2000, "{}", part.len());
                whole.extend_from_slice(&part);
                seen += 1;
            }
            assert_eq!(seen, parts, "{count}");
            let document: Value = serde_json::from_slice(&whole).unwrap();
            let elements = document["all"].as_array().unwrap();
            assert_eq!(elements.len(), count);
            assert!(elements.iter().enumerate().all(|(n, one)| one[0] == n));
        }
    }
}
