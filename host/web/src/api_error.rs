//! The error type of handlers.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::{Map, Value};
use transom_common::error_chain;

use crate::Problems;
use crate::text::shortened;

/// The maximum bytes of the answer to a request that is rejected: a client's text is not returned
/// many times over.
pub(crate) const MAX_ANSWER_BYTES: usize = 64 << 10;
/// The maximum bytes of a message, and of each text in an answer that is larger than
/// [`MAX_ANSWER_BYTES`].
pub(crate) const MAX_MESSAGE_BYTES: usize = 4096;

/// An error answer: a status and the body `{"message": …}`, with `details` and further fields where
/// clients expect them. The answer has at most 64 KiB, whatever it was composed of: a long message
/// is cut, and in a larger answer texts are cut and lists are ended, which `"truncated": true` says.
///
/// ```
/// # use transom_web::ApiError;
/// # use http::StatusCode;
/// let locked = ApiError::new(StatusCode::CONFLICT, "App is locked by one or more deployments.")
///     .field("deployments", serde_json::json!([{"id": "5f3c"}]));
/// assert_eq!(locked.status(), StatusCode::CONFLICT);
/// ```
#[derive(Clone, Debug)]
pub struct ApiError(Box<ErrorParts>); // Boxed to keep the results of handlers small.

#[derive(Clone, Debug)]
struct ErrorParts {
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Body,
}

#[derive(Clone, Debug, Serialize)]
struct Body {
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Value>,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

impl ApiError {
    /// An error with a message for the client's user.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let body = Body {
            message: message.into(),
            details: None,
            fields: Map::new(),
        };
        Self(Box::new(ErrorParts {
            status,
            headers: Vec::new(),
            body,
        }))
    }

    /// 404 with a message.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// 400 with a message.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 422 "Object is not valid" with the problems of a document.
    pub fn invalid(problems: &Problems) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Object is not valid").problems(problems)
    }

    /// 422 "Invalid JSON" for a document of the wrong shape.
    pub fn invalid_json(problems: &Problems) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid JSON").problems(problems)
    }

    /// 503 with a `Retry-After` header.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message).retry_later()
    }

    /// 500. The cause is logged; the client only learns that the error is internal.
    pub fn internal(cause: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(
            error = error_chain(cause),
            "internal error while handling a request"
        );
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "Internal error; see the log of the daemon",
        )
    }

    /// Adds `Retry-After: 5`.
    pub fn retry_later(self) -> Self {
        self.header(header::RETRY_AFTER, HeaderValue::from_static("5"))
    }

    /// Sets `details` to the problems of a document.
    pub fn problems(self, problems: &Problems) -> Self {
        self.details(serde_json::json!(problems))
    }

    /// Sets `details`.
    pub fn details(mut self, details: impl Into<Value>) -> Self {
        self.0.body.details = Some(details.into());
        self
    }

    /// Adds a field next to `message`.
    pub fn field(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.body.fields.insert(name.into(), value.into());
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// The message of the answer.
    pub fn message(&self) -> &str {
        &self.0.body.message
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let ErrorParts {
            status,
            headers,
            body,
        } = *self.0;
        let text = body.bounded();
        let mut response = (status, [(header::CONTENT_TYPE, "application/json")], text).into_response();
        response.headers_mut().extend(headers);
        response
    }
}

impl Body {
    /// The JSON text, of at most [`MAX_ANSWER_BYTES`].
    fn bounded(mut self) -> Vec<u8> {
        // Text and JSON values only: serialization cannot fail.
        let text = |body: &Self| serde_json::to_vec(body).unwrap_or_default();
        self.message = shortened(self.message, MAX_MESSAGE_BYTES);
        let whole = text(&self);
        if whole.len() <= MAX_ANSWER_BYTES {
            return whole;
        }
        // A message of control characters has six bytes for each.
        let mut left = MAX_ANSWER_BYTES - 6 * MAX_MESSAGE_BYTES - 1024;
        if let Some(details) = &mut self.details {
            cut(details, &mut left);
        }
        self.fields
            .retain(|name, value| take(&mut left, 6 * name.len() + 4) && keeps(value, &mut left));
        self.fields.insert("truncated".to_owned(), Value::Bool(true));
        text(&self)
    }
}

