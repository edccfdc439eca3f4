//! The error type of handlers.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::{Map, Value};
use transom_common::error_chain;

use crate::Problems;

/// An error answer: a status and the body `{"message": …}`, with `details` and further fields where
/// clients expect them.
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
        // Text and JSON values only: serialization cannot fail.
        let text = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, "application/json")], text).into_response();
        response.headers_mut().extend(headers);
        response
    }
}
