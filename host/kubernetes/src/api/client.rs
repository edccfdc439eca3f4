//! The calls for clients of the orchestrator: its client configuration and its version.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::Uri;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use transom_web::ApiError;

use super::{Api, PLAIN, document, is_alias, success};
use crate::kind::Kind;

/// `GET /server/config`: the client configuration. While there is none, the neutral path answers 503,
/// and the alias an empty text without the header `Api-Service`, as in upstream.
pub(super) async fn config(State(api): State<Api>, uri: Uri) -> Result<Response, ApiError> {
    let view = api.0.views.get();
    if let Some(config) = &view.client_config {
        return Ok(success(PLAIN, config.to_string()));
    }
    if is_alias(uri.path()) {
        return Ok(().into_response());
    }
    let reason = view.waiting.iter().find(|waiting| waiting.kind != Kind::Agent);
    let reason = reason.map_or("", |waiting| waiting.reason.as_str());
    let text = format!("There is no client configuration yet, because no server has written one. {reason}");
    Err(ApiError::unavailable(text.trim_end()))
}

/// The version of the original, whose API the alias has; its clients compare it.
const ORIGINAL_VERSION: &str = "v0.6.0";

/// The versions on the neutral path.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Versions<'a> {
    version: Option<&'a str>,
    framework: &'static str,
}

/// The versions in upstream's shape.
#[derive(JsonSchema, Serialize)]
pub(super) struct NodeVersions<'a> {
    #[serde(rename = "M3SVersion")]
    own: OwnVersion,
    #[serde(rename = "K3SVersion")]
    nodes: Option<Vec<NodeVersion<'a>>>,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct OwnVersion {
    git_version: &'static str,
    /// Always empty, because builds are reproducible and contain no date.
    build_date: &'static str,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "PascalCase")]
struct NodeVersion<'a> {
    node_name: &'a str,
    node_info: &'a Value,
}

/// `GET /server/version`
pub(super) async fn version(State(api): State<Api>, uri: Uri) -> Response {
    let view = api.0.views.get();
    let orchestrator = view.orchestrator.as_deref();
    if !is_alias(uri.path()) {
        return document(&Versions {
            version: orchestrator.map(|orchestrator| orchestrator.version.as_str()),
            framework: env!("CARGO_PKG_VERSION"),
        });
    }
    let nodes = orchestrator.map(|orchestrator| {
        let nodes = orchestrator.nodes.iter().map(|node| NodeVersion {
            node_name: &node.name,
            node_info: &node.info,
        });
        nodes.collect::<Vec<_>>()
    });
    document(&NodeVersions {
        own: OwnVersion {
            git_version: ORIGINAL_VERSION,
            build_date: "",
        },
        nodes: nodes.filter(|nodes| !nodes.is_empty()),
    })
}
