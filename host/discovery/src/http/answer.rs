//! Responses in mesos-dns's form: JSON with its indentation, and plain-text errors.

use ::http::{HeaderMap, StatusCode, header};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::route::Rejection;
use crate::mesos_dns_json::text;

/// A JSON response.
pub(super) fn json<T: Serialize + ?Sized>(value: &T) -> Response {
    json_text(text(value, 0))
}

pub(super) fn json_text(text: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text.into()).into_response()
}

pub(super) fn plain(status: StatusCode, text: &str) -> Response {
    (
        status,
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
        text.to_owned(),
    )
        .into_response()
}

/// A 503 before the first zone.
pub(super) fn not_ready() -> Response {
    busy("503: No data from the cluster yet")
}

/// A 503 with `Retry-After`.
pub(super) fn busy(text: &str) -> Response {
    let answer = plain(StatusCode::SERVICE_UNAVAILABLE, text);
    ([(header::RETRY_AFTER, "1")], answer).into_response()
}

/// The maximum bytes of the link in the body of a redirect.
const MAX_LINK_BYTES: usize = 4096;

pub(super) fn rejected(rejection: &Rejection) -> Response {
    match rejection {
        Rejection::Malformed => plain(StatusCode::BAD_REQUEST, "400: Bad Request"),
        Rejection::Redirect(location) => {
            let escaped = location
                .replace('&', "&amp;")
                .replace('"', "&#34;")
                .replace('\'', "&#39;")
                .replace('<', "&lt;")
                .replace('>', "&gt;");
            let headers = [
                (header::CONTENT_TYPE, "text/html; charset=utf-8"),
                (header::LOCATION, location.as_str()),
            ];
            // Escaping makes a path of ampersands five times as long.
            let body = if escaped.len() <= MAX_LINK_BYTES {
                format!("<a href=\"{escaped}\">Moved Permanently</a>.\n\n")
            } else {
                "Moved Permanently.\n\n".to_owned()
            };
            (StatusCode::MOVED_PERMANENTLY, headers, body).into_response()
        }
        Rejection::NotFound => plain(StatusCode::NOT_FOUND, "404: Page Not Found"),
        Rejection::WrongMethod => {
            let answer = plain(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed");
            ([(header::ALLOW, "GET, HEAD")], answer).into_response()
        }
        Rejection::WrongBody => plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "415: Unsupported Media Type"),
        Rejection::NotAcceptable => plain(StatusCode::NOT_ACCEPTABLE, "406: Not Acceptable"),
    }
}

/// The `ETag` of a zone's answers. Weak, because the order of records varies.
fn tag(serial: u32) -> String {
    format!("W/\"{serial}\"")
}

/// Whether the client already has the answer of that serial.
pub(super) fn is_current(headers: &HeaderMap, serial: u32) -> bool {
    let mut conditions = headers.get_all(header::IF_NONE_MATCH).iter();
    let opaque_tag = format!("\"{serial}\"");
    conditions.any(|tags| {
        let tags = tags.to_str().unwrap_or_default();
        tags.split(',')
            .any(|tag| tag.trim().trim_start_matches("W/") == opaque_tag)
    })
}

/// A 304.
pub(super) fn unchanged(serial: u32) -> Response {
    (StatusCode::NOT_MODIFIED, [(header::ETAG, tag(serial))]).into_response()
}

/// Adds the `ETag` of a serial.
pub(super) fn tagged(serial: u32, answer: Response) -> Response {
    ([(header::ETAG, tag(serial))], answer).into_response()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // Tests fail by panicking.

    use super::*;

    #[test]
    fn is_current_compares_tags_weakly() {
        for (tags, expected) in [
            ("W/\"7\"", true),
            ("\"7\"", true),
            ("\"6\", W/\"7\"", true),
            ("W/\"77\"", false),
            ("7", false),
            // `*` matches nothing.
            ("*", false),
        ] {
            let headers = HeaderMap::from_iter([(header::IF_NONE_MATCH, tags.parse().unwrap())]);
            assert_eq!(is_current(&headers, 7), expected, "{tags}");
        }
        assert!(!is_current(&HeaderMap::new(), 7));
    }
}
