//! Errors that no handler creates, in the form of handlers' errors.

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};

use crate::api_error::MAX_ANSWER_BYTES;
use crate::json::MaxBody;
use crate::{ApiError, json};

/// Converts every error of a router to an [`ApiError`]: rejections by extractors in plain text (of
/// a body that turns out larger than the limit, for example) get a JSON body, and a path that is
/// not UTF-8 is rejected before routing.
pub fn json_errors(router: Router) -> Router {
    router.layer(middleware::from_fn(rewrite))
}

async fn rewrite(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if !is_utf8(path) {
        let text = format!("The path {path} is not UTF-8 once its percent signs are decoded; expected UTF-8");
        return ApiError::bad_request(text).into_response();
    }
    let limit = request.extensions().get::<MaxBody>().copied();
    let response = next.run(request).await;
    let status = response.status();
    if !(status.is_client_error() || status.is_server_error()) || !is_plain(response.headers()) {
        return response;
    }
    let limit = response.extensions().get::<MaxBody>().copied().or(limit);
    let (head, body) = response.into_parts();
    // The framework's texts are one line, which may contain the whole path.
    let text = axum::body::to_bytes(body, 2 * MAX_ANSWER_BYTES)
        .await
        .unwrap_or_default();
    let message = match status {
        StatusCode::PAYLOAD_TOO_LARGE => json::too_large(limit),
        _ => String::from_utf8_lossy(&text).into_owned(),
    };
    let mut rewritten = ApiError::new(status, message).into_response();
    for (name, value) in &head.headers {
        if !matches!(*name, header::CONTENT_TYPE | header::CONTENT_LENGTH) {
            rewritten.headers_mut().append(name, value.clone());
        }
    }
    rewritten
}

fn is_plain(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/plain"))
}

/// Whether a decoded path is UTF-8. A percent sign without two digits is literal.
fn is_utf8(path: &str) -> bool {
    if !path.contains('%') {
        return true;
    }
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = path.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = (digit(bytes.get(at + 1)), digit(bytes.get(at + 2)));
        if let (b'%', (Some(high), Some(low))) = (byte, digits) {
            decoded.push((high * 16 + low) as u8);
            at += 3;
        } else {
            decoded.push(*byte);
            at += 1;
        }
    }
    std::str::from_utf8(&decoded).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use axum::body::Body;
    use axum::extract::Path;
    use axum::routing::post;
    use bytes::Bytes;
    use tower::ServiceExt;

    use super::*;
    use crate::serve::body_limited;

    #[test]
    fn percent_encoded_paths_are_checked_for_utf8() {
        for (path, expected) in [
            ("/v2/apps/a", true),
            ("/%C3%BC", true),
            ("/%c3%bc%2F", true),
            ("/100%", true),
            ("/%zz", true),
            ("/%ff", false),
            ("/%C3", false),
            ("/a%C3/%BC", false),
        ] {
            assert_eq!(is_utf8(path), expected, "{path}");
        }
    }

    #[tokio::test]
    async fn extractor_rejections_have_json_bodies() {
        let router = Router::new()
            .route("/body", post(async |_: Bytes| StatusCode::OK))
            .route("/number/{n}", post(async |_: Path<u8>| StatusCode::OK))
            .route("/name/{name}", post(async |_: Path<String>| StatusCode::OK));
        let router = json_errors(body_limited(router, 4));
        for (path, body, status, expected) in [
            ("/body", "1234", 200, ""),
            ("/body", "12345", 413, "larger than the 4 bytes this port accepts"),
            ("/number/x", "", 400, "Cannot parse"),
            ("/name/%ff", "", 400, "The path /name/%ff is not UTF-8"),
            ("/none/%ff", "", 400, "is not UTF-8"),
        ] {
            // The port itself may accept more.
            let request = Request::post(path).extension(MaxBody(8));
            let request = request.body(Body::from(body)).unwrap();
            let answer = router.clone().oneshot(request).await.unwrap();
            assert_eq!(answer.status().as_u16(), status, "{path}");
            let bytes = axum::body::to_bytes(answer.into_body(), 1 << 16).await.unwrap();
            if status != 200 {
                let answer: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
                let message = answer["message"].as_str().unwrap();
                assert!(message.contains(expected), "{path}: {message}");
            }
        }
    }
}
