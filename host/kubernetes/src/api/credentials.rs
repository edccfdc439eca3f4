//! The credentials of the datastore. Every call counts as a change, so the read-only user is rejected,
//! and the audit log names the caller.

use axum::extract::State;
use axum::response::Response;
use http::{HeaderValue, header};
use transom_web::ApiError;

use super::{Api, PLAIN, document, success};
use crate::core::command::Command;

/// `GET /datastore/credentials`
pub(super) async fn get(State(api): State<Api>) -> Result<Response, ApiError> {
    let credentials = api.ask(|reply| Command::Credentials { reply }).await?;
    let mut response = document(&credentials);
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, no_store);
    Ok(response)
}

/// `PUT /datastore/credentials`
pub(super) async fn adopt(State(api): State<Api>) -> Result<Response, ApiError> {
    api.ask(|reply| Command::AdoptPassword { reply }).await?;
    Ok(success(PLAIN, ""))
}
