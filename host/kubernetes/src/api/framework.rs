//! `/versions`, and the framework's id.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{Uri, header};
use transom_web::ApiError;

use super::paths::{ALIAS, NEUTRAL, VERSION};
use super::{API_SERVICE, Api, JSON, PLAIN, is_alias, success};
use crate::core::command::Command;

/// `GET /versions`: the prefix of the paths.
pub(super) async fn versions(uri: Uri) -> Response {
    let prefix = if is_alias(uri.path()) { ALIAS } else { NEUTRAL };
    let text = format!("{prefix}/{VERSION}");
    ([(header::CONTENT_TYPE, PLAIN), (API_SERVICE, "-")], text).into_response()
}

/// `DELETE /framework`
pub(super) async fn forget(State(api): State<Api>) -> Result<Response, ApiError> {
    api.ask(|reply| Command::ForgetFramework { reply }).await?;
    Ok(success(JSON, ""))
}
