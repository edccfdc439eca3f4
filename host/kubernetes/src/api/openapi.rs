//! `GET /openapi.json`: the description of the API, generated from the table of calls.

use axum::extract::Request;
use axum::response::Response;
use serde_json::json;

use super::routes::TABLE;
use super::{JSON, success};

/// Serves the document. Below the path of an instance, that path is the document's server URL.
pub(super) async fn get(request: Request) -> Response {
    let mut document = TABLE.document();
    let path = super::requested_path(&request).strip_suffix(request.uri().path());
    if let Some(path) = path.filter(|path| !path.is_empty()) {
        document["servers"] = json!([{"url": path}]);
    }
    success(JSON, document.to_string())
}
