//! `/v2/plugins`: the components of this daemon, in the form of upstream's plugins.
//!
//! Upstream's plugins may answer HTTP requests below their id. Components do not, so each of these
//! requests gets the answer for an unknown plugin. State and commands are on the admin port.

use axum::extract::{RawPathParams, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use transom_plugin_host::shown;
use transom_web::{ApiError, Json};

use super::Api;
use crate::seams::Component;

/// `GET /v2/plugins`
pub(super) async fn list(State(api): State<Api>) -> Response {
    let plugins: Vec<Value> = api.0.policies.components().iter().map(entry).collect();
    Json(json!({"plugins": plugins})).into_response()
}

fn entry(component: &Component) -> Value {
    let mut info = json!({"version": component.version});
    for (key, value) in [("digest", &component.digest), ("summary", &component.summary)] {
        if let Some(value) = value {
            // A component's own text.
            info[key] = json!(shown(value));
        }
    }
    json!({
        "id": component.name,
        "plugin": component.world,
        "implementation": format!("{} {}", component.name, component.version),
        "info": info,
    })
}

/// Any request to a plugin.
pub(super) async fn none(path: RawPathParams) -> ApiError {
    let id = path.iter().next().map_or("", |(_, id)| id);
    ApiError::not_found(format!("No plugin with this pluginId: {id}"))
}
