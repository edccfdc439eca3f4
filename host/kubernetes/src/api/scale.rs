//! `/{kind}/scale`: the wanted counts.

use axum::extract::{Path, State};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use transom_web::ApiError;

use super::error::above_maximum;
use super::{Api, JSON, PLAIN, document, kind_in_path, number, success};
use crate::core::command::Command;
use crate::kind::Kind;

/// The counts of a kind.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Scale {
    scale: u32,
    running: usize,
}

/// Returns the wanted count and the number of running tasks.
pub(super) async fn get(State(api): State<Api>, Path(kind): Path<String>) -> Result<Response, ApiError> {
    let (kind, view) = (kind_in_path(&kind)?, api.0.views.get());
    Ok(document(&Scale {
        scale: *view.wanted.of(kind),
        running: view.running(kind),
    }))
}

/// Sets the count, and returns the difference to the former count.
pub(super) async fn set(
    State(api): State<Api>,
    Path((kind, text)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let (kind, count) = (kind_in_path(&kind)?, number::parse("count", &text)?);
    let maximum = api.0.max_scale;
    if count > maximum {
        return Err(above_maximum(&number::shortened(&text), maximum));
    }
    let difference = api.ask(|reply| Command::Scale { kind, count, reply }).await?;
    // Upstream's content types.
    let content_type = if kind == Kind::Datastore { PLAIN } else { JSON };
    Ok(success(content_type, difference.to_string()))
}
