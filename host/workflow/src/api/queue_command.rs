//! `POST /v0/queue_command`: queues a job.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::Value;
use transom_common::error_chain;
use transom_common::trace::TraceContext;
use transom_plugin_host::matcher::Constraint;
use transom_web::{ApiError, Document, Problems};

use super::{Api, plain};
use crate::Settings;
use crate::core::command::Command;
use crate::launch;
use crate::model::{self, Request};

/// The text that upstream returns for a body without a command.
const NO_COMMAND: &str = "Expecting command in queue_command call";

/// Answers `Ok` when the job is stored.
pub(super) async fn post(State(api): State<Api>, body: Document) -> Result<Response, ApiError> {
    let shared = Arc::clone(&api.0);
    let read = body.check(move |body| decode(body, &shared.config)).await?;
    let Some(request) = read else {
        return Ok((StatusCode::BAD_REQUEST, plain(NO_COMMAND)).into_response());
    };
    for [read, ignored] in &request.ignored {
        tracing::info!(
            read,
            ignored,
            "a job sets a field under both of its names; the first name wins"
        );
    }
    check_constraints(&api, &request).await?;
    let request = Box::new(request);
    let trace = TraceContext::current();
    api.ask(|reply| Command::Queue {
        request,
        trace,
        reply,
    })
    .await?;
    Ok(plain("Ok"))
}

/// Parses a body; `None`: it has no command.
fn decode(body: Value, defaults: &Settings) -> Result<Option<Request>, ApiError> {
    let Value::Object(body) = body else {
        return Err(ApiError::invalid_json(&Problems::one("/", "expected an object")));
    };
    let read = model::read(&body, defaults).transpose();
    read.map_err(|problems| ApiError::invalid(&problems))
}

/// Rejects invalid constraints, which no agent could satisfy. If the matcher is unavailable, they
/// are checked at the launch only.
async fn check_constraints(api: &Api, request: &Request) -> Result<(), ApiError> {
    let texts = launch::constraints(&request.spec, &api.0.config);
    if texts.is_empty() {
        return Ok(());
    }
    let own_count = request.spec.attributes.len();
    let conditions: Vec<Constraint> = texts.iter().cloned().map(Constraint::Expression).collect();
    let errors = match api.0.matcher.check(&conditions).await {
        Ok(errors) => errors,
        Err(error) => {
            tracing::warn!(
                error = error_chain(&error),
                "checking a job's constraints failed; the job is queued unchecked"
            );
            return Ok(());
        }
    };
    let mut problems = Problems::default();
    for error in errors {
        let index = error.constraint as usize;
        if index < own_count {
            problems.add(format!("/attributes({index})"), error.message);
        } else {
            let text = texts.get(index).map_or("", String::as_str);
            let message = format!("the configured constraint {text:?}: {}", error.message);
            problems.add("/attributes", message);
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid(&problems))
    }
}
