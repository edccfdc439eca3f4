//! `/v2/eventSubscriptions`: callback subscribers.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use transom_web::{ApiError, Json};

use super::Api;
use super::query::Query;
use crate::callbacks::{DestinationError, SubscriberError};
use crate::core::command::Origin;

/// The callback subscribers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Subscribers {
    callback_urls: Vec<String>,
}

/// `GET /v2/eventSubscriptions`
pub(super) async fn list(State(api): State<Api>) -> Result<Response, ApiError> {
    let callback_urls = api.lead()?.callbacks.list().await;
    Ok(Json(Subscribers { callback_urls }).into_response())
}

/// `POST /v2/eventSubscriptions?callbackUrl=U`
pub(super) async fn add(State(api): State<Api>, query: Query, origin: Origin) -> Result<Response, ApiError> {
    let url = callback_url(&query)?;
    let event = api.lead()?.callbacks.add(url, &origin.client).await?;
    Ok(Json(event.body).into_response())
}

/// `DELETE /v2/eventSubscriptions?callbackUrl=U`
pub(super) async fn remove(
    State(api): State<Api>,
    query: Query,
    origin: Origin,
) -> Result<Response, ApiError> {
    let url = callback_url(&query)?;
    let event = api.lead()?.callbacks.remove(url, &origin.client).await?;
    Ok(Json(event.body).into_response())
}

fn callback_url(query: &Query) -> Result<&str, ApiError> {
    query.get("callbackUrl").ok_or_else(|| {
        ApiError::bad_request(
            "The parameter callbackUrl is missing: expected the URL that events are posted to",
        )
    })
}

impl From<SubscriberError> for ApiError {
    fn from(error: SubscriberError) -> Self {
        let text = error.to_string();
        match error {
            SubscriberError::Off
            | SubscriberError::TooMany
            | SubscriberError::Destination(DestinationError::NotAllowed { .. }) => {
                Self::new(http::StatusCode::FORBIDDEN, text)
            }
            SubscriberError::Destination(DestinationError::Malformed { .. }) => Self::bad_request(text),
            SubscriberError::Unknown(_) => Self::not_found(text),
            SubscriberError::Store(_) => Self::unavailable(text),
        }
    }
}
