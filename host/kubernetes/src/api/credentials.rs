//! The credentials of the datastore, and the token of the cluster. Every call counts as a change, so the read-only user is rejected,
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
    Ok(unstored(document(&credentials)))
}

/// `GET /server/token`
pub(super) async fn token(State(api): State<Api>) -> Result<Response, ApiError> {
    let token = api.ask(|reply| Command::Token { reply }).await?;
    Ok(unstored(success(PLAIN, token.reveal().to_owned())))
}

fn unstored(mut response: Response) -> Response {
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, no_store);
    response
}

/// `PUT /datastore/credentials`
pub(super) async fn adopt(State(api): State<Api>) -> Result<Response, ApiError> {
    api.ask(|reply| Command::AdoptPassword { reply }).await?;
    Ok(success(PLAIN, ""))
}
