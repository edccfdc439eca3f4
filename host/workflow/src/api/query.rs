//! Query parameters.

use std::collections::BTreeMap;
use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::request::Parts;
use transom_web::ApiError;

/// The parameters; the last one of several with the same name.
#[derive(Debug, Default)]
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A number up to `max`.
    pub(super) fn number(&self, name: &str, max: u64) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        text.parse()
            .ok()
            .filter(|number| *number <= max)
            .map(Some)
            .ok_or_else(|| {
                ApiError::bad_request(format!(
                    "The parameter '{name}' is '{text}'; expected a number from 0 to {max}"
                ))
            })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let read = axum::extract::Query::<BTreeMap<String, String>>::from_request_parts(parts, state).await;
        Ok(Self(read.map(|query| query.0).unwrap_or_default()))
    }
}
