//! `POST /api/v1/executor` of an agent: the calls of custom executors and the streams of their
//! events. It requires no credentials, because real agents do not authenticate executors by
//! default.

use crate::{
    http::{HttpResult, check_accept, empty, queue_stream, read_call, rejection, reply, stream_response},
    shared::Shared,
    state::{AgentId, validate_executor_call},
    wire::{json as doc, messages},
};
use http::{HeaderMap, Method, StatusCode};
use hyper::body::Incoming;
use serde_json::Value;
use std::{sync::Arc, time::Instant};

/// Answers one call.
pub(super) async fn call(
    shared: &Arc<Shared>,
    agent: &AgentId,
    method: &Method,
    headers: &HeaderMap,
    body: Incoming,
) -> HttpResult {
    let call = read_call(&messages::EXECUTOR_CALL, method, headers, body).await?;
    validate_executor_call(&call).map_err(|why| rejection(StatusCode::BAD_REQUEST, why))?;
    match doc::text(&call, &["type"]) {
        Some("SUBSCRIBE") => {
            check_accept(headers)?;
            subscribe(shared, agent, &call)
        }
        // Real agents ignore the rest of the call.
        Some("HEARTBEAT") => Ok(empty(StatusCode::ACCEPTED)),
        _ => {
            let outcome = shared.with_state(|state| state.executor_call(agent, &call, Instant::now()));
            Ok(reply(&outcome))
        }
    }
}

fn subscribe(shared: &Arc<Shared>, agent: &AgentId, call: &Value) -> HttpResult {
    let subscribed = shared.with_state(|state| state.subscribe_executor(agent, call, Instant::now()));
    let subscribed = subscribed.map_err(|rejection| reply(&rejection))?;
    let owner = Arc::clone(shared);
    let (container, stream_id) = (subscribed.container, subscribed.stream_id);
    let chunks = queue_stream(subscribed.events, move || {
        owner.with_state(|state| state.executor_stream_closed(&container, &stream_id));
    });
    Ok(stream_response("application/json", chunks, shared))
}
