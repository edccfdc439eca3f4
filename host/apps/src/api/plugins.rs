//! `/v2/plugins`: the components of this daemon, in the form of upstream's plugins.
//!
//! Upstream's plugins may answer HTTP requests below their id. Components do not, so each of these
//! requests gets the answer for an unknown plugin. State and commands are on the admin port.

use std::borrow::Cow;

use axum::extract::{RawPathParams, State};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use transom_plugin_host::printable;
use transom_web::{ApiError, Json};

use super::Api;
use crate::policies::Component;

/// `GET /v2/plugins`
pub(super) async fn list(State(api): State<Api>) -> Response {
    let components = api.0.policies.components();
    let plugins = components.iter().map(Plugin::of);
    Json(PluginList {
        plugins: plugins.collect(),
    })
    .into_response()
}

/// The components of this daemon.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct PluginList<'a> {
    plugins: Vec<Plugin<'a>>,
}

/// A component.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Plugin<'a> {
    /// Its name.
    id: &'a str,
    /// The interface that it implements.
    #[serde(rename = "plugin")]
    world: &'a str,
    /// Its name and version.
    implementation: String,
    info: PluginInfo<'a>,
}

/// More about a component.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct PluginInfo<'a> {
    version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<Cow<'a, str>>,
    /// The description in the component.
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<Cow<'a, str>>,
}

impl<'a> Plugin<'a> {
    fn of(component: &'a Component) -> Self {
        Self {
            id: &component.name,
            world: &component.world,
            implementation: format!("{} {}", component.name, component.version),
            info: PluginInfo {
                version: &component.version,
                // These texts come from the component, so control characters are escaped.
                digest: component.digest.as_deref().map(printable),
                summary: component.summary.as_deref().map(printable),
            },
        }
    }
}

/// Any request to a plugin.
pub(super) async fn none(path: RawPathParams) -> ApiError {
    let id = path.iter().next().map_or("", |(_, id)| id);
    ApiError::not_found(format!("No plugin with this pluginId: {id}"))
}
