//! JSON bodies, with errors that contain the path.

use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{StatusCode, header};
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use crate::large_body::work_on;
use crate::{ApiError, Problems};

/// A JSON body: read from a request, or written as a response.
///
/// As an extractor it accepts any content type (clients of the app API send various ones) and
/// rejects, in this order:
///
/// | body | status | answer |
/// |---|---|---|
/// | larger than the port allows | 413 | `{"message": …}` |
/// | later than the port's timeouts | 408 | `{"message": …}` |
/// | empty, or white space only | 400 | `{"message": "Please specify data in JSON format", "details": text}` |
/// | not JSON | 400 | `{"message": "Invalid JSON", "details": text}` |
/// | of another shape than `T` | 422 | `{"message": "Invalid JSON", "details": [{"path": "/cpus", "errors": [text]}]}` |
///
/// Paths have the form that clients know: `/container/portMappings(0)/hostPort`, and `/` for the
/// whole body. A body above 64 KiB is parsed away from the threads that serve; 503 if too many of
/// them wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> Json<T> {
    /// Parses bytes by the rules of [`Json`].
    pub fn parse(body: &[u8]) -> Result<T, ApiError> {
        if body.trim_ascii().is_empty() {
            return Err(
                ApiError::bad_request("Please specify data in JSON format").details("the body is empty")
            );
        }
        // Syntax first: a truncated body of the wrong shape is not JSON.
        if let Err(syntax) = serde_json::from_slice::<IgnoredAny>(body) {
            return Err(ApiError::bad_request("Invalid JSON").details(syntax.to_string()));
        }
        shape(&mut serde_json::Deserializer::from_slice(body))
    }

    /// Parses a body by the rules of [`Json`]; away from the threads that serve if it is large.
    ///
    /// # Errors
    /// Those of [`Json::parse`], and 503 if too many large bodies wait.
    pub async fn parse_any_size(body: Bytes) -> Result<T, ApiError>
    where
        T: Send + 'static,
    {
        work_on(body.len(), move || Self::parse(&body)).await
    }

    /// Parses a value that is already JSON (and perhaps changed).
    pub fn from_value(value: Value) -> Result<T, ApiError> {
        shape(value)
    }
}

fn shape<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, ApiError>
where
    D::Error: std::fmt::Display,
{
    serde_path_to_error::deserialize(from).map_err(|error| {
        let path = format_path(error.path());
        ApiError::invalid_json(&Problems::one(path, error.inner().to_string()))
    })
}

/// See [`crate::Limits::max_body`]; an extension of each request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaxBody(pub(crate) usize);

/// The message of a 413. `limit` is known on ports that `serve` serves.
pub(crate) fn too_large(limit: Option<MaxBody>) -> String {
    match limit {
        Some(MaxBody(max)) => format!("The body is larger than the {max} bytes this port accepts"),
        None => "The body is larger than this port accepts".to_owned(),
    }
}

/// A path as the app API writes it: names after slashes, indexes in parentheses.
fn format_path(path: &Path) -> String {
    let mut text = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => {
                if text.is_empty() {
                    text.push('/');
                }
                text.push('(');
                text.push_str(&index.to_string());
                text.push(')');
            }
            Segment::Map { key } | Segment::Enum { variant: key } => {
                text.push('/');
                text.push_str(key);
            }
            // Inside a map whose key is not a string; the known path ends here.
            Segment::Unknown => break,
        }
    }
    if text.is_empty() { "/".to_owned() } else { text }
}

impl<T: DeserializeOwned + Send + 'static, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        Self::parse_any_size(read(request, state).await?).await.map(Json)
    }
}

async fn read<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, ApiError> {
    let limit = request.extensions().get::<MaxBody>().copied();
    Bytes::from_request(request, state).await.map_err(|rejected| {
        let status = rejected.status();
        let text = match status {
            StatusCode::PAYLOAD_TOO_LARGE => too_large(limit),
            _ => "The body could not be read".to_owned(),
        };
        ApiError::new(status, text)
    })
}

/// A JSON body that is checked further, by rules whose cost grows with its size. The extractor
/// answers as [`Json`] does.
#[derive(Clone, Debug)]
pub struct Document {
    value: Value,
    bytes: usize,
}

impl Document {
    /// The parsed body.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Checks and converts the body by `rules`; away from the threads that serve if it is large.
    ///
    /// # Errors
    /// Those of the rules, and 503 if too many large bodies wait.
    pub async fn check<T: Send + 'static>(
        self,
        rules: impl FnOnce(Value) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        work_on(self.bytes, move || rules(self.value)).await
    }
}

impl<S: Send + Sync> FromRequest<S> for Document {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let body = read(request, state).await?;
        let bytes = body.len();
        let value = Json::parse_any_size(body).await?;
        Ok(Self { value, bytes })
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
            Err(cause) => ApiError::internal(&cause).into_response(),
        }
    }
}

#[cfg(test)]
mod tests;