/// Shortens texts and lists so that the value has at most about `left` bytes, and takes these from
/// `left`. A value for which nothing is left becomes null.
fn cut(value: &mut Value, left: &mut usize) {
    match value {
        Value::String(text) => {
            *text = shortened(std::mem::take(text), MAX_MESSAGE_BYTES);
            let escaped = serde_json::to_vec(text).map_or(0, |escaped| escaped.len());
            if take(left, escaped) {
                return;
            }
        }
        Value::Array(items) => {
            if take(left, 2) {
                let mut kept = 0;
                for item in &mut *items {
                    let whole = serde_json::to_vec(item).map_or(0, |item| item.len() + 1);
                    // Only the first element is kept in part.
                    if !take(left, whole) && (kept > 0 || !keeps(item, left)) {
                        break;
                    }
                    kept += 1;
                }
                items.truncate(kept);
                return;
            }
        }
        Value::Object(members) => {
            if take(left, 2) {
                members.retain(|name, member| take(left, 6 * name.len() + 4) && keeps(member, left));
                return;
            }
        }
        // Numbers have at most about 25 bytes.
        _ => {
            if take(left, 32) {
                return;
            }
        }
    }
    *value = Value::Null;
}

/// Cuts an element of a list or object; false if nothing is left for it.
fn keeps(value: &mut Value, left: &mut usize) -> bool {
    let before = *left;
    cut(value, left);
    *left != before && take(left, 1)
}

fn take(left: &mut usize, bytes: usize) -> bool {
    let remaining = left.checked_sub(bytes);
    *left = remaining.unwrap_or(*left);
    remaining.is_some()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use serde_json::json;

    use super::*;

    fn answer(error: ApiError) -> Vec<u8> {
        error.0.body.bounded()
    }

    #[test]
    fn answer_has_at_most_64_kib_whatever_it_is_composed_of() {
        let long = "x".repeat(100_000);
        let control = "\u{1}".repeat(20_000);
        let list = vec![json!({"path": "/", "errors": [control, 1]}); 10];
        for error in [
            ApiError::bad_request(&*long),
            ApiError::bad_request(&*control),
            ApiError::bad_request(&*control).details(&*control),
            ApiError::bad_request(&*control).details(list.clone()),
            ApiError::bad_request("short").details(json!({"a": list, "b": {"c": long}})),
            ApiError::bad_request("short").details(vec![1e-300; 20_000]),
            ApiError::bad_request("short").field("deployments", vec![json!({"id": "5f3c"}); 10_000]),
            ApiError::bad_request("short")
                .field("a", &*long)
                .field("b", vec![Value::Null; 20_000]),
            ApiError::bad_request("short").field(&*control, "x"),
            ApiError::invalid(&Problems::one(&*control, &*control)),
        ] {
            let message = error.message().to_owned();
            let text = answer(error);
            assert!(text.len() <= MAX_ANSWER_BYTES, "{}", text.len());
            let body: Value = serde_json::from_slice(&text).unwrap();
            let shown = body["message"].as_str().unwrap();
            let begin = shown.strip_suffix('…').unwrap_or(shown);
            assert!(message.starts_with(begin) && !begin.is_empty());
        }
    }

    #[test]
    fn cut_answer_keeps_the_beginning_of_its_list_and_says_so() {
        let deployments = vec![json!({"id": "5f3c"}); 10_000];
        let error = ApiError::bad_request("locked").field("deployments", deployments);
        let body: Value = serde_json::from_slice(&answer(error)).unwrap();
        let kept = body["deployments"].as_array().unwrap();
        assert!((500..10_000).contains(&kept.len()), "{}", kept.len());
        assert!(kept.iter().all(|one| one["id"] == "5f3c"));
        assert_eq!(body["truncated"], true);
        let whole = answer(ApiError::bad_request("locked").details("short"));
        assert_eq!(whole, br#"{"message":"locked","details":"short"}"#);
    }
}
